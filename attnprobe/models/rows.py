"""Rows: the inputs that a question wants evaluated, said compactly and made real only when they run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.attention.seam import Edit
from attnprobe.errors import InputError, nearest
from attnprobe.example import Example

# What can stand in for a token that is taken away. The first five leave the key in the softmax (content);
# the last two take it out, so that the other weights grow (renormalising).
CONTENT = ("mask", "pad", "unk", "mean", "zero")
RENORMALISING = ("attention_mask", "delete")
OPERATORS = (*CONTENT, *RENORMALISING)


@dataclass(frozen=True, eq=False)
class Row:
    """One input to evaluate: an example, with tokens taken away, other embeddings, or edits of its attention.

    kept: which tokens stay; the others are removed by `operator` ("mask", "pad", "unk", "mean", "zero":
    that embedding in their place; "attention_mask": nobody may look at them; "delete": they are not there).
    embeddings: used in place of the embedding look-up. edits: run at the seam, for this row alone.
    """

    example: Example
    kept: Bool[Tensor, " token"] | None = None
    operator: str = "mask"
    embeddings: Float[Tensor, "token d_model"] | None = None
    edits: tuple[Edit, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise InputError(f"no removal operator is named '{self.operator}'; {nearest(self.operator, OPERATORS)}")
        if self.kept is not None and self.operator == "delete" and not bool(self.kept.any()):
            raise InputError(
                "every token would be deleted; keep at least one, or use a content operator such as 'mean'"
            )

    @property
    def length(self) -> int:
        """Number of tokens that the model will see."""
        deletes = self.kept is not None and self.operator == "delete"
        return int(self.kept.sum()) if deletes and self.kept is not None else self.example.n_tokens

    @property
    def whole(self) -> bool:
        """Whether no token is taken away."""
        return self.kept is None or bool(self.kept.all())

    def key(self) -> tuple[object, ...]:
        """Equal for rows that give equal answers."""
        gone = None if self.kept is None or self.whole else (self.operator, self.kept.cpu().numpy().tobytes())
        # Byte for byte: rounded to float32, two float64 rows a small step apart would be taken for one.
        vectors = None if self.embeddings is None else _bytes(self.embeddings)
        return (id(self.example), gone, vectors, tuple(id(edit) for edit in self.edits))


def _bytes(vectors: Tensor) -> bytes:
    return vectors.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def filler(fillers: Mapping[str, Tensor], name: str, model_name: str) -> Tensor:
    """The embedding that stands in for a removed token, [d_model]; `InputError` where this model has none."""
    if name not in fillers:
        raise InputError(f"{model_name} has no '{name}' embedding to put in a token's place; {nearest(name, fillers)}")
    return fillers[name]


def fill(row: Row, embeddings: Float[Tensor, "token d_model"], vector: Float[Tensor, " d_model"]) -> Row:
    """A content removal made real: the row with `vector` in the place of every removed token."""
    if row.kept is None:
        return row
    kept = row.kept.to(embeddings.device)
    filled = torch.where(kept[:, None], embeddings, vector.to(embeddings.dtype))
    return replace(row, embeddings=filled, kept=None)
