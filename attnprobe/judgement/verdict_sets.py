"""The verdicts of a set of predictions on one map: shares with intervals, and the map against random orders."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from attnprobe.errors import InputError
from attnprobe.judgement.rule import VERDICTS
from attnprobe.judgement.verdicts import Verdict

LEVEL = 0.95
# Below this many differences the test cannot reach 5 %: 2 / 2^5 = 6 %.
FEWEST = 6


@dataclass(frozen=True)
class Share:
    """Share of one verdict among n, 0 to 1, with its Wilson interval at 95 %."""

    verdict: str
    count: int
    n: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedTest:
    """The map's quality (1 - M) against that of random orders of the same units, example by example.

    difference: the mean, 0 for no better than chance. p: two-sided, Wilcoxon's signed ranks (scipy); NaN below 6
    examples that differ. effect: matched-pairs rank-biserial correlation, -1 to 1. n: examples with both numbers.
    """

    statistic: float
    p: float
    effect: float
    difference: float
    n: int


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on one map over a set: their shares, and the paired test.

    operators: those that decided somewhere; n_lacking: for each operator that some models lacked, in how many.
    """

    map: str
    shares: tuple[Share, ...]
    against_random: PairedTest
    operators: tuple[str, ...]
    n_lacking: tuple[tuple[str, int], ...]
    n: int

    def share(self, verdict: str) -> Share:
        """The share of one verdict."""
        return next(one for one in self.shares if one.verdict == verdict)

    def to_frame(self) -> pd.DataFrame:
        """A row a verdict: map, verdict, count, n, share, low, high, and the test of the map against random orders."""
        test = self.against_random
        return pd.DataFrame([{"map": self.map, **vars(one)} for one in self.shares]).assign(
            operators=", ".join(self.operators),
            difference=test.difference,
            p=test.p,
            effect=test.effect,
            n_tested=test.n,
        )


def verdicts(found: Sequence[Verdict]) -> Verdicts:
    """The verdicts on one map over a set of predictions. Errors: `InputError` for none, or for different maps."""
    names = {one.map for one in found}
    if len(names) != 1:
        raise InputError(f"a set has at least one verdict, all on one map; got {', '.join(sorted(names)) or 'none'}")
    counts, n = Counter(one.verdict for one in found), len(found)
    shares = tuple(Share(v, counts[v], n, counts[v] / n, *wilson(counts[v], n)) for v in VERDICTS)
    pairs = [(one.quality, one.random) for one in found if not math.isnan(one.quality)]
    lacking = Counter(operator for one in found for operator in one.lacking)
    operators = tuple(dict.fromkeys(operator for one in found for operator in one.operators))
    return Verdicts(names.pop(), shares, paired(pairs), operators, tuple(sorted(lacking.items())), n)


def wilson(count: int, n: int) -> tuple[float, float]:
    """Wilson's interval of a share at 95 %, by scipy; NaN of nothing.

    >>> [round(x, 4) for x in wilson(0, 340)]
    [0.0, 0.0112]
    """
    if n == 0:
        return math.nan, math.nan
    found = stats.binomtest(count, n).proportion_ci(LEVEL, "wilson")
    return float(found.low), float(found.high)


def paired(pairs: Sequence[tuple[float, float]]) -> PairedTest:
    """Wilcoxon's signed-rank test of the first against the second of each pair.

    >>> found = paired([(0.9, 0.3)] * 8)
    >>> found.n, found.effect, round(found.p, 4)
    (8, 1.0, 0.0078)
    """
    # Rounding must not break ties.
    differences = np.array([round(a - b, 12) for a, b in pairs], dtype=float)
    mean = float(differences.mean()) if len(differences) else math.nan
    moved = differences[differences != 0]
    if len(moved) == 0:
        return PairedTest(math.nan, math.nan, math.nan, mean, len(differences))
    ranks = stats.rankdata(np.abs(moved))
    effect = float((ranks * np.sign(moved)).sum() / ranks.sum())
    if len(moved) < FEWEST:
        return PairedTest(math.nan, math.nan, effect, mean, len(differences))
    test = stats.wilcoxon(moved)
    return PairedTest(float(test.statistic), float(test.pvalue), effect, mean, len(differences))
