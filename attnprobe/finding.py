"""Findings: what a comparison says, in sentences, each with the rows of the tables that it rests on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from attnprobe.comparison import Comparison
from attnprobe.intervals import LEVEL

Verdict = Literal["yes", "no", "open"]


@dataclass(frozen=True, eq=False)
class Finding:
    """A claim, whether the numbers support it, and the numbers. topic: "removal", "agreement", "attention"."""

    topic: str
    claim: str
    verdict: Verdict
    evidence: pd.DataFrame = field(repr=False)


def findings(comparison: Comparison) -> tuple[Finding, ...]:
    """The claims of a comparison, the most important first."""
    found = [_attention_under_removal(comparison), _who_holds_up(comparison), _attention_and_removal_agree(comparison)]
    return tuple(f for f in found if f is not None)


def _names(names: Sequence[str]) -> str:
    words = [name.replace("_", " ") for name in names]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def _scope(comparison: Comparison) -> str:
    n = len(comparison.studies)
    return "on this text" if n == 1 else f"on these {n} texts"


def _attention_under_removal(comparison: Comparison) -> Finding | None:
    """Does removing what attention weights most move the prediction more than removing tokens at random?"""
    table = comparison.faithfulness
    rows = table[(table.method == "raw_attention") & (table.metric == "comprehensiveness")]
    if rows.empty:
        return None
    row = rows.iloc[0]
    saying = {
        "yes": "Attention finds tokens that matter: removing them in its order moves the prediction more than "
        "random orders do",
        "no": "Attention does not find what matters: removing tokens in its order moves the prediction no more than "
        "random orders do",
        "open": "Whether attention finds what matters stays open: its order is not clearly better than random ones",
    }
    return Finding("attention", f"{saying[row.holds_up]}, {_scope(comparison)}.", row.holds_up, rows)


def _who_holds_up(comparison: Comparison) -> Finding | None:
    """Which methods beat random orders in both metrics."""
    table = comparison.faithfulness
    judged = table[table.method != "random_scores"]
    if judged.empty:
        return None
    control = table[table.method == "random_scores"]
    if len(control) and set(control.holds_up) == {"yes"}:
        claim = f"Nothing can be told of removal {_scope(comparison)}: random scores pass both metrics too."
        return Finding("removal", claim, "open", control)
    by_method = judged.groupby("method", sort=False).holds_up.agg(lambda v: set(v) == {"yes"})
    good = list(by_method[by_method].index)
    n = len(by_method)
    if not good:
        return Finding(
            "removal",
            f"None of the {n} methods clearly beats random orders in both metrics, {_scope(comparison)}.",
            "no",
            judged,
        )
    verb = "beats" if len(good) == 1 else "beat"
    claim = f"{len(good)} of {n} methods {verb} random orders in both metrics, {_scope(comparison)}: {_names(good)}."
    return Finding("removal", claim, "yes", judged[judged.method.isin(good)])


def _attention_and_removal_agree(comparison: Comparison) -> Finding | None:
    """Does attention rank tokens as leave-one-out does?"""
    table = comparison.agreement
    pair = {"raw_attention", "leave_one_out"}
    rows = table[
        (table.metric == "kendall_tau")
        & table.method_a.isin(pair)
        & table.method_b.isin(pair)
        & (table.direction == "signed")
    ]
    if rows.empty or pd.isna(rows.iloc[0]["mean"]):
        return None
    row = rows.iloc[0]
    number = f"Kendall's τ {row['mean']:+.2f}".replace("-", "\N{MINUS SIGN}")
    if pd.isna(row.low):
        return Finding(
            "agreement",
            f"Attention and leave-one-out: {number}, {_scope(comparison)}; too little for an interval.",
            "open",
            rows,
        )
    interval = f"{LEVEL:.0%} interval [{row.low:+.2f}, {row.high:+.2f}] over {row.interval_over}".replace(
        "-", "\N{MINUS SIGN}"
    )
    if row.low <= 0 <= row.high:
        return Finding(
            "agreement",
            f"Attention's order and leave-one-out's cannot be told from unrelated: {number}, {interval}.",
            "open",
            rows,
        )
    verdict: Verdict = "yes" if row.low > 0 else "no"
    way = "partly agree" if verdict == "yes" else "run against each other"
    return Finding("agreement", f"Attention's order and leave-one-out's {way}: {number}, {interval}.", verdict, rows)
