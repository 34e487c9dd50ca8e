"""How far apart two attributions are as distributions over the same tokens."""

import math

from jaxtyping import Float
from scipy.special import rel_entr
from torch import Tensor

from attnprobe.metrics import agreement
from attnprobe.metrics.ranks import pair_of


@agreement.add(
    family="agreement",
    source="Lin 1991; Jain & Wallace 2019",
    low=0,
    high=math.log(2),
    better="lower",
    default=False,
)
def jensen_shannon(a: Float[Tensor, " unit"], b: Float[Tensor, " unit"]) -> float:
    """Jensen-Shannon divergence of the sizes of scores, each divided by its sum, 0 to 0.693 (ln 2); lower is nearer.

    Natural logarithm. Unlike ranks it sees how much, and signs are lost. NaN where one is 0 everywhere or not finite.

    No token in common, and (1, 0) against (½, ½), which is ½ [ln 4/3 + ½ ln 2/3 + ½ ln 2] = 0.216:

    >>> from torch import tensor
    >>> round(jensen_shannon(tensor([1.0, 0.0]), tensor([0.0, -3.0])), 3)
    0.693
    >>> round(jensen_shannon(tensor([1.0, 0.0]), tensor([1.0, 1.0])), 3)
    0.216
    """
    sizes = [values.abs() for values in pair_of(a, b)]
    if any(not 0 < float(size.sum()) < math.inf for size in sizes):
        return math.nan
    p, q = ((size / size.sum()).numpy() for size in sizes)
    middle = (p + q) / 2
    found = float(rel_entr(p, middle).sum() + rel_entr(q, middle).sum()) / 2
    return min(max(found, 0.0), math.log(2))
