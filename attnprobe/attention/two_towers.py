"""Words that look at a picture: two towers, joined by cross-attention from words to patches.

As in Lu et al. 2019 and Tan & Bansal 2019, with one direction left out: the picture does not look at the words.

picture tower   p = stream(patches)                                     [batch patch d_model]      self-attention
word layer      w ← w + self(LN w)           words look at words        [batch word word]
                w ← w + cross(LN w, p)       words look at patches      [batch word patch]         the map to look at
                w ← w + MLP(LN w)
answer          logits = LN(w_0) W + b       read from the first word, [CLS]

Where patches mix in the picture tower, the patch that a word looks at need not be the one that the information came
from. `mixing=False` keeps them apart: each looks at itself alone.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.attention.masks import padding_mask
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.positions.learned import LearnedPositions
from attnprobe.attention.vision import PictureEncoder
from attnprobe.errors import InputError
from attnprobe.site import Kind


class LookingBlock(nn.Module):
    """Self-attention, then cross-attention to a context, then an MLP; all pre-norm and added to the stream."""

    def __init__(self, d_model: int, n_heads: int, d_mlp: int) -> None:
        super().__init__()
        self.attention, self.crossing = MultiHeadAttention(d_model, n_heads), MultiHeadAttention(d_model, n_heads)
        self.attention_norm, self.crossing_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_mlp), nn.GELU(), nn.Linear(d_mlp, d_model))
        self.mlp_norm = nn.LayerNorm(d_model)

    def forward(
        self,
        x: Float[Tensor, "batch word d_model"],
        context: Float[Tensor, "batch patch d_model"],
        *,
        visible: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> Float[Tensor, "batch word d_model"]:
        """The stream after this block; visible: which words, seen: which patches may be looked at (True = may)."""
        x = x + self.attention(self.attention_norm(x), visible=visible)
        x = x + self.crossing(self.crossing_norm(x), context, visible=seen)
        return x + self.mlp(self.mlp_norm(x))


class TwoTowers(nn.Module):
    """A question in words about a picture, answered by one of n_answers; both towers have the width d_model.

    mixing: False keeps the patches of the picture tower apart (so do vision_layers=0): then what is said of a patch can
    reach the words by their cross-attention to this patch alone.
    """

    def __init__(
        self,
        n_vocabulary: int,
        n_answers: int,
        size: tuple[int, int],
        side: int,
        *,
        n_channels: int = 3,
        d_model: int = 32,
        n_heads: int = 2,
        vision_layers: int = 1,
        text_layers: int = 2,
        max_length: int = 16,
        positions: str = "learned",
        mixing: bool = True,
    ) -> None:
        super().__init__()
        self.max_length = max_length  # of a question, in words
        self.vision = PictureEncoder(
            size,
            side,
            n_channels=n_channels,
            d_model=d_model,
            n_heads=n_heads,
            n_layers=vision_layers,
            positions=positions,
            class_token=False,
            mixing=mixing,
        )
        self.token_embedding, self.positions = (
            nn.Embedding(n_vocabulary, d_model),
            LearnedPositions(max_length, d_model),
        )
        self.blocks = nn.ModuleList(LookingBlock(d_model, n_heads, 4 * d_model) for _ in range(text_layers))
        self.final_norm, self.classifier = nn.LayerNorm(d_model), nn.Linear(d_model, n_answers)

    def answer(
        self,
        words: Float[Tensor, "batch word d_model"],
        patches: Float[Tensor, "batch patch d_model"],
        is_word: Bool[Tensor, "batch word"] | None = None,
        is_patch: Bool[Tensor, "batch patch"] | None = None,
    ) -> Float[Tensor, "batch answer"]:
        """Logits from embeddings of both sides, before positions; is_word, is_patch: False where nobody may look."""
        context = self.vision.stream(patches, is_patch)
        x = words + self.positions(words.shape[1])
        visible, seen = (None if there is None else padding_mask(there) for there in (is_word, is_patch))
        for block in self.blocks:
            x = block(x, context, visible=visible, seen=seen)
        return self.classifier(self.final_norm(x[:, 0]))

    def forward(
        self,
        ids: Int[Tensor, "batch word"],
        pictures: Float[Tensor, "picture channel height width"],
        is_word: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch answer"]:
        """Logits of each answer to a question (ids, [CLS] first) about a picture; is_word: False at padding."""
        if len(ids) != len(pictures):
            raise InputError(f"every question has its picture, got {len(ids)} questions and {len(pictures)} pictures")
        return self.answer(self.token_embedding(ids), self.vision.embed(pictures), is_word)

    def locate(self, module: nn.Module, cross: bool) -> tuple[str, Kind, str]:
        """Where an attention of this network is, for `Tape(locate=network.locate)`: stack "vision" or "text"."""
        path = next((path for path, known in self.named_modules() if known is module), "")
        return "vision" if path.startswith("vision.") else "text", "cross" if cross else "self", path


class PictureAsked(nn.Module):
    """Two towers with the question held fixed: patches are the tokens, `network(patch embeddings, is_patch)`.

    This is the shape that `OwnModel` asks, so that attributions say which patches an answer rests on.
    """

    def __init__(self, towers: TwoTowers, ids: Int[Tensor, " word"]) -> None:
        super().__init__()
        self.towers, self.fixed_length, self.grid = towers, towers.vision.fixed_length, towers.vision.grid
        self.picture_shape, self.special_tokens = towers.vision.picture_shape, towers.vision.special_tokens
        self.register_buffer("ids", ids, persistent=False)

    def embed(self, pictures: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch patch d_model"]:
        """Embeddings of the patches, before positions are added."""
        return self.towers.vision.embed(pictures)

    def forward(
        self, embeddings: Float[Tensor, "batch patch d_model"], is_token: Bool[Tensor, "batch patch"] | None = None
    ) -> Float[Tensor, "batch answer"]:
        """Logits of each answer to the question; is_token: False at patches that nobody may look at."""
        words = self.towers.token_embedding(self.get_buffer("ids")).expand(len(embeddings), -1, -1)
        return self.towers.answer(words, embeddings, is_patch=is_token)

    def locate(self, module: nn.Module, cross: bool) -> tuple[str, Kind, str]:
        """As the towers say, with the path from here."""
        stack, kind, path = self.towers.locate(module, cross)
        return stack, kind, f"towers.{path}"


class QuestionAsked(nn.Module):
    """Two towers with the picture held fixed: words are the tokens, `network(word embeddings, is_word)`."""

    axis = "target"  # the words are the queries of the cross-attention, not its keys

    def __init__(self, towers: TwoTowers, picture: Float[Tensor, "channel height width"]) -> None:
        super().__init__()
        self.towers, self.token_embedding = towers, towers.token_embedding
        self.max_length = towers.max_length
        self.register_buffer("picture", picture, persistent=False)

    def forward(
        self, embeddings: Float[Tensor, "batch word d_model"], is_token: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch answer"]:
        """Logits of each answer about the picture; is_token: False at words that nobody may look at."""
        patches = self.towers.vision.embed(self.get_buffer("picture")[None])
        return self.towers.answer(embeddings, patches.expand(len(embeddings), -1, -1), is_word=is_token)

    def locate(self, module: nn.Module, cross: bool) -> tuple[str, Kind, str]:
        """As the towers say, with the path from here."""
        stack, kind, path = self.towers.locate(module, cross)
        return stack, kind, f"towers.{path}"
