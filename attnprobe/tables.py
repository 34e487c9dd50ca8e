"""Studies to long tables: agreement, faithfulness, curves, checks, costs, each with n and intervals."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import torch

from attnprobe.attribution import Attribution
from attnprobe.capture import Check
from attnprobe.intervals import MIN_TEXTS, kendall_over_tokens, over_texts
from attnprobe.metrics import agreement as agreement_metrics
from attnprobe.metrics import by_default
from attnprobe.metrics import faithfulness as faithfulness_metrics
from attnprobe.study import KINDS, SHARES, Settings, Study

DIRECTIONS = ("signed", "size")
RANDOM = "random orders"
# Fewer random orders can all be beaten by chance in more than 5 % of cases (1 in n + 1).
MIN_ORDERS = 19
# The share of them that a method of a few texts has to beat.
CLEAR = 0.95


def attributions(studies: Sequence[Study]) -> pd.DataFrame:
    """A row an example, method and token."""
    parts = [a.to_frame().assign(example_index=i) for i, study in enumerate(studies) for a in study.attributions]
    frame = pd.concat(parts, ignore_index=True)
    return frame[["example_index", *[c for c in frame.columns if c != "example_index"]]]


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
    """A row a metric, direction and pair of methods; one text: Kendall's tau gets an interval over its tokens."""
    names = list(dict.fromkeys(a.method for s in studies for a in s.attributions))
    rows = []
    for direction in DIRECTIONS:
        for a, b in combinations(names, 2):
            pairs = [_pair(s.attribution(a), s.attribution(b), direction) for s in studies]
            known = [pair for pair in pairs if pair is not None]
            for metric, entry in by_default(agreement_metrics).items():
                values = [entry.function(x, y) for x, y in known]
                found = over_texts(values, n_resamples=settings.n_resamples, seed=settings.seed)
                low, high, over = found.low, found.high, "texts"
                if len(studies) == 1 and metric == "kendall_tau" and found.n:
                    low, high = kendall_over_tokens(*known[0], n_resamples=settings.n_resamples, seed=settings.seed)
                    over = "tokens"
                rows.append((metric, direction, a, b, found.mean, low, high, found.n, over))
    columns = ["metric", "direction", "method_a", "method_b", "mean", "low", "high", "n", "interval_over"]
    return pd.DataFrame(rows, columns=columns)


def _pair(a: Attribution | None, b: Attribution | None, direction: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The scores of the tokens that both methods are compared on; None where one of them failed."""
    if a is None or b is None:
        return None
    x, y = a.scores[a.units], b.scores[b.units]
    return (x, y) if direction == "signed" else (x.abs(), y.abs())


def faithfulness(studies: Sequence[Study], settings: Settings) -> pd.DataFrame:
    """A row a metric and method, beside the random orders of the same texts; see `Comparison` for the columns."""
    names = list(dict.fromkeys(a.method for s in studies for a in s.attributions))
    rows = []
    for metric, entry in by_default(faithfulness_metrics).items():
        sign = -1.0 if entry.facts["better"] == "lower" else 1.0
        random = [_random(s, metric) for s in studies]
        for name in names:
            cells = [(_value(s, name, metric), r) for s, r in zip(studies, random, strict=True)]
            rows.append(
                _faithfulness_row(
                    metric, entry.facts["better"], name, [c for c in cells if not math.isnan(c[0])], sign, settings
                )
            )
    return pd.DataFrame(rows)


def _faithfulness_row(
    metric: str, better: str, name: str, cells: list[tuple[float, np.ndarray]], sign: float, settings: Settings
) -> dict[str, object]:
    options = {"n_resamples": settings.n_resamples, "seed": settings.seed}
    value = over_texts([v for v, _ in cells], **options)
    difference = over_texts([v - float(np.mean(r)) if len(r) else math.nan for v, r in cells], **options)
    # Ties count half: an order that is as good as a random one beats half of them.
    beaten = [float(np.mean(sign * v > sign * r) + np.mean(v == r) / 2) for v, r in cells if len(r)]
    share = float(np.mean(beaten)) if beaten else math.nan
    band = [np.quantile(r, [0.05, 0.95]) for _, r in cells if len(r)]
    low, high = np.mean(band, axis=0) if band else (math.nan, math.nan)
    return {
        "metric": metric,
        "better": better,
        "method": name,
        "mean": value.mean,
        "low": value.low,
        "high": value.high,
        "n": value.n,
        "random_mean": float(np.mean([np.mean(r) for _, r in cells if len(r)])) if band else math.nan,
        "random_low": float(low),
        "random_high": float(high),
        "random_beaten": share,
        "difference": difference.mean,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "holds_up": holds_up(
            sorted((sign * difference.low, sign * difference.high)), share, value.n, sum(len(r) for _, r in cells)
        ),
    }


def holds_up(interval: list[float], beaten: float, n: int, n_orders: int) -> str:
    """Whether a method beats random orders: "yes", "no" (it is worse), or "open" (it cannot be told).

    From 6 texts on: by the interval of the mean difference. Fewer texts, with at least 19 random orders in all:
    "yes" where 95 % of them or more are beaten on average, "no" where 5 % or fewer are.
    """
    if math.isnan(beaten):
        return "open"
    if n < MIN_TEXTS or math.isnan(interval[0]):
        if n_orders < MIN_ORDERS:
            return "open"
        return "yes" if beaten >= CLEAR else "no" if beaten <= 1 - CLEAR + 1e-9 else "open"
    return "yes" if interval[0] > 0 else "no" if interval[1] < 0 else "open"


def _value(study: Study, method: str, metric: str) -> float:
    return next((j.values[metric] for j in study.judgements if j.method == method), math.nan)


def _random(study: Study, metric: str) -> np.ndarray:
    return np.array([j.values[metric] for j in study.judgements if j.method is None])


def curves(studies: Sequence[Study], settings: Settings) -> pd.DataFrame:
    """A row a method, kind and share: mean over texts, with its interval; for random orders their middle 90 %."""
    names = list(dict.fromkeys(a.method for s in studies for a in s.attributions))
    rows = []
    for kind in KINDS:
        for at, share in enumerate(SHARES):
            for name in names:
                values = [j.curves[kind][at] for s in studies for j in s.judgements if j.method == name]
                found = over_texts(values, n_resamples=settings.n_resamples, seed=settings.seed)
                rows.append((name, kind, share, found.mean, found.low, found.high, found.n))
            random = [np.array([j.curves[kind][at] for j in s.judgements if j.method is None]) for s in studies]
            random = [r for r in random if len(r)]
            if random:
                low, high = np.mean([np.quantile(r, [0.05, 0.95]) for r in random], axis=0)
                rows.append(
                    (
                        RANDOM,
                        kind,
                        share,
                        float(np.mean([r.mean() for r in random])),
                        float(low),
                        float(high),
                        len(random),
                    )
                )
    return pd.DataFrame(rows, columns=["method", "kind", "share", "mean", "low", "high", "n"])


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
