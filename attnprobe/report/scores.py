"""The comparison's tables as the page draws them: faithfulness rows, curves, agreement."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from attnprobe.appearance import NARROW_SPACE, interval, look, names, number, percent, signed
from attnprobe.comparison import Comparison
from attnprobe.judged_tables import RANDOM
from attnprobe.metrics.erasure import BINS
from attnprobe.report.best_orders import best_orders, search
from attnprobe.study import KINDS, SHARES
from attnprobe.tables import DIRECTIONS

WORDS = {"yes": "holds up", "no": "does not hold up", "open": "open"}
# What the curve of the best order is called where methods have their names.
BEST = "best order"
# Metrics of this ending are areas under a curve: no fall, and never below 0 where the answer has a probability.
AREA = "_area"
MEASURES = {"kendall_tau": "Kendall’s τ", "spearman": "Spearman’s ρ", "top_k_overlap": "Top-k overlap"}


@dataclass(frozen=True)
class Unit:
    """What effects of removal are counted in: points of probability, or the explained number itself."""

    factor: float
    digits: int
    word: str
    what: str

    def signed(self, value: float) -> str:
        """A value with its sign."""
        return signed(self.factor * value, self.digits)

    def number(self, value: float) -> str:
        """A value without a plus."""
        return number(self.factor * value, self.digits)

    def falls(self, value: float) -> str:
        """A fall in words, never with a sign: "falls by 1.2 points", "rises by 0.3 points", "stays as it is"."""
        size = self.number(abs(value))
        return "stays as it is" if not float(size) else f"{'falls' if value > 0 else 'rises'} by {size} {self.word}"

    def both_fall(self, value: float, other: float) -> tuple[str, str]:
        """Two falls that are compared, with as many digits as it takes to tell them apart."""
        for more in range(3):
            unit = replace(self, digits=self.digits + more)
            said = unit.falls(value), unit.falls(other)
            if said[0] != said[1] or value == other:
                return said
        return self.falls(value), self.falls(other)

    def told(self, metric: str, value: float) -> str:
        """A value of a metric: falls have a sign, areas have none."""
        return self.number(value) if metric.endswith(AREA) else self.signed(value)

    def interval(self, low: float, high: float) -> str:
        """Two ends; empty where there are none."""
        return interval(self.factor * low, self.factor * high, self.digits)

    def tick(self, value: float, step: float) -> str:
        """A place on an axis, with as many digits as the steps need."""
        return number(self.factor * value, 0 if self.factor * step >= 0.99 else 1 if self.factor * step >= 0.099 else 2)


def unit_of(comparison: Comparison) -> Unit:
    """Points where every text's answer has a probability; nats where what is explained is a log-probability."""
    targets = [s.target for s in comparison.studies]
    if all(math.isfinite(target.label_probability) for target in targets):
        return Unit(100.0, 1, "points", "the probability")
    nats = all(target.scale == "log_probability" for target in targets)
    return Unit(1.0, 2, "nats" if nats else "units", "the explained number")


def tau(value: float) -> str:
    """Kendall's τ in a sentence; what would be rounded to 0 is said to be near it.

    >>> tau(0.124), tau(-0.002), tau(0.0)
    ('τ +0.12', 'τ near 0', 'τ 0')
    """
    if round(value, 2):
        return f"τ {signed(value, 2)}"
    return "τ near 0" if value else "τ 0"


def bins() -> str:
    """The shares of tokens that comprehensiveness and sufficiency average over: "1, 5, 10, 20 and 50 %"."""
    return names(f"{100 * share:g}" for share in BINS) + NARROW_SPACE + "%"


def one_token() -> tuple[int, str]:
    """Up to how many tokens the two smallest shares are one token, and those shares in words."""
    return int(1 / BINS[1] + 1e-9), names(f"{100 * share:g}" + NARROW_SPACE + "%" for share in BINS[:2])


def faithfulness(comparison: Comparison, methods: list[str]) -> list[dict[str, Any]]:
    """A figure a metric: an axis, and a row a method with places along it in percent."""
    found = []
    unit = unit_of(comparison)
    for metric, table in comparison.main.groupby("metric", sort=False):
        columns = ["mean", "low", "high", "random_low", "random_high", "oracle"]
        axis = axis_of([float(v) for v in table[columns].to_numpy().flatten()], unit)

        def at(value: float, low: float = axis["low"], high: float = axis["high"]) -> float | None:
            return round(100 * (value - low) / (high - low), 2) if math.isfinite(value) else None

        rows = {str(r["method"]): _row(r, at, unit) for r in table.to_dict("records")}
        best = float(table.oracle.iloc[0])
        found.append(
            {
                "metric": metric,
                "better": table.better.iloc[0],
                "ticks": [{"at": at(value), "text": said} for value, said in axis["ticks"]],
                "best": at(best),
                "best_text": unit.told(str(metric), best) if math.isfinite(best) else "",
                "rows": [rows[m] for m in methods if m in rows],
            }
        )
    return found


def axis_of(values: list[float], unit: Unit) -> dict[str, Any]:
    """An axis that holds all values and 0: its ends, and its ticks as (value, text)."""
    known = [v for v in values if math.isfinite(v)] + [0.0]
    ticks = _ticks(min(known), max(known))
    low, high = min(ticks[0], *known), max(ticks[-1], *known)
    pad = 0.02 * (high - low)
    said = [(t, unit.tick(t, ticks[1] - ticks[0])) for t in ticks]
    return {"low": low - pad, "high": high + pad, "ticks": said}


def _row(r: Mapping[Any, Any], at: Callable[[float], float | None], unit: Unit) -> dict[str, Any]:
    beaten = percent(r["random_beaten"], 0)
    random = unit.interval(r["random_low"], r["random_high"])
    own = unit.interval(r["low"], r["high"]) if r["n"] > 1 else ""
    mean = unit.told(r["metric"], r["random_mean"])
    label, value, said = look(r["method"]).label, unit.told(r["metric"], r["mean"]), WORDS[r["holds_up"]]
    exact = f"{label}: {value} {unit.word}{', interval ' + own if own else ''}"
    return {
        "method": r["method"],
        "label": label,
        **{name: at(r[name]) for name in ("low", "high", "random_low", "random_high")},
        "random_at": at(r["random_mean"]),
        "at": at(r["mean"]),
        "value": value,
        "interval": own,
        "random": random,
        "random_mean": mean,
        "difference": f"{unit.signed(r['difference'])} {unit.interval(r['difference_low'], r['difference_high'])}",
        "beaten": beaten,
        "holds_up": r["holds_up"],
        "said": said,
        "n": int(r["n"]),
        "label_text": f"{exact}; random orders {random}, mean {mean}; beats {beaten} of them; {said}",
    }


def _ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round places along an axis that covers low to high and contains 0.

    >>> _ticks(-0.1, 0.62)
    [-0.2, 0.0, 0.2, 0.4, 0.6, 0.8]
    """
    width = max(high - low, 1e-6) / about
    power = 10.0 ** math.floor(math.log10(width))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= width * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


def curves(comparison: Comparison, methods: list[str]) -> dict[str, Any]:
    """By kind and method the curve with its interval, the random band and the best order; the axis that fits all."""
    table, best = comparison.curves, best_orders(comparison)
    probability = unit_of(comparison).word == "points"
    found: dict[str, Any] = {"shares": list(SHARES), "kinds": {}, "probability": int(probability)}
    found["search"] = search(comparison)
    for kind in KINDS:
        mine = table[table.kind == kind]
        lines = {str(m): _line(rows) for m, rows in mine.groupby("method", sort=False)}
        found["kinds"][kind] = {
            "random": lines.pop(RANDOM, None),
            "best": _line(best[best.kind == kind]) if (best.kind == kind).any() else None,
            "methods": {m: lines[m] for m in methods if m in lines},
        }
    numbers = pd.concat([table, best])[["mean", "low", "high"]].to_numpy(dtype=float).flatten()
    numbers = numbers[pd.notna(numbers)]
    ticks = (
        [0.0, 0.5, 1.0] if probability or not len(numbers) else _ticks(float(numbers.min()), float(numbers.max()), 3)
    )
    return found | {"ticks": ticks}


def _line(rows: pd.DataFrame) -> dict[str, list[float | None]]:
    rows = rows.sort_values("share")
    return {c: [None if math.isnan(v) else round(float(v), 5) for v in rows[c]] for c in ("mean", "low", "high")}


def areas(comparison: Comparison) -> dict[str, dict[str, str]]:
    """Mean height of each curve over the share of tokens taken away or left, in the unit of its axis."""
    found: dict[str, dict[str, str]] = {}
    probability = unit_of(comparison).word == "points"
    table = pd.concat([comparison.curves, best_orders(comparison).assign(method=BEST)])
    for (kind, method), rows in table.groupby(["kind", "method"], sort=False):
        rows = rows.sort_values("share")
        x, y = rows.share.to_numpy(), rows["mean"].to_numpy()
        area = float(((y[1:] + y[:-1]) / 2 * (x[1:] - x[:-1])).sum() / (x[-1] - x[0]))
        found.setdefault(str(kind), {})[str(method)] = percent(area) if probability else number(area, 2)
    return found


def agreement(comparison: Comparison) -> dict[str, Any]:
    """By direction, "a|b" -> [tau, low, high] of Kendall's tau (nulls where unknown)."""
    table = comparison.agreement
    found: dict[str, Any] = {d: {} for d in DIRECTIONS}
    for r in table[table.metric == "kendall_tau"].to_dict("records"):
        cell = [None if math.isnan(v) else round(float(v), 4) for v in (r["mean"], r["low"], r["high"])]
        found[r["direction"]][f"{r['method_a']}|{r['method_b']}"] = cell
    return found


def agreement_rows(comparison: Comparison, methods: list[str]) -> list[dict[str, Any]]:
    """A row a pair of methods and direction, with all measures in words."""
    table = comparison.agreement
    if table.empty:
        return []
    by_pair = {
        key: rows.set_index("metric") for key, rows in table.groupby(["direction", "method_a", "method_b"], sort=False)
    }
    found = []
    for (direction, a, b), rows in by_pair.items():
        first, second = sorted((str(a), str(b)), key=methods.index)
        cells = []
        for metric in rows.index:
            r = rows.loc[metric]
            digits = percent(r["mean"], 0) if metric == "top_k_overlap" else signed(r["mean"], 2)
            around = (
                (percent(r.low, 0) + " to " + percent(r.high, 0))
                if metric == "top_k_overlap" and math.isfinite(r.low)
                else interval(r.low, r.high)
            )
            cells.append(
                f"{digits} {around if metric != 'top_k_overlap' or not around else '[' + around + ']'}".strip()
            )
        found.append(
            {
                "direction": direction,
                "a": look(first).label,
                "b": look(second).label,
                "cells": cells,
                "n": int(rows.n.max()),
                "order": (methods.index(first), methods.index(second)),
            }
        )
    return sorted(found, key=lambda r: (DIRECTIONS.index(r["direction"]), r["order"]))


def measures(comparison: Comparison) -> list[str]:
    """Names of the agreement measures in the order of the cells."""
    return [MEASURES.get(m, m.replace("_", " ")) for m in dict.fromkeys(comparison.agreement.metric)]


def over(comparison: Comparison) -> str:
    """What the intervals of tau are over: texts, or the tokens of the single text."""
    table = comparison.agreement
    rows = table[(table.metric == "kendall_tau") & table.low.notna()]
    return "none" if rows.empty else str(rows.interval_over.iloc[0])
