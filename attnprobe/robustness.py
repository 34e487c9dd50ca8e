"""Findings on how far what was found depends on the operator, and on which differences between methods are sure."""

import pandas as pd

from attnprobe.comparison import Comparison
from attnprobe.judged_tables import RANDOM
from attnprobe.significance import WILCOXON
from attnprobe.wording import Finding, Verdict, named, scope, signed

# From this Kendall's tau on, two operators are said to put methods in much the same order; below 0 in another one.
ALIKE = 0.6
ALPHA = 0.05
LISTED = 4


def of_operators(comparison: Comparison) -> Finding | None:
    """Do methods, judged by their mean comprehensiveness, stay in order when the operator is another one?"""
    table = comparison.stability
    rows = table[(table.ranked == "methods") & (table.metric == "comprehensiveness") & table.kendall_tau.notna()]
    if rows.empty:
        return None
    least = rows.sort_values("kendall_tau", kind="stable").iloc[0]
    verdict: Verdict = "yes" if least.kendall_tau >= ALIKE else "no" if least.kendall_tau <= 0 else "open"
    claim = {
        "yes": "The order of the methods hardly depends on how tokens are removed",
        "no": "The order of the methods depends on how tokens are removed",
        "open": "The order of the methods depends in part on how tokens are removed",
    }[verdict]
    pair = f"{least.operator_a} ({least.kind_a}) and {least.operator_b} ({least.kind_b})"
    claim += f": by comprehensiveness under {pair} Kendall's τ is {signed(least.kendall_tau)}"
    claim += " at least" if len(rows) > 1 else ""
    claim += f", {int(least.n)} methods, {scope(comparison)}.{_lacking(comparison)}"
    return Finding("operators", claim, verdict, rows)


def _lacking(comparison: Comparison) -> str:
    """Which operators were asked for and judged fewer texts."""
    table = comparison.operators
    gone = table[table.n < table.texts]
    if gone.empty:
        return ""
    said = [f"{r.operator} ({r.n} of {r.texts} texts)" for r in gone.itertuples()]
    return f" Left out where they do not work: {', '.join(said)}."


def of_tests(comparison: Comparison) -> Finding | None:
    """Which methods differ in comprehensiveness under the main operator, by Wilcoxon's test, Holm-corrected."""
    table = comparison.tests
    rows = table[
        (table.operator == comparison.settings.operator)
        & (table.metric == "comprehensiveness")
        & (table.test == WILCOXON)
        & (table.method_b != RANDOM)
    ]
    known = rows[rows.p_holm.notna()]
    if known.empty:
        return None
    n = int(known.n.max())
    sure = known[known.p_holm < ALPHA].sort_values("p_holm", kind="stable")
    of = f"{len(known)} pair{'s' if len(known) > 1 else ''} of methods"
    test = f"Wilcoxon's test, Holm-corrected, n = {n}"
    if sure.empty:
        claim = f"None of {of} differs surely in comprehensiveness ({test})."
        return Finding("tests", claim, "open", known)
    said = "; ".join(_better(row) for _, row in sure.head(LISTED).iterrows())
    more = f"; and {len(sure) - LISTED} more" if len(sure) > LISTED else ""
    claim = f"{len(sure)} of {of} differ in comprehensiveness ({test}): {said}{more}."
    return Finding("tests", claim, "yes", sure)


def _better(row: pd.Series) -> str:
    first, second = (row.method_a, row.method_b) if row.effect > 0 else (row.method_b, row.method_a)
    return (
        f"{named([first])} before {named([second])} (p {row.p_holm:.2g}, {row.effect_name} {signed(abs(row.effect))})"
    )
