"""Online softmax: full attention that reads the keys block by block and never holds all scores (Dao et al. 2022).

    m' = max(m, max_j s_ij)                       s_ij = q_i·k_j / sqrt(d) + bias_ij, a block of keys j at a time
    l  = l e^(m - m') + sum_j e^(s_ij - m')       [*batch query]
    a  = a e^(m - m') + sum_j e^(s_ij - m') v_j   [*batch query d_value]
    z  = a / l,   lse = m + log l                 after the last block
    A_ij = e^(s_ij - lse_i)                       any weight, from the stored lse

z is that of softmax attention whatever the block size. Time stays n², memory is n: for z, for its gradient, and for
as many rows of the map as are asked for. The loop is in `attention.blockwise`, the gradient in `attention.recomputing`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.blockwise import blocks_of, wide
from attnprobe.attention.mechanisms import mechanisms
from attnprobe.attention.recomputing import BlockwiseAttention
from attnprobe.errors import InputError


class Streamed(NamedTuple):
    """What one walk over the keys leaves: z, and the log of the sum of e^score, from which all weights come back."""

    z: Float[Tensor, "*batch query d_value"]
    lse: Float[Tensor, "*batch query"]


def stream(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    block_size: int = 256,
) -> Streamed:
    """z and lse, read block by block; a query that may look at nothing has z = 0 and lse = -inf.

    visible (boolean, True = may look) and bias broadcast to [*batch query key] and are read by blocks as well.
    causal: the last query is at the last key; blocks that lie ahead are skipped. Errors: `InputError`.

    >>> z, lse = stream(torch.zeros(1, 4), torch.zeros(2, 4), torch.tensor([[1.0], [3.0]]), block_size=1)
    >>> z.tolist(), round(lse.exp().item(), 5)
    ([[2.0]], 2.0)
    """
    blocks = blocks_of(query, key, visible, bias, causal, block_size)
    if value.shape[:-1] != key.shape[:-1]:
        raise InputError(f"one value a key is needed, got {tuple(value.shape)} values and {tuple(key.shape)} keys")
    z, lse = BlockwiseAttention.apply(query, key, value, blocks.bias, blocks.visible, causal, block_size)
    return Streamed(z, lse.to(wide(z).dtype))


def rows_of_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    lse: Float[Tensor, "*batch query"],
    rows: int | list[int] | slice | Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Float[Tensor, "*batch row key"]:
    """The map of some queries alone, from the lse that `stream` gave under the same mask and bias.

    rows: a number, numbers, or a range of queries; memory is that of these rows.
    """
    blocks = blocks_of(query, key, visible, bias, causal, 1)
    try:
        chosen = torch.arange(query.shape[-2], device=query.device)[rows].reshape(-1)
    except IndexError:
        raise InputError(f"there are queries 0 to {query.shape[-2] - 1}, got rows {rows}") from None
    weights = blocks.weights(lse, chosen, slice(None))
    # The lse of large scores is rounded; a row that is whole here can say what is missing.
    total = weights.sum(-1, keepdim=True)
    return (weights / total.masked_fill(total == 0, 1.0)).to(query.dtype)


def online_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    block_size: int = 256,
) -> Float[Tensor, "*batch query key"]:
    """The whole map, written down row block by row block from the lse of a first walk.

    >>> online_weights(torch.zeros(2, 4), torch.zeros(2, 4), causal=True, block_size=1).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    blocks = blocks_of(query, key, visible, bias, causal, block_size)
    _, lse = BlockwiseAttention.apply(query, key, key[..., :0], blocks.bias, blocks.visible, causal, block_size)
    return torch.cat([blocks.weights(lse, rows, slice(None)).to(query.dtype) for rows in blocks.rows()], -2)


@mechanisms.add(
    family="softmax",
    source="Milakov & Gimelshein 2018; Dao et al. 2022, section 3.1",
    weights=online_weights,
    row_sum="one",
    cost="n² time, n memory",
    formula="m' = max(m, max s); l = l e^(m−m') + Σ e^(s−m'); a = a e^(m−m') + Σ e^(s−m') v; z = a / l",
    meaning="softmax of the scores, recomputed from the log-sum of a row",
)
def online(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    block_size: int = 256,
) -> Float[Tensor, "*batch query d_value"]:
    """Softmax attention read block by block: the same z, with memory linear in the tokens."""
    return stream(query, key, value, visible=visible, bias=bias, causal=causal, block_size=block_size).z
