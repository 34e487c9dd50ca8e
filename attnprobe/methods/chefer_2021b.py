"""Relevance carried through the layers by the positive part of attention times its gradient (Chefer et al. 2021b)."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.attention_gradient import WeightGradient, weight_gradients
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.target import ResolvedTarget


@methods.add(
    family="attention",
    source="Chefer et al. 2021b, sec. 3 (ICCV, without LRP)",
    formula="R ← R + mean_h((A^l ⊙ ∂y/∂A^l)₊) R from R = I, row r; cross-attention by eqs. 8–11",
    cost="1 F, 1 B",
    signed=False,
    passes=lambda size, o: (1, 1),
)
def chefer_2021b(
    model: Model, example: Example, target: ResolvedTarget, *, own: Literal["zero", "keep"] = "zero"
) -> Scores:
    """Relevance of each token for the position read, by what attention's positive gradients carry there; no units.

    own: the score of that position itself, most of which is the identity that the sum starts from: "zero" as in the
    authors' code for texts, or "keep". It sees no evidence against the target. Of an encoder-decoder, the relevance of
    the source for the answer's positions (their mean): self rules in both stacks, the cross rule between them.
    """
    if own not in ("zero", "keep"):
        raise InputError(f"own is 'zero' or 'keep', got '{own}'")
    stack = explained_stack(model, example)
    rows = read_rows(model, example, target, stack.kind)
    used: dict[str, object] = {"read_rows": rows.tolist()[:8]}
    if stack.kind == "cross":
        relevance = encoder_decoder_relevance(weight_gradients(model, example, target), model.name, stack)
        return Scores(relevance[rows].mean(0), map=relevance, used=used)
    relevance = self_relevance([positive(found) for found in weight_gradients(model, example, target, stack)])
    read = relevance[rows].clone()
    if own == "zero":
        read[torch.arange(len(rows)), rows] = 0
    return Scores(read.mean(0), map=relevance, used=used)


def positive(found: WeightGradient) -> Float[Tensor, "query key"]:
    """The positive part of weight times gradient, mean over heads, on the CPU."""
    return found.product.relu().mean(0).cpu()


def self_relevance(layers: Sequence[Float[Tensor, "token token"]]) -> Float[Tensor, "token token"]:
    """R after R ← R + A R through the layers, from the identity (eqs. 5 and 6): the product of I + A.

    >>> self_relevance([torch.tensor([[0.5, 0.0], [0.0, 0.0]])] * 2).tolist()
    [[2.25, 0.0], [0.0, 1.0]]
    """
    if len({tuple(layer.shape) for layer in layers}) > 1:
        raise InputError("layers over different numbers of tokens carry no relevance from one to the next")
    relevance = torch.eye(layers[0].shape[-1], dtype=layers[0].dtype)
    for layer in layers:
        relevance = relevance + layer @ relevance
    return relevance


def normalised(relevance: Float[Tensor, "token token"]) -> Float[Tensor, "token token"]:
    """R̂: what lies beyond the identity with rows summing to 1, and the identity again (eqs. 8 and 9); empty rows stay.

    >>> normalised(torch.tensor([[1.5, 0.5], [0.0, 1.0]])).tolist()
    [[1.5, 0.5], [0.0, 1.0]]
    """
    own = torch.eye(len(relevance), dtype=relevance.dtype)
    beyond = relevance - own
    total = beyond.sum(-1, keepdim=True)
    return beyond / total.where(total > 0, 1.0) + own


def encoder_decoder_relevance(
    found: Sequence[WeightGradient], name: str, cross: Stack
) -> Float[Tensor, "answer source"]:
    """Relevance of the source for each position of the answer; layers in the order in which they ran.

    The encoder's R_ss and the decoder's R_qq grow by the self rule, R_qs by the decoder's self rule (eq. 7) and by
    R̂_qqᵀ A_qs R̂_ss at each cross-attention (eq. 10). No source token looks at the answer, so eq. 11 adds nothing.
    Errors: `InputError` for other towers than one encoder and one decoder.
    """
    here = [f for f in found if (f.place.stack, f.place.kind) in ((cross.name, "self"), (cross.name, "cross"))]
    n_answer, n_source = next(f.weights.shape[1:] for f in here if f.place.kind == "cross")
    below = {f.place.stack for f in found if f.place.kind == "self" and f.place.stack != cross.name}
    others = {f.place.stack for f in found if f.place.kind == "cross"} - {cross.name}
    if len(below) != 1 or others:
        named = ", ".join(sorted(below | others)) or "no self-attention over the source"
        raise InputError(
            f"{name}: chefer_2021b carries relevance through the self-attention of one encoder to one decoder; beside "
            f"the decoder there is {named}; use attention_x_gradient"
        )
    source = torch.eye(n_source, dtype=here[0].weights.dtype)
    answer = torch.eye(n_answer, dtype=source.dtype)
    between = torch.zeros(n_answer, n_source, dtype=source.dtype)
    for layer in found:
        weights = positive(layer)
        expected = (n_answer if layer.place.stack == cross.name else n_source,) * 2
        if layer.place.kind == "self" and weights.shape != expected:
            raise InputError(f"{name}: {layer.place} is over {tuple(weights.shape)} positions, expected {expected}")
        if layer.place.kind == "cross":
            between = between + normalised(answer).T @ weights @ normalised(source)
        elif layer.place.stack == cross.name:
            between, answer = between + weights @ between, answer + weights @ answer
        else:
            source = source + weights @ source
    return between
