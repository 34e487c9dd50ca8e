"""Associative memory: what attention does when it is read as looking something up.

    Hopfield        xi' = X softmax(beta X'xi)             patterns X; one step is attention with scale beta
    its energy      E(xi) = -lse(beta, X'xi) + xi'xi / 2   lse(beta, s) = log(sum_j e^(beta s_j)) / beta; never grows
    dictionary      z_i = v_j,  j = argmax_j q_i·k_j       the limit of large beta
    neighbours      z_i = mean of v_j over the k nearest   by q·k, or by distance |q - k|

Soft look-up puts at most (n - k) / k · e^(-beta gap) outside of the k best of n keys; gap is how far the k-th best
score stands above the next. Keys of one length: q·k and -|q - k| rank alike. Ramsauer et al. 2021, section 2.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.attention.scores import scaled_dot_product_attention
from attnprobe.errors import InputError, NumericsError


class Recalled(NamedTuple):
    """Where states went: the last state, its weights on the patterns, the energy before each step and at the end."""

    state: Float[Tensor, "*batch query width"]
    weights: Float[Tensor, "*batch query pattern"]
    energy: Float[Tensor, "step *batch query"]


class LookedUp(NamedTuple):
    """What a query found: its weights on the keys (one-hot, or 1/k on k neighbours), the mix z, and which keys."""

    weights: Float[Tensor, "*batch query key"]
    z: Float[Tensor, "*batch query d_value"]
    found: Int[Tensor, "*batch query k"]


def energy(
    state: Float[Tensor, "*batch query width"], pattern: Float[Tensor, "*batch pattern width"], *, beta: float = 1.0
) -> Float[Tensor, "*batch query"]:
    """How far a state is from rest, low near a pattern; log(n)/beta + max|x|²/2 more would make it 0 or above.

    >>> energy(torch.zeros(1, 1), torch.ones(1, 1)).tolist()
    [0.0]
    """
    _check_beta(beta)
    overlap = state @ pattern.mT
    return state.square().sum(-1) / 2 - torch.logsumexp(beta * overlap, -1) / beta


def hopfield(
    state: Float[Tensor, "*batch query width"],
    pattern: Float[Tensor, "*batch pattern width"],
    *,
    beta: float = 1.0,
    n_steps: int = 1,
) -> Recalled:
    """States after some steps towards the patterns that they resemble.

    One step is attention with keys and values = patterns and scale beta (1/sqrt(d) is the transformer's). The energy
    falls or stays with each. Well separated patterns are there after one; close ones blend into one resting point.

    >>> pattern = torch.tensor([[10.0, 0.0], [0.0, 10.0]])
    >>> hopfield(torch.tensor([[6.0, 4.0]]), pattern).state.round().tolist()
    [[10.0, 0.0]]
    """
    _check_beta(beta)
    if n_steps < 1:
        raise InputError(f"n_steps is how often states move, 1 or more, got {n_steps}")
    energies = [energy(state, pattern, beta=beta)]
    for _ in range(n_steps):
        _, weights, state = scaled_dot_product_attention(state, pattern, pattern, scale=beta)
        energies.append(energy(state, pattern, beta=beta))
    return Recalled(state, weights, torch.stack(energies))


def separation(pattern: Float[Tensor, "*batch pattern width"]) -> Float[Tensor, "*batch pattern"]:
    """How far each pattern stands above the others in its own eyes: x_i·x_i - max_j x_i·x_j; inf for a single one.

    >>> separation(torch.tensor([[2.0, 0.0], [1.0, 1.0]])).tolist()
    [2.0, 0.0]
    """
    overlap = pattern @ pattern.mT
    own = overlap.diagonal(dim1=-2, dim2=-1)
    others = overlap.masked_fill(torch.eye(overlap.shape[-1], dtype=torch.bool, device=overlap.device), -torch.inf)
    return own - others.amax(-1)


def nearest(
    query: Float[Tensor, "*batch query width"],
    key: Float[Tensor, "*batch key width"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    k: int = 1,
    by: Literal["dot", "distance"] = "dot",
) -> LookedUp:
    """The mean value of the k keys nearest to each query; of equals the first ones. k = 1 looks up a dictionary.

    >>> nearest(torch.tensor([[0.0, 1.0]]), torch.eye(2), torch.tensor([[5.0], [7.0]])).z.tolist()
    [[7.0]]
    """
    n_keys = key.shape[-2]
    if not 1 <= k <= n_keys:
        raise InputError(f"k is how many of the {n_keys} keys count, 1 to {n_keys}, got {k}")
    if by not in ("dot", "distance"):
        raise InputError(f"by is 'dot' (q·k) or 'distance' (|q - k|), got {by!r}")
    scores = query @ key.mT if by == "dot" else -torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist")
    if bool(scores.isnan().any()):
        raise NumericsError("a query or a key is NaN, and so near to nothing; look for where it came from")
    if value.shape[-2] != n_keys:
        raise InputError(f"one value a key is needed, got {value.shape[-2]} values and {n_keys} keys")
    found = scores.argsort(dim=-1, descending=True, stable=True)[..., :k]
    weights = torch.zeros_like(scores).scatter(-1, found, 1 / k)
    return LookedUp(weights, weights @ value, found)


def outside_bound(
    scores: Float[Tensor, "*batch query key"], *, beta: float, k: int = 1
) -> Float[Tensor, "*batch query"]:
    """The most that softmax(beta scores) can put outside of the k best keys: (n - k) / k · e^(-beta gap), at most 1.

    For k = 1 this is how far soft look-up is from the dictionary. gap = 0 (a tie at rank k): large beta does not help.

    >>> round(outside_bound(torch.tensor([[3.0, 1.0, 1.0]]), beta=1.0).item(), 4)  # 2 e^-2
    0.2707
    """
    _check_beta(beta)
    n_keys = scores.shape[-1]
    if not 1 <= k <= n_keys:
        raise InputError(f"k is how many of the {n_keys} keys count, 1 to {n_keys}, got {k}")
    if k == n_keys:
        return scores.new_zeros(scores.shape[:-1])
    best = scores.topk(k + 1, dim=-1).values
    return ((n_keys - k) / k * torch.exp(-beta * (best[..., k - 1] - best[..., k]))).clamp(max=1.0)


def _check_beta(beta: float) -> None:
    if not (math.isfinite(beta) and beta > 0):
        raise InputError(f"beta says how sharp a look-up is, a number above 0, got {beta}; nearest() is its limit")
