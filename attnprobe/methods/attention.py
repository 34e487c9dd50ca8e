"""Attention weights as attributions: as they are, and multiplied through the layers."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.mixing import identity_shares, mixed, uniform_maps, without_lowest
from attnprobe.methods.sinks import Sink, handled, sink_share
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.target import ResolvedTarget

Heads = Literal["mean", "max", "min"] | int
NO_ENCODER_DECODER = (
    "it multiplies the self-attention of one stack, which is not defined for an encoder-decoder; use raw_attention "
    "(its cross-attention), or chefer_2021b"
)


def attention_maps(
    model: Model, example: Example, heads: Heads = "mean", kind: str = "self"
) -> list[Float[Tensor, "query key"]]:
    """The attention of each layer of the explained stack: heads averaged, their "max" or "min", or one head."""
    stack = explained_stack(model, example, kind)
    return merged(model.capture(example).maps(stack.name, stack.kind), heads)


def merged(layers: Sequence[Float[Tensor, "head query key"]], heads: Heads) -> list[Float[Tensor, "query key"]]:
    """One map a layer: the mean of its heads, the largest or smallest weight of any, or that of one head."""
    n_heads = min(len(layer) for layer in layers)
    if isinstance(heads, int) and not 0 <= heads < n_heads:
        raise InputError(f"there is no head {heads}; the layers have {n_heads} heads (0 to {n_heads - 1})")
    merge = {"mean": lambda w: w.mean(0), "max": lambda w: w.amax(0), "min": lambda w: w.amin(0)}
    if not isinstance(heads, int) and heads not in merge:
        raise InputError(f"heads is 'mean', 'max', 'min' or a number, got '{heads}'")
    return [(layer[heads] if isinstance(heads, int) else merge[heads](layer)).float() for layer in layers]


def check_layer(layer: int, n_layers: int) -> int:
    """The number of a layer that may be counted from the last; `InputError` for one that is not there."""
    if not -n_layers <= layer < n_layers:
        raise InputError(f"there is no layer {layer}; the stack has layers 0 to {n_layers - 1} (or -1 for the last)")
    return layer % n_layers


@methods.add(
    family="attention",
    source="Bahdanau et al. 2015; Abnar & Zuidema 2020, sec. 4 (baseline)",
    formula="A^L_{r j}: last layer, mean of heads, the row r that the answer is read from",
    cost="1 F",
    signed=False,
    passes=lambda size, o: (1, 0),
)
def raw_attention(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layer: int | Literal["mean"] = -1,
    heads: Heads = "mean",
    read: Literal["row", "column_max", "column_mean"] = "row",
    sink: Sink = "keep",
) -> Scores:
    """Attention weight on each token, 0 to 1, from the position that the answer is read from.

    layer: a number (negative: from the last) or "mean" of all. read: the "row" of that position, or the
    "column_max" or "column_mean" over all queries (Abnar's script takes the column maximum). sink: "drop" takes the
    first token out of the map and lets its rows sum to 1 again. Of a causal model it is told how many of the heads that
    were used rest on the first token (Gu et al. 2025).
    """
    stack = explained_stack(model, example)
    layers = model.capture(example).maps(stack.name, stack.kind)
    if layer != "mean":
        layers = [layers[check_layer(layer, len(layers))]]
    weights = torch.stack(merged(layers, heads)).mean(0)
    used: dict[str, object] = {"sink_share": sink_share(layers)} if _causal(model, stack.kind) else {}
    if read == "row":
        rows = read_rows(model, example, target, stack.kind)
        weights, told = handled(weights, sink, rows.tolist())
        return Scores(weights[rows].mean(0), map=weights, used=used | told | {"read_rows": rows.tolist()[:8]})
    if read not in ("column_max", "column_mean"):
        raise InputError(f"read is 'row', 'column_max' or 'column_mean', got '{read}'")
    weights, told = handled(weights, sink)
    defined = weights[weights.sum(-1) > 0] if told else weights
    if not len(defined):
        raise InputError("no position looks at anything but the first token; use sink='keep'")
    return Scores(defined.amax(0) if read == "column_max" else defined.mean(0), map=weights, used=used | told)


def _causal(model: Model, kind: str) -> bool:
    return bool(model.outputs.causal) and kind == "self"


@methods.add(
    family="attention",
    source="Abnar & Zuidema 2020, sec. 3",
    formula="∏_l ((1 − c) A^l + c I), row r; c = identity",
    cost="1 F",
    signed=False,
    passes=lambda size, o: (size.n_tokens + 2 if o["identity"] == "norm_ratio" else 1, 0),
    lacks={"seq2seq": NO_ENCODER_DECODER},
)
def rollout(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    identity: float | Literal["norm_ratio"] = 0.5,
    heads: Heads = "mean",
    discard: float = 0.0,
    against: Literal["uniform", "uniform_difference"] | None = None,
) -> Scores:
    """Attention multiplied through the layers, with a share of identity for the residual; a share of 1 a row.

    identity: 0 to 1, 0.5 as published, 0 for none; "norm_ratio" takes each token's own share, measured by the length of
    what it keeps and what it gets (Kobayashi et al. 2021). discard: the share of the lowest weights of each layer that
    are set to 0 before (vit-explain). On causal models much of it lies on the first tokens whatever the model does:
    against="uniform" divides by the rollout of uniform attention over what is visible (1: as much as that gives),
    "uniform_difference" subtracts it.
    """
    if isinstance(identity, str) and identity != "norm_ratio":
        raise InputError(f"identity is a share from 0 to 1, or 'norm_ratio'; got '{identity}'")
    if not isinstance(identity, str) and not 0 <= identity <= 1:
        raise InputError(f"identity is a share from 0 to 1, got {identity}")
    stack = explained_stack(model, example, "self")
    capture = model.capture(example)
    maps = [without_lowest(m, discard) for m in merged(capture.maps(stack.name, stack.kind), heads)]
    shares = identity_shares(model, example) if isinstance(identity, str) else [identity] * len(maps)
    whole = roll_out(maps, shares)
    even = roll_out(uniform_maps(capture, stack), shares)
    rows = read_rows(model, example, target)
    used: dict[str, object] = {"read_rows": rows.tolist()[:8]}
    if _causal(model, "self"):
        used |= {"first_token": float(whole[rows].mean(0)[0]), "first_token_if_uniform": float(even[rows].mean(0)[0])}
    if isinstance(identity, str):
        used["identity"] = [round(float(share.mean()), 4) for share in shares if isinstance(share, Tensor)]
    if against is not None:
        whole = _relative(whole, even, against)
    return Scores(whole[rows].mean(0), map=whole, used=used)


def _relative(whole: Tensor, even: Tensor, against: str) -> Tensor:
    """What a map has beyond that of uniform attention; what no path reaches stays 0."""
    if against == "uniform_difference":
        return whole - even
    if against != "uniform":
        raise InputError(f"against is 'uniform', 'uniform_difference' or None, got '{against}'")
    return (whole / even.where(even > 0, 1.0)).where(even > 0, 0.0)


def roll_out(
    maps: Sequence[Float[Tensor, "query key"]], identity: float | Sequence[float | Tensor]
) -> Float[Tensor, "query key"]:
    """The product of the layers' maps, last layer leftmost, each mixed with the identity and its rows summing to 1.

    identity: one share for all layers, or one a layer, as a number or [query].

    >>> first, second = torch.tensor([[0.6, 0.4], [0.2, 0.8]]), torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    >>> [[round(x, 3) for x in row] for row in roll_out([first, second], 0.5).tolist()]
    [[0.625, 0.375], [0.415, 0.585]]
    """
    shares = identity if isinstance(identity, Sequence) else [identity] * len(maps)
    whole = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device)
    for layer, share in zip(maps, shares, strict=True):
        whole = mixed(layer, share) @ whole
    return whole
