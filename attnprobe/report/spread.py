"""A set of texts at a glance: how each method stands up on every single one, beside random orders and the best."""

import math
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.appearance import inline, look
from attnprobe.comparison import Comparison
from attnprobe.report.nouns import few, nouns
from attnprobe.report.scores import AREA, axis_of, unit_of

METRICS = {
    "comprehensiveness": "Top {tokens} taken away: {what} falls by. Right is better.",
    "sufficiency": "Only the top {tokens} left: {what} falls by. Left is better.",
    "deletion_area": "Area under the curve of {what} as top {tokens} are taken away. Left is better.",
}


QUARTILES = (0, 0.25, 0.5, 0.75, 1)


def spread(comparison: Comparison, methods: list[str]) -> dict[str, Any] | None:
    """By metric and method a number a text, under the main operator; None for one text, or where nothing was judged."""
    table = comparison.positions
    if len(comparison.studies) == 1 or table.empty:
        return None
    mine = table[table.operator == comparison.settings.operator]
    found = [_metric(comparison, str(metric), rows, methods) for metric, rows in mine.groupby("metric", sort=False)]
    unit = unit_of(comparison)
    return {
        "metrics": found,
        "unit": unit.word,
        "factor": unit.factor,
        "digits": unit.digits,
        "heading": _heading(comparison, mine),
        "rows": [row for metric in found for row in _quartiles(comparison, metric, methods)],
    }


def _heading(comparison: Comparison, rows: pd.DataFrame) -> str:
    """On how many texts attention is ahead of random orders, and which method is ahead on most."""
    taken = rows[(rows.metric == "comprehensiveness") & rows.random_mean.notna() & rows.value.notna()]
    ahead = (taken.value > taken.random_mean).groupby(taken.method).sum()
    n, noun = taken.groupby("method").size(), nouns(comparison)
    ahead = ahead[[m for m in ahead.index if m != "random_scores"]]
    if ahead.empty:
        return f"How each method stands up on every {noun.text}"
    best = str(ahead.idxmax())
    said = f"{look(best).label} is ahead of random orders on {noun.of(int(ahead[best]), int(n[best]))}"
    if "raw_attention" not in ahead or best == "raw_attention":
        return said
    mine = noun.of(int(ahead["raw_attention"]), int(n["raw_attention"]))
    theirs = few(int(ahead[best]), int(n[best]))
    return f"{look('raw_attention').label} is ahead of random orders on {mine}, {inline(best)} on {theirs}"


def _quartiles(comparison: Comparison, metric: dict[str, Any], methods: list[str]) -> list[dict[str, Any]]:
    """A row a method: the least, the quartiles and the greatest over texts, in words."""
    unit = unit_of(comparison)
    found = []
    for name in [m for m in methods if m in metric["values"]]:
        values = pd.Series([v for v in metric["values"][name] if v is not None], dtype=float)
        cells = (
            [unit.told(metric["metric"], float(values.quantile(q))) for q in QUARTILES] if len(values) else ["–"] * 5
        )
        found.append({"label": look(name).label, "metric": metric["name"], "cells": cells, "n": len(values)})
    return found


def _metric(comparison: Comparison, metric: str, rows: pd.DataFrame, methods: list[str]) -> dict[str, Any]:
    wide = rows.pivot(index="method", columns="example_index", values="value")
    wide = wide.reindex(columns=range(len(comparison.studies)))
    first = rows.drop_duplicates("example_index").set_index("example_index").reindex(range(len(comparison.studies)))
    unit = unit_of(comparison)
    values = [float(v) for v in wide.to_numpy().flatten() if math.isfinite(v)]
    known = [m for m in methods if m in wide.index]
    column = {m: wide.loc[[m]].to_numpy(dtype=float)[0] for m in known}
    said = METRICS.get(metric, f"Better: {rows.better.iloc[0]}.").format(
        what=unit.what, tokens=nouns(comparison).tokens
    )
    return {
        "metric": metric,
        "name": metric.replace("_", " "),
        "said": said,
        "sign": int(not metric.endswith(AREA)),
        "axis": axis_of(values, unit),
        "values": {m: _rounded(column[m]) for m in known},
        "medians": {m: _known(float(np.nanmedian(column[m]))) for m in known},
        "random": _rounded(first.random_mean.to_numpy(dtype=float)),
        "best": _rounded(first.oracle.to_numpy(dtype=float)),
    }


def _rounded(values: Float[np.ndarray, " text"]) -> list[float | None]:
    return [_known(v) for v in values.tolist()]


def _known(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
