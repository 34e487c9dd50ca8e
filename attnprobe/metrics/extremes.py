"""Comprehensiveness and sufficiency between the worst and the best that any order of these tokens reaches.

The area over the curve of an order is the mean fall of the label as its tokens go, first one, then two, up to all. Its
least and largest value over all orders are found over the sets that orders pass through: all of them for few tokens
(exact), else the best few of each size (beam search, whose ends lie within the true ones; the order itself counts too).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import answers
from attnprobe.metrics.normalised import LEAST
from attnprobe.models.model import Model

Falls = dict[int, float]
# 2^16 sets: what a small model does in a minute.
MOST_EXACT = 16


@dataclass(frozen=True, eq=False)
class Sets:
    """The fall of the label without each set of units, asked once; a set is a number with a bit a unit."""

    model: Model
    attribution: Attribution
    operator: str | None
    known: Falls = field(default_factory=lambda: {0: 0.0})

    def __call__(self, sets: Iterable[int]) -> Falls:
        """The falls of these sets, and of all asked before."""
        wanted = [one for one in dict.fromkeys(sets) if one not in self.known]
        if wanted:
            units = self.attribution.units.nonzero().flatten()
            gone = torch.tensor([[one >> unit & 1 for unit in range(len(units))] for one in wanted]).bool()
            staying = torch.ones(len(wanted), self.attribution.example.n_tokens, dtype=torch.bool)
            staying[:, units] = ~gone
            whole, found = answers(self.model, self.attribution, staying, self.operator)
            self.known.update(zip(wanted, (whole - found).tolist(), strict=True))
        return self.known


def exact(falls: Callable[[Iterable[int]], Falls], n: int, sign: int) -> float:
    """The largest sum of sign · fall over the sets that an order of n units passes through, by all 2^n sets.

    >>> table = {0: 0.0, 1: 0.1, 2: 0.4, 3: 0.5}
    >>> exact(lambda sets: table, 2, 1), exact(lambda sets: table, 2, -1)
    (0.9, -0.6)
    """
    known = falls(range(1 << n))
    best = [0.0] * (1 << n)
    for one in range(1, 1 << n):
        best[one] = sign * known[one] + max(best[one & ~(1 << unit)] for unit in range(n) if one >> unit & 1)
    return best[-1]


def beam(falls: Callable[[Iterable[int]], Falls], n: int, sign: int, width: int) -> float:
    """As `exact`, of the orders that are among the best `width` at each size."""
    front = {0: 0.0}
    for _ in range(n):
        steps = {(one, one | 1 << unit) for one in front for unit in range(n) if not one >> unit & 1}
        known = falls(after for _, after in steps)
        reached: Falls = {}
        for before, after in steps:
            reached[after] = max(reached.get(after, -math.inf), front[before] + sign * known[after])
        # Equal sums are cut in the order of their sets, so that the same is found again.
        front = dict(sorted(reached.items(), key=lambda item: (-item[1], item[0]))[:width])
    return max(front.values())


def position(
    model: Model, attribution: Attribution, order: Sequence[int], operator: str | None, exact_up_to: int, width: int
) -> float:
    """Where the area of an order (of units, by number) lies between the least, 0, and the largest, 1.

    NaN where all orders are alike.
    """
    if not 0 <= exact_up_to <= MOST_EXACT or width < 1:
        raise InputError(f"exact_up_to is 0 to {MOST_EXACT} and beam at least 1, got {exact_up_to} and {width}")
    falls, n, gone = Sets(model, attribution, operator), len(order), 0
    passed = [gone := gone | 1 << unit for unit in order]
    if n == 0:
        return math.nan
    known = falls(passed)
    own = sum(known[one] for one in passed)
    largest, least = (exact(falls, n, sign) if n <= exact_up_to else beam(falls, n, sign, width) for sign in (1, -1))
    low, high = min(-least, own), max(largest, own)
    return math.nan if (high - low) / n <= LEAST else (own - low) / (high - low)


def _order(attribution: Attribution) -> list[int]:
    """The ranking in numbers of units."""
    number = {token: unit for unit, token in enumerate(attribution.units.nonzero().flatten().tolist())}
    return [number[token] for token in attribution.ranking()]


@faithfulness.add(
    family="faithfulness",
    source="Edin et al. 2024 (normalized AOPC)",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def naopc_comprehensiveness(
    model: Model, attribution: Attribution, *, operator: str | None = None, exact_up_to: int = 8, beam: int = 5
) -> float:
    """Mean fall of the label as all tokens go, top first, between worst (0) and best order (1); higher is better.

    Needed to compare models: how much any order can do is taken out. exact_up_to: so many units are searched through
    (2^n passes); beam: sets kept at each size beyond. NaN where all orders are alike.
    """
    return position(model, attribution, _order(attribution), operator, exact_up_to, beam)


@faithfulness.add(
    family="faithfulness",
    source="Edin et al. 2024 (normalized AOPC)",
    low=0,
    high=1,
    better="lower",
    default=False,
)
def naopc_sufficiency(
    model: Model, attribution: Attribution, *, operator: str | None = None, exact_up_to: int = 8, beam: int = 5
) -> float:
    """Mean fall of the label with the top tokens alone, between best (0) and worst order (1); lower is better.

    The top k alone is the input from which the others went, so this is the reversed order's comprehensiveness, with the
    same ends. Options: as there.
    """
    return position(model, attribution, _order(attribution)[::-1], operator, exact_up_to, beam)
