"""What the model did as tokens went, to long tables: faithfulness, where each example stands, curves, operators."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.intervals import MIN_TEXTS, Interval, over_columns
from attnprobe.metrics import by_default
from attnprobe.metrics import faithfulness as metrics
from attnprobe.study import FOREIGN, KINDS, METHOD, ORACLE, RANDOM_ORDER, REVERSED, SHARES, Judged, Settings, Study
from attnprobe.study import kind_of_operator as kind_of
from attnprobe.tables import names_of

RANDOM = "random orders"
# Fewer random orders can all be beaten by chance in more than 5 % of cases (1 in n + 1).
MIN_ORDERS = 19
# The share of them that a method of a few texts has to beat.
CLEAR = 0.95
# Where the best order is no more than this better than random ones on average, there is no place between them.
LEAST = 1e-6
POSITIONS = [
    "example_index",
    "operator",
    "kind",
    "metric",
    "better",
    "method",
    "value",
    "random_mean",
    "random_low",
    "random_high",
    "random_beaten",
    "n_random",
    "oracle",
    "oracle_search",
    "position",
    "reversed",
    "foreign",
]


def sign_of(metric: str) -> float:
    """-1 where lower is better."""
    return -1.0 if metrics[metric].facts["better"] == "lower" else 1.0


def positions(studies: Sequence[Study], settings: Settings) -> pd.DataFrame:
    """A row an example, operator, metric and method: its value beside random orders, the best, reversed and foreign.

    oracle: the best of all orders that were judged. oracle_search: "exact" where all orders were looked through, else
    "greedy", or "none" where none was searched for. position: 0 at the mean of random orders, 1 at the oracle; NaN
    where these are alike. reversed: the method's order from behind. foreign: its order of another input's tokens.
    """
    rows: list[tuple[Any, ...]] = []
    for index, study in enumerate(studies):
        for judged in study.judged:
            for metric in judged.values:
                rows += _positions(index, judged, metric)
    return pd.DataFrame(rows, columns=POSITIONS)


def _positions(index: int, judged: Judged, metric: str) -> list[tuple[Any, ...]]:
    sign, random = sign_of(metric), judged.random(metric)
    known = judged.values[metric][~np.isnan(judged.values[metric])]
    searched = ORACLE in judged.roles
    oracle = float(sign * (sign * known).max()) if len(known) and searched else math.nan
    mean = float(random.mean()) if len(random) else math.nan
    low, high = np.quantile(random, [0.05, 0.95]) if len(random) else (math.nan, math.nan)
    search = "exact" if metric in judged.exact else "greedy" if searched else "none"
    room = sign * (oracle - mean)
    found = []
    for name in dict.fromkeys(n for role, n in zip(judged.roles, judged.names, strict=True) if role == METHOD):
        value = judged.value(metric, name)
        place = sign * (value - mean) / room if room > LEAST else math.nan
        # Ties count half: an order that is as good as a random one beats half of them.
        beaten = (
            float(np.mean(sign * value > sign * random) + np.mean(value == random) / 2) if len(random) else math.nan
        )
        others = (judged.value(metric, name, REVERSED), judged.value(metric, name, FOREIGN))
        start = (index, judged.operator, judged.kind, metric, metrics[metric].facts["better"], name, value)
        found.append((*start, mean, float(low), float(high), beaten, len(random), oracle, search, place, *others))
    return found


def faithfulness(studies: Sequence[Study], known: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """A row an operator, metric and method, beside the controls of the same texts; see `Comparison` for the columns.

    known: the `positions` of the studies.
    """
    cells = dict(iter(known.groupby(["operator", "metric", "method"], sort=False)))
    keys = [(o, m, name) for o in settings.operators for m in by_default(metrics) for name in names_of(studies)]
    parts = [cells.get(key, known.iloc[:0]) for key in keys]
    value, difference, place = (
        _intervals(columns, len(studies), settings)
        for columns in (
            [(p.example_index, p.value) for p in parts],
            [(p.example_index, p.value - p.random_mean) for p in parts],
            [(p.example_index, p.position) for p in parts],
        )
    )
    rows = [
        _row(key, part, value[number], difference[number], place[number])
        for number, (key, part) in enumerate(zip(keys, parts, strict=True))
    ]
    return pd.DataFrame(rows)


def _intervals(columns: Sequence[tuple[pd.Series, pd.Series]], n_texts: int, settings: Settings) -> list[Interval]:
    """An interval for each column of (example_index, value)."""
    values = np.full((n_texts, len(columns)), math.nan)
    for number, (index, column) in enumerate(columns):
        values[index.to_numpy(dtype=int), number] = column.to_numpy(dtype=float)
    return over_columns(values, n_resamples=settings.n_resamples, seed=settings.seed)


def _row(
    key: tuple[str, str, str], part: pd.DataFrame, value: Interval, difference: Interval, place: Interval
) -> dict[str, object]:
    operator, metric, name = key
    judged = part[part.value.notna()]
    mean = {c: _mean(judged[c]) for c in ("random_mean", "random_low", "random_high", "random_beaten", "oracle")}
    sign = sign_of(metric)
    interval = sorted((sign * difference.low, sign * difference.high))
    return {
        "operator": operator,
        "kind": kind_of(operator),
        "metric": metric,
        "better": metrics[metric].facts["better"],
        "method": name,
        "mean": value.mean,
        "low": value.low,
        "high": value.high,
        "n": value.n,
        **{c: mean[c] for c in ("random_mean", "random_low", "random_high", "random_beaten")},
        "difference": difference.mean,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "holds_up": holds_up(interval, mean["random_beaten"], value.n, int(judged.n_random.sum())),
        "oracle": mean["oracle"],
        "oracle_search": _search(judged.oracle_search),
        "position": place.mean,
        "position_low": place.low,
        "position_high": place.high,
        "position_n": place.n,
        "reversed": _mean(judged.reversed),
        "foreign": _mean(judged.foreign),
    }


def _search(found: pd.Series) -> str:
    """How the best orders of some texts were found: as the least thorough one was."""
    return next((kind for kind in ("none", "greedy", "exact") if (found == kind).any()), "none")


def _mean(values: pd.Series) -> float:
    return float(values.mean()) if values.notna().any() else math.nan


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


def curves(studies: Sequence[Study], settings: Settings) -> pd.DataFrame:
    """A row a method, kind and share, under the main operator: mean over texts, with its interval.

    For random orders their middle 90 %.
    """
    judged = [found for s in studies if (found := s.under(settings.operator)) is not None]
    rows: list[tuple[Any, ...]] = []
    for kind in KINDS:
        lines = [_line(judged, kind, name, settings) for name in names_of(studies)]
        band = _band([j.curve(kind, RANDOM_ORDER) for j in judged])
        for at, share in enumerate(SHARES):
            rows += [(settings.operator, name, kind, share, *line[at]) for name, line in lines]
            rows += [] if band is None else [(settings.operator, RANDOM, kind, share, *band[at])]
    return pd.DataFrame(rows, columns=["operator", "method", "kind", "share", "mean", "low", "high", "n"])


def _line(
    judged: Sequence[Judged], kind: str, name: str, settings: Settings
) -> tuple[str, list[tuple[float, float, float, int]]]:
    found = [j.curve(kind, METHOD, name) for j in judged]
    values = np.concatenate([np.zeros((0, len(SHARES))), *found])
    intervals = over_columns(values, n_resamples=settings.n_resamples, seed=settings.seed)
    return name, [(i.mean, i.low, i.high, i.n) for i in intervals]


def _band(random: Sequence[Float[np.ndarray, "order share"]]) -> list[tuple[float, float, float, int]] | None:
    """At each share the mean of random orders and their middle 90 %, means over texts; None without any."""
    known = [r for r in random if len(r)]
    if not known:
        return None
    low, high = np.mean([np.quantile(r, [0.05, 0.95], axis=0) for r in known], axis=0)
    mean = np.mean([r.mean(0) for r in known], axis=0)
    return [(float(m), float(a), float(b), len(known)) for m, a, b in zip(mean, low, high, strict=True)]


def operators(
    asked: Sequence[str], lacking: Sequence[Mapping[str, str]], studies: Sequence[Study], settings: Settings
) -> pd.DataFrame:
    """A row an operator that was asked for: its kind, whether it is the main one, on how many texts it judged.

    lacking: why not on the others. One that a model does not have is in no mean and in no count.
    """
    rows = []
    for name in dict.fromkeys([*settings.operators, *asked]):
        reasons = [found[name] for found in lacking if name in found]
        n = sum(s.under(name) is not None for s in studies)
        rows.append((name, kind_of(name), name == settings.operator, n, len(studies), reasons[0] if reasons else ""))
    return pd.DataFrame(rows, columns=["operator", "kind", "main", "n", "texts", "lacking"])
