"""The texts on which attention serves worst, ranked, each with a sentence that says why in numbers."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from torch import Tensor

from attnprobe.appearance import names, percent
from attnprobe.comparison import Comparison
from attnprobe.explaining import said_causes
from attnprobe.judgement.rule import MISLEADS, RULE
from attnprobe.report.nouns import Nouns, nouns
from attnprobe.report.scores import Unit, unit_of
from attnprobe.report.texts import title
from attnprobe.report.tokens import shown
from attnprobe.study import Study

AT_MOST = 10
# Of fewer texts the list of all of them says the same.
LEAST = 4
# Of the largest effect; below it a token does next to nothing (the judgement calls it idle).
HARDLY = RULE.idle
METHOD, REMOVAL = "raw_attention", "leave_one_out"


def worst(comparison: Comparison) -> dict[str, Any] | None:
    """At most ten texts: those that attention misleads on first, then by how far its order falls behind random ones.

    None for fewer than four texts, and without attention or random orders.
    """
    table = ranked(comparison)
    if len(comparison.studies) < LEAST or table.empty:
        return None
    chosen = table[(table.misleads == 1) | (table.behind < 0)].head(AT_MOST)
    rows = [_row(comparison, one) for one in chosen.to_dict("records")]
    misleads = int(table.misleads.sum())
    return {
        "rows": rows,
        "judged": bool(len(comparison.verdicts)),
        "n": len(comparison.studies),
        "heading": _heading(comparison, rows, misleads, int((table.behind < 0).sum())),
    }


def ranked(comparison: Comparison) -> pd.DataFrame:
    """A row a text, the worst first: misleads (0, 1), behind (its comprehensiveness minus that of random orders)."""
    table = comparison.positions
    if table.empty:
        return pd.DataFrame(columns=["example_index", "misleads", "behind", "value", "random_mean", "random_beaten"])
    taken = (table.operator == comparison.settings.operator) & (table.metric == "comprehensiveness")
    found = table[taken & (table.method == METHOD) & table.random_mean.notna()]
    found = found[["example_index", "value", "random_mean", "random_beaten"]].copy()
    found["behind"] = found.value - found.random_mean
    judged = comparison.verdicts
    mine = judged[(judged.method == METHOD) & (judged.verdict == MISLEADS)] if len(judged) else judged
    found["misleads"] = found.example_index.isin(list(mine.example_index)).astype(int)
    return found.sort_values(["misleads", "behind"], ascending=[False, True], kind="stable").reset_index(drop=True)


def _heading(comparison: Comparison, rows: list[dict[str, Any]], misleads: int, behind: int) -> str:
    n, of = len(comparison.studies), nouns(comparison).of
    if not rows:
        return f"On {of(0, n)} does attention’s order do worse than random orders"
    worse = f"its order does worse than random orders on {of(behind, n)}"
    if not len(comparison.verdicts):
        return worse[:1].upper() + worse[1:]
    return f"Attention misleads on {of(misleads, n)} by the rule; {worse}"


def _row(comparison: Comparison, one: dict[Any, Any]) -> dict[str, Any]:
    index = int(one["example_index"])
    study, noun = comparison.studies[index], nouns(comparison)
    judged = comparison.verdicts
    mine = judged[(judged.method == METHOD) & (judged.example_index == index)] if len(judged) else judged
    verdict = "" if mine.empty else str(mine.iloc[0].verdict)
    causes = [] if mine.empty else [name for name, _ in said_causes(mine)]
    return {
        "index": index,
        "title": title(study),
        "verdict": verdict,
        "why": " ".join(s for s in (_first(study, noun), _taken(one, unit_of(comparison), noun)) if s),
        "causes": names(causes),
        "beaten": percent(float(one["random_beaten"]), 0),
    }


def _first(study: Study, noun: Nouns) -> str:
    """Which token it puts first, what that token does alone, and where the token that does most stands."""
    attention, removal = study.attribution(METHOD), study.attribution(REMOVAL)
    if attention is None or not attention.ranking():
        return ""
    tokens, order = shown(study.example), attention.ranking()
    first, total = order[0], float(attention.scores.abs().sum()) or 1.0
    said = f"It puts “{tokens[first]}” first ({percent(float(attention.scores[first]) / total, 0)} of its weight)"
    if removal is None:
        return said + "."
    return f"{said}, which by leave-one-out {_alone(tokens, order, removal.scores, noun)}"


def _alone(tokens: list[str], order: Sequence[int], effects: Tensor, noun: Nouns) -> str:
    """What the first token of an order does alone, and where the token with the largest effect stands in it."""
    first, most = order[0], max(order, key=lambda i: abs(float(effects[i])))
    largest = abs(float(effects[most]))
    share = abs(float(effects[first])) / largest if largest else 0.0
    way = "argues against the answer" if float(effects[first]) < 0 else "argues for it"
    does = way if share >= HARDLY else f"hardly matters ({percent(share, 0)} of the largest effect)"
    if first == most:
        return f"{does}; no other {noun.token} has so large an effect."
    place = order.index(most) + 1
    rank = "last" if place == len(order) else f"number {place}"
    against = " (against the answer)" if float(effects[most]) < 0 else ""
    return f"{does}. “{tokens[most]}”, which has the largest effect{against}, is {rank} of {len(order)}."


def _taken(one: dict[Any, Any], unit: Unit, noun: Nouns) -> str:
    """What taking its top tokens away does, beside random orders."""
    value, random = float(one["value"]), float(one["random_mean"])
    size, chance = unit.number(abs(value)), unit.number(abs(random))
    way = f"{'lowers' if value > 0 else 'raises'} the answer by {size} {unit.word}"
    way = way if float(size) else "leaves the answer as it is"
    beside = f"{'lower' if random > 0 else 'raise'} it by {chance}" if float(chance) else "do no more"
    return f"Taking its top {noun.tokens} away {way}; random orders {beside}."
