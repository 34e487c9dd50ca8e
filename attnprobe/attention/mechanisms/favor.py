"""FAVOR+ (Performer): random positive features whose products are exp(q·k / sqrt(d)) on average.

    x' = x / d^(1/4)                                           so that q'·k' = q·k / sqrt(d)
    phi(x) = exp(W x' - |x'|²/2) / sqrt(n_features)            [*batch token feature]; W [feature d_head], rows N(0, I)
    E_W[phi(q)·phi(k)] = exp(q·k / sqrt(d))                    unbiased; then as in linear attention:
    z_i  = phi(q_i) sum_j phi(k_j) v_j^T / phi(q_i)·sum_j phi(k_j)        cost n n_features d_value
    A_ij = phi(q_i)·phi(k_j) / sum_l phi(q_i)·phi(k_l)         >= 0, rows sum to 1; nears softmax as W grows, slowly

The rows of W are orthogonal within each block of d_head, each with the length of a Gaussian vector of its own, which
lowers the variance. The same `seed` gives the same W. The quotient of two averages is not unbiased: the map is off by
some hundredths with 1024 features, mostly where scores are large.

Source: Choromanski et al. 2021, "Rethinking attention with Performers", section 2.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.blockwise import wide
from attnprobe.attention.kernels import kernel_map, kernel_mix, without_unseen
from attnprobe.attention.mechanisms import mechanisms
from attnprobe.errors import InputError


def haar_orthogonal(size: int, generator: torch.Generator) -> Float[Tensor, "{size} {size}"]:
    """A random rotation or reflection, uniform over all (float64).

    QR alone would not be uniform, its signs depend on the routine; so the diagonal of R is made positive.
    """
    Q, R = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return Q * R.diagonal().sign()


def orthogonal_directions(n_features: int, d_head: int, seed: int = 0) -> Float[Tensor, "{n_features} {d_head}"]:
    """W: rows N(0, I) each, orthogonal within every block of d_head rows (float64)."""
    if n_features < 1:
        raise InputError(f"favor needs at least one feature, got n_features = {n_features}; 256 is a usual number")
    generator = torch.Generator().manual_seed(seed)
    n_blocks = math.ceil(n_features / d_head)
    rows = torch.cat([haar_orthogonal(d_head, generator) for _ in range(n_blocks)])[:n_features]
    lengths = torch.randn(n_features, d_head, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return rows * lengths


def positive_features(
    x: Float[Tensor, "*batch token d_head"], directions: Float[Tensor, "feature d_head"], over: tuple[int, ...]
) -> Float[Tensor, "*batch token feature"]:
    """phi(x), divided by its largest entry over the axes `over`, so that nothing overflows.

    The factor cancels in z and in the map: queries may have one each (over features), keys share one (over both axes).
    """
    x = x / x.shape[-1] ** 0.25
    exponents = x @ directions.to(x).mT - x.square().sum(-1, keepdim=True) / 2
    largest = exponents.amax(over, keepdim=True).detach()
    return torch.exp(exponents - largest) / math.sqrt(len(directions))


def favor_features(
    query: Float[Tensor, "*batch query d_head"], key: Float[Tensor, "*batch key d_head"], n_features: int, seed: int
) -> tuple[Float[Tensor, "*batch query feature"], Float[Tensor, "*batch key feature"]]:
    """The features of queries and keys under the same W."""
    directions = orthogonal_directions(n_features, query.shape[-1], seed)
    return positive_features(query, directions, (-1,)), positive_features(key, directions, (-2, -1))


def favor_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    n_features: int = 256,
    causal: bool = False,
    seed: int = 0,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """The map that FAVOR+ implies under this seed; forming it costs n²."""
    key = without_unseen(key, query, visible)
    return kernel_map(*favor_features(wide(query), wide(key), n_features, seed), causal, visible).to(query.dtype)


@mechanisms.add(
    family="kernel",
    source="Choromanski et al. 2021, section 2",
    weights=favor_weights,
    row_sum="one",
    cost="n",
    formula="as linear, with φ(x) = exp(W x' − |x'|²/2) / √n_features, x' = x / d^(1/4), W random and orthogonal",
    meaning="softmax on average over draws; far off where scores are large",
)
def favor(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    n_features: int = 256,
    causal: bool = False,
    seed: int = 0,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Performer's FAVOR+: random positive features that stand for softmax attention on average."""
    key = without_unseen(key, query, visible)
    return kernel_mix(*favor_features(wide(query), wide(key), n_features, seed), value, causal, visible).to(value.dtype)
