"""Where a head looks from each query, whatever the tokens say: at a fixed offset, near by, far away."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.heads import head_scores
from attnprobe.heads.sides import Scores, by_head, by_self, nowhere, shares, top_keys


def diagonal_mass(weights: Float[Tensor, "head query key"], offset: int) -> Float[Tensor, " head"]:
    """Mean weight on the token at an offset from the query, over the queries that have one.

    >>> diagonal_mass(torch.tensor([[[1.0, 0.0], [0.7, 0.3]]]), -1).tolist()
    [0.699999988079071]
    """
    if weights.shape[-1] != weights.shape[-2] or weights.shape[-1] <= abs(offset):
        return nowhere(weights)
    return weights.diagonal(offset, -2, -1).mean(-1)


def offset_mass(capture: Capture, offset: int) -> Scores:
    """Weight on the token at any fixed offset (-1: the one before), mean over the queries that have one.

    NaN in cross-attention and where the input is too short.
    """
    return by_self(capture, lambda w: diagonal_mass(w, offset))


@head_scores.add(
    family="position",
    source="Voita et al. 2019, sec. 5 (positional heads)",
    label="Mass on previous token",
    low=0,
    high=1,
    unit="share",
    needs="self-attention",
)
def previous_token(capture: Capture) -> Scores:
    """Weight on the token before the query, mean over the queries that have one; NaN in cross-attention."""
    return offset_mass(capture, -1)


@head_scores.add(
    family="position",
    source="Clark et al. 2019, sec. 3.1",
    label="Mass on itself",
    low=0,
    high=1,
    unit="share",
    needs="self-attention",
)
def same_position(capture: Capture) -> Scores:
    """Weight on the query's own token, mean over queries; NaN in cross-attention."""
    return offset_mass(capture, 0)


@head_scores.add(
    family="position",
    source="Clark et al. 2019, sec. 3.1",
    label="Mass on next token",
    low=0,
    high=1,
    unit="share",
    needs="self-attention",
)
def next_token(capture: Capture) -> Scores:
    """Weight on the token after the query, mean over the queries that have one; 0 in a causal model."""
    return offset_mass(capture, 1)


@head_scores.add(
    family="position",
    source="Vig & Belinkov 2019 (attention distance)",
    label="Distance, tokens",
    low=0,
    high=None,
    unit="tokens",
    needs="self-attention",
)
def distance(capture: Capture) -> Scores:
    """How far a head looks: Σ A |i − j| in tokens, mean over queries; NaN in cross-attention."""

    def score(weights: Tensor) -> Tensor:
        at = torch.arange(weights.shape[-1], dtype=weights.dtype)
        return (shares(weights) * (at[:, None] - at).abs()).sum(-1).mean(-1)

    return by_self(capture, score)


def offsets(n: int) -> range:
    """The offsets that are fair to compare on n tokens: those that at least half of the queries have."""
    return range(-(n // 2), n // 2 + 1)


def offset_shares(weights: Float[Tensor, "head query key"]) -> Float[Tensor, "head offset"]:
    """Share of the queries whose largest weight lies at each of `offsets`, of the queries that have one.

    Keys that tie share the query between them.
    """
    top = top_keys(weights)
    return torch.stack([top.diagonal(offset, -2, -1).mean(-1) for offset in offsets(weights.shape[-1])], dim=-1)


@head_scores.add(
    family="position",
    source="Voita et al. 2019, sec. 5 (a head is positional from 0.9 on)",
    label="Largest weight at one offset",
    low=0,
    high=1,
    unit="share",
    needs="self-attention",
)
def positional(capture: Capture) -> Scores:
    """Share of queries whose largest weight is at the head's best offset, any that half of them have; NaN across."""
    return by_self(capture, lambda w: offset_shares(w).amax(-1))


def best_offset(captures: Capture | Sequence[Capture]) -> Int[Tensor, "layer head"]:
    """The offset at which most queries of all captures of one stack have their largest weight (-1: the token before).

    Of several the nearest, backwards first. Errors: `InputError` in cross-attention, which has no offsets.
    """
    given = [captures] if isinstance(captures, Capture) else list(captures)
    reach = max((layer.shape[-1] // 2 for capture in given for layer in capture.tensor("weights")), default=0)
    order = sorted(range(-reach, reach + 1), key=lambda offset: (abs(offset), offset))
    found = torch.stack([sum_of([_hits(capture, offset) for capture in given]) for offset in order])
    if not given or bool(found.isnan().all()):
        raise InputError("offsets need self-attention of at least one example: queries and keys of one sequence")
    return torch.tensor(order)[found.nan_to_num(-1.0).argmax(0)]


def sum_of(scores: Sequence[Scores]) -> Scores:
    """Sum of scores of the same heads; NaN where all are."""
    known = torch.stack(list(scores))
    return known.nansum(0).masked_fill(known.isnan().all(0), torch.nan)


def _hits(capture: Capture, offset: int) -> Scores:
    """How many queries have their largest weight at an offset."""
    return by_self(capture, lambda w: top_keys(w).diagonal(offset, -2, -1).sum(-1))


@head_scores.add(
    family="sink",
    source="Xiao et al. 2024 (attention sinks)",
    label="Mass on first token, from later tokens",
    low=0,
    high=1,
    unit="share",
    needs="self-attention over more than one token",
)
def first_token(capture: Capture) -> Scores:
    """Weight on the first token, mean over the queries after it: high for a head that rests on a sink."""
    return by_head(capture, lambda w: w[:, 1:, 0].mean(-1) if w.shape[1] > 1 else nowhere(w))


def received(weights: Float[Tensor, "head query key"]) -> Float[Tensor, "head key"]:
    """Mean weight that each key gets from the queries at its own place and after it (Gu et al. 2025)."""
    n_queries, n_keys = weights.shape[-2:]
    later = torch.ones(n_queries, n_keys, dtype=weights.dtype).tril()
    return (weights * later).sum(-2) / later.sum(-2).clamp(min=1)


@head_scores.add(
    family="sink",
    source="Gu et al. 2025 (sink metric, threshold 0.3)",
    label="Rests on the first token",
    low=0,
    high=1,
    unit="share",
)
def sink(capture: Capture, *, epsilon: float = 0.3) -> Scores:
    """1 for a head whose mean weight on the first token is above a threshold, else 0: over texts, a share of them."""
    return by_self(capture, lambda w: (received(w)[:, 0] > epsilon).to(w.dtype))


def sink_rate(capture: Capture, epsilon: float = 0.3) -> Float[Tensor, " key"]:
    """Share of all heads of a stack that rest on each key: its mean weight, from there on, is above a threshold.

    The last keys have few queries after them; their numbers say little. Errors: `InputError` in cross-attention.
    """
    if capture.stacks()[0][1] != "self":
        raise InputError("sinks are found in self-attention, where later tokens rest on earlier ones")
    found = torch.cat([received(layer.double().cpu()) > epsilon for layer in capture.maps()])
    return found.double().mean(0)


@head_scores.add(
    family="sink",
    source="Kobayashi et al. 2020 (tokens that take most of the weight)",
    label="Mass on the most looked at token",
    low=0,
    high=1,
    unit="share",
)
def most_looked_at(capture: Capture) -> Scores:
    """Weight on the one token that gets most of a head's weight, mean over queries: a sink wherever it lies."""
    return by_head(capture, lambda w: w.mean(-2).amax(-1))
