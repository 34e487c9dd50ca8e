"""Faithfulness by erasure: the prediction without the tokens that a method names, and with them alone."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.metrics import faithfulness
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

# ERASER's shares of the tokens.
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)


def measured(target: ResolvedTarget) -> ResolvedTarget:
    """The number that erasure is judged by: the label's probability, or the target itself where there is none."""
    if target.function is not None or math.isnan(target.label_probability):
        return target
    return ResolvedTarget(**{**target.__dict__, "against": None, "against_name": None, "scale": "probability"})


def removed(attribution: Attribution, shares: Sequence[float]) -> Bool[Tensor, "share token"]:
    """For each share, the tokens in that first part of the ranking, rounded up; special tokens never."""
    ranking = torch.tensor(attribution.ranking(), dtype=torch.long)
    # A special token ranks behind every share.
    rank = torch.full((attribution.example.n_tokens,), len(ranking))
    rank[ranking] = torch.arange(len(ranking))
    sizes = torch.tensor([math.ceil(share * len(ranking) - 1e-9) for share in shares])
    return rank < sizes[:, None]


def rows(attribution: Attribution, shares: Sequence[float], operator: str, *, alone: bool) -> list[Row]:
    """A row a share: without those tokens, or (`alone`) with nothing but them and the special ones."""
    gone = removed(attribution, shares)
    kept = gone | ~attribution.units if alone else ~gone
    return [Row(attribution.example, kept=row, operator=operator) for row in kept]


def _answers(
    model: Model, attribution: Attribution, shares: Sequence[float], operator: str | None, alone: bool
) -> Tensor:
    operator = checked_operator(model, operator)
    whole = Row(attribution.example)
    answers = targets(model, [whole, *rows(attribution, shares, operator, alone=alone)], measured(attribution.target))
    return answers[0] - answers[1:]


@faithfulness.add(family="faithfulness", source="DeYoung et al. 2020 (ERASER), sec. 4", low=-1, high=1, better="higher")
def comprehensiveness(
    model: Model, attribution: Attribution, *, operator: str | None = None, bins: Sequence[float] = BINS
) -> float:
    """Fall of the label's probability without the top tokens, mean over the bins; -1 to 1, higher is better."""
    return float(_answers(model, attribution, bins, operator, alone=False).mean())


@faithfulness.add(family="faithfulness", source="DeYoung et al. 2020 (ERASER), sec. 4", low=-1, high=1, better="lower")
def sufficiency(
    model: Model, attribution: Attribution, *, operator: str | None = None, bins: Sequence[float] = BINS
) -> float:
    """Fall of the label's probability with the top tokens alone, mean over the bins; -1 to 1, lower is better."""
    return float(_answers(model, attribution, bins, operator, alone=True).mean())
