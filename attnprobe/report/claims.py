"""The top of the page: the claim, its numbers, and what speaks on the other side.

Verdicts come from `findings` and from the tables' `holds_up`; nothing is judged here.
"""

import math
from typing import Any

import pandas as pd

from attnprobe.appearance import NARROW_SPACE, interval, look, names, percent
from attnprobe.comparison import Comparison
from attnprobe.finding import BOTH, WEAK, Finding
from attnprobe.report import sides
from attnprobe.report.headline import BADGES, halves, headline
from attnprobe.report.nouns import nouns, told
from attnprobe.report.scores import bins, tau, unit_of
from attnprobe.report.sides import pair, row
from attnprobe.report.texts import argue, judged


def top(comparison: Comparison) -> dict[str, Any]:
    """Badges, headline, lede, three numbers, and what speaks on the other side."""
    found = tuple(f for f in told(comparison) if f.topic in BADGES)
    said = headline(comparison)
    return {
        **said,
        "scope": scope(comparison),
        "numbers": [n for n in (_arguing(comparison), _ranking(comparison, found), _removal(comparison)) if n],
        "other_side": sides.other_side(comparison, found, said["verdict"]),
        "findings": [{"claim": f.claim, "verdict": f.verdict, "topic": f.topic} for f in found],
        "counts": _counts(comparison),
    }


def scope(comparison: Comparison) -> str:
    """What the claims are about."""
    n, noun = len(comparison.studies), nouns(comparison)
    if n == 1:
        return f"for this {noun.text} and this prediction only"
    return f"for these {n} {noun.texts} and their predictions only"


def heading(comparison: Comparison, topic: str, otherwise: str) -> tuple[str, str]:
    """A section's heading and what follows it: the finding of that topic, cut at its colon.

    What stands in parentheses at its end is too long for a heading.
    """
    found = next((f for f in told(comparison) if f.topic == topic), None)
    if found is None:
        return otherwise, ""
    head, rest = halves(found.claim)
    return _parted(head)[0], rest


def caveat(comparison: Comparison) -> str:
    """What the finding on removal says in parentheses, as a sentence: how sure it is."""
    found = next((f for f in told(comparison) if f.topic == "removal"), None)
    inner = _parted(halves(found.claim)[0])[1] if found else ""
    return f"{inner[:1].upper()}{inner[1:]}." if inner else ""


def _parted(head: str) -> tuple[str, str]:
    """A heading without what stands in parentheses at its end, and that."""
    before, _, inner = head.partition(" (")
    return (before, inner[:-1]) if inner.endswith(")") else (head, "")


def _arguing(comparison: Comparison) -> dict[str, str] | None:
    """Do the words that attention weights most argue for the answer?"""
    counts = [c for study in comparison.studies if (c := argue(study)) is not None and c["of"]]
    if not counts:
        return None
    noun = nouns(comparison)
    question = f"Do the highlighted {noun.words} argue for the answer?"
    if len(counts) == 1:
        c = counts[0]
        said = (
            f"{names(f'“{t}”' for t in c['against'])} {'argues' if len(c['against']) == 1 else 'argue'} against it"
            if c["against"]
            else "None of them argues against it"
        )
        return {
            "question": question,
            "value": str(c["n"] or "None"),
            "small": f"of the top {c['of']} {'do' if c['n'] > 1 else 'does'}",
            "text": said + ", by leave-one-out.",
            "verdict": "",
            "tag": "A count, not a test",
        }
    share = sum(c["n"] for c in counts) / sum(c["of"] for c in counts)
    text = f"Of attention’s top {counts[0]['of']} {noun.tokens} of each {noun.text}; by leave-one-out."
    return {
        "question": question,
        "value": percent(share, 0),
        "small": "of them do",
        "text": text,
        "verdict": "",
        "tag": "A count, not a test",
    }


def _ranking(comparison: Comparison, found: tuple[Finding, ...]) -> dict[str, str] | None:
    """Does attention rank words as removing them does?"""
    r = pair(comparison, "signed")
    if r is None:
        return None
    verdict = next((f.verdict for f in found if f.topic == "agreement"), "open")
    noun = nouns(comparison)
    little = "slightly " if abs(r["mean"]) < WEAK else ""
    tags = {
        "yes": "Agrees slightly" if little else "Agrees in part",
        "no": f"Runs {little}the other way",
        "open": "Open: the interval contains 0",
    }
    tag = tags[verdict] if math.isfinite(r.low) else "Open: too little for an interval"
    return {
        "question": f"Does it rank {noun.words} as removing them does?",
        "value": tau(r["mean"]),
        "small": interval(r.low, r.high),
        "text": "Kendall’s τ with leave-one-out: 1 would be the same order, 0 no relation."
        + (f" Interval: 95{NARROW_SPACE}% over {noun.said(r.interval_over)}." if math.isfinite(r.low) else ""),
        "verdict": verdict,
        "tag": tag,
    }


def _removal(comparison: Comparison) -> dict[str, str] | None:
    """Does removing what attention weights most lower the answer more than chance does?"""
    r = row(comparison, "comprehensiveness")
    if r is None or pd.isna(r.random_beaten):
        return None
    tags = {"yes": "Holds up", "no": "Does not hold up", "open": "Open: not clearly different from chance"}
    n = comparison.settings.n_random
    unit = unit_of(comparison)
    noun = nouns(comparison)
    over = f"the first {bins()} of its {noun.tokens}"
    mean = f"Mean over {over}" if len(comparison.studies) == 1 else f"Mean over {noun.texts} and {over}"
    fall, random = unit.both_fall(float(r["mean"]), float(r.random_mean))
    return {
        "question": f"Does removing its {noun.words} lower the answer?",
        "value": percent(r.random_beaten, 0),
        "small": f"of {n} random orders beaten",
        "text": f"Taken away in its order: the answer {fall}; in random orders it {random}. {mean}.",
        "verdict": r.holds_up,
        "tag": tags[r.holds_up],
    }


def _counts(comparison: Comparison) -> dict[str, int] | None:
    """On how many texts attention holds up, by the rule for a single text; None for one text."""
    if len(comparison.studies) == 1 or "raw_attention" not in comparison.methods:
        return None
    verdicts = [judged(study, comparison.settings)["verdict"] for study in comparison.studies]
    return {kind: verdicts.count(kind) for kind in ("yes", "no", "open")}


def who_beats(comparison: Comparison, methods: list[str]) -> str:
    """Which methods beat random orders in comprehensiveness and sufficiency, by their labels."""
    table = comparison.main
    if table.empty:
        return ""
    table = table[table.metric.isin(BOTH)]
    good = {str(name) for name, verdicts in table.groupby("method").holds_up if set(verdicts) == {"yes"}}
    return names(look(name).label for name in methods if name in good)
