"""ConvBERT: half of the heads attend; the others are a convolution whose kernel a softmax makes at every token."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, merge, operands, shown, split, spread
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("ConvBertSelfAttention")
def attention_and_spans(run: Run) -> list[LaidOut]:
    """The attention; then the kernels as weights on the tokens around each query, beyond the ends on nothing."""
    product = run.call(-1, "matmul")
    weights, value = operands(product)
    spans = _spans(run)
    convolved = split(run.child("conv_out_layer"), weights.shape[1])
    return [
        LaidOut(weights, value, product.out, _putting(0), visible=shown(weights)),
        LaidOut(
            spans,
            convolved,
            run.call(0, "matmul").out.reshape(convolved.transpose(1, 2).shape).transpose(1, 2),
            _putting(1),
            visible=shown(spans),
            row_sum="at_most_one",
            name="spans",
        ),
    ]


def _spans(run: Run) -> Tensor:
    """[row head query key] of the kernels [row*query*head place 1]."""
    module: Any = run.module
    n_rows, length = run.given("hidden_states").shape[:2]
    kernels = run.call(0, "softmax").out.reshape(n_rows, length, module.num_attention_heads, -1).transpose(1, 2)
    place = torch.arange(kernels.shape[-1], device=kernels.device) - (kernels.shape[-1] - 1) // 2
    keys = torch.arange(length, device=kernels.device)[:, None] + place
    return spread(kernels, torch.where(keys < length, keys, -1), length)


def _putting(half: int) -> Any:
    """Puts z in the first or second half of the output's columns."""

    def put(output: Any, new: Tensor) -> Any:
        halves = list(output[0].chunk(2, dim=-1))
        halves[half] = merge(new)
        return exchange(output, torch.cat(halves, dim=-1))

    return put
