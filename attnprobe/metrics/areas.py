"""Areas under the curves of removal: the label's probability while tokens go, or come, in the order of a method."""

import torch
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import TENTHS, Bins, answers, kept, shares_of, sizes_of
from attnprobe.models.model import Model


def _area(model: Model, attribution: Attribution, bins: Bins, operator: str | None, *, alone: bool) -> float:
    """Trapezoids over the share of tokens that a bin really is, both ends included."""
    n = int(attribution.units.sum())
    if n == 0:
        return float("nan")
    sizes = sorted({0, n, *sizes_of(attribution, shares_of(attribution, bins))})
    shares = [size / n for size in sizes]
    _, curve = answers(model, attribution, kept(attribution, shares, alone=alone), operator)
    x: Tensor = torch.tensor(shares, dtype=curve.dtype)
    return float(torch.trapezoid(curve, x))


@faithfulness.add(
    family="faithfulness",
    source="Petsiuk et al. 2018 (RISE), deletion",
    low=0,
    high=1,
    better="lower",
    default=True,
)
def deletion_area(model: Model, attribution: Attribution, *, operator: str | None = None, bins: Bins = TENTHS) -> float:
    """Area under the label's probability while the top tokens are taken away, 0 to 1; lower is better.

    bins: shares of the tokens at which the curve is read, rounded up, beside none and all: up to ten tokens that is
    every one; or "all". Low also where any order would do: a number to set beside random orders and the oracle.
    """
    return _area(model, attribution, bins, operator, alone=False)


@faithfulness.add(
    family="faithfulness",
    source="Petsiuk et al. 2018 (RISE), insertion",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def insertion_area(
    model: Model, attribution: Attribution, *, operator: str | None = None, bins: Bins = TENTHS
) -> float:
    """Area under the label's probability while the top tokens come back, 0 to 1; higher is better.

    bins: as of deletion_area.
    """
    return _area(model, attribution, bins, operator, alone=True)
