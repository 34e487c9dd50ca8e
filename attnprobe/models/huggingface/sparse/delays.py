"""Autoformer: every query takes the values some delays away from it, the same few delays for all queries."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, merge, shown, split, spread
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("AutoformerAttention")
def delayed(run: Run) -> list[LaidOut]:
    """The weight of each delay on the key that far behind the query, around the end of the series.

    Keys behind the end of a shorter source are zeros. In batches the module takes the delays of other rows; the map
    shows them as they were taken.
    """
    module: Any = run.module
    n_heads, shares = module.num_heads, run.call(-1, "softmax").out  # [row delay]
    gathered = run.named("gather")
    n_keys = gathered[0].args[0].shape[1] // 2  # the values stand there twice
    value = gathered[0].args[0][:, :n_keys].unflatten(0, (-1, n_heads))
    keys = torch.stack([_index(call)[..., 0] for call in gathered], dim=-1) % n_keys
    slots = shares.repeat(n_heads, 1)[:, None].expand(keys.shape)
    weights = spread(slots, keys, n_keys).unflatten(0, (-1, n_heads))
    z = split(run.call(-1, "reshape").out, n_heads)

    def put(output: Any, new: Tensor) -> Any:
        return exchange(output, module.out_proj(merge(new)))

    kind = "self" if run.given("key_value_states") is None else "cross"
    return [LaidOut(weights, value, z, put, visible=shown(weights), kind=kind)]


def _index(call: Any) -> Tensor:
    return call.kwargs["index"] if "index" in call.kwargs else call.args[2]
