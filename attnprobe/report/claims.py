"""The top of the page: the claim, its numbers, and what speaks on the other side.

Verdicts come from `findings` and from the tables' `holds_up`; nothing is judged here.
"""

import math
import re
from typing import Any

import pandas as pd

from attnprobe.appearance import NARROW_SPACE, interval, look, names, percent, signed
from attnprobe.comparison import Comparison
from attnprobe.finding import Finding, findings
from attnprobe.report.scores import unit_of
from attnprobe.report.texts import argue, judged

BADGES = {
    "attention": {"yes": "Attention holds up here", "no": "Attention does not hold up here", "open": "Open here"},
    "removal": {"yes": "Some methods hold up here", "no": "No method holds up here", "open": "Open here"},
    "agreement": {
        "yes": "Attention agrees with removal here",
        "no": "Attention runs against removal here",
        "open": "Open here",
    },
}
METRICS = {"comprehensiveness": "taken away", "sufficiency": "left alone"}


def top(comparison: Comparison) -> dict[str, Any]:
    """Badge, headline, lede, three numbers, and what speaks on the other side."""
    found = findings(comparison)
    first = found[0] if found else None
    head, rest = _halves(first.claim) if first else ("What each method says of this prediction", "")
    return {
        "badge": BADGES[first.topic][first.verdict] if first else "Nothing to judge here",
        "verdict": first.verdict if first else "open",
        "headline": head,
        "lede": rest,
        "scope": scope(comparison),
        "numbers": [n for n in (_arguing(comparison), _ranking(comparison, found), _removal(comparison)) if n],
        "other_side": other_side(comparison, found),
        "findings": [{"claim": f.claim, "verdict": f.verdict, "topic": f.topic} for f in found],
        "counts": _counts(comparison),
    }


def scope(comparison: Comparison) -> str:
    """What the claims are about."""
    n = len(comparison.studies)
    return "for this text and this prediction only" if n == 1 else f"for these {n} texts and their predictions only"


def heading(comparison: Comparison, topic: str, otherwise: str) -> tuple[str, str]:
    """A section's heading and what follows it: the finding of that topic, cut at its colon."""
    found = next((f for f in findings(comparison) if f.topic == topic), None)
    return _halves(found.claim) if found else (otherwise, "")


def _halves(claim: str) -> tuple[str, str]:
    claim = (
        re.sub(r"(\d)%", rf"\1{NARROW_SPACE}%", claim)
        .replace("'", "’")
        .replace("leave-one-out", "leave\u2011one\u2011out")
    )
    head, _, rest = claim.rstrip(".").partition(": ")
    return head, rest[:1].upper() + rest[1:] + "." if rest else ""


def row(comparison: Comparison, metric: str, method: str = "raw_attention") -> pd.Series | None:
    """The faithfulness row of a method, None where it was not run."""
    table = comparison.faithfulness
    found = table[(table.method == method) & (table.metric == metric)] if len(table) else table
    return None if len(found) == 0 else found.iloc[0]


def pair(comparison: Comparison, direction: str) -> pd.Series | None:
    """Kendall's tau of attention and leave-one-out, None where it is not known."""
    table, wanted = comparison.agreement, {"raw_attention", "leave_one_out"}
    mine = (table.metric == "kendall_tau") & (table.direction == direction)
    found = table[mine & table.method_a.isin(wanted) & table.method_b.isin(wanted)]
    return None if found.empty or pd.isna(found.iloc[0]["mean"]) else found.iloc[0]


def _arguing(comparison: Comparison) -> dict[str, str] | None:
    """Do the words that attention weights most argue for the answer?"""
    counts = [c for study in comparison.studies if (c := argue(study)) is not None and c["of"]]
    if not counts:
        return None
    question = "Do the highlighted words argue for the answer?"
    if len(counts) == 1:
        c = counts[0]
        said = (
            f"{names(f'“{t}”' for t in c['against'])} {'argues' if len(c['against']) == 1 else 'argue'} against it"
            if c["against"]
            else "None of them argues against it"
        )
        return {
            "question": question,
            "value": str(c["n"]),
            "small": f"of the top {c['of']} do",
            "text": said + ", by leave-one-out.",
            "verdict": "",
            "tag": "A count, not a test",
        }
    share = sum(c["n"] for c in counts) / sum(c["of"] for c in counts)
    text = f"Of attention’s top {counts[0]['of']} tokens of each text; by leave-one-out."
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
    tags = {"yes": "Agrees in part", "no": "Runs the other way", "open": "Open: the interval contains 0"}
    tag = tags[verdict] if math.isfinite(r.low) else "Open: too little for an interval"
    return {
        "question": "Does it rank words as removing them does?",
        "value": f"τ {signed(r['mean'], 2)}",
        "small": interval(r.low, r.high),
        "text": "Kendall’s τ with leave-one-out: 1 would be the same order, 0 no relation."
        + (f" Interval: 95{NARROW_SPACE}% over {r.interval_over}." if math.isfinite(r.low) else ""),
        "verdict": verdict,
        "tag": tag,
    }


def _removal(comparison: Comparison) -> dict[str, str] | None:
    """Does removing what attention weights most move the answer more than chance does?"""
    r = row(comparison, "comprehensiveness")
    if r is None or pd.isna(r.random_beaten):
        return None
    tags = {"yes": "Holds up", "no": "Does not hold up", "open": "Open: not clearly better than chance"}
    n = comparison.settings.n_random
    unit = unit_of(comparison)
    over = "shares of tokens" if len(comparison.studies) == 1 else "texts and shares of tokens"
    fall = (
        f"Taking tokens away in its order changes the answer by {unit.signed(-r['mean'])} {unit.word}, mean over {over}"
    )
    return {
        "question": "Does removing its words move the answer?",
        "value": percent(r.random_beaten, 0),
        "small": f"of {n} random orders beaten",
        "text": f"{fall}; random orders: {unit.signed(-r.random_mean)}.",
        "verdict": r.holds_up,
        "tag": tags[r.holds_up],
    }


def other_side(comparison: Comparison, found: tuple[Finding, ...]) -> dict[str, Any]:
    """What the numbers say against the verdict (for "open": on both sides)."""
    verdict = found[0].verdict if found else "open"
    unit = unit_of(comparison)
    said: list[tuple[str, str]] = []  # (side: "for" or "against" attention, sentence)
    for metric, how in METRICS.items():
        r = row(comparison, metric)
        if r is not None and not pd.isna(r.random_beaten):
            side = "for" if r.holds_up == "yes" else "against"
            effect = f"{metric} {unit.signed(r['mean'])} {unit.word}"
            beaten = f"it beats {percent(r.random_beaten, 0)} of random orders ({effect})"
            said.append((side, f"With its top tokens {how}, {beaten}."))
    counts = [c for study in comparison.studies if (c := argue(study))]
    if len(comparison.studies) == 1 and counts and counts[0]["same_first"]:
        said.append(("for", f"It puts “{counts[0]['first']}” first, as leave-one-out does."))
    if len(comparison.studies) == 1 and counts and counts[0]["against"]:
        c = counts[0]
        tokens = names(f"“{t}”" for t in c["against"])
        verb = "argues" if len(c["against"]) == 1 else "argue"
        sentence = f"Of its top {c['of']}, {tokens} {verb} against the answer; a weight has no sign to say so."
        said.append(("against", sentence))
    said += _agreement_sides(comparison)
    sides = {"yes": ["against"], "no": ["for"], "open": ["for", "against"]}[verdict]
    heads = {
        "yes": "What speaks against it.",
        "no": "What speaks for attention.",
        "open": "What speaks for either side.",
    }
    kept = [sentence for side, sentence in said if side in sides]
    nothing = "Nothing that was measured here. Not measured: other attention weights in their place, randomised models."
    return {"head": heads[verdict], "sentences": kept or [nothing], "good": verdict != "yes"}


def _agreement_sides(comparison: Comparison) -> list[tuple[str, str]]:
    by_sign, by_size = pair(comparison, "signed"), pair(comparison, "size")
    said = []
    if by_sign is not None and math.isfinite(by_sign.low):
        words = f"Its order and leave-one-out’s: τ {signed(by_sign['mean'], 2)} {interval(by_sign.low, by_sign.high)}"
        said.append(
            ("for", words + ".") if by_sign.low > 0 else ("against", words + (", open." if by_sign.high >= 0 else "."))
        )
    if (
        by_size is not None
        and math.isfinite(by_size.low)
        and by_size.low > 0
        and by_sign is not None
        and by_size["mean"] > by_sign["mean"]
    ):
        tau = f"{signed(by_size['mean'], 2)} {interval(by_size.low, by_size.high)}"
        said.append(("for", f"If direction is ignored, τ is {tau}: it follows size rather than direction."))
    return said


def _counts(comparison: Comparison) -> dict[str, int] | None:
    """On how many texts attention holds up, by the rule for a single text; None for one text."""
    if len(comparison.studies) == 1 or "raw_attention" not in comparison.methods:
        return None
    verdicts = [judged(study, comparison.settings)["verdict"] for study in comparison.studies]
    return {kind: verdicts.count(kind) for kind in ("yes", "no", "open")}


def who_beats(comparison: Comparison, methods: list[str]) -> str:
    """Which methods beat random orders in both metrics, by their labels."""
    table = comparison.faithfulness
    if table.empty:
        return ""
    good = {str(name) for name, verdicts in table.groupby("method").holds_up if set(verdicts) == {"yes"}}
    return names(look(name).label for name in methods if name in good)
