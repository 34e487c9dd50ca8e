"""Error rates of the verdict: over all families and by family, with Wilson's intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from attnprobe.benchmark.verdicts import NEITHER, TRUTHS, Calibration, Case, judged
from attnprobe.benchmark.verdicts_measuring import FOREIGN, PERMUTED, TWIN, Measured
from attnprobe.judgement.rule import EXPLAINS, MISLEADS, UNDECIDED, VERDICTS, Thresholds, ranked
from attnprobe.judgement.verdict_sets import wilson


@dataclass(frozen=True)
class Rate:
    """How often something happened that should not: count of n, its share, and the upper end of Wilson's interval.

    bar: what the share (of a wrong call: the upper end too) should stay below.
    """

    name: str
    count: int
    n: int
    bar: float

    @property
    def share(self) -> float:
        """The share, 0 to 1; NaN of nothing."""
        return self.count / self.n if self.n else float("nan")

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return wilson(self.count, self.n)[1]


def rates(cases: Sequence[Case]) -> list[Rate]:
    """The error rates over these cases; own maps are counted by truth, permuted and foreign ones together."""
    own = [case for case in cases if case.kind == "own"]
    shuffled = [case for case in cases if case.kind in (PERMUTED, FOREIGN) and case.truth != EXPLAINS]
    clear = [case for case in own if case.truth != NEITHER]
    return [
        _rate("misleads, called explains", own, MISLEADS, EXPLAINS, 0.01),
        _rate("explains, called misleads", own, EXPLAINS, MISLEADS, 0.01),
        _rate("neither, called explains", own, NEITHER, EXPLAINS, 0.05),
        _rate("neither, called misleads", own, NEITHER, MISLEADS, 0.05),
        Rate("clear, left undecided", sum(case.verdict == UNDECIDED for case in clear), len(clear), 0.15),
        Rate(
            "permuted or foreign, does not explain, called explains",
            sum(case.verdict == EXPLAINS for case in shuffled),
            len(shuffled),
            0.02,
        ),
    ]


def _rate(name: str, cases: Sequence[Case], truth: str, verdict: str, bar: float) -> Rate:
    of_truth = [case for case in cases if case.truth == truth]
    return Rate(name, sum(case.verdict == verdict for case in of_truth), len(of_truth), bar)


def by_family(cases: Sequence[Case]) -> pd.DataFrame:
    """A row a family, and the last for all: counts of own maps by truth and verdict, and the share of the clear ones
    that is undecided."""
    frame = pd.DataFrame([vars(case) for case in cases if case.kind == "own"])
    names = [(truth, verdict) for truth in TRUTHS for verdict in VERDICTS]
    rows = []
    for family in [*dict.fromkeys(frame.family), "all"]:
        here = frame if family == "all" else frame[frame.family == family]
        counts = {f"{t} → {v}": int(((here.truth == t) & (here.verdict == v)).sum()) for t, v in names}
        clear = here[here.truth != NEITHER]
        undecided = float((clear.verdict == UNDECIDED).mean()) if len(clear) else float("nan")
        rows.append({"family": family, **counts, "undecided": undecided})
    return pd.DataFrame(rows)


def twins(calibration: Calibration) -> tuple[int, int]:
    """Pairs of twin maps that order two units oppositely of which one acts and the other has at most half of its
    influence: how many of them both explain by verdict, and how many there are."""
    verdicts = {(c.family, c.variant, c.boundary, c.map): c.verdict for c in calibration.cases}
    both = conflicting = 0
    for one in calibration.measured:
        for name in [name for name in one.maps if f"{name}, {TWIN}" in one.maps]:
            if not _conflict(one, name, f"{name}, {TWIN}"):
                continue
            conflicting += 1
            keys = [(one.family, one.number, one.boundary, which) for which in (name, f"{name}, {TWIN}")]
            both += all(verdicts[key] == EXPLAINS for key in keys)
    return both, conflicting


def _conflict(one: Measured, name: str, other: str) -> bool:
    first, second = ranked(one.maps[name]), ranked(one.maps[other])
    acting = torch.tensor([unit in one.causal for unit in one.units.tolist()])
    apart = acting[:, None] & (one.influence[None, :] <= 0.5 * one.influence[:, None])
    above = [(ranks[:, None] > ranks[None, :], ranks[:, None] < ranks[None, :]) for ranks in (first, second)]
    opposite = (above[0][0] & above[1][1]) | (above[0][1] & above[1][0])
    return bool((apart & opposite).any())


def judged_with(
    measured: Sequence[Measured], thresholds: Thresholds, operators: Sequence[str] | None = None
) -> list[Case]:
    """The maps judged again, with other thresholds or fewer operators; those near the boundary are left out."""
    return [case for one in measured if not one.boundary for case in judged(one, thresholds, operators)]
