"""Thresholds of the rule, set on cases whose truth is known."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from attnprobe.benchmark.verdicts_measuring import Measured
from attnprobe.judgement.rule import EXPLAINS, MISLEADS, RULE, Thresholds, call_of, inversions, ranked, read

# From which a unit counts as acting, below which as idle; then the numbers that M, A and T are held against.
UNITS = tuple(product((0.25, 0.3, 0.35), (0.1, 0.15, 0.2)))
CALLS = tuple(product((0.05, 0.1, 0.15, 0.2), (0.9, 0.95, 0.99), (0.2, 0.3, 0.4)))
# A wrong call weighs as much as so many that were left undecided.
WRONG, TOO_MUCH = 20.0, 5.0

Known = tuple[Measured, str, str]


@dataclass(frozen=True)
class _Numbers:
    """M, A and T under each operator, whether any pair is in the wrong order, and the truth."""

    of_operators: tuple[tuple[float, float, float], ...]
    inverted: bool
    truth: str

    def call(self, thresholds: Thresholds) -> str | None:
        calls = {None if math.isnan(m) else call_of(m, a, t, thresholds) for m, a, t in self.of_operators}
        found = calls.pop() if len(calls) == 1 else None
        return None if found == EXPLAINS and self.inverted else found


def fitted(known: Sequence[Known], start: Thresholds = RULE) -> Thresholds:
    """The thresholds with the fewest mistakes on these cases; where several do as well, those nearest to `start`.

    known: a variant, the name of one of its maps, and its truth. Without cases: `start`.
    """
    if not known:
        return start
    found: list[tuple[float, float, Thresholds]] = []
    for effective, idle in UNITS:
        at = replace(start, effective=effective, idle=idle)
        numbers = [_numbers(*case, at) for case in known]
        for miss, order, top in CALLS:
            tried = replace(at, miss=miss, order=order, top=top)
            found.append((_cost(numbers, tried), _distance(tried, start), tried))
    return min(found, key=lambda one: one[:2])[2]


def _numbers(measured: Measured, name: str, truth: str, thresholds: Thresholds) -> _Numbers:
    scores = measured.maps[name]
    readings = [read(scores, one, thresholds) for one in measured.effects]
    wrong = inversions(ranked(scores), [one.relative for one in measured.effects], thresholds)
    return _Numbers(tuple((r.miss, r.order, r.top) for r in readings), wrong > 0, truth)


def _cost(numbers: Sequence[_Numbers], thresholds: Thresholds) -> float:
    """Shares of each truth that were called wrongly or left undecided, weighted and summed."""
    totals: Mapping[str, list[float]] = defaultdict(list)
    for one in numbers:
        call = one.call(thresholds)
        totals[one.truth].append(_weight(call, one.truth))
    return round(sum(sum(costs) / len(costs) for costs in totals.values()), 9)


def _weight(call: str | None, truth: str) -> float:
    if call == truth:
        return 0.0
    if truth not in (EXPLAINS, MISLEADS):
        return 0.0 if call is None else TOO_MUCH
    return 1.0 if call is None else WRONG


def _distance(a: Thresholds, b: Thresholds) -> float:
    """How far the numbers lie apart, each by its step in what is tried."""
    steps = {"effective": 0.05, "idle": 0.05, "miss": 0.05, "order": 0.05, "top": 0.1}
    return sum(abs(getattr(a, name) - getattr(b, name)) / step for name, step in steps.items())
