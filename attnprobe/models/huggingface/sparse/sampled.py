"""Informer: a sample of the queries attends; the others take the mean of all values, or their sum so far."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, merge, operands, shown
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("InformerProbSparseAttention")
def sampled(run: Run) -> list[LaidOut]:
    """Softmax rows of the chosen queries; equal weights for the others (ones up to the query in a decoder)."""
    module: Any = run.module
    product = run.call(-1, "bmm")
    weights, value = operands(product)  # [row*head chosen key], [row*head key d]
    chosen = run.call(-1, "topk").out[1][..., None]
    n_keys = value.shape[1]
    if module.is_decoder:
        rest = torch.ones(n_keys, n_keys, dtype=value.dtype, device=value.device).tril()
        taken = value.cumsum(dim=-2, dtype=torch.float32).to(value.dtype)
    else:
        rest = torch.full((n_keys, n_keys), 1 / n_keys, dtype=value.dtype, device=value.device)
        taken = value.mean(dim=-2, keepdim=True).expand_as(value)
    dense = rest.expand(len(value), -1, -1).scatter(1, chosen.expand_as(weights), weights)
    z = taken.scatter(1, chosen.expand_as(product.out), product.out)

    def put(output: Any, new: Tensor) -> Any:
        return exchange(output, module.out_proj(merge(new)))

    dense, value, z = (tensor.unflatten(0, (-1, module.num_heads)) for tensor in (dense, value, z))
    # The sum so far is no mean: its row of ones sums to more than 1.
    return [LaidOut(dense, value, z, put, visible=shown(dense), row_sum="any" if module.is_decoder else "one")]
