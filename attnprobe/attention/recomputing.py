"""Blockwise attention with a backward pass that makes each block's weights anew (Dao et al. 2022, appendix B).

Kept for backward: query, key, value, z, lse, all linear in the tokens. With the gradients dz [*batch query d_value] and
dlse [*batch query] given, for each block of queries i and keys j:

    A_ij  = e^(s_ij - lse_i)
    ds_ij = A_ij (dz_i·v_j - dz_i·z_i + dlse_i)       softmax's gradient: sum_j A_ij dz_i·v_j is dz_i·z_i
    dq_i += sum_j ds_ij k_j / sqrt(d)      dk_j += sum_i ds_ij q_i / sqrt(d)
    dv_j += sum_i A_ij dz_i                dbias_ij = ds_ij
"""

from collections import defaultdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention.blockwise import Blocks, cut, read_keys, wide


class BlockwiseAttention(torch.autograd.Function):
    """(query, key, value, bias, visible, causal, size) -> z [*batch query d_value], lse [*batch query]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        query, key, value, bias, visible, causal, size = inputs
        blocks = Blocks(query, key, visible, bias, causal, size)
        read = [read_keys(blocks, value, rows) for rows in blocks.rows()]
        return torch.cat([z for z, _ in read], -2).to(value.dtype), torch.cat([lse for _, lse in read], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, causal, size = inputs
        ctx.options = (causal, size)
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, visible, z, lse = ctx.saved_tensors
        dz = wide(gradients[0])
        dlse = gradients[1].to(dz.dtype)
        blocks = Blocks(query, key, visible, bias, *ctx.options)
        offset = (dlse - (dz * wide(z)).sum(-1))[..., None]
        to_query, to_bias = [], []
        to_key, to_value = defaultdict[int, Any](float), defaultdict[int, Any](float)  # by the first key of a block
        for rows in blocks.rows():
            of_rows, strip = torch.zeros_like(wide(query[..., rows, :])), []
            for columns in blocks.columns(rows):
                weights = blocks.weights(lse, rows, columns)
                slope = weights * (dz[..., rows, :] @ wide(value[..., columns, :]).mT + offset[..., rows, :])
                of_rows = of_rows + slope @ wide(key[..., columns, :]) * blocks.scale
                to_key[columns.start] += slope.mT @ wide(query[..., rows, :]) * blocks.scale
                to_value[columns.start] += weights.mT @ dz[..., rows, :]
                strip += [] if bias is None else [slope.sum_to_size(cut(bias, rows, columns).shape)]
            to_query.append(of_rows)
            to_bias += [] if bias is None else [joined(strip, -1, bias.shape[-1])]
        whole = (torch.cat(to_query, -2), *(torch.cat(list(sums.values()), -2) for sums in (to_key, to_value)))
        for_bias = None if bias is None else joined(to_bias, -2, bias.shape[-2]).to(bias.dtype)
        return (*(g.to(x.dtype) for g, x in zip(whole, (query, key, value), strict=True)), for_bias, None, None, None)


def joined(parts: list[Tensor], axis: int, size: int) -> Tensor:
    """A bias's gradient from that of its blocks: side by side (0 at keys never read), summed where the axis is 1."""
    if size == 1:
        return torch.stack(parts).sum(0)
    whole = torch.cat(parts, axis)
    return F.pad(whole, (0, size - whole.shape[-1])) if axis == -1 else whole
