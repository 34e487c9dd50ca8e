"""What each unit of an input does to the answer, measured by taking units away one after another in random orders.

    e_j = mean over orders of |y before j goes − y after j has gone|

Leaving one out alone does not see what another unit makes up for: an order and its reverse (one draw) meet each unit
both early, where all else is there, and late, where nothing else is left.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.judgement import asking
from attnprobe.judgement.resampling import source_of
from attnprobe.models.draws import Removal, removal
from attnprobe.models.evaluator import Meter, targets
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator, units
from attnprobe.models.rows import DRAWN, RENORMALISING, Row

# Not fewer, even of long texts: of eight orders all may miss what acts in few of them, and the error is then 0.
N_ORDERS = 16
# More orders are drawn, up to so many times as many, while a standard error is above this share of the largest effect.
MOST, TOLERANCE = 4, 0.2
# More orders are drawn only while there are at most so many inputs to evaluate: 63 orders of a text of 128 units.
MOST_ROWS = 8192
# Effects up to this share of the target, or of 1 where that is larger, are rounding.
NEAR = 1e-6


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
        """`renormalising` where the operator takes the key out of the softmax, else `content`."""
        return "renormalising" if self.operator in RENORMALISING else "content"

    @property
    def relative(self) -> Float[Tensor, " unit"]:
        """Effects as shares of the largest, 0 to 1; all 0 where no unit has an effect."""
        return self.values / float(self.values.max()) if self.act else torch.zeros_like(self.values)

    @property
    def act(self) -> bool:
        """Whether any unit does more than rounding."""
        return float(self.values.max()) > self.rounding

    @property
    def rounding(self) -> float:
        """Up to here an effect may be rounding: a millionth of the target, or of 1 where that is larger."""
        return NEAR * max(1.0, abs(self.whole))

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
    model: Any,
    example: Any,
    target: Any,
    operator: str,
    *,
    n_orders: int = N_ORDERS,
    seed: int = 0,
    data: Sequence[Any] | None = None,
    tolerance: float | None = TOLERANCE,
    most_rows: int = MOST_ROWS,
) -> Effects:
    """The effect of each unit under an operator, over at least `n_orders` random removal orders.

    operator: any of `rows.OPERATORS`. data: texts that "resample" takes the token at the same place of (None: words of
    the vocabulary). Orders come in pairs, each with its reverse, and a pair shares its draws. tolerance: orders are
    added, up to 4 times as many, until the standard error of every unit is at most this share of the largest effect
    (None: no more are). most_rows: none are added that would take more rows than this in all. Errors: `InputError` for
    an operator that this model lacks.
    """
    _check(n_orders, tolerance, data)
    model, example, target = asking.read(model, example, target)
    index = units(example, target)
    n_orders, most = _numbers(n_orders, len(index), tolerance, most_rows)
    orders = paired_orders(len(index), most, torch.Generator().manual_seed(seed))
    removed = _removing(model, example, operator, index, most // 2, seed, data)
    answers = torch.zeros(0, len(index) + 1, dtype=torch.float64)
    with Meter() as meter:
        while len(answers) < most:
            block = range(len(answers), len(answers) + n_orders)
            rows = removed.rows(_kept(example.n_tokens, index, orders[block.start : block.stop]), block)
            found = targets(model, rows, target, progress=f"effects ({operator})").double()
            answers = torch.cat([answers, found.reshape(n_orders, -1)])
            values, error = _means(answers, orders[: len(answers)])
            if tolerance is None or not bool((error > tolerance * values.max()).any()):
                break
    whole, nothing = float(answers[0, 0]), float(answers[:, -1].mean())
    return Effects(operator, index, values, error, whole, nothing, len(answers), seed, removed.used, meter.forward)


def effects_under(
    model: Any,
    example: Any,
    target: Any,
    operators: Sequence[str] | str,
    *,
    n_orders: int = N_ORDERS,
    seed: int = 0,
    data: Sequence[Any] | None = None,
    tolerance: float | None = TOLERANCE,
    most_rows: int = MOST_ROWS,
) -> tuple[tuple[Effects, ...], dict[str, str]]:
    """The effects under each operator that this model has, and why it does not have the others, by name.

    Errors: `InputError` for an operator that does not exist, or settings that cannot be.
    """
    _check(n_orders, tolerance, data)
    model, example, target = asking.read(model, example, target)
    found, lacking = [], dict[str, str]()
    options: dict[str, Any] = {"n_orders": n_orders, "seed": seed, "data": data}
    options |= {"tolerance": tolerance, "most_rows": most_rows}
    for operator in asking.names(operators):
        try:
            found.append(unit_effects(model, example, target, operator, **options))
        except InputError as error:
            if str(error).startswith("no removal operator"):
                raise
            lacking[operator] = str(error)
    return tuple(found), lacking


def _numbers(n_orders: int, n_units: int, tolerance: float | None, most_rows: int) -> tuple[int, int]:
    """How many orders a block has, and how many there are at most: whole blocks, pairs of orders in each."""
    first = n_orders + n_orders % 2
    blocks = 1 if tolerance is None else min(MOST, max(1, most_rows // (first * (n_units + 1))))
    return first, first * blocks


def _check(n_orders: int, tolerance: float | None, data: Any) -> None:
    if n_orders < 2:
        raise InputError(f"n_orders is at least 2 (an order and its reverse), got {n_orders}")
    if tolerance is not None and not tolerance >= 0:
        raise InputError(f"tolerance is a share of the largest effect, 0 or more, or None; got {tolerance}")
    asking.check_data(data)


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


@dataclass(frozen=True, eq=False)
class _Removed:
    """How units go under one operator: the rows for choices of what stays, by the numbers of their orders."""

    rows: Callable[[Bool[Tensor, "order step token"], range], list[Row]]
    used: Mapping[str, object]


def _removing(
    model: Model,
    example: Example,
    operator: str,
    index: Int[Tensor, " unit"],
    n_pairs: int,
    seed: int,
    data: Sequence[Any] | None,
) -> _Removed:
    """The operator, checked, with what it draws; every pair of orders has its own draw."""
    checked_operator(model, operator, draws=True)
    if operator == "resample":
        source = source_of(model, example, index, data)
        drawn = source.draws(n_pairs, torch.Generator().manual_seed(seed + 1))

        def resampled(kept: Bool[Tensor, "order step token"], numbers: range) -> list[Row]:
            return [
                Row(example, kept=choice, operator=operator, stand_ins=drawn[number // 2])
                for number, steps in zip(numbers, kept, strict=True)
                for choice in steps
            ]

        return _Removed(resampled, {"data": source.words})
    if operator in DRAWN:
        taken = removal(model, example, operator, [[int(i)] for i in index], n_samples=1, seed=seed)
        return _Removed(lambda kept, _: _infilled(example, taken, list(kept.flatten(0, 1))), taken.used)
    return _Removed(lambda kept, _: [Row(example, kept=choice, operator=operator) for choice in kept.flatten(0, 1)], {})


def _infilled(example: Example, taken: Removal, choices: Sequence[Bool[Tensor, " token"]]) -> list[Row]:
    """One draw a choice: what stands in for a token depends on which others are there."""
    drawn = iter(() if taken.draw is None else taken.draw([choice for choice in choices if not bool(choice.all())]))
    return [
        Row(example) if bool(choice.all()) else Row(example, choice, taken.operator, stand_ins=next(drawn)[0])
        for choice in choices
    ]
