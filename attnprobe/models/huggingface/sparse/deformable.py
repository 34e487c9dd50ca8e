"""Deformable attention: a query samples a few points between the positions of a feature map.

What a point takes is a weighted sum of the four positions around it, so z is linear in the map. The weight of a
position is the sum over points of attention weight times interpolation coefficient. Keys are the positions of all
levels, level by level, line by line; points beyond the edge of a map take less than one position's worth.
"""

from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.sparse.dense import exchange, merge, shown, spread
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("*MultiscaleDeformableAttention")
def deformable(run: Run) -> list[LaidOut]:
    """Weights over the positions of all levels, of the points that the module sampled.

    Large maps make large matrices: a query has as many keys as the map has positions.
    """
    module: Any = run.module
    attention = run.call(-1, "softmax").out.transpose(1, 2)  # [row head query point]
    n_heads = attention.shape[1]
    sampled = run.named("grid_sample")
    value, keys, share = _between(run, n_heads) if sampled else _nearest(run, n_heads)
    slots = (attention[..., None] * share).flatten(-2)
    weights = spread(slots.to(value.dtype), keys.flatten(-2), value.shape[2])
    z = run.call(-1, "sum").out.unflatten(0, (-1, n_heads)).transpose(-1, -2)
    of_map = run.given("encoder_hidden_states")
    kind = "self" if of_map is None or of_map is run.given("hidden_states") else "cross"

    def put(output: Any, new: Tensor) -> Any:
        project = getattr(module, "output_proj", None)
        return exchange(output, merge(new) if project is None else project(merge(new)))

    return [LaidOut(weights, value, z, put, visible=shown(weights), row_sum="at_most_one", kind=kind)]


def _between(run: Run, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """value [row head key d], and of each point its four corners: key and share [row head query point 4]."""
    values, keys, shares, first = [], [], [], 0
    for call in run.named("grid_sample"):
        level, grid = call.args[0], call.args[1]
        height, width = level.shape[-2:]
        corners, share = _corners(grid, height, width)
        values.append(level.flatten(2))
        keys.append(torch.where(corners < 0, corners, corners + first))
        shares.append(share)
        first += height * width
    value = torch.cat(values, dim=-1).transpose(-1, -2)
    joined = (value, torch.cat(keys, dim=-2), torch.cat(shares, dim=-2))
    return tuple(tensor.unflatten(0, (-1, n_heads)) for tensor in joined)  # type: ignore[return-value]


def _corners(grid: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """The four positions around points of a grid from -1 to 1 [... xy], -1 outside of the map, and their shares."""
    size = torch.tensor([width, height], device=grid.device)
    point = ((grid + 1) * size - 1) / 2  # the middle of position i is at i
    corner = point.detach().floor()[..., None, :] + torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]], device=grid.device)
    share = (1 - (point[..., None, :] - corner).abs()).prod(-1)
    inside = ((corner >= 0) & (corner < size)).all(-1)
    position = corner[..., 1] * width + corner[..., 0]
    return torch.where(inside, position, -1).long(), share


def _nearest(run: Run, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `_between` for the variant that takes the whole of the position nearest to a point ("discrete")."""
    module: Any = run.module
    counts = _either(module, "n_points_list", "num_points_list")
    scale = _either(module, "n_points_scale", "num_points_scale")
    reference, shapes = run.given("reference_points"), run.given("spatial_shapes_list")
    if reference.shape[-1] != 4:
        raise CaptureError(
            f"{type(module).__name__} with method 'discrete' is laid out for reference points of 4 numbers (boxes), "
            f"got {reference.shape[-1]}"
        )
    offsets = run.child("sampling_offsets").unflatten(-1, (n_heads, -1, 2))
    box = reference[:, :, None]
    points = box[..., :2] + offsets * scale.to(offsets.dtype)[:, None] * box[..., 2:] * module.offset_scale
    keys, first = [], 0
    for (height, width), level in zip(shapes, points.transpose(1, 2).split(counts, dim=-2), strict=True):
        place = (level * torch.tensor([width, height], device=level.device) + 0.5).long()
        keys.append(first + place[..., 1].clamp(0, height - 1) * width + place[..., 0].clamp(0, width - 1))
        first += height * width
    found = torch.cat(keys, dim=-1)[..., None]
    return _map(run, n_heads), found, torch.ones_like(found, dtype=points.dtype)


def _map(run: Run, n_heads: int) -> Tensor:
    """[row head key d]: the values, zero at positions that a mask hides."""
    value = run.child("value_proj") if "value_proj" in run.children else run.given("encoder_hidden_states")
    mask = run.given("attention_mask")
    if mask is not None:
        value = value.masked_fill(~mask[..., None], 0.0)
    return value.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def _either(module: Any, *names: str) -> Any:
    """The attribute that the module has under one of these names."""
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)
    raise CaptureError(f"{type(module).__name__} has none of {', '.join(names)}; its layout expects one")
