"""Methods set beside one another over examples, and operators over methods: paired tests and rank stability."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from attnprobe.intervals import Interval, over_texts
from attnprobe.judged_tables import RANDOM, sign_of
from attnprobe.significance import EFFECTS, TESTS, holm, paired_columns
from attnprobe.study import Settings, Study
from attnprobe.study import kind_of_operator as kind_of

TESTED = ["operator", "kind", "metric", "test", "method_a", "method_b", "n", "difference"]
TESTED += ["statistic", "p", "p_holm", "effect", "effect_name"]
STABLE = ["ranked", "metric", "operator_a", "kind_a", "operator_b", "kind_b"]
STABLE += ["kendall_tau", "low", "high", "spearman", "spearman_low", "spearman_high", "n"]


def tests(positions: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """A row an operator, metric, test and pair of methods, or a method and the mean of random orders, over examples.

    difference: by how much the first is better, mean over the n examples that both are known on. p_holm: corrected
    within an operator, metric and test, for the pairs of methods and for methods beside random orders apart. p is NaN
    below six examples.
    """
    rows: list[tuple[Any, ...]] = []
    for (operator, metric), part in positions.groupby(["operator", "metric"], sort=False):
        values = part.pivot(index="example_index", columns="method", values="value")
        values = values[list(dict.fromkeys(part.method))]
        random = part.groupby("example_index").random_mean.first().reindex(values.index)
        families = (list(combinations(values.columns, 2)), [(name, RANDOM) for name in values.columns])
        table = values.assign(**{RANDOM: random})
        for pairs in families:
            rows += _family(str(operator), str(metric), table, pairs, settings)
    return pd.DataFrame(rows, columns=TESTED)


def _family(
    operator: str, metric: str, table: pd.DataFrame, pairs: Sequence[tuple[str, str]], settings: Settings
) -> list[tuple[Any, ...]]:
    if not pairs:
        return []
    rows: list[tuple[Any, ...]] = []
    differences = sign_of(metric) * np.stack([(table[a] - table[b]).to_numpy(dtype=float) for a, b in pairs], axis=1)
    for test in TESTS:
        found = paired_columns(differences, test=test, seed=settings.seed)
        corrected = holm([one.p for one in found])
        for (a, b), one, p_holm in zip(pairs, found, corrected, strict=True):
            numbers = (one.n, one.difference, one.statistic, one.p, p_holm, one.effect, EFFECTS[test])
            rows.append((operator, kind_of(operator), metric, test, a, b, *numbers))
    return rows


def stability(studies: Sequence[Study], faithfulness: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """A row a pair of operators and what they rank.

    ranked: "methods" (by their mean of a metric; n methods, no interval), or "tokens" (by what falls when each alone is
    taken away; mean over n texts with its interval). Orders that change with the operator say as much of it as of the
    model.
    """
    rows: list[tuple[Any, ...]] = []
    for a, b in combinations(settings.operators, 2):
        rows.append(_row("tokens", "leave-one-out effect", a, b, *_of_tokens(studies, a, b, settings)))
        for metric, part in faithfulness.groupby("metric", sort=False):
            both = part.pivot(index="method", columns="operator", values="mean")[[a, b]].dropna()
            rows.append(_row("methods", str(metric), a, b, *_of_methods(both[a].to_numpy(), both[b].to_numpy())))
    return pd.DataFrame(rows, columns=STABLE)


def _row(ranked: str, metric: str, a: str, b: str, tau: Interval, rho: Interval) -> tuple[Any, ...]:
    operators = (a, kind_of(a), b, kind_of(b))
    return (ranked, metric, *operators, tau.mean, tau.low, tau.high, rho.mean, rho.low, rho.high, tau.n)


def _of_methods(x: np.ndarray, y: np.ndarray) -> tuple[Interval, Interval]:
    tau, rho = _ranks(x, y)
    return Interval(tau, math.nan, math.nan, len(x)), Interval(rho, math.nan, math.nan, len(x))


def _of_tokens(studies: Sequence[Study], a: str, b: str, settings: Settings) -> tuple[Interval, Interval]:
    under = [(s.under(a), s.under(b)) for s in studies]
    found = [_ranks(x.effects, y.effects) for x, y in under if x is not None and y is not None]
    options = {"n_resamples": settings.n_resamples, "seed": settings.seed}
    return over_texts([tau for tau, _ in found], **options), over_texts([rho for _, rho in found], **options)


def _ranks(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Kendall's tau-b and Spearman's rho; NaN where one says nothing of the order."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan, math.nan
    return float(stats.kendalltau(x, y).statistic), float(stats.spearmanr(x, y).statistic)
