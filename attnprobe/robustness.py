"""Findings on how far what was found depends on the operator, and on which differences between methods are sure."""

from collections.abc import Sequence

import pandas as pd

from attnprobe.comparison import Comparison
from attnprobe.judged_tables import RANDOM
from attnprobe.significance import WILCOXON
from attnprobe.wording import Finding, Verdict, named, scope, signed

# From this Kendall's tau on, two operators are said to put methods in much the same order; below 0 in another one.
ALIKE = 0.6
ALPHA = 0.05
LISTED = 4
# Of fewer methods the order agrees by chance too often: of four, one in 24 pairs of orders is the same.
FEWEST = 5


def of_operators(comparison: Comparison) -> Finding | None:
    """Do methods, judged by their mean comprehensiveness, stay in order when the operator is another one?"""
    table = comparison.stability
    rows = table[(table.ranked == "methods") & (table.metric == "comprehensiveness") & table.kendall_tau.notna()]
    if rows.empty or int(rows.n.max()) < FEWEST:
        return _left_out(comparison)
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
    claim += f", {_all_of(comparison, int(least.n))}, {scope(comparison)}.{_lacking(comparison)}"
    return Finding("operators", claim, verdict, rows)


def _all_of(comparison: Comparison, n: int) -> str:
    """How many methods were ranked, the controls among them apart: "12 methods and the control"."""
    control = {a.method for study in comparison.studies for a in study.attributions if a.family == "control"}
    table = comparison.main
    n_controls = len(control & set(table.method[table.metric == "comprehensiveness"]))
    if not 0 < n_controls < n:
        return f"{n} methods"
    return f"{n - n_controls} methods and {'the control' if n_controls == 1 else f'{n_controls} controls'}"


def _left_out(comparison: Comparison) -> Finding | None:
    """The operators that judged fewer texts than were asked for, where nothing else is to be said of operators."""
    said, table = _lacking(comparison).strip(), comparison.operators
    return Finding("operators", said, "open", table[table.n < table.texts]) if said else None


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
    if sure.empty and len(known) * 2 / 2**n >= ALPHA:
        claim = f"{n} texts are too few to tell {of} apart: the smallest p there can be is {2 / 2**n:.2g} ({test})."
        return Finding("tests", claim, "open", known)
    if sure.empty:
        claim = f"None of {of} differs surely in comprehensiveness ({test})."
        return Finding("tests", claim, "open", known)
    said = "; ".join(_better(row) for _, row in sure.head(LISTED).iterrows())
    more = f"; and {len(sure) - LISTED} more" if len(sure) > LISTED else ""
    claim = f"{len(sure)} of {of} differ{'s' * (len(known) == 1)} in comprehensiveness ({test}): {said}{more}."
    return Finding("tests", claim, "yes", sure)


def sure_beside_random(comparison: Comparison, methods: Sequence[str], metrics: Sequence[str]) -> str:
    """How many of these methods beat random orders by the corrected test as well, in words; "" without a test."""
    table = comparison.tests
    rows = table[
        (table.operator == comparison.settings.operator)
        & table.metric.isin(metrics)
        & table.method_a.isin(methods)
        & (table.test == WILCOXON)
        & (table.method_b == RANDOM)
        & table.p_holm.notna()
    ]
    if rows.empty:
        return ""
    passed = rows[(rows.p_holm < ALPHA) & (rows.effect > 0)].groupby("method_a").size()
    n = int((passed == len(metrics)).sum())
    few = f"; {int(rows.n.max())} texts are too few for more" if n == 0 and rows.p_holm.min() >= ALPHA else ""
    return f" (each by its own interval; by Wilcoxon's test, Holm-corrected, {n or 'none'} of them surely{few})"


def _better(row: pd.Series) -> str:
    first, second = (row.method_a, row.method_b) if row.effect > 0 else (row.method_b, row.method_a)
    return (
        f"{named([first])} before {named([second])} (p {row.p_holm:.2g}, {row.effect_name} {signed(abs(row.effect))})"
    )
