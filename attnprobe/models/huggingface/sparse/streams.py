"""ProphetNet: a main stream, and one stream for each token ahead that looks at the main keys and at its own."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, merge, operands, shown
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("ProphetNetNgramSelfAttention")
def streams(run: Run) -> list[LaidOut]:
    """The main stream, then those that predict 1, 2, ... tokens ahead; their keys are the main ones, then their own."""
    main, ahead = run.call(1, "einsum"), run.call(3, "einsum")
    weights, value = operands(main)
    parts = [_part(run, 0, weights, value, main.out, "")]
    weights, value = operands(ahead)  # [row stream head query key]
    for index in range(weights.shape[1]):
        name = f"predicts {index + 1} ahead"
        parts.append(_part(run, index + 1, weights[:, index], value[:, index], ahead.out[:, index], name))
    return parts


def _part(run: Run, stream: int, weights: Tensor, value: Tensor, z: Tensor, name: str) -> LaidOut:
    module: Any = run.module
    length = z.shape[2]

    def put(output: Any, new: Tensor) -> Any:
        before, after = output[0][:, : stream * length], output[0][:, (stream + 1) * length :]
        return exchange(output, torch.cat([before, module.out_proj(merge(new)), after], dim=1))

    return LaidOut(weights, value, z, put, visible=shown(weights), name=name)
