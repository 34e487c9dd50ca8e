"""Paths from a baseline to the input: where they begin, how many steps they take, whether the scores add up."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.models.removal import default_operator
from attnprobe.models.rows import Row, fill, filler

# The name of a filler, vectors of the caller, or several of them; None: what removal puts in a token's place.
Baseline = str | Tensor | Sequence[str | Tensor] | None
# A change of the target below this is taken for none: gaps are then judged by themselves.
NO_CHANGE = 1e-3


def several(baseline: Baseline) -> list[str | Tensor | None]:
    """The baselines one by one; `InputError` for an empty list."""
    if baseline is None or isinstance(baseline, str | Tensor):
        return [baseline]
    if not baseline:
        raise InputError("an empty list names no baseline; give the name of a filler such as 'mean', or a tensor")
    return list(baseline)


def n_baselines(options: Mapping[str, Any]) -> int:
    """How many baselines a method's options ask for."""
    return len(several(options["baseline"]))


def starts(model: Model, example: Example, baseline: Baseline) -> dict[str, Float[Tensor, "token d_model"]]:
    """The embeddings that each baseline begins at, by name; special tokens keep theirs.

    A tensor is a vector [d_model] for every token that is not special, or all embeddings [token d_model] as they are.
    Errors: `InputError` for a filler that the model does not have, or a tensor of another shape.
    """
    embeddings, found = model.embed(example), {}
    for number, given in enumerate(several(baseline)):
        if given is None or isinstance(given, str):
            name = default_operator(model) if given is None else given
            found[name] = filled(example, embeddings, filler(model.fillers, name, model.name))
            continue
        vectors = given.to(embeddings)
        if vectors.shape not in (embeddings.shape, embeddings.shape[1:]):
            n, d = embeddings.shape
            raise InputError(
                f"a baseline is a vector [{d}], or one a token [{n}, {d}], got {list(given.shape)}; "
                "or give the name of a filler such as 'mean'"
            )
        name = "given" if "given" not in found else f"given {number}"
        found[name] = vectors if vectors.ndim == 2 else filled(example, embeddings, vectors)
    _warn_of_zero(model, found)
    return found


def filled(example: Example, embeddings: Tensor, vector: Tensor) -> Float[Tensor, "token d_model"]:
    """The embeddings with `vector` in the place of every token that is not special."""
    special = torch.tensor(example.is_special, device=embeddings.device)
    found = fill(Row(example, kept=special), embeddings, vector.to(embeddings)).embeddings
    return embeddings if found is None else found


def _warn_of_zero(model: Model, found: Mapping[str, Tensor]) -> None:
    norm = scale_free_norm(model.module) if "zero" in found else None
    if norm is not None:
        warnings.warn(
            f"from a zero baseline the target hardly changes until the very end: {norm} divides the size of its input "
            "away; steps may not converge, use the baseline 'mean' or 'mask'",
            stacklevel=3,
        )


def scale_free_norm(module: nn.Module) -> str | None:
    """The class of the first norm that gives the same for x and 2 x and adds nothing (RMSNorm), None without one."""
    for part in module.modules():
        weight = [p for p in part.parameters() if p.ndim == 1]
        if len(weight) != 1 or len(list(part.parameters())) != 1 or any(part.children()):
            continue
        x = torch.linspace(-1, 2, len(weight[0]), dtype=weight[0].dtype, device=weight[0].device)[None, None]
        try:
            with torch.no_grad():
                once, twice = part(x).float(), part(2 * x).float()
        except (RuntimeError, TypeError, ValueError):  # no norm, or one that is on disk
            continue
        if once.shape == x.shape and bool(once.any()) and torch.allclose(once, twice, rtol=1e-2, atol=1e-3):
            return type(part).__name__
    return None


def allowed(tolerance: float, change: float, size: float, dtype: torch.dtype) -> float:
    """The largest gap that is no failure: a share of the change, and never less than answers of this type round off."""
    return max(tolerance * max(abs(change), NO_CHANGE), 4 * torch.finfo(dtype).eps * size)


def until_complete(
    run: Callable[[int], Tensor], change: float, most: float, n_steps: int, max_steps: int
) -> tuple[Float[Tensor, " token"], float, int]:
    """`run(steps)` with the steps doubled until its sum is within `most` of the change; the values, the gap, the steps.

    Errors: `InputError` for numbers of steps that make no sense.
    """
    if n_steps < 1 or max_steps < n_steps:
        raise InputError(f"n_steps is from 1 to max_steps ({max_steps}), got {n_steps}")
    while True:
        values = run(n_steps)
        gap = float(values.double().sum()) - change
        if abs(gap) <= most or n_steps >= max_steps:
            return values, gap, n_steps
        n_steps = min(2 * n_steps, max_steps)


def warn_of_gap(method: str, gap: float, change: float, most: float, after: str) -> None:
    """Say that the scores do not add up to the change, where the gap is larger than `most`."""
    if abs(gap) > most:
        warnings.warn(
            f"{method}: {after} the scores add up to {change + gap:.4g}, the target changes by {change:.4g}",
            stacklevel=2,
        )
