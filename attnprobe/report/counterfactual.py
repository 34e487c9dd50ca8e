"""The part on another attention with the same answer: how far attention could be moved, beside how far the answer was.

Nothing is judged by it: a verdict never rests on it alone.
"""

import math
from collections.abc import Sequence
from typing import Any

from attnprobe.appearance import NARROW_SPACE, number, percent, signed
from attnprobe.comparison import Comparison
from attnprobe.other_attention import ANOTHER, OtherAttention
from attnprobe.report.nouns import PICTURES, TEXTS, Nouns, nouns
from attnprobe.report.texts import SCALES, title
from attnprobe.study import Study

# Less of the weight than this on other tokens is the model's own attention again.
SAME = 0.05


def counterfactual(comparison: Comparison, methods: list[str]) -> dict[str, Any] | None:
    """What the part shows; None where no other attention was looked for, or none could be."""
    found = [study.other for study in comparison.studies]
    known = [one for one in found if one is not None]
    if not known:
        return None
    noun = nouns(comparison)
    word = noun.words if comparison.studies[0].example.axis == "source" else noun.tokens
    return {
        "heading": heading(known, len(found), noun, word),
        "word": word,
        "pictures": noun is PICTURES,
        "how": how(known[0]),
        "several": len(known) > 1,
        "missing": len(found) - len(known),
        "another": percent(ANOTHER, 0),
        "allowed": _allowed(known[0]),
        "rows": [_row(study, study.other) for study in comparison.studies if study.other is not None],
        "data": {
            "word": word,
            "eps": known[0].eps,
            "least": ANOTHER,
            "jsd_most": round(math.log(2), 4),
            "outputs": int(known[0].of_outputs),
            "texts": [None if one is None else _drawn(one) for one in found],
        },
    }


def heading(found: Sequence[OtherAttention], n_texts: int, noun: Nouns = TEXTS, word: str = "") -> str:
    """The finding: on how many texts another attention gives the same answer."""
    n = sum(one.another for one in found)
    if n_texts > 1:
        return f"Another attention gives the same answer on {noun.of(n, len(found))}"
    moved = found[0].attention_total_variation
    if n:
        return "Another attention gives the same answer here"
    if moved < SAME:
        return "No other attention with the same answer was found here"
    return f"With the answer kept, {percent(moved, 0)} of the weight could be moved to other {word or noun.words}"


def beside(comparison: Comparison) -> list[tuple[str, str]]:
    """The finding as a sentence beside the claim, on neither side: ("open", sentence); none where there is none."""
    known = [study.other for study in comparison.studies if study.other is not None]
    if not known:
        return []
    said = heading(known, len(comparison.studies), nouns(comparison))
    return [("open", f"{said} (section on another attention); that alone speaks on neither side.")]


def how(one: OtherAttention) -> str:
    """What was searched, in a sentence."""
    stack = " ".join(word for word in (one.stack, "cross-attention" if one.kind == "cross" else "") if word)
    where = f"number {one.layer}, {stack}" if stack else f"number {one.layer}"
    return (
        f"Free were all heads of the last layer ({where}), in the rows that the answer is read from; all else of the "
        f"model stayed as it is. Searched by gradient from {one.n_starts} random starts of {one.n_steps} steps each, "
        f"and among weights with exactly the same output of each head; the farthest that kept the answer is shown. "
        f"Seed {one.seed}."
    )


def _allowed(one: OtherAttention) -> str:
    """How far the answer could be moved, in words."""
    if not one.of_outputs:
        return f"the explained number may move by {number(one.eps, 2)}"
    return f"no probability may move by more than {number(100 * one.eps, 0)}{NARROW_SPACE}point"


def _drawn(one: OtherAttention) -> dict[str, Any]:
    """What the script draws of one text."""
    return {
        "own": _digits(one.own.tolist()),
        "other": _digits(one.other.tolist()),
        "moved": round(one.attention_total_variation, 4),
        "jsd": round(one.attention_jsd, 4),
        "answer": float(f"{one.answer_total_variation:.3g}"),
        "value": [_known(one.value), _known(one.value_after)],
        "probability": [_known(one.probability), _known(one.probability_after)],
        "another": int(one.another),
        "kept": int(one.decision_kept),
    }


def _row(study: Study, one: OtherAttention) -> dict[str, str]:
    """One text in the table of exact values."""
    points = 100 * (one.probability_after - one.probability)
    unit = SCALES[study.target.scale] if study.target.function is None else "units of the function"
    return {
        "title": title(study),
        "moved": percent(one.attention_total_variation),
        "jsd": number(one.attention_jsd, 3),
        "tau": signed(one.kendall_tau, 2),
        "value": f"{signed(one.value_after - one.value, 3)} {unit}",
        "points": f"{signed(points, 2)} points" if math.isfinite(points) else "–",
        "variation": percent(one.answer_total_variation, 2) if one.of_outputs else "–",
        "another": "yes" if one.another else "no",
    }


def _digits(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def _known(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
