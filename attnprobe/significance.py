"""Tests of paired numbers over examples, by scipy, corrected for their number, each with the size of the effect.

For sets only. Of one example there is no p-value to be had: with one causal token of n, the perfect order ties with
1/n of all orders, so that significance at 5 % is out of reach below about 21 tokens.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from attnprobe.errors import InputError, nearest
from attnprobe.intervals import MIN_TEXTS

WILCOXON, PERMUTATION = TESTS = ("wilcoxon", "permutation")
EFFECTS = {WILCOXON: "rank biserial", PERMUTATION: "Cohen's dz"}
# Sign flips that a permutation test draws; where there are no more than these (13 pairs) it takes all and is exact.
N_FLIPS = 9999
# Numbers of a null distribution that are in memory at once.
AT_ONCE = 4_000_000

Differences = Float[np.ndarray, "example pair"]
Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Paired:
    """One test of paired differences. n: pairs that are known; statistic and p are NaN below `MIN_TEXTS` of them."""

    test: str
    n: int
    difference: float
    statistic: float
    p: float
    effect: float

    def to_frame(self) -> pd.DataFrame:
        """One row: test, n, difference, statistic, p, effect, effect_name."""
        return pd.DataFrame([self.__dict__ | {"effect_name": EFFECTS[self.test]}])


def paired(differences: Numbers, *, test: str = WILCOXON, seed: int = 0) -> Paired:
    """Whether paired differences lie around 0, two-sided; NaN ones are left out. For many at once: `paired_columns`.

    >>> paired([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).p, paired([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).effect
    (0.03125, 1.0)
    """
    return paired_columns(np.array(differences, dtype=float)[:, None], test=test, seed=seed)[0]


def paired_columns(differences: Differences, *, test: str = WILCOXON, seed: int = 0) -> list[Paired]:
    """`paired` of each column.

    "wilcoxon": signed-rank test (scipy.stats.wilcoxon; zero differences leave it, ties get their mean rank), effect:
    matched-pairs rank biserial. "permutation": the mean under flipped signs (scipy.stats.permutation_test), effect:
    Cohen's dz. Errors: `InputError` for another test.
    """
    if test not in TESTS:
        raise InputError(f"no test is named '{test}'; {nearest(test, TESTS)}")
    known = [column[~np.isnan(column)] for column in differences.T]
    p_of = dict.fromkeys(range(len(known)), (math.nan, math.nan))
    enough = [number for number, column in enumerate(known) if len(column) >= MIN_TEXTS]
    for size in {len(known[number]) for number in enough}:
        mine = [number for number in enough if len(known[number]) == size]
        stacked = np.stack([known[number] for number in mine], axis=1)
        found = _wilcoxon(stacked) if test == WILCOXON else _flips(stacked, seed)
        p_of.update(zip(mine, zip(*found, strict=True), strict=True))
    effect = rank_biserial if test == WILCOXON else cohens_dz
    means = [float(d.mean()) if len(d) else math.nan for d in known]
    return [
        Paired(test, len(d), means[number], float(p_of[number][0]), float(p_of[number][1]), effect(d))
        for number, d in enumerate(known)
    ]


def _wilcoxon(differences: Differences) -> tuple[np.ndarray, np.ndarray]:
    """Statistic and p of each column; p is 1 where all differences are 0."""
    found = []
    # One by one: of several columns scipy chooses between the exact and the approximate way once for all.
    for column in differences.T:
        if (column == 0).all():
            found.append((0.0, 1.0))
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = stats.wilcoxon(column)
        found.append((float(one.statistic), float(one.pvalue)))
    return np.array([s for s, _ in found]), np.array([p for _, p in found])


def _flips(differences: Differences, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each column, and its p among the means with signs flipped."""
    found = stats.permutation_test(
        (differences,),
        lambda x, axis: x.mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=N_FLIPS,
        batch=max(1, AT_ONCE // differences.size),
        rng=np.random.default_rng(seed),
    )
    return np.array(found.statistic), np.array(found.pvalue)


def holm(p: Numbers) -> list[float]:
    """p-values corrected for their number (Holm 1979): the i-th smallest of m times m − i + 1, never falling.

    >>> [round(v, 3) for v in holm([0.01, 0.04, 0.03, float("nan")])]
    [0.03, 0.06, 0.06, nan]
    """
    values = np.array(p, dtype=float)
    order = [i for i in np.argsort(values, kind="stable") if not math.isnan(values[i])]
    factors = np.arange(len(order), 0, -1)
    values[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
    return [float(v) for v in values]


def rank_biserial(differences: Numbers) -> float:
    """Matched-pairs rank biserial: (ranks of positive − of negative differences) / all, by size; -1 to 1.

    >>> rank_biserial([3.0, 2.0, -1.0])
    0.6666666666666666
    """
    known = np.array([d for d in differences if d != 0 and not math.isnan(d)])
    if len(known) == 0:
        return 0.0 if len(differences) else math.nan
    ranks = stats.rankdata(np.abs(known))
    return float((ranks * np.sign(known)).sum() / ranks.sum())


def cohens_dz(differences: Numbers) -> float:
    """Mean difference over the standard deviation of the differences; NaN where that is 0 or unknown.

    >>> cohens_dz([1.0, 2.0, 3.0])
    2.0
    """
    known = np.array(differences, dtype=float)
    known = known[~np.isnan(known)]
    spread = known.std(ddof=1) if len(known) > 1 else 0.0
    return float(known.mean() / spread) if spread > 0 else math.nan
