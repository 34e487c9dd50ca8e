"""What each unit of an input does to the answer, measured by taking units away one after another in random orders.

    e_j = mean over orders of |y before j goes − y after j has gone|

Leaving one out alone does not see what another unit makes up for: an order and its reverse (one draw) meet each unit
both early, where all else is there, and late, where nothing else is left.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.intervention import zero_value
from attnprobe.judgement.resampling import Source, source_of
from attnprobe.models.draws import removal
from attnprobe.models.evaluator import Meter, targets
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator, units
from attnprobe.models.rows import DRAWN, RENORMALISING, Row
from attnprobe.target import ResolvedTarget

N_ORDERS = 16
VALUE_ZERO = "value_zero"


@dataclass(frozen=True, eq=False)
class Effects:
    """The effect of each unit under one operator, in target units, 0 or more.

    units: their token indices. values, standard_error: an entry a unit; the error is over pairs of orders. whole: the
    target of the input as it is; nothing: without any unit (mean over draws). used: what was drawn from.
    """

    operator: str
    units: Int[Tensor, " unit"]
    values: Float[Tensor, " unit"]
    standard_error: Float[Tensor, " unit"]
    whole: float
    nothing: float
    n_orders: int
    seed: int
    used: Mapping[str, object] = field(default_factory=dict)
    forward_passes: int = 0

    @property
    def kind(self) -> str:
        """"renormalising" where the operator takes the key out of the softmax, else "content"."""
        return "renormalising" if self.operator in RENORMALISING else "content"

    @property
    def relative(self) -> Float[Tensor, " unit"]:
        """Effects as shares of the largest, 0 to 1; all 0 where no unit has an effect."""
        largest = float(self.values.max())
        return self.values / largest if largest > 0 else torch.zeros_like(self.values)

    def of(self, tokens: Sequence[int]) -> float:
        """Effect of a set of tokens: the sum of the effects of its units, each met in every company."""
        index = {unit: number for number, unit in enumerate(self.units.tolist())}
        return math.fsum(float(self.values[index[token]]) for token in tokens if token in index)

    def to_frame(self) -> pd.DataFrame:
        """A row a unit: token_index, operator, kind, effect, standard_error, relative, n_orders, seed."""
        return pd.DataFrame(
            {
                "token_index": self.units.numpy(),
                "operator": self.operator,
                "kind": self.kind,
                "effect": self.values.numpy(),
                "standard_error": self.standard_error.numpy(),
                "relative": self.relative.numpy(),
                "n_orders": self.n_orders,
                "seed": self.seed,
            }
        )


def unit_effects(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    operator: str,
    *,
    n_orders: int = N_ORDERS,
    seed: int = 0,
    data: Sequence[Any] | None = None,
) -> Effects:
    """The effect of each unit under an operator, over at least `n_orders` random removal orders.

    operator: any of `rows.OPERATORS`, or "value_zero" (its values are 0 in every layer, its weights stay). data: texts
    that "resample" takes the token at the same place of (None: words of the vocabulary). Orders come in pairs, each
    with its reverse, and a pair shares its draws. Errors: `InputError` for an operator that this model lacks.
    """
    if n_orders < 2:
        raise InputError(f"n_orders is at least 2 (an order and its reverse), got {n_orders}")
    index = units(example, target)
    orders = paired_orders(len(index), n_orders, torch.Generator().manual_seed(seed))
    with Meter() as meter:
        rows, used = _rows(model, example, operator, index, orders, seed, data)
        answers = targets(model, rows, target, progress=f"effects ({operator})").double()
    answers = answers.reshape(len(orders), len(index) + 1)
    values, error = _means(answers, orders)
    whole, nothing = float(answers[0, 0]), float(answers[:, -1].mean())
    return Effects(operator, index, values, error, whole, nothing, len(orders), seed, used, meter.forward)


def effects_under(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    operators: Sequence[str],
    *,
    n_orders: int = N_ORDERS,
    seed: int = 0,
    data: Sequence[Any] | None = None,
) -> tuple[tuple[Effects, ...], dict[str, str]]:
    """The effects under each operator that this model has, and why it does not have the others, by name.

    Errors: `InputError` for an operator that does not exist.
    """
    found, lacking = [], dict[str, str]()
    for operator in dict.fromkeys(operators):
        try:
            found.append(unit_effects(model, example, target, operator, n_orders=n_orders, seed=seed, data=data))
        except InputError as error:
            if str(error).startswith("no removal operator"):
                raise
            lacking[operator] = str(error)
    return tuple(found), lacking


def paired_orders(n_units: int, n_orders: int, generator: torch.Generator) -> Int[Tensor, "order unit"]:
    """Random orders, each followed by its reverse; an odd number is rounded up.

    >>> found = paired_orders(4, 3, torch.Generator().manual_seed(0))
    >>> found.shape, bool((found[1::2] == found[::2].flip(1)).all())
    (torch.Size([4, 4]), True)
    """
    drawn = torch.rand((n_orders + 1) // 2, n_units, generator=generator).argsort(1)
    return torch.stack([drawn, drawn.flip(1)], dim=1).flatten(0, 1)


def _kept(
    n_tokens: int, index: Int[Tensor, " unit"], orders: Int[Tensor, "order unit"]
) -> Bool[Tensor, "order step token"]:
    """Which tokens are there before the first unit of each order goes, and after each that has gone."""
    steps = torch.arange(len(index) + 1)
    there = orders.argsort(1)[:, None, :] >= steps[:, None]
    kept = torch.ones(len(orders), len(steps), n_tokens, dtype=torch.bool)
    kept[:, :, index] = there
    return kept


def _means(
    answers: Float[Tensor, "order step"], orders: Int[Tensor, "order unit"]
) -> tuple[Float[Tensor, " unit"], Float[Tensor, " unit"]]:
    """Mean change by unit, and its standard error over pairs of orders."""
    changes = answers.diff(dim=1).abs()
    by_unit = torch.zeros_like(changes).scatter(1, orders, changes)
    pairs = by_unit.reshape(-1, 2, by_unit.shape[1]).mean(1)
    error = pairs.std(0) / len(pairs) ** 0.5 if len(pairs) > 1 else torch.full_like(pairs[0], math.nan)
    return pairs.mean(0), error


def _rows(
    model: Model,
    example: Example,
    operator: str,
    index: Int[Tensor, " unit"],
    orders: Int[Tensor, "order unit"],
    seed: int,
    data: Sequence[Any] | None,
) -> tuple[list[Row], Mapping[str, object]]:
    """A row for each order and step, and what the operator draws from."""
    kept = _kept(example.n_tokens, index, orders)
    if operator == VALUE_ZERO:
        return [_without_values(example, choice) for choice in kept.flatten(0, 1)], {"operator": operator}
    checked_operator(model, operator, draws=True)
    if operator == "resample":
        source = source_of(model, example, index, data)
        return _resampled(example, kept, source, seed), {"operator": operator, "data": source.words}
    if operator in DRAWN:
        return _infilled(model, example, operator, index, list(kept.flatten(0, 1)), seed)
    return [Row(example, kept=choice, operator=operator) for choice in kept.flatten(0, 1)], {"operator": operator}


def _infilled(
    model: Model,
    example: Example,
    operator: str,
    index: Int[Tensor, " unit"],
    choices: Sequence[Bool[Tensor, " token"]],
    seed: int,
) -> tuple[list[Row], Mapping[str, object]]:
    """One draw a choice: what stands in for a token depends on which others are there."""
    taken = removal(model, example, operator, [[int(i)] for i in index], n_samples=1, seed=seed)
    drawn = iter(() if taken.draw is None else taken.draw([choice for choice in choices if not bool(choice.all())]))
    rows = [
        Row(example) if bool(choice.all()) else Row(example, choice, operator, stand_ins=next(drawn)[0])
        for choice in choices
    ]
    return rows, taken.used


def _without_values(example: Example, kept: Bool[Tensor, " token"]) -> Row:
    gone = (~kept).nonzero().flatten().tolist()
    return Row(example, edits=(zero_value(gone),) if gone else ())


def _resampled(
    example: Example, kept: Bool[Tensor, "order step token"], source: Source, seed: int
) -> list[Row]:
    """Every pair of an order and its reverse has its own draw."""
    drawn = source.draws(len(kept) // 2, torch.Generator().manual_seed(seed + 1))
    return [
        Row(example, kept=choice, operator="resample", stand_ins=drawn[number // 2])
        for number, steps in enumerate(kept)
        for choice in steps
    ]
