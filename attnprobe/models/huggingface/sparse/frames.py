"""Audio encoders of Gemma 3n and Gemma 4: a block of frames, so many frames before it and so many after."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, merge, shown, split, spread
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("Gemma3nAudioAttention")
def frames(run: Run) -> list[LaidOut]:
    """The frames around the block of a query; the heads of z are mixed by the module around this one."""

    def put(output: Any, new: Tensor) -> Any:
        return new.transpose(1, 2).contiguous()

    return [_laid_out(run, run.output.transpose(1, 2), put)]


@layout("Gemma4AudioAttention")
def projected_frames(run: Run) -> list[LaidOut]:
    """The frames around the block of a query."""
    module: Any = run.module
    length = run.given("hidden_states").shape[1]
    product = run.call(-1, "matmul", "__matmul__").out  # [row head block query d]
    z = product.flatten(2, 3)[:, :, :length]

    def put(output: Any, new: Tensor) -> Any:
        return exchange(output, module.post(merge(new).to(run.given("hidden_states").dtype)))

    return [_laid_out(run, z, put)]


def _laid_out(run: Run, z: Tensor, put: Any) -> LaidOut:
    module: Any = run.module
    slots = run.call(-1, "softmax").out.to(z.dtype)  # [row head block query slot]
    size, length = module.chunk_size, z.shape[2]
    query = torch.arange(slots.shape[2] * size, device=slots.device)
    slot = torch.arange(slots.shape[-1], device=slots.device)
    keys = (query // size * size)[:, None] - module.max_past_horizon + slot
    keys = torch.where(keys < length, keys, -1)[:length]
    weights = spread(slots.flatten(2, 3)[:, :, :length], keys, length)
    value = split(run.child("v_proj"), module.num_heads).to(z.dtype)
    # Padding beside the frames has no value; a query that is padding itself looks at it too.
    return LaidOut(weights, value, z, put, visible=shown(weights), row_sum="at_most_one")
