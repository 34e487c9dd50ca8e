"""Attention by blocks: the scores of one block of queries and keys at a time, in memory linear in the tokens.

    s_ij = q_i·k_j / sqrt(d) + bias_ij            -inf where query i may not look at key j
    m' = max(m, max_j s_ij)                       for each block of keys j, with m = -inf, l = 0, a = 0 before the first
    l  = l e^(m - m') + sum_j e^(s_ij - m')       [query]
    a  = a e^(m - m') + sum_j e^(s_ij - m') v_j   [query d_value]
    z  = a / l,   lse = m + log l                 after the last block
    A_ij = e^(s_ij - lse_i)                       any weight, made anew where it is needed

Sums run in float32 at least. Milakov & Gimelshein 2018 (the running sums), Dao et al. 2022 (the blocks).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.masks import fitting_bias, fitting_mask
from attnprobe.errors import InputError

Some = slice | Tensor  # some of the queries or keys: a range of them, or their numbers


@dataclass(frozen=True, eq=False)
class Blocks:
    """What the scores are made of, and how many queries and keys a block has; masks have two axes or more.

    causal: query i of n looks at key j of m only where j <= i + m - n (the last query is at the last key).
    """

    query: Float[Tensor, "*batch query d_head"]
    key: Float[Tensor, "*batch key d_head"]
    visible: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False
    size: int = 256

    @property
    def scale(self) -> float:
        """What q·k is multiplied by."""
        return float(self.query.shape[-1] ** -0.5)

    def rows(self) -> list[slice]:
        """The blocks of queries."""
        n_queries = self.query.shape[-2]
        return [slice(at, min(at + self.size, n_queries)) for at in range(0, max(n_queries, 1), self.size)]

    def columns(self, rows: slice) -> list[slice]:
        """The blocks of keys that a block of queries reads; `causal` leaves out those that lie ahead of all of it."""
        n_queries, n_keys = self.query.shape[-2], self.key.shape[-2]
        stop = rows.stop + n_keys - n_queries if self.causal else n_keys
        return [slice(at, min(at + self.size, n_keys)) for at in range(0, stop, self.size)]

    def scores(self, rows: Some, columns: Some) -> Float[Tensor, "*batch row column"]:
        """The scores of some queries and some keys."""
        scores = wide(self.query[..., rows, :]) * self.scale @ wide(self.key[..., columns, :]).mT
        if self.bias is not None:
            scores = scores + wide(cut(self.bias, rows, columns))
        if self.visible is not None:
            scores = scores.masked_fill(~cut(self.visible, rows, columns), -torch.inf)
        if self.causal:
            query_at, key_at = (torch.arange(x.shape[-2], device=x.device) for x in (self.query, self.key))
            ahead = key_at[columns] > query_at[rows][:, None] + len(key_at) - len(query_at)
            scores = scores.masked_fill(ahead, -torch.inf)
        return scores

    def weights(self, lse: Float[Tensor, "*batch query"], rows: Some, columns: Some) -> Float[Tensor, "*batch row col"]:
        """Their weights e^(s - lse); zeros for a query that may look at nothing (its lse is -inf).

        A wider lse is taken off in two parts: that of the scores' own precision first, then what this left.
        """
        scores, whole = self.scores(rows, columns), finite(lse[..., rows])[..., None]
        coarse = whole.to(scores.dtype)
        return torch.exp(scores - coarse - (whole - coarse).to(scores.dtype))


def blocks_of(
    query: Tensor, key: Tensor, visible: Tensor | None, bias: Tensor | None, causal: bool, block_size: int
) -> Blocks:
    """The blocks of attention that is asked for; `InputError` says what does not fit."""
    n_queries, n_keys = query.shape[-2], key.shape[-2]
    if block_size < 1:
        raise InputError(f"block_size is how many queries and keys are read at a time, 1 or more, got {block_size}")
    if query.shape[-1] != key.shape[-1] or query.shape[:-2] != key.shape[:-2] or not n_keys:
        shapes = f"{tuple(query.shape)} and {tuple(key.shape)}"
        raise InputError(
            f"query and key are [*batch token width], alike but in their tokens, one key or more, got {shapes}"
        )
    if causal and n_keys < n_queries:
        raise InputError(f"causal needs at least as many keys as queries, got {n_keys} keys and {n_queries} queries")
    shape = (*query.shape[:-2], n_queries, n_keys)
    return Blocks(query, key, fitting_mask(visible, shape), fitting_bias(bias, shape), causal, block_size)


def read_keys(blocks: Blocks, value: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """z [*batch row d_value] and lse [*batch row] of one block of queries: one walk over the keys.

    lse in float64: of scores of 1e5 a float32 keeps no digit that a weight could be made of.
    """
    first = wide(blocks.query[..., rows, :1])
    largest = torch.full_like(first, -torch.inf)
    total, mixed = torch.zeros_like(first), first.new_zeros((*first.shape[:-1], value.shape[-1]))
    for columns in blocks.columns(rows):
        scores = blocks.scores(rows, columns)
        larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
        # Where all so far is hidden, larger is -inf: 0 in its place keeps -inf - (-inf) = NaN out.
        parts = torch.exp(scores - finite(larger))
        shrink = torch.exp(largest - finite(larger))
        total = total * shrink + parts.sum(-1, keepdim=True)
        mixed = mixed * shrink + parts @ wide(value[..., columns, :])
        largest = larger
    return mixed / total.masked_fill(total == 0, 1.0), (largest.double() + total.double().log()).squeeze(-1)


def wide(x: Tensor) -> Tensor:
    """In float32 at least, since long sums in half precision lose small weights."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def finite(x: Tensor) -> Tensor:
    """With 0 in place of -inf."""
    return x.masked_fill(torch.isneginf(x), 0.0)


def cut(mask: Tensor, rows: Some, columns: Some) -> Tensor:
    """Some queries and keys of a mask or bias; an axis of size 1 holds for all of them."""
    mask = mask if mask.shape[-2] == 1 else mask[..., rows, :]
    return mask if mask.shape[-1] == 1 else mask[..., columns]
