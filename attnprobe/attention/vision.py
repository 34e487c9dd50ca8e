"""Vision Transformer on our attention (Dosovitskiy et al. 2021): a picture is a sentence, its patches are the words.

pictures  [batch channel height width]      cut into n = (height/P)(width/P) patches, row by row
patches   [batch n channel·P·P]             each a vector of its pixels
x_0 = [CLS],  x_j = patch_j W_E + b_E       [batch n+1 d_model]: `embed`, what attributions work on
x + positions → blocks → LN                 every token looks at every token; `stream`
logits = x_0 W + b                          the class is read from [CLS] alone

Positions are learned (a row a token), "grid" (2-D sinusoidal: half of the width says the row, half the column; [CLS]
gets none) or "none": then the network sees a bag of patches, and shuffling them changes nothing.
"""

from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.attention.masks import padding_mask
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.positions.learned import LearnedPositions
from attnprobe.attention.positions.sinusoidal import sinusoidal_table
from attnprobe.attention.transformer import Block
from attnprobe.errors import InputError, nearest

PatchPositions = Literal["learned", "grid", "none"]


def to_patches(pictures: Float[Tensor, "batch channel height width"], side: int) -> Float[Tensor, "batch patch pixel"]:
    """Squares of side x side pixels, row by row; a patch is its channels one after another, each row by row.

    >>> to_patches(torch.arange(16.0).reshape(1, 1, 4, 4), 2)[0, 1].tolist()
    [2.0, 3.0, 6.0, 7.0]
    """
    height, width = pictures.shape[-2:]
    if side < 1 or height % side or width % side:
        raise InputError(f"patches of {side} x {side} pixels do not tile {height} x {width}; choose a divisor of both")
    grid = pictures.unflatten(3, (-1, side)).unflatten(2, (-1, side))  # [batch channel row y column x]
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def grid_positions(n_rows: int, n_columns: int, d_model: int) -> Float[Tensor, "patch d_model"]:
    """2-D sinusoidal positions, row by row: [PE(row), PE(column)], each of half the width.

    >>> table = grid_positions(2, 3, 8)
    >>> torch.equal(table[1, :4], table[2, :4]), torch.equal(table[1, 4:], table[4, 4:])
    (True, True)
    """
    if d_model % 4:
        raise InputError(f"2-D positions need a width divisible by 4 (two halves of pairs), got {d_model}")
    rows, columns = (sinusoidal_table(n, d_model // 2, base=100.0) for n in (n_rows, n_columns))
    return torch.cat([rows.repeat_interleave(n_columns, 0), columns.repeat(n_rows, 1)], -1)


class PictureEncoder(nn.Module):
    """Patches to the residual stream: embedding, positions, blocks; with or without a [CLS] token in front.

    size: height and width in pixels; side: of a patch. mixing: False lets every token look at itself alone. dropout: on
    the embeddings and on what each block adds, in training only; weights are never dropped, so those that are captured
    are those that were used. mechanism: of every attention.
    """

    stack = "vision"

    def __init__(
        self,
        size: tuple[int, int],
        side: int,
        *,
        n_channels: int = 1,
        d_model: int = 32,
        n_heads: int = 4,
        n_layers: int = 2,
        d_mlp: int | None = None,
        positions: str = "learned",
        class_token: bool = True,
        mixing: bool = True,
        dropout: float = 0.0,
        mechanism: "str | Mechanism | None" = None,
    ) -> None:
        super().__init__()
        if positions not in get_args(PatchPositions):
            known = get_args(PatchPositions)
            raise InputError(
                f"positions of patches are {', '.join(known)}, got '{positions}'; {nearest(positions, known)}"
            )
        to_patches(torch.zeros(1, 1, *size), side)  # refuses what does not tile
        self.side, self.grid, self.picture_shape = side, (size[0] // side, size[1] // side), (n_channels, *size)
        self.special_tokens = ("[CLS]",) if class_token else ()  # those before the patches
        n_patches = self.grid[0] * self.grid[1]
        self.fixed_length = n_patches + class_token  # of the input of `stream`, in tokens
        self.mixing = mixing
        self.patch_embedding = nn.Linear(n_channels * side * side, d_model)
        self.class_embedding = nn.Parameter(0.02 * torch.randn(d_model)) if class_token else None
        self.positions = LearnedPositions(self.fixed_length, d_model) if positions == "learned" else None
        table = grid_positions(*self.grid, d_model).float() if positions == "grid" else torch.zeros(n_patches, d_model)
        self.register_buffer("table", torch.cat([torch.zeros(int(class_token), d_model), table]), persistent=False)
        inside: dict[str, Any] = {"mechanism": mechanism}
        self.blocks = nn.ModuleList(Block(d_model, n_heads, d_mlp or 4 * d_model, **inside) for _ in range(n_layers))
        self.final_norm, self.dropout = nn.LayerNorm(d_model), nn.Dropout(dropout)

    def embed(self, pictures: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch token d_model"]:
        """Embeddings of [CLS] (where there is one) and of the patches, before positions are added."""
        patches = self.patch_embedding(to_patches(pictures, self.side))
        if self.class_embedding is None:
            return patches
        return torch.cat([self.class_embedding.expand(len(patches), 1, -1), patches], 1)

    def stream(
        self, embeddings: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch token d_model"]:
        """The residual stream behind the last block and the norm; is_token: False at tokens nobody may look at."""
        if embeddings.shape[1] != self.fixed_length:
            raise InputError(
                f"this network reads {self.fixed_length} tokens ({self.grid[0]} x {self.grid[1]} patches"
                f"{'' if self.class_embedding is None else ' and [CLS]'}), got {embeddings.shape[1]}"
            )
        x = embeddings + (self.get_buffer("table") if self.positions is None else self.positions(self.fixed_length))
        visible = None if self.mixing else torch.eye(self.fixed_length, dtype=torch.bool, device=x.device)[None, None]
        if is_token is not None:
            visible = padding_mask(is_token) if visible is None else visible & padding_mask(is_token)
        x = self.dropout(x)
        for block in self.blocks:
            x = x + self.dropout(block(x, visible) - x) if self.training else block(x, visible)
        return self.final_norm(x)


class VisionTransformer(PictureEncoder):
    """Pictures to classes; called with embeddings, so that questions may change them: `network(network.embed(p))`."""

    def __init__(self, size: tuple[int, int], side: int, n_classes: int, **sizes: Any) -> None:
        super().__init__(size, side, class_token=True, **sizes)
        self.classifier = nn.Linear(self.patch_embedding.out_features, n_classes)

    def forward(
        self, embeddings: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch label"]:
        """Logits of each class, read from [CLS]; is_token: False at tokens that nobody may look at."""
        return self.classifier(self.stream(embeddings, is_token)[:, 0])
