"""Hashing, sorting and chunks for attention that looks at its own bucket only (`mechanisms.lsh`).

    bucket(x) = argmax [x R; -x R]            R [d_head n_buckets/2] random, one for each round
    sort tokens by bucket, then by position; cut the order into chunks; a chunk's window is the one before it and itself

Near directions fall into the same bucket; vectors of any length along one direction always do. All index tensors have
an axis `round`; the last chunk of a round may not be full, -1 stands where there is no token.

Source: Andoni et al. 2015 (cross-polytope hashing); Kitaev, Kaiser, Levskaya 2020, "Reformer", section 2.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad


class Order(NamedTuple):
    """Tokens sorted by bucket in each round; -1 fills the last chunk. places: where each token went."""

    buckets: Int[Tensor, "*batch round token"]
    tokens: Int[Tensor, "*batch round slot"]
    places: Int[Tensor, "*batch round token"]
    chunk: int


def hash_buckets(
    x: Float[Tensor, "*batch token d_head"], n_buckets: int, n_rounds: int, seed: int = 0
) -> Int[Tensor, "*batch {n_rounds} token"]:
    """The bucket of each token in each round; a single bucket holds all."""
    if n_buckets == 1:
        return torch.zeros_like(x[..., None, :, 0], dtype=torch.long).repeat_interleave(n_rounds, -2)
    generator = torch.Generator().manual_seed(seed)
    shape = (x.shape[-1], n_buckets // 2)  # drawn round by round: more rounds keep the first ones
    R = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(n_rounds)]
    turned = x[..., None, :, :] @ torch.stack(R).to(x)
    return torch.cat([turned, -turned], dim=-1).argmax(-1)


def sort_tokens(buckets: Int[Tensor, "*batch round token"], chunk: int) -> Order:
    """The tokens by bucket, then by position."""
    n_tokens = buckets.shape[-1]
    tokens = (buckets * n_tokens + torch.arange(n_tokens, device=buckets.device)).argsort(-1)
    return Order(buckets, pad(tokens, (0, -n_tokens % chunk), value=-1), tokens.argsort(-1), chunk)


def to_chunks(
    x: Float[Tensor, "*batch #round token width"], order: Order
) -> Float[Tensor, "*batch round chunk slot width"]:
    """Rows in sorted order, cut into chunks; what stands at the filling is never looked at."""
    rows = torch.take_along_dim(x, order.tokens.clamp(min=0)[..., None], dim=-2)
    return rows.unflatten(-2, (-1, order.chunk))


def to_tokens(
    x: Float[Tensor, "*batch round chunk slot width"], order: Order
) -> Float[Tensor, "*batch round token width"]:
    """Rows back in the order of the text."""
    return torch.take_along_dim(x.flatten(-3, -2), order.places[..., None], dim=-2)


def windows(x: Float[Tensor, "*batch token width"], order: Order) -> Float[Tensor, "*batch round chunk window width"]:
    """What each chunk looks at: the rows of the chunk before it, then its own."""
    chunks = to_chunks(x[..., None, :, :], order)
    return torch.cat([chunks.roll(1, dims=-3), chunks], dim=-2)


def keys_in_windows(order: Order) -> Int[Tensor, "*batch round token window"]:
    """The keys in the window of each token; -1 where there is none: before the first chunk, behind the end."""
    own = order.tokens.unflatten(-1, (-1, order.chunk))
    before = pad(own[..., :-1, :], (0, 0, 1, 0), value=-1)
    chunk_of = order.places[..., None] // order.chunk
    return torch.take_along_dim(torch.cat([before, own], dim=-1), chunk_of, dim=-2)


def at_keys(per_token: Int[Tensor, "*batch #round token"], keys: Tensor) -> Int[Tensor, "*batch round token window"]:
    """What is said of each token, read at the keys in reach."""
    return torch.take_along_dim(per_token[..., None, :], keys.clamp(min=0), dim=-1)


def n_rounds_found(keys: Int[Tensor, "*batch round token window"], order: Order) -> Tensor:
    """N_ij: in how many rounds a key is in the token's bucket and window."""
    count = torch.zeros_like(keys)
    for bucket, place in zip(order.buckets.unbind(-2), order.places.unbind(-2), strict=True):
        chunk_of = place // order.chunk
        n_back = chunk_of[..., None, :, None] - at_keys(chunk_of[..., None, :], keys)
        count += (at_keys(bucket[..., None, :], keys) == bucket[..., None, :, None]) & (n_back >= 0) & (n_back <= 1)
    return count
