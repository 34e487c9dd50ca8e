"""Studies to long tables: scores, predictions, agreement beside its null, checks, costs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from scipy import stats

from attnprobe.attribution import Attribution
from attnprobe.capture import Check
from attnprobe.intervals import LEVEL, kendall_over_tokens, over_columns
from attnprobe.metrics import agreement as agreement_metrics
from attnprobe.metrics import by_default
from attnprobe.metrics.ranks import kendall_tau, spearman
from attnprobe.study import Settings, Study

DIRECTIONS = ("signed", "size")
AGREEMENT = ["metric", "direction", "method_a", "method_b", "mean", "low", "high", "n", "interval_over"]
AGREEMENT += ["null_low", "null_high"]
# Metrics that heed nothing but the order of the tokens: what they are by chance depends on their number alone.
OF_RANKS = ("kendall_tau", "spearman", "top_k_overlap", "rbo", "top_k_kendall")
# Permutations of one length, and means over texts that are drawn from them.
N_PERMUTED, N_MEANS = 400, 2000


def attributions(studies: Sequence[Study]) -> pd.DataFrame:
    """A row an example, method and token."""
    parts = [a.to_frame().assign(example_index=i) for i, study in enumerate(studies) for a in study.attributions]
    frame = pd.concat(parts, ignore_index=True)
    return frame[["example_index", *[c for c in frame.columns if c != "example_index"]]]


def names_of(studies: Sequence[Study]) -> list[str]:
    """The methods that gave an answer on some example."""
    return list(dict.fromkeys(a.method for s in studies for a in s.attributions))


def predictions(studies: Sequence[Study]) -> pd.DataFrame:
    """A row an example: the text, what was predicted and with which probability, what was explained on which scale."""
    rows = [
        {
            "example_index": i,
            "text": s.example.text,
            "n_tokens": s.example.n_tokens,
            "n_truncated": s.example.n_truncated,
            "predicted": s.target.predicted_name,
            "predicted_probability": s.target.predicted_probability,
            "explained": s.target.description,
            "explained_probability": s.target.label_probability,
        }
        for i, s in enumerate(studies)
    ]
    return pd.DataFrame(rows)


def agreement(studies: Sequence[Study], settings: Settings) -> pd.DataFrame:
    """A row a metric, direction and pair of methods; one text: Kendall's tau gets an interval over its tokens.

    null_low, null_high: the middle 95 % of what it would be if tokens were permuted (for metrics of ranks).
    """
    names = names_of(studies)
    pairs = [(d, a, b) for d in DIRECTIONS for a, b in combinations(names, 2)]
    scores = [[_pair(s.attribution(a), s.attribution(b), direction) for s in studies] for direction, a, b in pairs]
    known = {metric: _together(quick, studies, names) for metric, quick in TOGETHER.items()}
    rows: dict[tuple[int, str], tuple[Any, ...]] = {}
    for metric, entry in by_default(agreement_metrics).items():
        if entry.function in known:
            array = known[entry.function]
        else:
            values = [[math.nan if xy is None else float(entry.function(*xy)) for xy in column] for column in scores]
            array = np.array(values, dtype=float).reshape(len(pairs), len(studies)).T
        found = over_columns(array, n_resamples=settings.n_resamples, seed=settings.seed)
        for number, (interval, column) in enumerate(zip(found, scores, strict=True)):
            low, high, over = interval.low, interval.high, "texts"
            both = [xy for xy in column if xy is not None]
            if len(studies) == 1 and metric == "kendall_tau" and interval.n:
                low, high = kendall_over_tokens(*both[0], n_resamples=settings.n_resamples, seed=settings.seed)
                over = "tokens"
            band = null_band(metric, tuple(sorted(len(x) for x, _ in both)), settings.seed)
            rows[number, metric] = (metric, *pairs[number], interval.mean, low, high, interval.n, over, *band)
    ordered = [rows[number, metric] for number in range(len(pairs)) for metric in by_default(agreement_metrics)]
    return pd.DataFrame(ordered, columns=AGREEMENT)


def _together(
    quick: Callable[[np.ndarray], np.ndarray], studies: Sequence[Study], names: Sequence[str]
) -> Float[np.ndarray, "text pair"]:
    """A metric of all pairs of methods, directions one after the other, text by text; NaN where one failed."""
    first, second = np.triu_indices(len(names), 1)
    rows = []
    for study in studies:
        found = [study.attribution(name) for name in names]
        n_units = next((int(a.units.sum()) for a in found if a is not None), 0)
        if n_units < 2:  # no order
            rows.append(np.full(len(DIRECTIONS) * len(first), math.nan))
            continue
        gone = torch.full((n_units,), math.nan, dtype=torch.float64)
        scores = torch.stack([gone if a is None else a.scores[a.units].double() for a in found]).numpy()
        rows.append(np.concatenate([quick(x)[first, second] for x in (scores, np.abs(scores))]))
    return np.array(rows, dtype=float).reshape(len(studies), len(DIRECTIONS) * len(first))


def _ordered(scores: Float[np.ndarray, "method unit"]) -> Bool[np.ndarray, " method"]:
    """Which rows are known and not constant."""
    return ~np.isnan(scores).any(1) & (np.ptp(scores, axis=1) > 0)


def _taus(scores: Float[np.ndarray, "method unit"]) -> Float[np.ndarray, "method method"]:
    """Kendall's tau-b of each pair of rows: Σ of products of signs over the root of the pairs that neither ties."""
    before, after = np.triu_indices(scores.shape[1], 1)
    signs = np.sign(scores[:, after] - scores[:, before])
    untied = np.sqrt((signs**2).sum(1))
    return _correlated(signs @ signs.T, untied, _ordered(scores))


def _rhos(scores: Float[np.ndarray, "method unit"]) -> Float[np.ndarray, "method method"]:
    """Spearman's rho of each pair of rows: Pearson's of the ranks, ties given their mean."""
    ranks = stats.rankdata(scores, axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    return _correlated(ranks @ ranks.T, np.sqrt((ranks**2).sum(1)), _ordered(scores))


def _correlated(
    products: Float[np.ndarray, "method method"],
    norms: Float[np.ndarray, " method"],
    known: Bool[np.ndarray, " method"],
) -> Float[np.ndarray, "method method"]:
    found = products / np.where(known, norms, 1.0)[:, None] / np.where(known, norms, 1.0)
    return np.where(known[:, None] & known, found, math.nan)


# Metrics of all pairs at once; the same numbers as the registered functions give, pair by pair.
TOGETHER: Mapping[Callable[..., float], Callable[[np.ndarray], np.ndarray]] = {kendall_tau: _taus, spearman: _rhos}


@lru_cache(maxsize=4096)
def null_band(metric: str, lengths: tuple[int, ...], seed: int) -> tuple[float, float]:
    """The middle 95 % of the mean agreement over texts of these lengths where the tokens of one side are permuted.

    (NaN, NaN) for a metric that heeds more than the order, and for texts of one token.
    """
    if metric not in OF_RANKS or not lengths:
        return math.nan, math.nan
    draw = np.random.default_rng(seed)
    nulls = [_null(metric, n, seed) for n in lengths]
    means = np.mean([draw.choice(null, N_MEANS) for null in nulls], axis=0)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@lru_cache(maxsize=1024)
def _null(metric: str, n: int, seed: int) -> Float[np.ndarray, " draw"]:
    """A metric of n ranks and a permutation of them: all permutations of few, else as many as `N_PERMUTED`."""
    draw = np.random.default_rng([seed, n])
    few = math.factorial(n) <= N_PERMUTED
    chosen = list(permutations(range(n))) if few else [draw.permutation(n) for _ in range(N_PERMUTED)]
    orders = np.array(chosen)
    if metric == "kendall_tau" and n > 1:
        # Without ties: 1 − 4 · inversions / n(n − 1).
        inverted = np.triu(orders[:, :, None] > orders[:, None, :], 1).sum((1, 2))
        return 1 - 4 * inverted / (n * (n - 1))
    if metric == "spearman" and n > 1:
        return 1 - 6 * ((orders - np.arange(n)) ** 2).sum(1) / (n * (n * n - 1))
    function, ranks = agreement_metrics[metric].function, torch.arange(n).float()
    return np.array([function(ranks, torch.from_numpy(order).float()) for order in orders])


def _pair(a: Attribution | None, b: Attribution | None, direction: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The scores of the tokens that both methods are compared on; None where one of them failed."""
    if a is None or b is None:
        return None
    x, y = a.scores[a.units], b.scores[b.units]
    return (x, y) if direction == "signed" else (x.abs(), y.abs())


def checks(studies: Sequence[Study]) -> pd.DataFrame:
    """A row a kind of check: the largest value measured, where, against what is allowed, over n measurements.

    A measurement that later captures re-used counts once.
    """
    found = [c for s in studies for c in s.capture.checks]
    rows = [(c.name, c.where, c.value, c.tolerance, c.passed) for c in _measurements(found)]
    frame = pd.DataFrame(rows, columns=["check", "where", "value", "tolerance", "passed"])
    if frame.empty:
        return frame.assign(n=[])
    worst = (
        frame.assign(share=frame.value / frame.tolerance)
        .sort_values("share", ascending=False)
        .groupby("check", sort=False)
        .first()
    )
    grouped = frame.groupby("check", sort=False)
    return worst.assign(passed=grouped.passed.all(), n=grouped.size()).drop(columns="share").reset_index()


def _measurements(checks: Sequence[Check]) -> list[Check]:
    """Those that were made in these captures, then those that were made in earlier ones, each once."""
    made = [c for c in checks if not c.reused]
    earlier = dict.fromkeys(replace(c, reused=False) for c in checks if c.reused)
    return made + [c for c in earlier if c not in set(made)]


def costs(studies: Sequence[Study]) -> pd.DataFrame:
    """A row a method: mean single-row passes and seconds a text; a row that is known already is not counted."""
    rows = [
        (a.method, a.family, a.forward_passes, a.backward_passes, a.seconds) for s in studies for a in s.attributions
    ]
    frame = pd.DataFrame(rows, columns=["method", "family", "forward_passes", "backward_passes", "seconds"])
    return frame.groupby(["method", "family"], sort=False).mean().reset_index()
