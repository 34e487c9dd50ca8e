"""What can be taken away from an example, and by which operator unless the caller says."""

import torch
from jaxtyping import Int
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.models.rows import DRAWN, OPERATORS, RENORMALISING, VALUE_ZERO, filler
from attnprobe.target import ResolvedTarget


def default_operator(model: Model) -> str:
    """The removal operator of this model: [MASK] where its tokenizer has one, else the mean embedding."""
    if not model.fillers:
        raise InputError(
            f"{model.name} has no embedding that could stand in for a token; removal does not apply to it yet"
        )
    return next(iter(model.fillers))


def checked_operator(model: Model, operator: str | None, *, draws: bool = False) -> str:
    """The operator, or this model's default for None; `InputError` for one that does not exist or that it lacks.

    draws: whether the caller can use one that draws what stands in for each token.
    """
    if operator is None:
        return default_operator(model)
    if operator not in OPERATORS:
        raise InputError(f"no removal operator is named '{operator}'; {nearest(operator, OPERATORS)}")
    needed = "pad" if operator == "pad_mask" else operator
    if needed not in (*RENORMALISING, VALUE_ZERO) and not (draws and operator in DRAWN):
        filler(model.fillers, needed, model.name)
    return operator


def units(example: Example, target: ResolvedTarget) -> Int[Tensor, " unit"]:
    """Indices of the tokens that may be taken away: not special, not hidden, not behind what the answer can see."""
    last = example.n_tokens if target.last_seen is None else target.last_seen + 1
    index = [i for i, special in enumerate(example.is_special) if not special and i < last]
    if not index:
        raise InputError("the input has only special tokens; there is nothing to take away")
    seen = [i for i in index if not example.hidden[i]]
    if not seen:
        raise InputError("the attention mask hides every token that could be taken away; let it show at least one")
    return torch.tensor(seen)
