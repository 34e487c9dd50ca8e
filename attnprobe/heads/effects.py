"""Heads as features: what each head adds to the target, by taking heads away as one takes away tokens."""

from collections.abc import Callable
from typing import Any

import torch
from captum.attr import FeatureAblation, ShapleyValueSampling
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.intervention import Intervention, silence_head
from attnprobe.models import load
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model, Stack
from attnprobe.models.randomness import seeded
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget, as_target

# captum asks for at most this many rows at once; the evaluator makes batches of them as memory allows.
ROWS_AT_ONCE = 256


def heads_as_features(
    model: Any,
    example: Any,
    target: Any = None,
    *,
    method: str = "leave_one_out",
    n_samples: int = 25,
    seed: int = 0,
    stack: Stack | None = None,
) -> Float[Tensor, "layer head"]:
    """How much the target falls when a head of a stack passes nothing on; target units, signed.

    Zero ablation, by captum, on a row of heads that are on or off: what a head gives on whatever the text says counts
    as well. method: "leave_one_out", one head at a time (a head that others can stand in for gets little); "shapley",
    the mean over `n_samples` random orders of what a head adds to those before it, which adds up to y − y(no heads).
    stack: one of `model.stacks` (default: the explained one). NaN where a layer has fewer heads than another.
    Errors: `InputError` for a method or stack that does not exist; as `attribute` for the example and the target.
    """
    if method not in ("leave_one_out", "shapley"):
        raise InputError(f"method is 'leave_one_out' or 'shapley', got '{method}'")
    if n_samples < 1:
        raise InputError(f"n_samples is at least 1, got {n_samples}")
    model = load(model)
    example = example if isinstance(example, Example) else model.example(example)
    resolved = target if isinstance(target, ResolvedTarget) else model.resolve(example, as_target(target))
    stack = explained_stack(model, example) if stack is None else stack
    places = [(layer, head) for layer, n in enumerate(stack.n_heads) for head in range(n)]
    forward = _answers(model, example, resolved, stack, places)
    everyone = torch.ones(1, len(places))
    if method == "leave_one_out":
        found = FeatureAblation(forward).attribute(everyone, baselines=0, perturbations_per_eval=ROWS_AT_ONCE)
    else:
        with seeded(seed):
            found = ShapleyValueSampling(forward).attribute(
                everyone, baselines=0, n_samples=n_samples, perturbations_per_eval=ROWS_AT_ONCE
            )
    effects = torch.full((stack.n_layers, max(stack.n_heads)), torch.nan, dtype=found.dtype)
    for (layer, head), value in zip(places, found[0].detach().cpu(), strict=True):
        effects[layer, head] = value
    return effects


def _answers(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack, places: list[tuple[int, int]]
) -> Callable[[Tensor], Tensor]:
    """captum's forward function: the target with the heads of each row [row head] on (> 0) or silent."""
    # An edit a head, made once: rows that silence the same heads are equal, and run once.
    silent = [silence_head(layer, head, stack=stack.name, kind=stack.kind) for layer, head in places]

    def forward(on: Tensor) -> Tensor:
        rows = [Row(example, edits=_off(row, silent)) for row in on]
        return targets(model, rows, target, progress="heads as features")

    return forward


def _off(row: Tensor, silent: list[Intervention]) -> tuple[Intervention, ...]:
    return tuple(edit for value, edit in zip(row.tolist(), silent, strict=True) if value <= 0)
