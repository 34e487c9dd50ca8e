"""Attention weights as attributions: as they are, and multiplied through the layers."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.target import ResolvedTarget

Heads = Literal["mean", "max"] | int


def attention_maps(
    model: Model, example: Example, heads: Heads = "mean", kind: str = "self"
) -> list[Float[Tensor, "query key"]]:
    """The attention of each layer of the explained stack, heads averaged ("mean"), the largest ("max"), or one head."""
    stack = explained_stack(model, example, kind)
    layers = model.capture(example).maps(stack.name, stack.kind)
    if isinstance(heads, int) and not 0 <= heads < min(stack.n_heads):
        raise InputError(
            f"there is no head {heads}; the layers have {min(stack.n_heads)} heads (0 to {min(stack.n_heads) - 1})"
        )
    merge = {"mean": lambda w: w.mean(0), "max": lambda w: w.amax(0)}
    if not isinstance(heads, int) and heads not in merge:
        raise InputError(f"heads is 'mean', 'max' or a number, got '{heads}'")
    return [(layer[heads] if isinstance(heads, int) else merge[heads](layer)).float() for layer in layers]


@methods.add(
    family="attention",
    source="Bahdanau et al. 2015; Abnar & Zuidema 2020, sec. 4 (baseline)",
    formula="A^L_{r j}: last layer, mean of heads, the row r that the answer is read from",
    cost="1 F",
    signed=False,
)
def raw_attention(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layer: int | Literal["mean"] = -1,
    heads: Heads = "mean",
    read: Literal["row", "column_max", "column_mean"] = "row",
) -> Scores:
    """Attention weight on each token, 0 to 1, from the position that the answer is read from.

    layer: a number (negative: from the last) or "mean" of all. read: the "row" of that position, or the
    "column_max" or "column_mean" over all queries (Abnar's script takes the column maximum).
    """
    kind = explained_stack(model, example, "any").kind
    maps = attention_maps(model, example, heads, kind)
    if layer != "mean" and not -len(maps) <= layer < len(maps):
        raise InputError(f"there is no layer {layer}; the stack has layers 0 to {len(maps) - 1} (or -1 for the last)")
    weights = torch.stack(maps).mean(0) if layer == "mean" else maps[layer]
    if read == "row":
        rows = read_rows(model, example, target, kind)
        return Scores(weights[rows].mean(0), map=weights, used={"read_rows": rows.tolist()[:8]})
    if read not in ("column_max", "column_mean"):
        raise InputError(f"read is 'row', 'column_max' or 'column_mean', got '{read}'")
    return Scores(weights.amax(0) if read == "column_max" else weights.mean(0), map=weights)


@methods.add(
    family="attention",
    source="Abnar & Zuidema 2020, sec. 3",
    formula="∏_l ((1 − c) A^l + c I), row r; c = identity",
    cost="1 F",
    signed=False,
)
def rollout(
    model: Model, example: Example, target: ResolvedTarget, *, identity: float = 0.5, heads: Heads = "mean"
) -> Scores:
    """Attention multiplied through the layers, with a share of identity for the residual; a share of 1 a row.

    identity: 0 to 1; 0.5 as published. On causal models much of it lies on the first tokens whatever the model does.
    """
    if not 0 <= identity <= 1:
        raise InputError(f"identity is a share from 0 to 1, got {identity}")
    if explained_stack(model, example, "any").kind == "cross":
        raise InputError("rollout is not defined for an encoder-decoder; use raw_attention (its cross-attention)")
    whole = roll_out(attention_maps(model, example, heads), identity)
    rows = read_rows(model, example, target)
    return Scores(whole[rows].mean(0), map=whole, used={"read_rows": rows.tolist()[:8]})


def roll_out(maps: list[Float[Tensor, "query key"]], identity: float) -> Float[Tensor, "query key"]:
    """The product of the layers' maps, last layer leftmost, each mixed with the identity and its rows summing to 1.

    >>> first, second = torch.tensor([[0.6, 0.4], [0.2, 0.8]]), torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    >>> [[round(x, 3) for x in row] for row in roll_out([first, second], 0.5).tolist()]
    [[0.625, 0.375], [0.415, 0.585]]
    """
    n = maps[0].shape[-1]
    whole = torch.eye(n, dtype=maps[0].dtype, device=maps[0].device)
    for layer in maps:
        mixed = (1 - identity) * layer + identity * torch.eye(n, dtype=layer.dtype, device=layer.device)
        # Sinks keep a share back, and "max" of heads exceeds 1: rows must sum to 1 before they are multiplied.
        whole = mixed / mixed.sum(-1, keepdim=True).clamp(min=1e-12) @ whole
    return whole
