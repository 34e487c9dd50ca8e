"""VITS: beside the values, a learned vector for each distance between query and key is added to z."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, merge, operands, shown
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("VitsAttention")
def by_distance(run: Run) -> list[LaidOut]:
    """The tokens' values; then the same weights on the vectors of the distances, keys from -n + 1 to n - 1.

    Both parts add to z. An edit of the first leaves the second as it was: cut both, or replace z, to cut an edge whole.
    """
    module: Any = run.module
    weights, value = operands(run.call(1, "bmm"))
    parts = [(weights, value, "")]
    if module.window_size:
        by_key, vectors = operands(run.call(-1, "matmul"))
        parts.append((by_key, vectors.expand(len(by_key), -1, -1), "distances"))
    return [_part(module, weights, value, name) for weights, value, name in parts]


def _part(module: Any, weights: Tensor, value: Tensor, name: str) -> LaidOut:
    weights, value = (tensor.unflatten(0, (-1, module.num_heads)) for tensor in (weights, value))
    # The first product's own tensor has had the second added to it in place.
    z = weights @ value

    def put(output: Any, new: Tensor) -> Any:
        # The projection is linear, so the parts change the output one after the other.
        nothing = module.out_proj(torch.zeros_like(merge(z)))
        return exchange(output, output[0] + (module.out_proj(merge(new - z)) - nothing))

    return LaidOut(weights, value, z, put, visible=shown(weights), name=name)
