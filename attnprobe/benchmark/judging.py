"""Scores beside the truth: the order of the tokens, the first of them, and what is given to tokens without effect.

Sign-aware: scores with a direction are compared with the truth as it is, scores without one (attention weights) with
the sizes of the truth. Only units are compared. Scores that are nearly equal count as equal: a difference below 1/1000
of the largest score, or below its standard error where the method estimates one, says nothing. Planted truths are of
order 1, so that sizes below 1e-9 are rounding, and 0.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.metrics import agreement as metrics

NEAR = 1e-3
EXACT = 1e-9


@dataclass(frozen=True)
class Judged:
    """One method on one planted model.

    agreement: Kendall's tau-b of scores and truth, 1 for the true order with its ties, 0 for scores that are all equal;
    None where the truth gives every token the same, which is no order. top1: whether the largest score by size is at a
    token of the largest truth, with its sign where the method has one (a share where several tie; 0 for scores that
    are all 0). idle: share of the scores' total size on tokens without effect, 0 for scores that are all 0; None where
    every token has an effect.
    """

    agreement: float | None
    top1: float | None
    idle: float | None

    @property
    def correct(self) -> bool:
        """Whether the order is the true one; where the truth is 0 everywhere, whether the scores are."""
        return self.idle == 0 if self.agreement is None else self.agreement > 1 - 1e-6


def judge(found: Attribution, truth: Float[Tensor, " token"]) -> Judged:
    """What a method says beside the truth of every token."""
    units = found.units
    scores, true = found.scores.double()[units], truth.double()[units]
    scores = scores.where(scores.abs() > EXACT, 0.0)
    error = None if found.standard_error is None else found.standard_error.double()[units]
    if not found.signed:
        true = true.abs()
    return Judged(_order(scores, true, error), _first(scores, true, found.signed), _idle(scores, true))


def levels(
    values: Float[Tensor, " unit"], near: float, error: Float[Tensor, " unit"] | None = None
) -> Float[Tensor, " unit"]:
    """The rank of each value, from 0; values that follow one another closely have one rank.

    >>> levels(torch.tensor([0.5, 0.0, 0.5001, 1.0]), 1e-3).tolist()
    [1.0, 0.0, 1.0, 2.0]
    """
    order = values.argsort()
    ordered = values[order]
    closeness = torch.full_like(ordered[1:], near * float(values.abs().max()))
    if error is not None:
        spread = error[order]
        closeness = torch.maximum(closeness, torch.hypot(spread[1:], spread[:-1]))
    steps = (ordered[1:] - ordered[:-1] > closeness).double().cumsum(0)
    ranks = torch.zeros(len(values), dtype=torch.float64)
    ranks[order[1:]] = steps
    return ranks


def _order(scores: Tensor, true: Tensor, error: Tensor | None) -> float | None:
    wanted = levels(true, EXACT)
    if len(true) < 2 or bool((wanted == wanted[0]).all()):
        return None
    tau = metrics["kendall_tau"].function(levels(scores, NEAR, error), wanted)
    return 0.0 if math.isnan(tau) else float(tau)


def _first(scores: Tensor, true: Tensor, signed: bool) -> float | None:
    if bool((levels(true, EXACT) == 0).all()):
        return None
    if not bool(scores.any()):
        return 0.0
    chosen, wanted = _largest(scores, NEAR), _largest(true, EXACT)
    hit = chosen & wanted & ((scores.sign() == true.sign()) if signed else torch.ones_like(chosen))
    return float(hit.sum()) / float(chosen.sum())


def _largest(values: Tensor, near: float) -> Bool[Tensor, " unit"]:
    sizes = values.abs()
    return sizes >= sizes.max() * (1 - near)


def _idle(scores: Tensor, true: Tensor) -> float | None:
    idle, total = true == 0, float(scores.abs().sum())
    if not bool(idle.any()):
        return None
    return float(scores.abs()[idle].sum()) / total if total else 0.0
