"""One text on the page: its tokens, what each method said of them, how they were judged, its attention maps."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from attnprobe import judged_tables
from attnprobe.appearance import FAMILIES, inline
from attnprobe.attribution import Attribution
from attnprobe.comparison import Comparison
from attnprobe.metrics import agreement
from attnprobe.report import answers, heads
from attnprobe.report.nouns import TEXTS, Nouns, nouns
from attnprobe.report.tokens import exact, shown, visible
from attnprobe.study import Settings, Study

WORDS = {"yes": "holds up", "no": "does not", "open": "open"}
SCALES = {"logit": "logits", "log_probability": "log-probability", "probability": "probability"}
TOP = 5


def text(comparison: Comparison, index: int, methods: list[str], budget: heads.Budget) -> dict[str, Any]:
    """Everything that the page shows of one text; plain numbers and strings."""
    study = comparison.studies[index]
    example, target, of_tokens = study.example, study.target, answers.of_tokens(comparison.model, study)
    tokens, noun, whole = shown(example), nouns(comparison), answers.is_whole(study)
    found = {a.method: _scores(a) for a in study.attributions}
    maps, why = heads.stacks(study.capture, budget)
    judging = [m for m in found if not is_control(study, m)]
    # A weight has no direction: beside scores that have one, it is ranked against their sizes.
    by_size = len({found[m]["signed"] for m in judging}) > 1
    places = {m: found[m]["sizes" if by_size else "ranks"] for m in judging}
    spread = spreads(places)
    return {
        "title": title(study),
        "tokens": tokens,
        "exact": exact(example),
        "special": [int(s) for s in example.is_special],
        "n_units": sum(not s for s in example.is_special),
        "n_truncated": example.n_truncated,
        "methods": found,
        "spread": spread,
        "by_size": int(by_size),
        "heading": heading(tokens, found, places, [m for m in methods if m in places], noun),
        "target": answers.explained(target, of_tokens),
        "unit": SCALES[target.scale] if target.function is None or whole else "units of the function",
        "answer": answers.explained_answer(study, of_tokens),
        "against": answers.named(target.against_name, of_tokens) if target.against_name is not None else "",
        "predicted": answers.named(target.predicted_name, of_tokens),
        "given": int(answers.other_steps(study) > 0),
        "says": answers.says(comparison.model, study, noun),
        "probability": _known(target.predicted_probability),
        "label_probability": _known(target.label_probability),
        "value": _known(value_of(study)),
        "stacks": maps,
        "no_maps": why,
        "explains": explains(comparison, index),
        **judged(study, comparison.settings),
    }


def explains(comparison: Comparison, index: int) -> str:
    """The verdict on raw attention on one text; empty where it was not judged."""
    table = comparison.verdicts
    mine = table[(table.method == "raw_attention") & (table.example_index == index)] if len(table) else table
    return "" if mine.empty else str(mine.iloc[0].verdict)


def title(study: Study) -> str:
    """The text on one line, shortened."""
    example = study.example
    whole = example.text if example.pair is None else f"{example.text} ⁄ {example.pair}"
    line = " ".join(whole.split()) or " ".join(shown(example))
    line = "".join(c if c == " " else visible(c) for c in line)
    return line if len(line) <= 90 else line[:89] + "…"


def value_of(study: Study) -> float:
    """The explained number of the text as it is."""
    value = study.target(study.capture.logits.detach().float())
    return float(value.flatten()[0])


def is_control(study: Study, method: str) -> bool:
    """Whether a method knows nothing of the model."""
    found = study.attribution(method)
    return found is not None and found.family == FAMILIES[-1]


def _known(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _digits(values: list[float]) -> list[float]:
    return [float(f"{v:.5g}") for v in values]


def _scores(a: Attribution) -> dict[str, Any]:
    scores = a.scores.double().numpy()
    units = a.units.numpy()
    error = None if a.standard_error is None else _digits(a.standard_error.tolist())
    return {
        "scores": _digits(scores.tolist()),
        "ranks": _places(scores, units),
        "sizes": _places(np.abs(scores), units),
        "signed": int(a.signed),
        "error": error,
    }


def _places(scores: Float[np.ndarray, " token"], units: Bool[np.ndarray, " token"]) -> list[float | None]:
    """The place of each token, 1 for the highest score, ties in the middle; None for special tokens."""
    ranks = pd.Series(scores).where(units).rank(ascending=False, method="average")
    return [None if math.isnan(r) else float(r) for r in ranks]


def spreads(ranks: dict[str, list[float | None]]) -> list[float | None]:
    """How many ranks the methods lie apart on each token; None for special tokens.

    >>> spreads({"a": [None, 1.0, 2.0], "b": [None, 2.0, 1.0]})
    [None, 1.0, 1.0]
    """
    columns = list(zip(*ranks.values(), strict=True))
    return [None if any(r is None for r in column) else max(column) - min(column) for column in columns]


def heading(
    tokens: list[str],
    found: dict[str, Any],
    places: dict[str, list[float | None]],
    methods: list[str],
    noun: Nouns = TEXTS,
) -> str:
    """The finding of the rows: on which token the methods part, counting only tokens that somebody gives weight to.

    places: by method the place of each token, by score, or by its size where only some methods have a direction.
    """
    spread = spreads(places)
    if len(methods) < 2 or not any(spread):
        if len(methods) < 2:
            return f"One {noun.text}, {noun.word} by {noun.word}"
        return f"The methods put the {noun.tokens} in the same order here"
    share = {m: _shares(found[m]["scores"]) for m in methods}
    weight = [0.0 if s is None else s * max(share[m][i] for m in methods) for i, s in enumerate(spread)]
    at = int(np.argmax(weight))
    ranks = {m: places[m][at] or 0.0 for m in methods}
    high, low = min(methods, key=lambda m: ranks[m]), max(methods, key=lambda m: ranks[m])
    n = sum(s is not None for s in spread)
    if (spread[at] or 0) < max(2, n / 4):
        return f"The methods rank the {noun.words} much alike here; they differ most on “{tokens[at]}”"
    first, last = (_rank(ranks[m], n) + _way(found[m], places[m], at) for m in (high, low))
    one, other = inline(high), inline(low)
    return f"The methods part over “{tokens[at]}”: {first} for {one}, {last} for {other}"


def _way(scored: dict[str, Any], places: list[float | None], at: int) -> str:
    """What a place of a method with a direction says, where it is one by size."""
    if not scored["signed"] or places == scored["ranks"]:
        return ""
    return " by size, against the answer," if scored["scores"][at] < 0 else " by size"


def _rank(rank: float, n: int) -> str:
    if rank == n:
        return f"last of {n}"
    whole = int(rank)
    ending = "th" if 10 <= whole % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(whole % 10, "th")
    return f"{whole}{ending}" + ("" if whole == rank else " (tied)")


def _shares(scores: list[float]) -> list[float]:
    total = sum(map(abs, scores)) or 1.0
    return [abs(s) / total for s in scores]


def judged(study: Study, settings: Settings) -> dict[str, Any]:
    """The three numbers of one text, by the same rules as the whole: τ, random orders beaten, arguing tokens."""
    pair = [a for a in study.attributions if a.method in ("raw_attention", "leave_one_out")]
    main = study.under(settings.operator)
    one = replace(study, judged=() if main is None else (main,))
    empty: dict[str, Any] = {"tau": None, "beaten": None, "sufficient": None, "verdict": "", "argue": argue(study)}
    if not any(a.method == "raw_attention" for a in pair):
        return empty
    rows = judged_tables.positions([one], settings)
    beaten = rows[rows.method == "raw_attention"].set_index("metric").random_beaten
    taken = float(beaten.get("comprehensiveness", math.nan))
    empty |= {
        "beaten": _known(taken),
        "sufficient": _known(float(beaten.get("sufficiency", math.nan))),
        "verdict": judged_tables.holds_up([math.nan, math.nan], taken, 1, settings.n_random),
    }
    if len(pair) == 2:
        a, b = (p.scores[p.units] for p in pair)
        empty["tau"] = _known(_tau(a, b))
    return empty


def _tau(a: Any, b: Any) -> float:
    return float(agreement["kendall_tau"].function(a, b))


def argue(study: Study) -> dict[str, Any] | None:
    """Of attention's top tokens, how many argue for the answer by leave-one-out; None where either is missing."""
    attention, removal = study.attribution("raw_attention"), study.attribution("leave_one_out")
    if attention is None or removal is None:
        return None
    tokens = shown(study.example)
    top = attention.ranking()[:TOP]
    against = [i for i in top if float(removal.scores[i]) < 0]
    largest = float(removal.scores[removal.units].abs().max()) if top else 0.0
    return {
        "n": sum(float(removal.scores[i]) > 0 for i in top),
        "of": len(top),
        "against": [tokens[i] for i in against],
        "first": tokens[top[0]] if top else "",
        "same_size": bool(top) and float(removal.scores[top[0]].abs()) == largest > 0,
    }


def listed(comparison: Comparison) -> pd.DataFrame:
    """A row a text: what the page's list of texts shows, and the second test by removal."""
    rows = []
    for index, study in enumerate(comparison.studies):
        found = judged(study, comparison.settings)
        argues = found["argue"] or {}
        rows.append(
            {
                "example_index": index,
                "text": study.example.text,
                "attention": WORDS.get(found["verdict"], "not run"),
                "verdict": explains(comparison, index),
                "predicted": study.target.predicted_name,
                "predicted_probability": study.target.predicted_probability,
                "random_beaten_comprehensiveness": found["beaten"],
                "random_beaten_sufficiency": found["sufficient"],
                "kendall_tau_leave_one_out": found["tau"],
                "top_tokens_arguing_for": argues.get("n"),
                "top_tokens": argues.get("of"),
            }
        )
    return pd.DataFrame(rows)
