"""Attention by blocks: the scores of one block at a time, forward and backward, in memory linear in the tokens.

    s_ij  = q_i·k_j / sqrt(d) + bias_ij             -inf where query i may not look at key j
    m, l, a                                          running maximum [query], sum [query], mix [query d_value]
    m' = max(m, max_j s_ij)                          a new block of keys j
    l  = l e^(m - m') + sum_j e^(s_ij - m')
    a  = a e^(m - m') + sum_j e^(s_ij - m') v_j
    z  = a / l,   lse = m + log l                    after the last block

Backward keeps query, key, value, z and lse alone, and makes each block's weights A_ij = e^(s_ij - lse_i) anew:

    ds_ij = A_ij (dz_i·v_j - dz_i·z_i + dlse_i)      dq = ds k / sqrt(d)   dk = ds' q / sqrt(d)   dv = A' dz

All sums run in float32 at least. Milakov & Gimelshein 2018 (the sums), Dao et al. 2022, algorithms 1 and 4 (the rest).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Some = slice | Tensor  # some of the queries or keys: a range of them, or their numbers


@dataclass(frozen=True, eq=False)
class Blocks:
    """What the scores are made of, and how many queries and keys a block has. Masks have two axes or more.

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

    @property
    def lead(self) -> int:
        """How many keys there are before the first query."""
        return self.key.shape[-2] - self.query.shape[-2]

    def rows(self) -> list[slice]:
        """The blocks of queries."""
        n_queries = self.query.shape[-2]
        return [slice(at, min(at + self.size, n_queries)) for at in range(0, max(n_queries, 1), self.size)]

    def columns(self, rows: slice) -> list[slice]:
        """The blocks of keys that a block of queries has to read; under `causal` none that lies ahead of it."""
        stop = min(self.key.shape[-2], rows.stop + self.lead) if self.causal else self.key.shape[-2]
        return [slice(at, min(at + self.size, stop)) for at in range(0, stop, self.size)]

    def scores(self, rows: Some, columns: Some) -> Float[Tensor, "*batch row column"]:
        """The scores of some queries and some keys."""
        scores = wide(self.query[..., rows, :]) @ wide(self.key[..., columns, :]).mT * self.scale
        if self.bias is not None:
            scores = scores + wide(cut(self.bias, rows, columns))
        if self.visible is not None:
            scores = scores.masked_fill(~cut(self.visible, rows, columns), -torch.inf)
        if self.causal:
            at = torch.arange(self.query.shape[-2], device=self.query.device)[rows] + self.lead
            scores = scores.masked_fill(torch.arange(self.key.shape[-2], device=at.device)[columns] > at[:, None], -torch.inf)
        return scores

    def weights(
        self, lse: Float[Tensor, "*batch query"], rows: Some, columns: Some = slice(None)
    ) -> Float[Tensor, "*batch row column"]:
        """Their weights e^(s - lse); zeros for a query that may look at nothing (its lse is -inf)."""
        return torch.exp(self.scores(rows, columns) - finite(lse[..., rows])[..., None])


class BlockwiseAttention(torch.autograd.Function):
    """(query, key, value, bias, blocks) -> z [*batch query d_value], lse [*batch query]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, blocks: Blocks) -> tuple[Tensor, Tensor]:
        blocks = replace(blocks, query=query, key=key, bias=bias)
        read = [read_rows(blocks, value, rows) for rows in blocks.rows()]
        return torch.cat([z for z, _ in read], -2).to(value.dtype), torch.cat([lse for _, lse in read], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.blocks = inputs
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, z_gradient: Tensor, lse_gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, z, lse = ctx.saved_tensors
        blocks = replace(ctx.blocks, query=query, key=key, bias=bias)
        z_gradient = wide(z_gradient)
        offset = lse_gradient - (z_gradient * wide(z)).sum(-1)
        for_query, for_bias = [], []
        for_key = {at: wide(key[..., at : at + blocks.size, :]) * 0 for at in range(0, key.shape[-2], blocks.size)}
        for_value = {at: wide(value[..., at : at + blocks.size, :]) * 0 for at in for_key}
        for rows in blocks.rows():
            q, slopes = wide(query[..., rows, :]), []
            to_query = torch.zeros_like(q)
            for columns in blocks.columns(rows):
                weights = blocks.weights(lse, rows, columns)
