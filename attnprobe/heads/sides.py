"""What stands along the two sides of a head's map: the tokens of the example, or something else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.example import Example
from attnprobe.site import BESIDE_TEXT

Scores = Float[Tensor, "layer head"]
HeadScore = Callable[[Float[Tensor, "head query key"]], Float[Tensor, " head"]]


@dataclass(frozen=True)
class Sides:
    """Whether the queries and the keys of a stack are the tokens that an example describes."""

    queries: bool
    keys: bool


def sides(capture: Capture) -> Sides:
    """What the queries and keys of a capture of one stack are, by where the stack is; lengths are not looked at.

    The decoder of a model with an encoder looks from the answer; a tower beside the text has patches or frames.
    """
    (stack, kind), example = capture.stacks()[0], capture.example
    if "input_ids" in example.inputs and stack in BESIDE_TEXT:
        return Sides(queries=False, keys=False)
    if stack == "decoder" and "decoder_input_ids" in example.inputs:
        answer_explained = example.axis == "target"
        return Sides(queries=answer_explained, keys=(kind == "cross") != answer_explained)
    return Sides(queries=kind == "self", keys=True)


def by_layer(scores: Sequence[Float[Tensor, " _"]]) -> Scores:
    """Scores of each layer's heads put together; NaN for heads that a layer lacks."""
    whole = torch.full((len(scores), max(map(len, scores))), torch.nan, dtype=torch.float64)
    for row, score in zip(whole, scores, strict=True):
        row[: len(score)] = score
    return whole


def by_head(capture: Capture, score: HeadScore) -> Scores:
    """A score of each layer's weights [head query key], put together; CPU, float64."""
    return by_layer([score(layer.double().cpu()) for layer in capture.tensor("weights")])


def by_self(capture: Capture, score: HeadScore) -> Scores:
    """`by_head` where queries and keys are the same positions; NaN elsewhere, as in cross-attention."""
    is_self = capture.stacks()[0][1] == "self"
    return by_head(capture, lambda w: score(w) if is_self and w.shape[-1] == w.shape[-2] else nowhere(w))


def by_cross(capture: Capture, score: HeadScore) -> Scores:
    """`by_head` of cross-attention; NaN elsewhere."""
    is_cross = capture.stacks()[0][1] == "cross"
    return by_head(capture, lambda w: score(w) if is_cross else nowhere(w))


def by_keys(capture: Capture, score: HeadScore) -> Scores:
    """`by_head` where the keys are the tokens of the example; NaN elsewhere."""
    n, known = capture.example.n_tokens, sides(capture).keys
    return by_head(capture, lambda w: score(w) if known and w.shape[-1] == n else nowhere(w))


def by_tokens(capture: Capture, score: HeadScore) -> Scores:
    """`by_head` where queries and keys are the tokens of the example; NaN elsewhere."""
    n, known = capture.example.n_tokens, sides(capture) == Sides(queries=True, keys=True)
    return by_head(capture, lambda w: score(w) if known and w.shape[-2:] == (n, n) else nowhere(w))


def nowhere(weights: Tensor) -> Float[Tensor, " head"]:
    """NaN for every head: the score has no meaning on these weights."""
    return torch.full((weights.shape[0],), torch.nan, dtype=torch.float64)


def shares(weights: Float[Tensor, "*head query key"]) -> Float[Tensor, "*head query key"]:
    """Each row over its sum; a row without weight stays so. Some models keep a part of each row back (sinks)."""
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)


def mass_on(
    weights: Float[Tensor, "head query key"], pairs: Bool[Tensor, "#query key"], queries: Bool[Tensor, " query"]
) -> Float[Tensor, " head"]:
    """Weight on the named pairs, mean over the named queries; NaN where there is no pair or no query.

    >>> mass_on(torch.tensor([[[0.25, 0.75]]]), torch.tensor([[False, True]]), torch.tensor([True])).tolist()
    [0.75]
    """
    if not bool(pairs.any()) or not bool(queries.any()):
        return nowhere(weights)
    return (weights * pairs).sum(-1)[:, queries].mean(-1)


def top_keys(weights: Float[Tensor, "head query key"]) -> Float[Tensor, "head query key"]:
    """Where the largest weight of each query lies: 1 there, an even share each where several keys tie.

    >>> top_keys(torch.tensor([[[0.5, 0.5, 0.0]]])).tolist()
    [[[0.5, 0.5, 0.0]]]
    """
    largest = (weights >= weights.amax(-1, keepdim=True)).to(weights.dtype)
    return largest / largest.sum(-1, keepdim=True)


def words(example: Example) -> Bool[Tensor, " token"]:
    """Which tokens are no special tokens."""
    return ~torch.tensor(example.is_special)
