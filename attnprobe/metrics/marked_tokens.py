"""Plausibility: whether scores put first what people marked. It says nothing of what the model uses.

Only units are compared. NaN where the rationale marks none of them, or where nothing is left to be right about. Scores
that are equal share one threshold in the curves; elsewhere they stand in the order of the text.
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.metrics import plausibility
from attnprobe.metrics.rationales import Rationale, as_rationale


def precision_and_recall(
    scores: Float[Tensor, " unit"], marked: Bool[Tensor, " unit"]
) -> tuple[Float[Tensor, " threshold"], Float[Tensor, " threshold"]]:
    """Both at each threshold that the scores allow, highest first, behind the point (1, 0) of no token at all.

    >>> scores, marked = torch.tensor([3.0, 2.0, 2.0, 1.0]), torch.tensor([True, False, True, False])
    >>> [[round(v, 2) for v in found.tolist()] for found in precision_and_recall(scores, marked)]
    [[1.0, 1.0, 0.67, 0.5], [0.0, 0.5, 1.0, 1.0]]
    """
    order = torch.argsort(scores, descending=True, stable=True)
    ordered, right = scores[order], marked[order].double().cumsum(0)
    last = torch.ones(len(scores), dtype=torch.bool)  # of the scores that are equal
    last[:-1] = ordered[1:] != ordered[:-1]
    taken = torch.arange(1, len(scores) + 1)[last]
    precision, recall = right[last] / taken, right[last] / right[-1]
    return torch.cat([torch.ones(1).double(), precision]), torch.cat([torch.zeros(1).double(), recall])


def _asked(attribution: Attribution, rationale: Rationale) -> tuple[Tensor, Tensor] | None:
    """Scores and marks of the units; None where none is marked."""
    units = attribution.units
    marked = as_rationale(attribution.example, rationale)[units]
    return (attribution.scores[units].double(), marked) if bool(marked.any()) else None


def _top(attribution: Attribution, rationale: Rationale, k: int | None) -> tuple[set[int], set[int]] | None:
    """The first k tokens of the ranking, and those marked; k: as many as are marked."""
    if k is not None and k < 1:
        raise InputError(f"k is at least 1, or None for as many as are marked; got {k}")
    marked = as_rationale(attribution.example, rationale) & attribution.units
    gold = set(marked.nonzero().flatten().tolist())
    return (set(attribution.ranking()[: k or len(gold)]), gold) if gold else None


@plausibility.add(
    family="plausibility",
    source="DeYoung et al. 2020 (ERASER): area by trapezoids",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def auprc_trapezoid(attribution: Attribution, rationale: Rationale) -> float:
    """Area under precision over recall, by trapezoids as in ERASER, 0 to 1; higher is better.

    Marks 1, 0, 0, 0, 1, 0 under falling scores have .6625 here and .70 as average precision.
    """
    asked = _asked(attribution, rationale)
    return math.nan if asked is None else trapezoid(*asked)


def trapezoid(scores: Float[Tensor, " unit"], marked: Bool[Tensor, " unit"]) -> float:
    """Area under the straight lines between the points: ½ · 1 up to the first mark, ½ · (¼ + ⅖) / 2 to the second.

    >>> round(trapezoid(torch.arange(6, 0, -1.0), torch.tensor([1, 0, 0, 0, 1, 0]).bool()), 4)
    0.6625
    """
    precision, recall = precision_and_recall(scores, marked)
    return float(torch.trapezoid(precision, recall))


@plausibility.add(
    family="plausibility",
    source="sklearn.metrics.average_precision_score",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def average_precision(attribution: Attribution, rationale: Rationale) -> float:
    """Mean over the marked tokens of the precision down to each, 0 to 1; higher is better."""
    asked = _asked(attribution, rationale)
    return math.nan if asked is None else stepwise(*asked)


def stepwise(scores: Float[Tensor, " unit"], marked: Bool[Tensor, " unit"]) -> float:
    """Precision times the recall that each threshold adds: ½ · 1 + ½ · ⅖.

    >>> round(stepwise(torch.arange(6, 0, -1.0), torch.tensor([1, 0, 0, 0, 1, 0]).bool()), 4)
    0.7
    """
    precision, recall = precision_and_recall(scores, marked)
    return float((precision[1:] * recall.diff()).sum())


@plausibility.add(
    family="plausibility",
    source="DeYoung et al. 2020 (ERASER): token F1",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def token_f1(attribution: Attribution, rationale: Rationale, *, k: int | None = None) -> float:
    """F1 of the first k tokens and the marked ones, 0 to 1; higher is better.

    k: None for as many as are marked; then precision, recall and F1 are the same.
    """
    asked = _top(attribution, rationale, k)
    return math.nan if asked is None else 2 * len(asked[0] & asked[1]) / (len(asked[0]) + len(asked[1]))


@plausibility.add(
    family="plausibility",
    source="DeYoung et al. 2020 (ERASER): overlap, here of tokens, not of whole spans above ½",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def iou(attribution: Attribution, rationale: Rationale, *, k: int | None = None) -> float:
    """Intersection over union of the first k tokens and the marked ones, 0 to 1; higher is better.

    k: None for as many as are marked.
    """
    asked = _top(attribution, rationale, k)
    return math.nan if asked is None else len(asked[0] & asked[1]) / len(asked[0] | asked[1])


@plausibility.add(
    family="plausibility",
    source="Zhang et al. 2018 (pointing game)",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def pointing_game(attribution: Attribution, rationale: Rationale) -> float:
    """Whether the largest score is on a marked token, 0 or 1; higher is better; its mean over texts is the hit rate."""
    asked = _top(attribution, rationale, 1)
    return math.nan if asked is None else float(asked[0] <= asked[1])


@plausibility.add(
    family="plausibility",
    source="Arras et al. 2022 (relevance mass accuracy)",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def mass_accuracy(
    attribution: Attribution, rationale: Rationale, *, of: Literal["positive", "size"] = "positive"
) -> float:
    """Share of the scores' total that lies on marked tokens, 0 to 1; higher is better.

    of: the positive scores, or the "size" of all. NaN where they are all 0.
    """
    if of not in ("positive", "size"):
        raise InputError(f"of is 'positive' or 'size', got '{of}'")
    asked = _asked(attribution, rationale)
    if asked is None:
        return math.nan
    mass = asked[0].clamp(min=0) if of == "positive" else asked[0].abs()
    return float(mass[asked[1]].sum() / mass.sum()) if bool(mass.any()) else math.nan
