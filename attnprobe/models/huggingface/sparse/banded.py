"""Longformer and LED: a band of keys around each query, some tokens that all see and that see all."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, kept_tokens, merge, shown, split, spread
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("LongformerSelfAttention", "LEDEncoderSelfAttention")
def banded(run: Run) -> list[LaidOut]:
    """The band and, where tokens are global, their rows as a second part with a value of its own.

    The two parts share no row: the rows of global tokens are zeros in the first, all others in the second, so that the
    whole map is their sum.
    """
    module: Any = run.module
    masked = run.given("is_index_masked")
    is_global = run.given("is_index_global_attn") if run.given("is_global_attn") else torch.zeros_like(masked)
    n_tokens = kept_tokens(run, masked, max(module.config.attention_window))
    z = split(run.output[0], module.num_heads)
    parts = [("", _band(run, masked, is_global), "value", ~is_global)]
    if bool(is_global.any()):
        parts.append(("global rows", _global_rows(run, is_global), "value_global", is_global))
    return [_part(run, name, w[..., :n_tokens, :n_tokens], value, z, rows) for name, w, value, rows in parts]


def _part(run: Run, name: str, weights: Tensor, value: str, z: Tensor, rows: Tensor) -> LaidOut:
    """One part: only the queries `rows` [row token] are its own."""
    module: Any = run.module
    n_tokens = weights.shape[-1]

    def put(output: Any, new: Tensor) -> Any:
        own = rows[:, :n_tokens, None]
        head = torch.where(own, merge(new), output[0][:, :n_tokens])
        return exchange(output, torch.cat([head, output[0][:, n_tokens:]], dim=1))

    own = rows[:, None, :n_tokens, None]
    return LaidOut(
        weights=torch.where(own, weights, 0.0),
        value=split(run.child(value).transpose(0, 1), module.num_heads)[:, :, :n_tokens],
        z=torch.where(own, z[:, :, :n_tokens], 0.0),
        put=put,
        visible=shown(weights) & own,
        row_sum="at_most_one",
        name=name,
    )


def _band(run: Run, masked: Tensor, is_global: Tensor) -> Tensor:
    """[row head query key] of the first softmax: [row query head slot], the global keys in front of the band."""
    module: Any = run.module
    weights = run.call(0, "softmax").out.masked_fill(masked[:, :, None, None], 0.0)
    weights = weights.to(run.output[0].dtype).transpose(1, 2)
    length, width = masked.shape[1], 2 * module.one_sided_attn_window_size + 1
    positions = torch.arange(length, device=masked.device)
    band = positions[:, None] + torch.arange(width, device=masked.device) - module.one_sided_attn_window_size
    band = torch.where(band < length, band, -1)[None, None].expand(len(masked), 1, -1, -1)
    columns = _global_positions(is_global)[:, None, None].expand(-1, 1, length, -1)
    return spread(weights, torch.cat([columns, band], dim=-1), length)


def _global_rows(run: Run, is_global: Tensor) -> Tensor:
    """[row head query key] of the second softmax: [row*head global key]."""
    module: Any = run.module
    weights = run.call(1, "softmax").out.to(run.output[0].dtype).unflatten(0, (-1, module.num_heads))
    positions = _global_positions(is_global)[:, None, None]
    return spread(weights.transpose(-1, -2), positions, is_global.shape[1]).transpose(-1, -2)


def _global_positions(is_global: Tensor) -> Tensor:
    """[row slot]: where a row's global tokens are, -1 for the slots that it does not use."""
    counts = is_global.sum(1, keepdim=True)
    n_slots = int(counts.max())
    order = (~is_global).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_slots]
    return torch.where(torch.arange(n_slots, device=order.device) < counts, order, -1)
