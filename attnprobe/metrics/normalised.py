"""Comprehensiveness and sufficiency as shares of what taking everything away does, so that texts can be compared.

With p(x) the whole input and p(0) the input without all its tokens: undefined (NaN) where p(0) >= p(x), since nothing
could fall then. Both were defined by S = 1 − max(0, p(x) − p(r)) and S_0, S of the empty input: (S − S_0) / (1 − S_0)
and max(0, p(x) − p(x without r)) / (1 − S_0), each cut to 0 to 1, where 1 − S_0 = p(x) − p(0).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import BINS, Bins, answers, kept, shares_of
from attnprobe.models.model import Model

# A fall below this is rounding: a share of it would mean nothing.
LEAST = 1e-6


def share_of_fall(whole: float, empty: float, found: Float[Tensor, " choice"]) -> Float[Tensor, " choice"]:
    """How much of the fall from whole to empty each answer has gone, 0 to 1; NaN where nothing falls.

    >>> share_of_fall(0.75, 0.25, torch.tensor([0.75, 0.5, 0.0, 1.0])).tolist()
    [0.0, 0.5, 1.0, 0.0]
    """
    if whole - empty <= LEAST:
        return torch.full_like(found, math.nan)
    return ((whole - found) / (whole - empty)).clamp(0, 1)


def _shares(
    model: Model, attribution: Attribution, bins: Bins, operator: str | None, *, alone: bool
) -> Float[Tensor, " share"]:
    staying = kept(attribution, shares_of(attribution, bins), alone=alone)
    whole, found = answers(model, attribution, torch.cat([~attribution.units[None], staying]), operator)
    return share_of_fall(whole, float(found[0]), found[1:])


@faithfulness.add(
    family="faithfulness",
    source="Carton et al. 2020; Zhao & Aletras 2023",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def normalised_comprehensiveness(
    model: Model, attribution: Attribution, *, operator: str | None = None, bins: Bins = BINS
) -> float:
    """Share of the whole fall that taking the top tokens away brings, mean over the bins; 0 to 1, higher is better.

    NaN where the label is as probable without any token as with all of them.
    """
    return float(_shares(model, attribution, bins, operator, alone=False).mean())


@faithfulness.add(
    family="faithfulness",
    source="Carton et al. 2020; Zhao & Aletras 2023",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def normalised_sufficiency(
    model: Model, attribution: Attribution, *, operator: str | None = None, bins: Bins = BINS
) -> float:
    """Share of the whole fall that the top tokens alone prevent, mean over the bins; 0 to 1, higher is better.

    Higher, where plain sufficiency is lower. NaN where the label is as probable without any token as with all of them.
    """
    return float((1 - _shares(model, attribution, bins, operator, alone=True)).mean())
