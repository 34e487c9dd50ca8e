"""A comparison as one plain dict: everything that the page says, before any markup."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from attnprobe.appearance import FAMILIES, FAMILY_WORDS, in_order, inline, look, main_six, percent, signed
from attnprobe.comparison import TABLES, Comparison
from attnprobe.intervals import MIN_TEXTS
from attnprobe.judged_tables import MIN_ORDERS
from attnprobe.report import answers, claims, making, scores
from attnprobe.report.heads import BUDGET, Budget, score_names
from attnprobe.report.nouns import PICTURES, Nouns, nouns
from attnprobe.report.parts import left_out, parts
from attnprobe.report.texts import SCALES, text
from attnprobe.study import Study


def build(
    comparison: Comparison,
    command: str,
    stem: str,
    summary: Sequence[str] = (),
    without: Sequence[str] = (),
    map_bytes: int = BUDGET,
) -> dict[str, Any]:
    """What the templates are filled with; `viewer` is what the page's script gets. without: tables not beside it."""
    families = {a.method: a.family for s in comparison.studies for a in s.attributions}
    methods = in_order(comparison.methods, families)
    budget, noun = Budget(map_bytes), nouns(comparison)
    texts = [text(comparison, i, methods, budget) for i in range(len(comparison.studies))]
    top = claims.top(comparison)
    headings = {topic: claims.heading(comparison, topic, otherwise) for topic, otherwise in OTHERWISE.items()}
    shown = parts(comparison, methods, _headings(texts, top, headings, noun))
    return {
        "parts": shown,
        "there": {part["name"] for part in shown},
        "left_out": left_out(comparison, methods),
        "viewer": _viewer(comparison, methods, families, texts)
        | {"spread": next((part["facts"] for part in shown if part["name"] == "spread"), None)},
        "noun": noun,
        "texts": texts,
        "first": texts[0],
        "many": len(texts) > 1,
        "top": top,
        "what": what(comparison, texts),
        "headings": headings,
        "removal_sure": claims.caveat(comparison),
        "beats": claims.who_beats(comparison, [m for m in methods if families[m] != FAMILIES[-1]]),
        "control_beats": claims.who_beats(comparison, [m for m in methods if families[m] == FAMILIES[-1]]),
        "method_names": methods,
        "all_methods": _all_of(families),
        "labels": {m: look(m).label for m in methods},
        "unit": scores.unit_of(comparison),
        "faithfulness": scores.faithfulness(comparison, methods),
        "agreement_rows": scores.agreement_rows(comparison, methods),
        "measures": scores.measures(comparison),
        "interval_over": scores.over(comparison),
        "summary": list(summary),
        "stem": stem,
        **_made(comparison, methods, command, without),
        **_rules(comparison, len(methods)),
    }


def _all_of(families: Mapping[str, str]) -> str:
    """How many methods there are, controls apart: "12 and the control"."""
    controls = sum(family == FAMILIES[-1] for family in families.values())
    beside = {0: "", 1: " and the control"}.get(controls, f" and {controls} controls")
    return f"{len(families) - controls}{beside}"


def _made(comparison: Comparison, methods: list[str], command: str, without: Sequence[str]) -> dict[str, Any]:
    """How the numbers were made, checked, and can be made again."""
    return {
        "methods": making.methods(comparison, methods),
        "checks": making.checks(comparison),
        "failures": making.failures(comparison),
        "warnings": making.warnings(comparison),
        "versions": making.versions(comparison),
        "operator": making.operator(comparison.settings.operator, nouns(comparison)),
        "provenance": making.provenance(comparison),
        "settings": comparison.settings,
        "command": making.lines(making.without_paths(command)),
        "shortened": making.is_shortened(command),
        "tables": [name for name in (*TABLE_NAMES, *EXTRA) if name not in without],
        "without": list(without),
    }


def _viewer(
    comparison: Comparison, methods: list[str], families: Mapping[str, str], texts: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the page's script gets."""
    return {
        "methods": {m: _method(m, families[m], texts) for m in methods},
        "order": methods,
        "main": main_six(methods),
        "texts": texts,
        "curves": scores.curves(comparison, methods),
        "areas": scores.areas(comparison),
        "beaten": {r["method"]: r["beaten"] for f in scores.faithfulness(comparison, methods)[:1] for r in f["rows"]},
        "agreement": scores.agreement(comparison),
        "noun": asdict(nouns(comparison)),
        "n_random": comparison.settings.n_random,
        "head_scores": score_names(),
    }


def _headings(
    texts: list[dict[str, Any]], top: Mapping[str, Any], found: Mapping[str, tuple[str, str]], noun: Nouns
) -> dict[str, str]:
    """The heading of each part whose facts hold none: its finding."""
    counts, n = top["counts"], len(texts)
    return {
        "texts": f"Attention holds up on {noun.of(counts['yes'], n)}" if counts else f"The {n} {noun.texts} one by one",
        "text": texts[0]["heading"],
        "removal": found["removal"][0],
        "agreement": found["agreement"][0],
        "heads": "What each head looks at",
        "methods": "How each number was made, and how to make it again",
        "reading": "What the numbers say, and what they do not",
    }


def _rules(comparison: Comparison, n_methods: int) -> dict[str, Any]:
    """Numbers of the rules that the page states."""
    return {
        "intervals": bool(comparison.main.low.notna().any()),
        "bins": scores.bins(),
        "one_token": scores.one_token(),
        "min_texts": MIN_TEXTS,
        "min_orders": MIN_ORDERS,
        "n_pairs": n_methods * (n_methods - 1) // 2,
    }


FIRST_CHOICE = "the model’s first choice"
# Names of the tables of a comparison; asking it for the tables themselves takes long where there are many texts.
TABLE_NAMES = ("attributions", "predictions", *TABLES)
# Tables that only the page makes.
EXTRA = ("heads", "texts", "best_orders")
OTHERWISE = {
    "removal": "How each order stands up to removal",
    "agreement": "How far the methods agree here",
}


def _method(name: str, family: str, texts: list[dict[str, Any]]) -> dict[str, Any]:
    style = look(name)
    signs = {t["methods"][name]["signed"] for t in texts if name in t["methods"]}
    sign = "signed" if 1 in signs else "no sign"
    return {
        "label": style.label,
        "short": style.short,
        "inline": inline(name),
        "shape": style.shape,
        "filled": int(style.filled),
        "light": style.light,
        "dark": style.dark,
        "family": family,
        "sub": f"{FAMILY_WORDS.get(family, family).split(':')[0].split(' in ')[0]}, {sign}",
        "control": int(family == FAMILIES[-1]),
    }


def what(comparison: Comparison, texts: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """What was explained: (name, value, small print)."""
    model = (making.model_name(comparison), making.stacks_in_words(comparison))
    if len(texts) == 1:
        t, study = texts[0], comparison.studies[0]
        of_tokens = answers.of_tokens(comparison.model, study)
        if not t["predicted"]:
            explained = ("Explained", t["answer"], "a function of the logits")
            return [("Model", *model), explained, ("Its value", signed(t["value"] or 0.0, 2), t["unit"])]
        if answers.is_whole(study):
            return [("Model", *model), *_whole_answer(study, t)]
        same = "same as predicted" if t["answer"] == t["predicted"] else f"predicted: {t['predicted']}"
        p = t["label_probability"]
        small = "" if p is None or t["answer"] == t["predicted"] else f", {percent(p)}"
        rather = (f"rather than {t['against']}" if t["against"] else same) + answers.positions([study])
        value = "" if t["value"] is None else f": {signed(t['value'], 2)}"
        return [
            ("Model", *model),
            ("Predicted", answers.predicted(study, of_tokens), _others(comparison, t)),
            ("Explained", t["answer"] + small, rather),
            ("Scale of effects", t["target"] + value, t["unit"]),
        ]
    predicted = answers.counted([t["predicted"] for t in texts])
    answered = answers.counted([t["answer"] + (f" rather than {t['against']}" if t["against"] else "") for t in texts])
    known = [t["probability"] for t in texts if t["probability"] is not None]
    mean = f"mean probability {percent(sum(known) / len(known))}" if known else ""
    noun = nouns(comparison)
    sizes = sorted(t["n_units"] if noun is PICTURES else len(t["tokens"]) for t in texts)
    between = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    as_predicted = all(t["answer"] == t["predicted"] for t in texts)
    given = sum(t["given"] for t in texts)
    said = ("Answers", predicted, f"{noun.of(given, len(texts))}: given") if given else ("Predicted", predicted, mean)
    return [
        ("Model", *model),
        (noun.texts.capitalize(), str(len(texts)), f"{between} {noun.tokens}"),
        said,
        ("Explained", answered, answers.which(comparison.model, comparison.studies, as_predicted, noun)),
        ("Scale of effects", texts[0]["unit"], f"of the explained answer of each {noun.text}"),
    ]


def _whole_answer(study: Study, text: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The answer of an encoder-decoder, which the model wrote or somebody gave, and what of it is explained."""
    n, others = len(study.example.notes["answer_ids"]), answers.other_steps(study)
    steps = f"{others} of {n} steps" if n > 1 else "its only step"
    given = f"the answer that was given; at {steps} it is not the model’s first choice"
    said = ("Answer", text["predicted"], given) if others else ("Predicted", text["predicted"], FIRST_CHOICE)
    value = "" if text["value"] is None else signed(text["value"], 2)
    of = f"{SCALES[study.target.scale]} of the whole answer"
    return [said, ("Explained", of, f"summed over its {n} tokens" if n > 1 else ""), ("Its value", value, text["unit"])]


def _others(comparison: Comparison, text: dict[str, Any]) -> str:
    """The classes after the first, where there are few."""
    study = comparison.studies[0]
    target = study.target
    row = study.capture.logits.detach().float().reshape(-1, study.capture.logits.shape[-1])
    if study.capture.logits.ndim != 2 or not 2 <= row.shape[-1] <= 3 or target.function is not None:
        return FIRST_CHOICE
    p = row[0].softmax(-1).tolist()
    if target.against is not None and len(p) == 2:
        other = text["against"] if target.predicted == target.label else text["answer"]
        return f"{other} {percent(p[1 - target.predicted])}"
    return "all others " + percent(1 - p[target.predicted])
