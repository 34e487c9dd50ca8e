"""Nyströmformer: attention by way of landmarks, as the matrix that the three factors make."""

from typing import Any

from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, merge, operands, split
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("NystromformerSelfAttention")
def landmarks(run: Run) -> list[LaidOut]:
    """Weights of queries to landmarks times those of landmarks to keys; entries may be negative, rows not sum to 1.

    A convolution of the values is added to z behind the attention; it is no part of the map and stays under edits.
    """
    module: Any = run.module
    left, right = operands(run.call(-1, "matmul"))
    softmaxes = run.named("softmax")
    exact = len(softmaxes) == 1  # as many landmarks as tokens: plain attention
    weights = left if exact else left @ softmaxes[-1].out
    # The product's own tensor has had the convolution added to it in place.
    z = left @ right
    beside = run.child("conv") if "conv" in run.children else None

    def put(output: Any, new: Tensor) -> Any:
        return exchange(output, merge(new if beside is None else new + beside))

    value = split(run.child("value"), module.num_attention_heads)
    return [LaidOut(weights, value, z, put, row_sum="one" if exact else "any")]
