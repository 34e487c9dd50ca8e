"""MobileViTv2 and SwiftFormer: one query for all positions, whose z every position is multiplied with."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, relu

from attnprobe.models.huggingface.sparse.dense import shown
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("MobileViTV2LinearSelfAttention")
def linear(run: Run) -> list[LaidOut]:
    """One query for each pixel of a patch [row 1 pixel key]; keys are pixel by pixel all patches."""
    module: Any = run.module
    weights = run.call(-1, "softmax").out  # [row 1 pixel patch]
    _, key, value = run.child("qkv_proj").split([1, module.embed_dim, module.embed_dim], dim=1)
    own_pixel = torch.eye(weights.shape[2], dtype=weights.dtype, device=weights.device)
    dense = (weights.unsqueeze(3) * own_pixel[..., None]).flatten(-2)
    z = run.call(-1, "sum").out.transpose(1, 3)  # [row 1 pixel d]

    def put(output: Any, new: Tensor) -> Any:
        return module.out_proj(relu(value) * new.transpose(1, 3).expand_as(value))

    return [LaidOut(dense, key.flatten(2).transpose(1, 2)[:, None], z, put, visible=shown(dense))]


@layout("SwiftFormerEfficientAdditiveAttention")
def additive(run: Run) -> list[LaidOut]:
    """The sum of all queries, each weighed by a softmax over an axis of one entry: the weights are all 1."""
    module: Any = run.module
    weights = run.call(-1, "softmax").out.transpose(1, 2)[:, None]  # [row 1 1 key]
    query, key = (normalize(run.child(name), dim=-1) for name in ("to_query", "to_key"))
    z = run.call(-1, "sum").out[:, None, None]

    def put(output: Any, new: Tensor) -> Any:
        return module.final(module.proj(new[:, 0] * key) + query)

    return [LaidOut(weights, query[:, None], z, put, row_sum="any")]
