"""The rule: what the effects of the units say of a map, under one operator, and under all of them together.

    effective: e_j >= 0.3 of the largest        idle: e_j < 0.15 of it        (in between it is not told which)
    M = 1 - e(top k units of the map) / e(best k units),   k = number of effective units
    A = chance that the map puts an effective unit above an idle one (AUC, ties half)
    T = largest effect among the map's first units (those that tie), as a share of the largest

    explains: M <= 0.1 and A >= 0.95                   misleads: T < 0.3 and A <= 0.5

A call stands only where every operator that judges gives it, and "explains" only where there is no pair of units in
the wrong order: one that acts below one that has at most 0.6 of its effect under every operator that judges. All else
is undecided, with the reason.
benchmarks/VERDICTS.md has its error rates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.judgement.effects import Effects

EXPLAINS, MISLEADS, UNDECIDED = "explains", "misleads", "undecided"
VERDICTS = (EXPLAINS, MISLEADS, UNDECIDED)
# Scores that differ by less than this share of the largest are one rank.
NEAR = 1e-6


@dataclass(frozen=True)
class Thresholds:
    """The numbers of the rule; shares, 0 to 1."""

    effective: float = 0.3
    idle: float = 0.15
    miss: float = 0.1
    order: float = 0.95
    top: float = 0.3
    chance: float = 0.5
    half: float = 0.6


RULE = Thresholds()
_ALL_ACT = "every token acts ({share:.0%} of the largest effect or more), so there is no idle one to rank them above"


@dataclass(frozen=True)
class Reading:
    """What one operator says of a map. call: "explains", "misleads" or None; reason: why, in words with the numbers.

    miss: M; order: A; top: T; NaN where not defined. n_effective, n_idle: units of each kind.
    """

    operator: str
    call: str | None
    reason: str
    miss: float = math.nan
    order: float = math.nan
    top: float = math.nan
    n_effective: int = 0
    n_idle: int = 0


def read(scores: Float[Tensor, " unit"], effects: Effects, thresholds: Thresholds = RULE) -> Reading:
    """What one operator says of the sizes of a map's scores on its units."""
    name, share = effects.operator, effects.relative.double()
    if not effects.act:
        return Reading(name, None, f"no unit has an effect beyond rounding ({effects.rounding:.0e})")
    acting, idle = share >= thresholds.effective, share < thresholds.idle
    ranks = ranked(scores)
    facts = {"n_effective": int(acting.sum()), "n_idle": int(idle.sum())}
    if not facts["n_idle"]:
        return Reading(name, None, _ALL_ACT.format(share=thresholds.idle), **facts)
    miss, order = missed(ranks, share, facts["n_effective"]), auc(ranks, acting, idle)
    top = float(share[ranks == ranks.max()].max())
    call = call_of(miss, order, top, thresholds)
    return Reading(name, call, _why(call, miss, order, top, thresholds), miss, order, top, **facts)


def call_of(miss: float, order: float, top: float, thresholds: Thresholds) -> str | None:
    """What M, A and T come to, None where it is neither."""
    if top < thresholds.top and order <= thresholds.chance:
        return MISLEADS
    return EXPLAINS if miss <= thresholds.miss and order >= thresholds.order else None


def _why(call: str | None, miss: float, order: float, top: float, thresholds: Thresholds) -> str:
    pairs = f"puts units that act above idle ones in {order:.0%} of the pairs"
    if call == MISLEADS:
        return f"its first unit has {top:.0%} of the largest effect, and it {pairs}"
    # Adding 0 makes a rounded -0 a 0.
    units = f"its first units miss {round(miss, 2) + 0.0:.0%} of the effect of the best"
    if call == EXPLAINS or miss > thresholds.miss:
        return f"{units}, and it {pairs}"
    return f"it {pairs} only"


def decide(
    scores: Float[Tensor, " unit"], effects: Sequence[Effects], thresholds: Thresholds = RULE
) -> tuple[str, str, tuple[Reading, ...]]:
    """Verdict, reason, and what each operator says; scores: their sizes on the units, 0 or more."""
    readings = tuple(read(scores, one, thresholds) for one in effects)
    if len(scores) < 2:
        return UNDECIDED, "there is one unit alone, and nothing to rank it against", readings
    if not bool(scores.any()):
        return UNDECIDED, "the map is 0 everywhere", readings
    if bool((ranked(scores) == 0).all()):
        return UNDECIDED, "the map gives every unit the same", readings
    if not readings:
        return UNDECIDED, "this model has none of the operators that judge", readings
    calls = {reading.call for reading in readings}
    if len(calls) > 1:
        said = "; ".join(f"{r.operator}: {r.call or 'neither'} ({r.reason})" for r in readings)
        return UNDECIDED, f"the operators disagree: {said}", readings
    call = calls.pop()
    reason = _joined(readings)
    if call is None:
        told = any(not math.isnan(reading.miss) for reading in readings)
        return UNDECIDED, f"it ranks some but not all: {reason}" if told else reason, readings
    wrong = inversions(ranked(scores), [one.relative for one in effects], thresholds) if call == EXPLAINS else 0
    if wrong:
        return UNDECIDED, f"it has {wrong} pair{'s' * (wrong > 1)} of units in the wrong order; {reason}", readings
    return call, reason, readings


def _joined(readings: Sequence[Reading]) -> str:
    """The reasons, each once, with the operators that give it."""
    by = {r.reason: [other.operator for other in readings if other.reason == r.reason] for r in readings}
    return "; ".join(f"{' and '.join(names)}: {reason}" for reason, names in by.items())


def quality_of(scores: Float[Tensor, " unit"], effects: Effects, thresholds: Thresholds = RULE) -> tuple[float, float]:
    """1 - M of the map, and what random orders of the same units have on average; NaN where no unit has an effect."""
    share = effects.relative.double()
    k = int((share >= thresholds.effective).sum())
    if not effects.act or k == len(share):
        return math.nan, math.nan
    best = float(share.topk(k).values.sum())
    return 1 - missed(ranked(scores), share, k), k * float(share.mean()) / best


def ranked(scores: Float[Tensor, " unit"]) -> Int[Tensor, " unit"]:
    """The rank of each score from 0, the lowest; scores that follow one another closely have one rank.

    >>> ranked(torch.tensor([0.5, 0.0, 0.5, 1.0])).tolist()
    [1, 0, 1, 2]
    """
    order = scores.argsort()
    ordered = scores[order].double()
    steps = (ordered.diff() > NEAR * float(scores.abs().max())).long().cumsum(0)
    ranks = torch.zeros(len(scores), dtype=torch.long)
    ranks[order[1:]] = steps
    return ranks


def auc(ranks: Int[Tensor, " unit"], acting: Tensor, idle: Tensor) -> float:
    """Share of pairs in which the acting unit ranks above the idle one, ties half; NaN without a pair.

    >>> acts = torch.tensor([True, True, False, False])
    >>> auc(torch.tensor([2, 1, 0, 1]), acts, ~acts)
    0.875
    """
    above = ranks[acting][:, None] - ranks[idle][None, :]
    return float(((above > 0).double() + (above == 0).double() / 2).mean()) if above.numel() else math.nan


def missed(ranks: Int[Tensor, " unit"], effects: Float[Tensor, " unit"], k: int) -> float:
    """1 - effect of the k first units / effect of the best k; of units that tie across the border, their mean.

    >>> missed(torch.tensor([0, 1, 1]), torch.tensor([1.0, 0.5, 0.0]), 1)
    0.75
    """
    e = effects.double()
    of_rank = torch.zeros(int(ranks.max()) + 1, dtype=e.dtype).scatter_add(0, ranks, e) / ranks.bincount()
    first = ranks.topk(k).values
    return 1 - float(of_rank[first].sum()) / float(e.topk(k).values.sum())


def inversions(
    ranks: Int[Tensor, " unit"], effects: Sequence[Float[Tensor, " unit"]], thresholds: Thresholds = RULE
) -> int:
    """Pairs of units in the wrong order: under every operator the upper one has at most `half` of the effect of the
    lower one, which acts. effects: shares of the largest.

    >>> inversions(torch.tensor([0, 1, 2]), [torch.tensor([1.0, 0.5, 0.9]), torch.tensor([1.0, 0.4, 0.2])])
    1
    """
    wrong = ranks[:, None] > ranks[None, :]
    for e in effects:
        wrong = wrong & (e[None, :] >= thresholds.effective) & (e[:, None] <= thresholds.half * e[None, :])
    return int(wrong.sum())
