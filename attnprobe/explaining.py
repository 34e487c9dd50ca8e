"""Findings on explanations: for each attention-derived map, whether it explains, misleads, or neither."""

from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from attnprobe.comparison import Comparison
from attnprobe.judged_tables import RANDOM
from attnprobe.significance import WILCOXON
from attnprobe.verdict_tables import BETWEEN
from attnprobe.wording import Finding, Verdict, named, of_tokens, scope, signed

HALF = 0.5
ALPHA = 0.05
LISTED = 3


def explanations(comparison: Comparison) -> list[Finding]:
    """A finding a map: on one text its verdict and the reason, over several the shares of the three verdicts."""
    table = comparison.verdicts
    if table.empty:
        return []
    parts = [(str(method), rows) for method, rows in table.groupby("method", sort=False)]
    if len(comparison.studies) == 1:
        # Maps of which the same is to be said share one finding, where the first of them stands.
        alike: dict[tuple[str, str], list[str]] = {}
        for method, rows in parts:
            alike.setdefault((str(rows.iloc[0].verdict), str(rows.iloc[0].reason)), []).append(method)
        return [_of_one(methods, table[table.method.isin(methods)]) for methods in alike.values()]
    return [_of_many(comparison, method, rows) for method, rows in parts]


def _of_one(methods: Sequence[str], rows: pd.DataFrame) -> Finding:
    """The finding of maps with one verdict and one reason."""
    row = rows.iloc[0]
    verdict: Verdict = row.verdict
    name, s = named(methods), "s" * (len(methods) == 1)
    claim = {
        "explains": f"{name} explain{s} this prediction",
        "misleads": f"{name} mislead{s} on this prediction",
        "undecided": f"Whether {name} explain{s} this prediction is undecided",
    }[verdict]
    reason = of_tokens(str(row.reason).rstrip("."))
    claim = f"{claim[0].upper()}{claim[1:]}" + (f": {reason}." if reason else ".")
    return Finding("explanation", claim, verdict, rows, _said(rows.against), _said(rows.causes))


def _of_many(comparison: Comparison, method: str, rows: pd.DataFrame) -> Finding:
    """The verdict of a set is the one that more than half of the texts have, by its interval; else undecided."""
    table = comparison.verdict_shares
    mine = table[table.method == method].set_index("verdict")
    most = [str(kind) for kind in mine.index if mine.low[kind] > HALF]
    verdict: Verdict = most[0] if most else "undecided"  # type: ignore[assignment]
    shares = ", ".join(_share(mine, kind, word) for kind, word in WORDS.items())
    claim = f"{named([method])}, {scope(comparison)}, {shares}{_beside(mine)}."
    against = [*_against(mine, verdict), *_test(comparison, method, verdict), *_said(rows.against)[:LISTED]]
    causes = _of_causes(rows)[:LISTED]
    return Finding("explanation", claim[0].upper() + claim[1:], verdict, rows, tuple(against), causes)


WORDS = {"explains": "explains", "misleads": "misleads on", "undecided": "is undecided on"}


def _share(shares: pd.DataFrame, kind: str, word: str) -> str:
    row = shares.loc[kind]
    return f"{word} {row['count']} of {row.n} ({row.share:.0%} [{row.low:.0%}, {row.high:.0%}])"


def _beside(shares: pd.DataFrame) -> str:
    """How much of the effect its first tokens have, beside random orders, where there are enough texts for a test."""
    row = shares.iloc[0]
    if pd.isna(row.p_holm):
        return ""
    test = f"Wilcoxon, n = {row.n_tested}, Holm-corrected p {row.p_holm:.2g}, rank biserial {signed(row.effect)}"
    size, way = round(100 * abs(row.difference)), "more" if row.difference >= 0 else "less"
    return f"; its first tokens have {size} points {way} of the effect than those of random orders ({test})"


def _against(shares: pd.DataFrame, verdict: str) -> list[str]:
    """The texts that have another verdict."""
    others = [kind for kind in WORDS if kind != verdict and shares["count"][kind]]
    counts = {kind: int(shares["count"][kind]) for kind in others} if verdict != "undecided" else {}
    return [f"{n} text{'s' if n > 1 else ''}: {kind}" for kind, n in counts.items()]


def _test(comparison: Comparison, method: str, verdict: str) -> list[str]:
    """The paired test beside random orders, where it does not say what the verdict does."""
    row = beside_random(comparison, method)
    if row is None or pd.isna(row.p_holm) or verdict == "undecided":
        return []
    better = row.p_holm < ALPHA and row.effect > 0
    if better == (verdict == "explains"):
        return []
    way = "beats random orders" if better else "does not surely beat random orders"
    test = f"Wilcoxon, Holm-corrected p {row.p_holm:.2g}, {row.effect_name} {signed(row.effect)}"
    return [f"by removal it {way} ({test})"]


def beside_random(comparison: Comparison, method: str) -> pd.Series | None:
    """The test of a map beside the mean of random orders: comprehensiveness, main operator; None without one."""
    table = comparison.tests
    rows = table[
        (table.operator == comparison.settings.operator)
        & (table.metric == "comprehensiveness")
        & (table.test == WILCOXON)
        & (table.method_a == method)
        & (table.method_b == RANDOM)
    ]
    return None if rows.empty else rows.iloc[0]


def _said(values: Iterable[str]) -> tuple[str, ...]:
    """What was said, the most frequent first, each once with how often."""
    parts: Sequence[str] = [one for value in values for one in str(value).split(BETWEEN) if one]
    counts = Counter(map(of_tokens, parts))
    return tuple(one if n == 1 else f"{one} ({n} texts)" for one, n in counts.most_common())


def _of_causes(rows: pd.DataFrame) -> tuple[str, ...]:
    """Each cause with the number of texts that show it, the most frequent first, and what it is on one of them."""
    ordered = said_causes(rows)
    return tuple(f"{name} on {len(said)} of {len(rows)} texts; on the first: {said[0]}" for name, said in ordered)


def said_causes(rows: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Each cause, the most frequent first, with what was said of it on each text that shows it; rows: of `verdicts`."""
    found: dict[str, list[str]] = {}
    for cell in rows.causes:
        for one in str(cell).split(BETWEEN):
            name, colon, rest = one.partition(": ")
            if colon:
                found.setdefault(name, []).append(rest)
    return sorted(found.items(), key=lambda item: -len(item[1]))
