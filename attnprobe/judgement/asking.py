"""What the judgement is asked with: a model, an input and a target in any form, and a map of its tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models import load
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget, as_target

# One score a token: what a method said, a tensor, or numbers.
Map = Attribution | Tensor | Sequence[float]


def read(model: Any, example: Any, target: Any) -> tuple[Model, Example, ResolvedTarget]:
    """The three as the judgement takes them; target: None for what the model predicts, a label, or a `Target`."""
    model = load(model)
    example = example if isinstance(example, Example) else model.example(example)
    return model, example, target if isinstance(target, ResolvedTarget) else model.resolve(example, as_target(target))


def scores_of(given: Map, example: Example) -> Float[Tensor, " token"]:
    """One finite number a token; `InputError` for anything else."""
    scores = torch.as_tensor(given.scores if isinstance(given, Attribution) else given).detach().cpu()
    if tuple(scores.shape) != (example.n_tokens,):
        raise InputError(f"a map has one score a token ({example.n_tokens},), got {tuple(scores.shape)}")
    if scores.is_complex():
        raise InputError("a map has real scores, got complex ones; give their size or their real part")
    if not bool(torch.isfinite(scores.double()).all()):
        raise InputError("a map has finite scores, got NaN or infinity; leave such a map out")
    return scores.float() if not scores.is_floating_point() else scores


def check_units(given: Int[Tensor, " known"], wanted: Int[Tensor, " unit"]) -> None:
    """`InputError` where effects were measured on other tokens than those of this prediction."""
    if given.tolist() != wanted.tolist():
        raise InputError(
            f"the effects are of the tokens {given.tolist()}, those of this prediction are {wanted.tolist()}; give "
            "effects of the same example and target, or none"
        )


def names(operators: Sequence[str] | str) -> tuple[str, ...]:
    """Operators, each once; a single name is one of them."""
    return (operators,) if isinstance(operators, str) else tuple(dict.fromkeys(operators))


def check_data(data: Any) -> None:
    """`InputError` for data that is no list of texts to draw tokens from."""
    if data is None:
        return
    if isinstance(data, str | bytes | Mapping) or not hasattr(data, "__len__") or len(data) == 0:
        raise InputError(f"data is a list of at least one text to draw tokens from, got {data!r}")
