"""Hashed attention (Reformer): a query looks only at keys that fall into its bucket.

    k_j = q_j / |q_j|                                    queries and keys are shared: self-attention only
    bucket(x) = argmax [x R; -x R]                       R [d_head n_buckets/2] random: near directions, same bucket
    sort tokens by bucket, then by position; cut the order into chunks
    P_i^r = {j: in i's chunk or the one before, same bucket, j ≠ i; causal: j < i}        round r, R^r of its own
    z_i = sum_r w_i^r z_i^r,   scores q_i·k_j - log N_ij,   w_i^r = share of round r in the whole sum of exp
    A_i = sum_r w_i^r A_i^r                              sparse; N_ij: in how many rounds j is in P_i^r

With the division by N_ij a key that several rounds find counts once, so A is softmax over the union of the P_i^r. A
token looks at itself only where no round finds it another. Scores are not divided by sqrt(d_head): keys have length 1.
Cost n ln n (the sort) + n n_rounds² chunk. q, k [*batch token d_head], v, z [*batch token d_value].

Source: Kitaev, Kaiser, Levskaya 2020, "Reformer: the efficient transformer", section 2.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from attnprobe.attention.hashing import (
    Order,
    at_keys,
    hash_buckets,
    keys_in_windows,
    n_rounds_found,
    sort_tokens,
    to_chunks,
    to_tokens,
    windows,
)
from attnprobe.attention.mechanisms import mechanisms
from attnprobe.errors import InputError


class Looks(NamedTuple):
    """The keys in the window of each token in each round (-1: none), and their weights; over rounds they sum to 1."""

    keys: Int[Tensor, "*batch round token window"]
    weights: Float[Tensor, "*batch round token window"]


def lsh_looks(query: Tensor, key: Tensor, order: Order, causal: bool) -> Looks:
    """Which keys each token comes upon, and the weights: one softmax over the windows of all rounds."""
    keys, own = keys_in_windows(order), torch.arange(query.shape[-2], device=query.device)[:, None]
    found = (keys >= 0) & (at_keys(order.buckets, keys) == order.buckets[..., None])
    found = found & (keys <= own) if causal else found
    others = found & (keys != own)
    alone = ~others.any(-1, keepdim=True).any(-3, keepdim=True)
    unit = normalize(key, dim=-1, eps=torch.finfo(key.dtype).tiny)
    scores = to_tokens(to_chunks(query[..., None, :, :], order) @ windows(unit, order).mT, order)
    scores = scores - n_rounds_found(keys, order).clamp(min=1).to(scores).log()
    scores = scores.masked_fill(~(others | (found & alone)), -torch.inf)
    weights = scores.transpose(-3, -2).flatten(-2).softmax(-1)
    return Looks(keys, weights.unflatten(-1, (-1, keys.shape[-1])).transpose(-3, -2))


def _order(query: Tensor, key: Tensor, n_buckets: int, n_rounds: int, chunk: int, seed: int) -> Order:
    if key is not query and not torch.equal(query, key):
        raise InputError("lsh shares queries and keys (k = q / |q|), got two that differ; pass the queries as keys too")
    if n_rounds < 1 or chunk < 1 or n_buckets < 1 or (n_buckets > 1 and n_buckets % 2):
        raise InputError(
            f"lsh takes n_rounds and chunk of 1 or more and n_buckets of 1 or an even number, "
            f"got n_rounds = {n_rounds}, chunk = {chunk}, n_buckets = {n_buckets}"
        )
    return sort_tokens(hash_buckets(query.detach(), n_buckets, n_rounds, seed), chunk)


def lsh_weights(
    query: Float[Tensor, "*batch token d_head"],
    key: Float[Tensor, "*batch token d_head"],
    *,
    n_buckets: int = 16,
    n_rounds: int = 2,
    chunk: int = 32,
    causal: bool = False,
    seed: int = 0,
) -> Float[Tensor, "*batch token token"]:
    """The map: the rounds' sparse maps, averaged with the shares of the rounds."""
    keys, weights = lsh_looks(query, key, _order(query, key, n_buckets, n_rounds, chunk, seed), causal)
    pairs = [part.transpose(-3, -2).flatten(-2) for part in (keys.clamp(min=0), weights)]
    return query.new_zeros(*query.shape[:-1], key.shape[-2]).scatter_add(-1, *pairs)


@mechanisms.add(
    family="sparse",
    source="Kitaev et al. 2020, section 2",
    weights=lsh_weights,
    row_sum="one",
    cost="n ln n",
    formula="z_i = Σ_{j ∈ P_i} softmax_j(q_i·q_j/|q_j|) v_j, P_i = ∪_r {j ≠ i in i's bucket and window in round r}",
    meaning="share among the keys that hashing found; itself only when alone",
    shared=True,
)
def lsh(
    query: Float[Tensor, "*batch token d_head"],
    key: Float[Tensor, "*batch token d_head"],
    value: Float[Tensor, "*batch token d_value"],
    *,
    n_buckets: int = 16,
    n_rounds: int = 2,
    chunk: int = 32,
    causal: bool = False,
    seed: int = 0,
) -> Float[Tensor, "*batch token d_value"]:
    """Reformer's hashed attention: softmax over the keys that fall into the query's bucket."""
    order = _order(query, key, n_buckets, n_rounds, chunk, seed)
    weights = lsh_looks(query, key, order, causal).weights
    return to_tokens(to_chunks(weights, order) @ windows(value, order), order).sum(-3)
