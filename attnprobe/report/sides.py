"""What speaks for attention, what against it, and what stays open: every number that bears on the claim.

Verdicts come from the tables' `holds_up` and from intervals; nothing is judged here.
"""

import math
from typing import Any

import pandas as pd

from attnprobe.appearance import interval, names, percent
from attnprobe.comparison import Comparison
from attnprobe.finding import Finding
from attnprobe.judgement.rule import EXPLAINS, MISLEADS, UNDECIDED, VERDICTS
from attnprobe.report.counterfactual import beside
from attnprobe.report.nouns import nouns
from attnprobe.report.scores import tau, unit_of
from attnprobe.report.texts import argue
from attnprobe.report.worst import ranked

METRICS = {
    "comprehensiveness": "Taken away, its top {tokens}",
    "sufficiency": "Left alone, its top {tokens}",
}
HEADS = {
    "yes": "What speaks against it.",
    "no": "What speaks for attention.",
    "open": "What speaks for either side.",
}
SHOWN = {"yes": ("against", "open"), "no": ("for", "open"), "open": ("for", "against", "open")}
LABELS = {"for": "For:", "against": "Against:", "open": "Open:"}
# The tint of the box: blue for what speaks for attention, orange against, grey for both.
TINTS = {"yes": "warn", "no": "", "open": "und"}
NOTHING = "Nothing that was measured here. Not measured: {other}randomised models."
OTHER = "other attention weights in their place, "

Said = list[tuple[str, str]]  # (side: "for", "against" or "open", sentence)


def row(comparison: Comparison, metric: str, method: str = "raw_attention") -> pd.Series | None:
    """The faithfulness row of a method, None where it was not run."""
    table = comparison.main
    found = table[(table.method == method) & (table.metric == metric)] if len(table) else table
    return None if len(found) == 0 else found.iloc[0]


def pair(comparison: Comparison, direction: str) -> pd.Series | None:
    """Kendall's tau of attention and leave-one-out, None where it is not known."""
    table, wanted = comparison.agreement, {"raw_attention", "leave_one_out"}
    mine = (table.metric == "kendall_tau") & (table.direction == direction)
    found = table[mine & table.method_a.isin(wanted) & table.method_b.isin(wanted)]
    return None if found.empty or pd.isna(found.iloc[0]["mean"]) else found.iloc[0]


def other_side(comparison: Comparison, found: tuple[Finding, ...], verdict: str = "") -> dict[str, Any]:
    """What the numbers say against the verdict (for "open": on both sides), by side: (label, sentences).

    verdict: "yes", "no" or "open", of the claim that leads the page, which is then not said again; empty: of the first
    finding.
    """
    said = [] if verdict else _verdicts(comparison)
    verdict = verdict or (found[0].verdict if found else "open")
    said += _removal(comparison) + _first_token(comparison) + _arguing(comparison)
    said += _agreement(comparison) + _worse(comparison) + beside(comparison)
    groups = []
    for side in SHOWN[verdict]:
        sentences = [sentence for at, sentence in said if at == side]
        if sentences or (side != "open" and verdict == "open"):
            groups.append((LABELS[side], sentences or ["nothing that was measured here."]))
    if verdict != "open" and not any(label != LABELS["open"] for label, _ in groups):
        groups.insert(0, ("", [NOTHING.format(other="" if beside(comparison) else OTHER)]))
    groups = [("" if label != LABELS["open"] and verdict != "open" else label, said) for label, said in groups]
    return {"head": HEADS[verdict], "groups": groups, "good": verdict != "yes", "kind": TINTS[verdict]}


def _verdicts(comparison: Comparison) -> Said:
    """Whether attention explains single predictions, which is another question than whether its order beats chance."""
    table = comparison.verdicts
    mine = table[table.method == "raw_attention"] if len(table) else table
    if mine.empty:
        return []
    if len(comparison.studies) == 1:
        verdict = str(mine.iloc[0].verdict)
        said = {"explains": "it explains", "misleads": "it misleads", "undecided": "undecided whether it explains"}
        side = {"explains": "for", "misleads": "against"}.get(verdict, "open")
        return [(side, f"As a map of what acts: {said[verdict]} this prediction (section Verdicts).")]
    n = {verdict: int((mine.verdict == verdict).sum()) for verdict in VERDICTS}
    said = {kind: str(number or "none") for kind, number in n.items()}
    counts = f"it explains {said[EXPLAINS]} of {len(mine)} predictions, misleads on {said[MISLEADS]}"
    counts += f", {n[UNDECIDED]} open" if n[UNDECIDED] else ""
    side = "for" if 2 * n[EXPLAINS] > len(mine) else "against" if n[EXPLAINS] < n[MISLEADS] else "open"
    return [(side, f"As a map of what acts in each {nouns(comparison).text}: {counts} (section Verdicts).")]


def _removal(comparison: Comparison) -> Said:
    """The two tests by removal."""
    unit, said = unit_of(comparison), []
    for metric, what in METRICS.items():
        r = row(comparison, metric)
        if r is not None and not pd.isna(r.random_beaten):
            side = {"yes": "for", "no": "against"}.get(r.holds_up, "open")
            better = "the deeper the fall, the better" if r.better == "higher" else "the smaller the fall, the better"
            own, random = unit.both_fall(float(r["mean"]), float(r.random_mean))
            fall = f"the answer {own}, in random orders it {random}; {better}"
            beat = f"{what.format(tokens=nouns(comparison).tokens)} beat {percent(r.random_beaten, 0)} of random orders"
            said.append((side, f"{beat} ({metric}: {fall})."))
    return said


def _worse(comparison: Comparison) -> Said:
    """Of several texts, those on which the map misleads, and those where its order is behind random ones."""
    table = ranked(comparison)
    if len(comparison.studies) < 2 or table.empty:
        return []
    misleads, behind = int(table.misleads.sum()), int((table.behind < 0).sum())
    of = nouns(comparison).of
    said = [f"By the verdict it misleads on {of(misleads, len(table))}."] if misleads else []
    if 2 * behind > len(table):
        said.append(f"On {of(behind, len(table))} its order does worse than random orders on average.")
    return [("against", sentence) for sentence in said]


def _first_token(comparison: Comparison) -> Said:
    """Whether attention's first token is leave-one-out's too, by sign or by size."""
    noun, counts = nouns(comparison), [c for study in comparison.studies if (c := argue(study))]
    if len(comparison.studies) > 1:
        same = sum(c["same_size"] for c in counts)
        sentence = f"On {noun.of(same, len(counts))} the {noun.token} that it puts first has the largest effect of all,"
        return [("for", sentence + " for or against, by leave-one-out.")] if same else []
    if not counts or not counts[0]["same_size"]:
        return []
    way = "against" if counts[0]["first"] in counts[0]["against"] else "for it"
    said = f"It puts “{counts[0]['first']}” first, and by leave-one-out no other {noun.token} has so large an effect"
    return [("for", f"{said}; it argues {way}.")]


def _arguing(comparison: Comparison) -> Said:
    counts = [c for study in comparison.studies if (c := argue(study))]
    if len(comparison.studies) != 1 or not counts or not counts[0]["against"]:
        return []
    c = counts[0]
    tokens = names(f"“{t}”" for t in c["against"])
    verb = "argues" if len(c["against"]) == 1 else "argue"
    sentence = f"Of its top {c['of']}, {tokens} {verb} against the answer; a weight has no sign to say so."
    return [("against", sentence)]


def _agreement(comparison: Comparison) -> Said:
    by_sign, by_size = pair(comparison, "signed"), pair(comparison, "size")
    said: Said = []
    if by_sign is None:
        return said
    if math.isfinite(by_sign.low):
        words = f"Its order and leave-one-out’s: {tau(by_sign['mean'])} {interval(by_sign.low, by_sign.high)}."
        said.append(("for" if by_sign.low > 0 else "against" if by_sign.high < 0 else "open", words))
    if by_size is not None and math.isfinite(by_size.low) and by_size.low > 0 and by_size["mean"] > by_sign["mean"]:
        words = f"{tau(by_size['mean'])} {interval(by_size.low, by_size.high)}"
        said.append(("for", f"If direction is ignored, {words}: it follows size rather than direction."))
    return said
