"""Curves of the best orders that the search found: the mark that no method can be expected to pass by much."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.comparison import Comparison
from attnprobe.intervals import over_columns
from attnprobe.study import KINDS, ORACLE, SHARES, Judged

COLUMNS = ["operator", "kind", "share", "mean", "low", "high", "n"]


def best_orders(comparison: Comparison) -> pd.DataFrame:
    """A row a kind and share, under the main operator: mean over texts of each text's best order, and its interval.

    Of the orders that were searched for, a text's best is the one whose curve is lowest on average as tokens are taken
    away, highest where they alone are left. No rows where none was searched for.
    """
    settings = comparison.settings
    judged = [found for s in comparison.studies if (found := s.under(settings.operator)) is not None]
    rows: list[tuple[object, ...]] = []
    for kind in KINDS:
        lines = _lines(judged, kind)
        if len(lines):
            intervals = over_columns(lines, n_resamples=settings.n_resamples, seed=settings.seed)
            rows += [
                (settings.operator, kind, share, i.mean, i.low, i.high, i.n)
                for share, i in zip(SHARES, intervals, strict=True)
            ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _lines(judged: Sequence[Judged], kind: str) -> Float[np.ndarray, "text share"]:
    """The best curve of each text that has one."""
    sign = 1.0 if kind == "removed" else -1.0
    found = []
    for one in judged:
        curves = one.curve(kind, ORACLE)
        curves = curves[~np.isnan(curves).any(axis=1)]  # of comparisons that were kept before these were drawn
        if len(curves):
            heights = sign * np.trapezoid(curves, np.array(SHARES), axis=1)
            found.append(curves[int(np.argmin(heights))])
    return np.array(found) if found else np.zeros((0, len(SHARES)))


def search(comparison: Comparison) -> str:
    """How best orders were found, in words; empty where none was searched for."""
    table = comparison.main
    kinds = set(table.oracle_search) if len(table) else set()
    return "looking through all orders" if kinds == {"exact"} else "greedy search" if kinds - {"none"} else ""
