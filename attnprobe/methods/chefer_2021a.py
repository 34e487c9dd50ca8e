"""Attention's gradient times its relevance, positive parts multiplied through the layers (Chefer et al. 2021a)."""

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.attention import check_layer
from attnprobe.methods.attention_gradient import WeightGradient, weight_gradients
from attnprobe.methods.gradient import SOUNDS
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.models.relevance.passing import check_logits, hand_back
from attnprobe.models.relevance.share_rules import ShareRules
from attnprobe.site import Place
from attnprobe.target import ResolvedTarget

Own = Literal["zero", "row_min", "keep"]


@methods.add(
    family="attention",
    source="Chefer et al. 2021a, sec. 3 (CVPR)",
    formula="∏_l (I + mean_h((∂y/∂A^l ⊙ R^l)₊)), row r; R^l: relevance of A^l by LRP with α = 1",
    cost="3 F, 2 B",
    signed=False,
    passes=lambda size, o: (3, 2),
    lacks={
        **SOUNDS,
        "seq2seq": "it multiplies the self-attention of one stack; the same authors' rules for an encoder-decoder, "
        "without LRP, are chefer_2021b",
    },
)
def chefer_2021a(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    row_normalise: bool = False,
    start_layer: int = 0,
    own: Own = "zero",
) -> Scores:
    """Relevance of each token for the position read: weights' relevance times gradient, through the layers; no units.

    Relevance starts as 1 at the target and goes back by the paper's rules. Maps share by positive products, biases get
    none; a sum of states shares by what each adds, scaled so that all goes back; a product half and half; a softmax, an
    activation, a norm hand all of it on. Where the paper has no rule, a gated product is a product, and a gate that is
    not 0 at 0, a rotation of queries and a constant that is added are scales. Shares of sums that nearly cancel are
    large, and so may scores be. It sees no evidence against the target.
    row_normalise: rows of each layer divided by their sums; start_layer: the first that is used (negative: from the
    last). The authors' code for BERT has True and -1, the paper and the code for ViT False and 0. own: the score of the
    position read itself: "zero", the row's minimum ("row_min"), or "keep".
    """
    if own not in ("zero", "row_min", "keep"):
        raise InputError(f"own is 'zero', 'row_min' or 'keep', got '{own}'")
    stack = explained_stack(model, example, "self")
    first = check_layer(start_layer, stack.n_layers)
    rows = read_rows(model, example, target, stack.kind)
    found = weight_gradients(model, example, target, stack)
    rules = ShareRules()
    back = hand_back(model, example, target, rules)
    check_logits(model, example, back.logits, back.rounding)
    layers = [positive(layer, rules.weights, model.name) for layer in found[first:]]
    relevance = multiplied(layers, row_normalise)
    read = relevance[rows].clone()
    if own != "keep":
        index = torch.arange(len(rows))
        read[index, rows] = read.amin(-1) if own == "row_min" else 0.0
    return Scores(read.mean(0), map=relevance, used={"read_rows": rows.tolist()[:8], "rules": back.applied})


def positive(layer: WeightGradient, relevance: Mapping[Place, Tensor], name: str) -> Float[Tensor, "query key"]:
    """The positive part of gradient times relevance, mean over heads, on the CPU."""
    if layer.place not in relevance:
        raise InputError(f"{name}: no relevance comes back to the weights of {layer.place}")
    return (layer.gradient.double() * relevance[layer.place][0].double()).relu().mean(0).cpu()


def multiplied(layers: list[Float[Tensor, "token token"]], normalise: bool) -> Float[Tensor, "token token"]:
    """The product of I + A over the layers, the last one leftmost; rows divided by their sums first, or not.

    >>> multiplied([torch.tensor([[1.0, 0.0], [2.0, 1.0]])], True).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    if len({tuple(layer.shape) for layer in layers}) > 1:
        raise InputError("layers over different numbers of tokens carry no relevance from one to the next")
    whole = torch.eye(layers[0].shape[-1], dtype=layers[0].dtype)
    for layer in layers:
        step = torch.eye(len(layer), dtype=layer.dtype) + layer
        whole = (step / step.sum(-1, keepdim=True) if normalise else step) @ whole
    return whole
