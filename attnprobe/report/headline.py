"""The claim at the top: two badges, one for each of the page's two rules, the sentence, and its numbers.

A verdict (explains, misleads, undecided) comes from the judgement, `holds_up` from the tables; here nothing is judged.
"""

import re
from typing import Any

import pandas as pd

from attnprobe.appearance import NARROW_SPACE, names, percent
from attnprobe.comparison import Comparison
from attnprobe.finding import Finding, raises
from attnprobe.judgement.rule import EXPLAINS, MISLEADS, UNDECIDED, VERDICTS
from attnprobe.report.nouns import Nouns, few, nouns, told
from attnprobe.report.sides import row

BADGES = {
    "attention": {"yes": "Attention holds up here", "no": "Attention does not hold up here", "open": "Open here"},
    "removal": {"yes": "Some methods hold up here", "no": "No method holds up here", "open": "Open here"},
    "agreement": {
        "yes": "Attention agrees with removal here",
        "no": "Attention runs against removal here",
        "open": "Open here",
    },
}
EXPLAINS_HERE = {
    EXPLAINS: "Attention explains here",
    MISLEADS: "Attention misleads here",
    UNDECIDED: "Undecided here",
}
OF_MOST = {
    EXPLAINS: "Attention explains most of these",
    MISLEADS: "Attention misleads on most of these",
    UNDECIDED: "Mostly undecided here",
    "": "Mixed verdicts here",
}
OF_ALL = {
    EXPLAINS: "Attention explains all of these",
    MISLEADS: "Attention misleads on all of these",
    UNDECIDED: "Undecided here",
}
# What the judgement's verdict is on the scale of the other rule, for what speaks on the other side, and for its colour.
SIDE = {EXPLAINS: "yes", MISLEADS: "no", UNDECIDED: "open", "": "open"}
OF_ONE = {
    EXPLAINS: "Attention explains this prediction",
    MISLEADS: "Attention misleads on this prediction",
    UNDECIDED: "Whether attention explains this prediction is undecided",
}


def headline(comparison: Comparison) -> dict[str, Any]:
    """badge and verdict (its colour), badges (text, colour, question), headline and lede.

    With verdicts of raw attention these lead, and the test by removal stands beside them; else removal leads.
    """
    noun = nouns(comparison)
    found = next((f for f in told(comparison) if f.topic in BADGES), None)
    removal = _badge(comparison, found)
    head, rest = halves(found.claim) if found else ("What each method says of this prediction", "")
    side = found.verdict if found else "open"
    badges = [{"text": removal, "kind": side, "asks": "by removal"}]
    said = {"badge": removal, "verdict": side, "headline": head, "lede": rest, "badges": badges}
    judged = comparison.verdicts
    mine = judged[judged.method == "raw_attention"] if len(judged) else judged
    if mine.empty:
        return said
    kind = _verdict(comparison, mine)
    text = EXPLAINS_HERE[kind] if len(comparison.studies) == 1 else _of_set(mine, kind)
    first = {"text": text, "kind": SIDE[kind], "asks": "by what acts"}
    beside = badges if found and found.topic == "attention" else []
    claim, numbers = _of_one(mine, kind, found, noun) if len(mine) == 1 else _of_many(mine, noun)
    too = "" if found is None or not beside else rest if head in claim else _set(found.claim)
    return said | {
        "badge": text,
        "verdict": SIDE[kind],
        "badges": [first, *beside],
        "headline": claim,
        "lede": f"{numbers} {too}".strip(),
    }


def _verdict(comparison: Comparison, mine: pd.DataFrame) -> str:
    """The verdict of a text; of a set the one that more than half of the texts have, else empty.

    "explains" and "misleads" only where that is sure by the interval: they are claims.
    """
    if len(comparison.studies) == 1:
        return str(mine.iloc[0].verdict)
    shares = comparison.verdict_shares
    shares = shares[shares.method == "raw_attention"]
    most = shares[(shares.low > 0.5) | ((shares.verdict == UNDECIDED) & (shares.share > 0.5))].verdict
    return str(most.iloc[0]) if len(most) else ""


def _of_set(mine: pd.DataFrame, kind: str) -> str:
    """The badge of a set; all of one verdict is said even where they are too few for its interval to be sure."""
    if mine.verdict.nunique() > 1:
        return OF_MOST[kind]
    return OF_ALL[str(mine.iloc[0].verdict)] + ("" if kind else f", but they are only {len(mine)}")


def _of_one(mine: pd.DataFrame, kind: str, found: Finding | None, noun: Nouns) -> tuple[str, str]:
    """The sentence of one text; undecided, it says first what removal decided."""
    claim = OF_ONE[kind]
    if kind == UNDECIDED and found is not None and found.topic == "attention" and found.verdict != "open":
        claim = f"{halves(found.claim)[0]}; whether it explains this prediction is undecided"
    return claim, _share(mine, f"The {noun.tokens} that it puts first have", noun)


def _of_many(mine: pd.DataFrame, noun: Nouns) -> tuple[str, str]:
    n, total = {kind: int((mine.verdict == kind).sum()) for kind in VERDICTS}, len(mine)
    of = f"none of {total}" if n[EXPLAINS] == 0 else few(n[EXPLAINS], total)
    claim = f"Attention explains {of} predictions"
    if n[EXPLAINS] < total:
        claim += f" and misleads on {'all' if n[MISLEADS] == total else n[MISLEADS] or 'none'}"
    stays = "stays" if n[UNDECIDED] == 1 else "stay"
    all_of = "All " if n[UNDECIDED] == total else ""
    rest = f"{all_of}{n[UNDECIDED]} {stays} undecided. " if n[UNDECIDED] else ""
    return claim, rest + _share(mine, f"The {noun.tokens} that it puts first have on average", noun)


def _share(mine: pd.DataFrame, start: str, noun: Nouns) -> str:
    """How much of the effect its first tokens have, beside tokens drawn at random."""
    quality, random = mine.quality.mean(), mine.random.mean()
    if pd.isna(quality):
        return ""
    beside = "" if pd.isna(random) else f"; {noun.tokens} drawn at random, {percent(random, 0)}"
    over = "" if len(by := _operators(mine)) < 2 else f", mean over the operators {names(by)}"
    return f"{start} {percent(quality, 0)} of the effect that the best ones have{over}{beside}."


def _operators(mine: pd.DataFrame) -> list[str]:
    """Those by which verdicts were given, each once."""
    return list(dict.fromkeys(one for cell in mine.operators for one in str(cell).split(", ") if one))


def _badge(comparison: Comparison, first: Finding | None) -> str:
    if first is None:
        return "Nothing to judge here"
    taken, alone = row(comparison, "comprehensiveness"), row(comparison, "sufficiency")
    if first.topic == "attention" and first.verdict != "yes" and taken is not None and raises(taken):
        return "Attention points the other way here" if first.verdict == "no" else "Open: it may point the other way"
    if first.topic == "attention" and first.verdict == "open" and alone is not None and alone.holds_up == "no":
        return "One test open, one against attention"
    return BADGES[first.topic][first.verdict]


def halves(claim: str) -> tuple[str, str]:
    """A claim cut at its colon, each half with a capital.

    >>> halves("It stays open: a test says so.")
    ('It stays open', 'A test says so.')
    """
    head, _, rest = _set(claim).rstrip(".").partition(": ")
    return head, rest[:1].upper() + rest[1:] + "." if rest else ""


def _set(claim: str) -> str:
    """With narrow spaces and signs as people set them."""
    claim = re.sub(r"(\d)%", rf"\1{NARROW_SPACE}%", claim).replace("'", "’")
    return claim.replace("leave-one-out", "leave\u2011one\u2011out")
