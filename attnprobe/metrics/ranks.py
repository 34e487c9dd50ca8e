"""Agreement of the orders of two attributions of the same tokens: rank correlation by scipy, and of their tops."""

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.metrics import agreement

Unit = Float[Tensor, " unit"]


def pair_of(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two scorings of the same tokens, in float64 on the CPU; `InputError` for scores that are not one a token of each.

    >>> [one.tolist() for one in pair_of(torch.tensor([1, 2]), torch.tensor([0.5, 0.25], dtype=torch.bfloat16))]
    [[1.0, 2.0], [0.5, 0.25]]
    """
    first, second = (values.detach().cpu().double() for values in (a, b))
    if first.ndim != 1 or first.shape != second.shape:
        shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
        raise InputError(f"two scorings of the same tokens have one score a token, got shapes {shapes}")
    return first, second


def orders_nothing(a: Tensor, b: Tensor) -> bool:
    """Whether one of the two gives every token the same, or NaN to one, which is no order."""
    same = len(a) < 2 or bool((a == a[0]).all()) or bool((b == b[0]).all())
    return same or bool(a.isnan().any()) or bool(b.isnan().any())


@agreement.add(
    family="agreement",
    source="Kendall 1945 (tau-b); scipy.stats.kendalltau",
    low=-1,
    high=1,
    better="none",
    default=True,
)
def kendall_tau(a: Unit, b: Unit) -> float:
    """Kendall's tau-b of two rankings, -1 to 1: 1 same order, 0 no relation, -1 reversed; NaN where one is constant.

    >>> kendall_tau(torch.tensor([0.1, 0.2, 0.7]), torch.tensor([1.0, 2.0, 3.0]))
    1.0
    >>> round(kendall_tau(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])), 3)
    0.333
    """
    a, b = pair_of(a, b)
    return math.nan if orders_nothing(a, b) else float(stats.kendalltau(a.numpy(), b.numpy()).statistic)


@agreement.add(
    family="agreement", source="Spearman 1904; scipy.stats.spearmanr", low=-1, high=1, better="none", default=True
)
def spearman(a: Unit, b: Unit) -> float:
    """Spearman's rank correlation, ties given their mean rank, -1 to 1: 1 same order; NaN where one is constant.

    >>> round(spearman(torch.tensor([0.1, 0.1, 0.1, 0.7]), torch.tensor([0.1, 0.2, 0.3, 0.4])), 3)
    0.775
    """
    a, b = pair_of(a, b)
    return math.nan if orders_nothing(a, b) else float(stats.spearmanr(a.numpy(), b.numpy()).statistic)


@agreement.add(
    family="agreement",
    source="Jain & Wallace 2019, sec. 4 (top-k sets)",
    low=0,
    high=1,
    better="none",
    default=True,
)
def top_k_overlap(a: Unit, b: Unit, *, k: int = 5) -> float:
    """Share of the k largest of one that are among the k largest of the other, 0 to 1; NaN where one is constant.

    k is cut to a third of the tokens (at least 1), since the overlap of long lists is high by chance.

    >>> top_k_overlap(torch.tensor([9.0, 1, 2, 3, 4, 5]), torch.tensor([9.0, 5, 4, 3, 2, 1]), k=5)
    0.5
    """
    a, b = pair_of(a, b)
    if orders_nothing(a, b):
        return math.nan
    k = max(1, min(_checked(k), len(a) // 3))
    return len(_top(a, k) & _top(b, k)) / k


def _checked(k: int) -> int:
    if k < 1:
        raise InputError(f"k is at least 1, got {k}")
    return k


def _order(values: Tensor) -> list[int]:
    """Indices, largest value first; equal values in the order of the text."""
    return torch.argsort(values, descending=True, stable=True).tolist()


def _top(values: Tensor, k: int) -> set[int]:
    return set(_order(values)[:k])


@agreement.add(
    family="agreement",
    source="Webber et al. 2010 (extrapolated, lists of one length)",
    low=0,
    high=1,
    better="none",
    default=False,
)
def rbo(a: Unit, b: Unit, *, p: float = 0.9) -> float:
    """Rank-biased overlap, extrapolated, 0 to 1: 1 same order, the top counts most; NaN where one is constant.

    With x_d the number of tokens that the first d of both lists share: (1 − p) Σ_{d ≤ n} p^{d−1} x_d / d + p^n x_n / n,
    where x_n = n, since both order the same n tokens: that is why short texts have high values by chance too (reversed
    orders of 3 tokens: the example). p: how far down one reads, 0 to 1 without the ends. Equal scores stand in the
    order of the text. Here (1 − ½)(½ · 1/2 + ¼ · 3/3) + ⅛ = ⅜:

    >>> rbo(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 3.0]), p=0.5)
    0.375
    """
    if not 0 < p < 1:
        raise InputError(f"p lies between 0 and 1, got {p}")
    a, b = pair_of(a, b)
    if orders_nothing(a, b):
        return math.nan
    first, second, n = _order(a), _order(b), len(a)
    depth = np.maximum(np.argsort(first), np.argsort(second))  # from which on both lists have a token
    shared = np.bincount(depth, minlength=n).cumsum().tolist()
    return (1 - p) * sum(p ** (d - 1) * x / d for d, x in enumerate(shared, 1)) + p**n


@agreement.add(
    family="agreement",
    source="Fagin et al. 2003, K^(p) of two top-k lists",
    low=-1,
    high=1,
    better="none",
    default=False,
)
def top_k_kendall(a: Unit, b: Unit, *, k: int = 5, p: float = 0.5) -> float:
    """Kendall's agreement of the two lists of the k largest, -1 to 1: 1 same list; NaN where one is constant.

    Of the m tokens in either list each pair counts 1 where the lists order it differently for certain (a token outside
    of a list stands behind all in it), and p where one list names both and the other neither, so that nothing is known
    there; 0 else. The value is 1 − 2 · sum / (number of pairs); dividing by m² instead, as some code does, never gets
    to -1. k is cut to a third of the tokens (at least 2).

    Lists 0, 1 and 0, 2 of six tokens: of the pairs 01, 02, 12 only 12 is ordered differently, so 1 − 2/3:

    >>> round(top_k_kendall(torch.tensor([9.0, 8, 3, 2, 1, 0]), torch.tensor([9.0, 3, 8, 2, 1, 0]), k=2), 3)
    0.333
    """
    if not 0 <= p <= 1:
        raise InputError(f"p lies between 0 and 1, got {p}")
    a, b = pair_of(a, b)
    if orders_nothing(a, b):
        return math.nan
    k = max(2, min(_checked(k), len(a) // 3))
    first, second = ({token: place for place, token in enumerate(_order(values)[:k])} for values in (a, b))
    tokens = sorted(first.keys() | second.keys())
    pairs = [(i, j) for at, i in enumerate(tokens) for j in tokens[at + 1 :]]
    against = sum(_against(first, second, i, j, p) for i, j in pairs)
    return 1 - 2 * against / len(pairs)


def _against(first: dict[int, int], second: dict[int, int], i: int, j: int, p: float) -> float:
    """How far two top lists order a pair differently: 0, 1, or p where one of them says nothing."""
    if not ({i, j} & first.keys()) or not ({i, j} & second.keys()):
        return p
    ways = [places.get(i, math.inf) < places.get(j, math.inf) for places in (first, second)]
    return float(ways[0] != ways[1])
