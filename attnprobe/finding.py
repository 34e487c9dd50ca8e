"""Findings: what a comparison says, in sentences, each with the rows of the tables that it rests on."""

from dataclasses import replace

import pandas as pd

from attnprobe.comparison import Comparison
from attnprobe.explaining import explanations
from attnprobe.intervals import LEVEL, MIN_TEXTS
from attnprobe.robustness import of_operators, of_tests, sure_beside_random
from attnprobe.wording import Finding as Finding
from attnprobe.wording import Verdict, named, scope, signed, spaced

# The two tests by removal that a claim about a method speaks of.
BOTH = ("comprehensiveness", "sufficiency")
BOTH_WORDS = " and ".join(BOTH)
# A Kendall's tau of less than this is called slight.
WEAK = 0.2
# Of fewer texts than intervals take: removal seems to work the other way where it beats this share of random orders.
MOST_RAISE_LESS = 0.25


def findings(comparison: Comparison) -> tuple[Finding, ...]:
    """The claims of a comparison, the most important first: does each map explain, then what else was measured.

    An explanation is a claim about this prediction; that a map names a relation (a source, a copied token) is another.
    """
    beside_random = comparison.settings.n_random > 0
    found = [
        *explanations(comparison),
        _attention_under_removal(comparison) if beside_random else None,
        _who_holds_up(comparison) if beside_random else None,
        _attention_and_removal_agree(comparison),
        of_operators(comparison),
        of_tests(comparison),
    ]
    return tuple(_set(f) for f in found if f is not None)


def _set(found: Finding) -> Finding:
    """The finding with its percentages as the page sets them."""
    against, causes = (tuple(map(spaced, said)) for said in (found.against, found.causes))
    return replace(found, claim=spaced(found.claim), against=against, causes=causes)


def raises(row: pd.Series) -> bool:
    """Whether removal in a method's order raises what is explained, and does so more than most random orders.

    From `MIN_TEXTS` on by the intervals, else where three quarters of the random orders raise it less. row: a row
    of `faithfulness` for comprehensiveness.
    """
    if row.n >= MIN_TEXTS and pd.notna(row.high):
        return bool(row.high < 0 and row.difference_high < 0)
    return bool(row["mean"] < 0 and row.random_beaten <= MOST_RAISE_LESS)


def _attention_under_removal(comparison: Comparison) -> Finding | None:
    """Does removing what attention weights most lower the explained answer more than removing tokens at random?"""
    table = comparison.main
    mine = table[table.method == "raw_attention"]
    rows = mine[mine.metric == "comprehensiveness"]
    if rows.empty:
        return None
    row = rows.iloc[0]
    alone = mine[mine.metric == "sufficiency"].holds_up
    kept = str(alone.iloc[0]) if len(alone) else "open"
    claim = _other_way(row) if raises(row) and row.holds_up != "yes" else None
    claim = (claim or _taken_away(row.holds_up, kept)) + _left_alone(row.holds_up, kept, claim is not None)
    evidence = rows if kept == "open" else mine[mine.metric.isin(BOTH)]
    return Finding("attention", f"{claim}, {scope(comparison)}.", row.holds_up, evidence)


def _other_way(row: pd.Series) -> str:
    """The claim where removal in attention's order raises the answer."""
    raised = "removing tokens in its order raises the explained answer"
    if row.n >= MIN_TEXTS and pd.notna(row.difference_high):
        return f"Attention finds words that argue the other way: {raised}, more than random orders do"
    if row.random_beaten <= 1 - LEVEL + 1e-9 and row.holds_up == "no":
        return f"Attention finds words that argue the other way: {raised}, more than nearly all random orders do"
    still = ", but this stays open" if row.holds_up == "open" else ""
    return f"Attention seems to find words that argue the other way{still}: {raised}, more than most random orders do"


def _taken_away(verdict: str, kept: str) -> str:
    if verdict == "open" and kept == "no":
        return (
            "Attention's top tokens keep less of the answer than random tokens do: left alone, they are clearly worse "
            "than in random orders (sufficiency); whether taking them away lowers the answer more stays open "
            "(comprehensiveness)"
        )
    return {
        "yes": "Attention finds tokens that matter: removing them in its order lowers the explained answer more than "
        "random orders do",
        "no": "Attention does not find what supports this answer: removing tokens in its order lowers the explained "
        "answer no more than random orders do",
        "open": "Whether attention finds what matters stays open: its order is not clearly better than random ones",
    }[verdict]


def _left_alone(verdict: str, kept: str, other_way: bool) -> str:
    """What the second test adds to the claim where it says something else than the first."""
    if kept == "no" and (verdict == "yes" or other_way):
        return "; left alone, its top tokens keep less of the answer than random ones do"
    if kept == "yes" and verdict != "yes":
        return "; left alone, though, its top tokens keep more of the answer than random ones do"
    return ""


def _who_holds_up(comparison: Comparison) -> Finding | None:
    """Which methods beat random orders in both tests of `BOTH`."""
    table = comparison.main[comparison.main.metric.isin(BOTH)]
    judged = table[table.method != "random_scores"]
    if judged.empty:
        return None
    control = table[table.method == "random_scores"]
    if len(control) and set(control.holds_up) == {"yes"}:
        claim = f"Nothing can be told of removal {scope(comparison)}: random scores pass {BOTH_WORDS} too."
        return Finding("removal", claim, "open", control)
    verdicts = judged.groupby("method", sort=False).holds_up.agg(set)
    good = [str(name) for name, found in verdicts.items() if found == {"yes"}]
    n = len(verdicts)
    if not good:
        who = (
            f"None of the {n} methods clearly beats"
            if n > 1
            else f"{named(list(verdicts.index))} does not clearly beat"
        )
        claim = f"{who[0].upper()}{who[1:]} random orders in {BOTH_WORDS}, {scope(comparison)}."
        # A method is out where one metric says no; where all that is known is open, nothing is known of it.
        out = all("no" in found for found in verdicts)
        return Finding("removal", claim, "no" if out else "open", judged)
    verb = "beats" if len(good) == 1 else "beat"
    sure = sure_beside_random(comparison, good, BOTH)
    claim = (
        f"{len(good)} of {n} methods {verb} random orders in {BOTH_WORDS}, {scope(comparison)}{sure}: {named(good)}."
    )
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
    number = f"Kendall's τ {signed(row['mean'])}"
    if pd.isna(row.low):
        return Finding(
            "agreement",
            f"Whether attention and leave-one-out agree cannot be told: {number}, {scope(comparison)}; too little for "
            "an interval.",
            "open",
            rows,
        )
    interval = f"{LEVEL:.0%} interval [{signed(row.low)}, {signed(row.high)}] over {row.interval_over}"
    if row.low <= 0 <= row.high:
        return Finding(
            "agreement",
            f"Attention's order and leave-one-out's cannot be told from unrelated: {number}, {interval}.",
            "open",
            rows,
        )
    verdict: Verdict = "yes" if row.low > 0 else "no"
    if abs(row["mean"]) < WEAK:
        way = "agree slightly" if verdict == "yes" else "run slightly against each other"
    else:
        way = "partly agree" if verdict == "yes" else "run against each other"
    return Finding("agreement", f"Attention's order and leave-one-out's {way}: {number}, {interval}.", verdict, rows)
