"""Attention by products of positive features (`mechanisms.linear`, `mechanisms.favor`): sums over keys, not a map.

    A_ij = phi(q_i)·phi(k_j) / sum_l phi(q_i)·phi(k_l)      l over the keys that query i may look at
    z_i  = phi(q_i) sum_j phi(k_j) v_j^T / phi(q_i)·sum_j phi(k_j)

A mask that is the same for all queries takes keys out of the sums, and the cost stays linear; any other one needs the
map, and n². A query that may look at nothing gets zeros. features [*batch token feature].
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from attnprobe.attention.masks import causal_mask, fitting_mask
from attnprobe.errors import InputError, NumericsError

# Tokens whose running sums are taken together: the causal form is fastest near the width of a head.
BLOCK = 64


def kernel_map(
    query_features: Float[Tensor, "*batch query feature"],
    key_features: Float[Tensor, "*batch key feature"],
    causal: bool = False,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """The map of any positive features: their products, each row divided by its sum."""
    products = query_features @ key_features.mT
    mask = fitting_mask(visible, products.shape)
    if causal:
        ahead = ~causal_mask(products.shape[-2], products.shape[-1], device=products.device)
        products = products.masked_fill(ahead, 0.0)
    if mask is not None:
        products = products.masked_fill(~mask, 0.0)
    return _shares(products, products.sum(-1, keepdim=True), _blind(mask, causal, products.shape))


def kernel_mix(
    query_features: Float[Tensor, "*batch query feature"],
    key_features: Float[Tensor, "*batch key feature"],
    value: Float[Tensor, "*batch key d_value"],
    causal: bool = False,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """The mixed values of any positive features, by sums over the keys; a column of ones makes the sum of fits."""
    shape = (*query_features.shape[:-1], key_features.shape[-2])
    mask = fitting_mask(visible, shape)
    if mask is not None and mask.shape[-2] > 1:
        return kernel_map(query_features, key_features, causal, mask) @ value.to(query_features)
    if mask is not None:
        key_features = key_features.masked_fill(~mask.mT, 0.0)
    with_ones = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1).to(query_features)
    if causal:
        mixed = running_mix(query_features, key_features, with_ones)
    else:
        mixed = query_features @ (key_features.mT @ with_ones)
    return _shares(mixed[..., :-1], mixed[..., -1:], _blind(mask, causal, shape))


def running_mix(
    query_features: Float[Tensor, "*batch query feature"],
    key_features: Float[Tensor, "*batch key feature"],
    value: Float[Tensor, "*batch key d_value"],
) -> Float[Tensor, "*batch query d_value"]:
    """phi(q_i) sum_(j <= i) phi(k_j) v_j^T, not yet divided; the last query is at the last key.

    Token by token the sums would be n matrices. Here they are one a block; within its block a query meets the keys.
    """
    n_queries, n_before = query_features.shape[-2], key_features.shape[-2] - query_features.shape[-2]
    if n_before < 0:
        raise InputError(
            f"causal attention needs at least as many keys as queries, got {key_features.shape[-2]} keys and "
            f"{n_queries} queries; the last query is at the last key"
        )
    start = key_features[..., :n_before, :].mT @ value[..., :n_before, :]
    rest = (query_features, key_features[..., n_before:, :], value[..., n_before:, :])
    queries, keys, values = (
        pad(x, (0, 0, 0, -n_queries % BLOCK)).unflatten(-2, (-1, BLOCK)) for x in rest
    )  # [*batch block token width]
    sums = torch.cat([start[..., None, :, :], (keys.mT @ values)[..., :-1, :, :]], dim=-3).cumsum(-3)
    within = (queries @ keys.mT).tril()
    return (queries @ sums + within @ values).flatten(-3, -2)[..., :n_queries, :]


def without_unseen(key: Float[Tensor, "*batch key width"], query: Tensor, visible: Tensor | None) -> Tensor:
    """Keys with 0 in the place of those that no query may look at, whatever stands there."""
    mask = fitting_mask(visible, (*query.shape[:-1], key.shape[-2]))
    return key if mask is None else key.masked_fill(~mask.any(-2)[..., None], 0.0)


def _blind(mask: Tensor | None, causal: bool, shape: tuple[int, ...]) -> Tensor | None:
    """[*batch query 1]: which queries may look at nothing."""
    if mask is None:
        return None
    if causal and mask.shape[-2] == 1:  # what was seen so far
        return (mask.cumsum(-1) == 0)[..., 0, -shape[-2] :, None]
    if causal:
        mask = mask & causal_mask(shape[-2], shape[-1], device=mask.device)
    return ~mask.any(-1, keepdim=True)


def _shares(mixed: Tensor, mass: Float[Tensor, "*batch query 1"], blind: Tensor | None) -> Tensor:
    mass = mass if blind is None else mass.masked_fill(blind, 1.0)
    lost = (mass == 0) | ~mass.isfinite()
    if lost.any():
        raise NumericsError(
            f"{int(lost.sum())} queries have features whose products with all keys sum to 0, infinity or NaN in "
            f"{mass.dtype}: queries and keys are too long, or not numbers; make them shorter, or use float64"
        )
    return mixed / mass if blind is None else (mixed / mass).masked_fill(blind, 0.0)
