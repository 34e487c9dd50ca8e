"""Rows: the inputs that a question wants evaluated, said compactly and made real only when they run."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.attention.seam import Edit
from attnprobe.errors import InputError, nearest
from attnprobe.example import Example

# How a token is taken away. CONTENT leaves its key in the softmax: FIXED puts one embedding in the place of every
# token, DRAWN an embedding of its own in each, VALUE_ZERO zeroes its values in every layer. RENORMALISING takes the key
# out, so that the weights on other tokens grow.
FIXED = ("mask", "pad", "unk", "mean", "zero")
DRAWN = ("resample", "infill")
FILLING = (*FIXED, *DRAWN)
VALUE_ZERO = "value_zero"
CONTENT = (*FILLING, VALUE_ZERO)
RENORMALISING = ("attention_mask", "pad_mask", "delete")
OPERATORS = (*CONTENT, *RENORMALISING)


@dataclass(frozen=True, eq=False)
class StandIns:
    """What stands in for each token of an example where it is taken away: an entry of a table that rows share."""

    table: Float[Tensor, "entry d_model"]
    index: Int[Tensor, " token"]

    @property
    def vectors(self) -> Float[Tensor, "token d_model"]:
        """An embedding for each token."""
        return self.table[self.index.to(self.table.device)]

    def digest(self, gone: Bool[Tensor, " token"]) -> bytes:
        """Equal where the same embeddings stand in for the tokens that are gone."""
        return hashlib.blake2b(_bytes(self.table[self.index[gone].to(self.table.device)]), digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class Row:
    """One input to evaluate: an example, with tokens taken away, other embeddings, or edits of its attention.

    kept: which tokens stay; the others are removed by `operator` ("mask", "pad", "unk", "mean", "zero": that embedding
    in their place; "resample", "infill": those of `stand_ins`; "value_zero": their values are 0 in every layer;
    "attention_mask": nobody may look at them; "pad_mask": that, and the pad embedding in their place; "delete": they
    are not there). embeddings: used in place of the embedding look-up. edits: run at the seam, for this row alone.
    """

    example: Example
    kept: Bool[Tensor, " token"] | None = None
    operator: str = "mask"
    embeddings: Float[Tensor, "token d_model"] | None = None
    edits: tuple[Edit, ...] = field(default=())
    stand_ins: StandIns | None = None

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise InputError(f"no removal operator is named '{self.operator}'; {nearest(self.operator, OPERATORS)}")
        if self.kept is not None and self.operator == "delete" and not bool(self.kept.any()):
            raise InputError(
                "every token would be deleted; keep at least one, or use a content operator such as 'mean'"
            )
        self._check_stand_ins()

    def _check_stand_ins(self) -> None:
        given = self.stand_ins
        if given is not None and self.operator not in DRAWN:
            raise InputError(f"stand_ins go with an operator that draws ({', '.join(DRAWN)}), got '{self.operator}'")
        if given is None and self.operator in DRAWN and not self.whole:
            raise InputError(f"'{self.operator}' puts an embedding of its own in each token's place; give stand_ins=…")
        if given is not None and len(given.index) != self.example.n_tokens:
            raise InputError(f"stand_ins are one a token ({self.example.n_tokens}), got {len(given.index)}")

    @property
    def length(self) -> int:
        """Number of tokens that the model will see."""
        deletes = self.kept is not None and self.operator == "delete"
        return int(self.kept.sum()) if deletes and self.kept is not None else self.example.n_tokens

    @property
    def whole(self) -> bool:
        """Whether no token is taken away."""
        return self.kept is None or bool(self.kept.all())

    @property
    def fills(self) -> bool:
        """Whether other embeddings stand in for the tokens that are taken away."""
        return not self.whole and self.operator in (*FILLING, "pad_mask")

    def need_inputs(self) -> None:
        """`InputError` where the removal is an edit of attention, which no change of the inputs can stand for."""
        if self.operator == VALUE_ZERO and not self.whole:
            raise InputError(
                f"'{VALUE_ZERO}' acts on attention, not on inputs; ask through model.targets(rows, target)"
            )

    def key(self) -> tuple[object, ...]:
        """Equal for rows that give equal answers."""
        gone = None if self.kept is None or self.whole else (self.operator, *self._gone(self.kept.cpu()))
        # Byte for byte: rounded to float32, two float64 rows a small step apart would be taken for one.
        vectors = None if self.embeddings is None else _bytes(self.embeddings)
        return (id(self.example), gone, vectors, tuple(id(edit) for edit in self.edits))

    def _gone(self, kept: Tensor) -> tuple[bytes, ...]:
        """Which tokens are gone, and what stands in for them where that is drawn."""
        which = kept.numpy().tobytes()
        return (which,) if self.stand_ins is None else (which, self.stand_ins.digest(~kept))


def _bytes(vectors: Tensor) -> bytes:
    return vectors.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def filler(fillers: Mapping[str, Tensor], name: str, model_name: str) -> Tensor:
    """The embedding that stands in for a removed token, [d_model]; `InputError` where this model has none."""
    if name in DRAWN:
        raise InputError(
            f"'{name}' draws what stands in for a token, which only leave_one_out and occlusion do; use one of "
            f"{', '.join(fillers) or 'the others'} here"
        )
    if name not in fillers:
        raise InputError(f"{model_name} has no '{name}' embedding to put in a token's place; {nearest(name, fillers)}")
    return fillers[name]


def stand_in(
    row: Row, fillers: Mapping[str, Tensor], model_name: str
) -> Float[Tensor, " d_model"] | Float[Tensor, "token d_model"]:
    """What stands in for the removed tokens of a row: one embedding for all, or one for each."""
    if row.stand_ins is not None:
        return row.stand_ins.vectors
    return filler(fillers, "pad" if row.operator == "pad_mask" else row.operator, model_name)


def fill(
    row: Row,
    embeddings: Float[Tensor, "token d_model"],
    vector: Float[Tensor, " d_model"] | Float[Tensor, "token d_model"],
) -> Row:
    """A removal made real as far as it fills: `vector` in the place of every removed token.

    Behind "pad_mask" the row still says which tokens nobody may look at.
    """
    if row.kept is None:
        return row
    kept = row.kept.to(embeddings.device)
    filled = torch.where(kept[:, None], embeddings, vector.to(embeddings))
    if row.operator == "pad_mask":
        return replace(row, embeddings=filled, operator="attention_mask")
    return replace(row, embeddings=filled, kept=None, stand_ins=None)
