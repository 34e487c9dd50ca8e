"""A small transformer on our attention: an encoder that classifies, a decoder that predicts the next token.

Both take embeddings, so that a question may change them: `network(network.token_embedding(ids))`.
There is no dropout: these networks are read, and trained on small tasks.
"""

from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.attention.masks import causal_mask, padding_mask
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.positions import Positions
from attnprobe.attention.positions.named import as_positions
from attnprobe.errors import InputError, nearest

Norm = Literal["pre", "post"]


class Block(nn.Module):
    """Attention, then an MLP on each token, both added to the residual stream.

    norm="pre": x + f(LN(x)) (GPT-2); norm="post": LN(x + f(x)) (Vaswani et al. 2017, BERT). attention: options of
    `MultiHeadAttention` (positions, mechanism, …).
    """

    def __init__(self, d_model: int, n_heads: int, d_mlp: int, norm: str = "pre", **attention: Any) -> None:
        super().__init__()
        if norm not in get_args(Norm):
            raise InputError(f"a block has norm 'pre' or 'post', got '{norm}'; {nearest(norm, get_args(Norm))}")
        self.norm = norm
        self.attention = MultiHeadAttention(d_model, n_heads, **attention)
        self.attention_norm = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_mlp), nn.GELU(), nn.Linear(d_mlp, d_model))
        self.mlp_norm = nn.LayerNorm(d_model)

    def forward(
        self, x: Float[Tensor, "batch token d_model"], visible: Tensor | None = None
    ) -> Float[Tensor, "batch token d_model"]:
        """The residual stream after this block; visible: boolean mask, True = may look."""
        if self.norm == "pre":
            x = x + self.attention(self.attention_norm(x), visible=visible)
            return x + self.mlp(self.mlp_norm(x))
        x = self.attention_norm(x + self.attention(x, visible=visible))
        return self.mlp_norm(x + self.mlp(x))


class Transformer(nn.Module):
    """Embeddings with positions, through blocks; what the encoder and the decoder have in common.

    positions: a scheme, or its name (default: a learned table of max_length rows). mechanism: of every attention.
    """

    stack = "encoder"

    def __init__(
        self,
        n_vocabulary: int,
        *,
        d_model: int = 32,
        n_heads: int = 4,
        n_layers: int = 2,
        d_mlp: int | None = None,
        max_length: int = 64,
        norm: str = "pre",
        positions: "Positions | str | None" = None,
        mechanism: "str | Mechanism | None" = None,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.token_embedding = nn.Embedding(n_vocabulary, d_model)
        self.positions = as_positions(positions, n_heads=n_heads, d_model=d_model, max_length=max_length)
        inside = {"positions": self.positions.inside, "mechanism": mechanism}
        self.blocks = nn.ModuleList(
            Block(d_model, n_heads, d_mlp or 4 * d_model, norm, **inside) for _ in range(n_layers)
        )
        # Pre-LN leaves the stream unnormalised at its end; post-LN has normalised it already.
        self.final_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def stream(
        self, embeddings: Float[Tensor, "batch token d_model"], visible: Tensor | None
    ) -> Float[Tensor, "batch token d_model"]:
        """The residual stream after the last block (and the final norm); visible: boolean mask, True = may look."""
        length = embeddings.shape[1]
        if length > self.max_length:
            raise InputError(
                f"{length} tokens are more than the {self.max_length} positions of this model; shorten the input"
            )
        x = self.positions.embed(embeddings)
        for block in self.blocks:
            x = block(x, visible)
        return self.final_norm(x)


class TransformerClassifier(Transformer):
    """Encoder whose first token is read out: logits = W x_0 + b."""

    def __init__(self, n_vocabulary: int, n_classes: int, **sizes: Any) -> None:
        super().__init__(n_vocabulary, **sizes)
        self.classifier = nn.Linear(self.token_embedding.embedding_dim, n_classes)

    def forward(
        self, embeddings: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch label"]:
        """Logits of each class; is_token: False at tokens that nobody may look at (padding)."""
        visible = None if is_token is None else padding_mask(is_token)
        return self.classifier(self.stream(embeddings, visible)[:, 0])


class TransformerLanguageModel(Transformer):
    """Causal decoder: at every position the logits of the next token."""

    stack = "decoder"

    def __init__(self, n_vocabulary: int, **sizes: Any) -> None:
        super().__init__(n_vocabulary, **sizes)
        self.unembedding = nn.Linear(self.token_embedding.embedding_dim, n_vocabulary, bias=False)

    def forward(
        self, embeddings: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch token vocabulary"]:
        """Logits of the next token; is_token: False at tokens that nobody may look at (padding)."""
        visible = causal_mask(embeddings.shape[1], device=embeddings.device)[None, None]
        if is_token is not None:
            visible = visible & padding_mask(is_token)
        return self.unembedding(self.stream(embeddings, visible))


def next_token_loss(logits: Float[Tensor, "batch token vocabulary"], ids: Tensor) -> Float[Tensor, ""]:
    """Mean negative log-probability (nats) of each token given those before it; ids [batch token]."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
