"""T5's relative bias (Raffel et al. 2020, section 2.1): a learned number for each head and bucket of distances.

scores_ij = q_i · k_j + b[bucket(j − i), head]            b [bucket head], parameters; T5 scales by 1

Of the buckets of one side (all n where causal, else n/2 for each side) the first half hold one distance each, the
rest grow with the logarithm up to max_distance; whatever is further shares the last:

bucket(δ) = δ for δ < e,  min(e + floor(ln(δ/e) / ln(max_distance/e) · (side − e)), side − 1)  with e = side // 2
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.attention.positions import Positions, at_least, relative_positions
from attnprobe.errors import InputError


def bucket(
    offset: Int[Tensor, "*shape"], *, n_buckets: int = 32, max_distance: int = 128, causal: bool = False
) -> Int[Tensor, "*shape"]:
    """The bucket of each offset j − i; causal: keys behind the query (which a mask hides) fall into bucket 0.

    >>> bucket(torch.tensor([-200, -9, -1, 0, 1, 9, 200])).tolist()
    [15, 8, 1, 0, 17, 24, 31]
    >>> bucket(torch.tensor([-200, -9, -1, 0, 1]), causal=True).tolist()
    [31, 9, 1, 0, 0]
    """
    n_side, n_exact = _sides(n_buckets, max_distance, causal)
    distance = (-offset).clamp(min=0) if causal else offset.abs()
    # In float32, as tables are trained: with some settings (18 buckets, 128) rounding decides at the edges of buckets.
    share = torch.log(distance.clamp(min=n_exact).float() / n_exact) / math.log(max_distance / n_exact)
    far = (n_exact + (share * (n_side - n_exact)).long()).clamp(max=n_side - 1)
    side = torch.where(distance < n_exact, distance, far)
    return side if causal else side + n_side * (offset > 0)


def _sides(n_buckets: int, max_distance: int, causal: bool) -> tuple[int, int]:
    """How many buckets a side has, and how many of them hold one distance."""
    at_least("n_buckets", n_buckets, 2 if causal else 4)
    n_side = n_buckets if causal else n_buckets // 2
    if max_distance <= n_side // 2:
        raise InputError(
            f"with {n_buckets} buckets the first {n_side // 2} distances have one each, so max_distance is larger, "
            f"got {max_distance}"
        )
    return n_side, n_side // 2


def bucket_bias(
    table: Float[Tensor, "bucket head"],
    n_queries: int,
    n_keys: int | None = None,
    *,
    max_distance: int = 128,
    causal: bool = False,
) -> Float[Tensor, "head query key"]:
    """The bias of each head and pair: the table's row of the pair's bucket.

    >>> bucket_bias(torch.arange(4.0)[:, None], 3, max_distance=4).tolist()
    [[[0.0, 3.0, 3.0], [1.0, 0.0, 3.0], [1.0, 1.0, 0.0]]]
    """
    offset = relative_positions(n_queries, n_keys, device=table.device)
    rows = bucket(offset, n_buckets=table.shape[0], max_distance=max_distance, causal=causal)
    return table[rows].movedim(-1, 0)


class BucketBias(nn.Module):
    """The table b [bucket head] with its settings; called with (n_queries, n_keys) it gives the bias."""

    def __init__(self, n_heads: int, *, n_buckets: int = 32, max_distance: int = 128, causal: bool = False) -> None:
        super().__init__()
        at_least("n_heads", n_heads, 1)
        _sides(n_buckets, max_distance, causal)
        self.max_distance, self.causal = max_distance, causal
        self.weight = nn.Parameter(0.02 * torch.randn(n_buckets, n_heads))

    def forward(self, n_queries: int, n_keys: int | None = None) -> Float[Tensor, "head query key"]:
        """The bias of each head and pair; inputs may be of any length."""
        return bucket_bias(self.weight, n_queries, n_keys, max_distance=self.max_distance, causal=self.causal)


def t5(n_heads: int, *, n_buckets: int = 32, max_distance: int = 128, causal: bool = False) -> Positions:
    """The scheme: a new table of biases, added to scores; `scores(…).content` is without it."""
    table = BucketBias(n_heads, n_buckets=n_buckets, max_distance=max_distance, causal=causal)
    return Positions("t5", bias=table)
