"""Agreement of two attributions of the same tokens, by scipy."""

import math

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from attnprobe.metrics import agreement

Unit = Float[Tensor, " unit"]


def _constant(a: Tensor, b: Tensor) -> bool:
    return len(a) < 2 or bool((a == a[0]).all()) or bool((b == b[0]).all())


@agreement.add(family="agreement", source="Kendall 1945 (tau-b); scipy.stats.kendalltau", low=-1, high=1, better="none")
def kendall_tau(a: Unit, b: Unit) -> float:
    """Kendall's tau-b of two rankings: 1 same order, 0 no relation, -1 reversed; NaN where one is constant.

    >>> kendall_tau(torch.tensor([0.1, 0.2, 0.7]), torch.tensor([1.0, 2.0, 3.0]))
    1.0
    >>> round(kendall_tau(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])), 3)
    0.333
    """
    return math.nan if _constant(a, b) else float(stats.kendalltau(a.numpy(), b.numpy()).statistic)


@agreement.add(family="agreement", source="Spearman 1904; scipy.stats.spearmanr", low=-1, high=1, better="none")
def spearman(a: Unit, b: Unit) -> float:
    """Spearman's rank correlation, ties given their mean rank: -1 to 1; NaN where one is constant.

    >>> round(spearman(torch.tensor([0.1, 0.1, 0.1, 0.7]), torch.tensor([0.1, 0.2, 0.3, 0.4])), 3)
    0.775
    """
    return math.nan if _constant(a, b) else float(stats.spearmanr(a.numpy(), b.numpy()).statistic)


@agreement.add(family="agreement", source="Jain & Wallace 2019, sec. 4 (top-k sets)", low=0, high=1, better="none")
def top_k_overlap(a: Unit, b: Unit, *, k: int = 5) -> float:
    """Share of the k largest of one that are among the k largest of the other: 0 to 1; NaN where one is constant.

    k is cut to a third of the tokens (at least 1), since the overlap of long lists is high by chance.

    >>> top_k_overlap(torch.tensor([9.0, 1, 2, 3, 4, 5]), torch.tensor([9.0, 5, 4, 3, 2, 1]), k=5)
    0.5
    """
    if _constant(a, b):
        return math.nan
    k = max(1, min(k, len(a) // 3))
    return len(_top(a, k) & _top(b, k)) / k


def _top(values: Tensor, k: int) -> set[int]:
    return set(torch.argsort(values, descending=True, stable=True)[:k].tolist())
