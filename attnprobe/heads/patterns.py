"""Simple patterns: how spread a head's weights are, and on which kind of token they lie."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.heads import head_scores
from attnprobe.site import Site

Scores = Float[Tensor, "layer head"]


def by_head(capture: Capture, score: Callable[[Tensor], Tensor]) -> Scores:
    """A score of each layer's weights [head query key], put together; CPU, float64."""
    return torch.stack([score(layer.double().cpu()) for layer in capture.tensor("weights")])


def nowhere(weights: Tensor) -> Tensor:
    """NaN for every head: the score has no meaning on these weights."""
    return torch.full((weights.shape[0],), torch.nan, dtype=torch.float64)


def diagonal_mass(weights: Float[Tensor, "head query key"], offset: int) -> Float[Tensor, " head"]:
    """Mean weight on the token at an offset from the query, over the queries that have one.

    >>> diagonal_mass(torch.tensor([[[1.0, 0.0], [0.7, 0.3]]]), -1).tolist()
    [0.699999988079071]
    """
    if weights.shape[-1] != weights.shape[-2] or weights.shape[-1] <= abs(offset):
        return nowhere(weights)
    return weights.diagonal(offset, -2, -1).mean(-1)


def relative_entropy(weights: Float[Tensor, "query key"], visible: Bool[Tensor, "query key"]) -> float:
    """Entropy of each row over that of an even row on its visible keys, mean: 0 one token, 1 all alike.

    Rows with one visible key are left out; without any other, 0.

    >>> relative_entropy(torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.ones(2, 2, dtype=torch.bool))
    1.0
    """
    n_visible = visible.sum(-1)
    rows = n_visible > 1
    if not bool(rows.any()):
        return 0.0
    share = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)  # sinks keep a part of a row back
    entropy = torch.special.entr(share.clamp(min=0)).sum(-1)
    return float((entropy[rows] / n_visible[rows].log()).mean())


@head_scores.add(
    family="pattern",
    source="Clark et al. 2019, sec. 3.3 (entropy), relative to the visible keys",
    label="Spread",
    low=0,
    high=1,
    unit="number",
)
def spread(capture: Capture) -> Scores:
    """How evenly a head looks: entropy over that of an even look, 0 (one token) to 1 (all alike), mean over queries."""
    return torch.stack([_spread(site) for site in capture.select()])


def _spread(site: Site) -> Float[Tensor, " head"]:
    weights = site.need("weights")[0].double().cpu()
    visible = torch.ones_like(weights, dtype=torch.bool)
    if site.visible is not None:
        seen = site.visible[0].cpu()
        kept = seen if site.heads is None or len(seen) in (1, len(weights)) else seen[list(site.heads)]
        visible = kept.expand_as(weights)
    return torch.tensor([relative_entropy(w, v) for w, v in zip(weights, visible, strict=True)], dtype=torch.float64)


@head_scores.add(
    family="pattern", source="Clark et al. 2019, sec. 3.2", label="Mass on special tokens", low=0, high=1, unit="share"
)
def special_mass(capture: Capture) -> Scores:
    """Share of a head's weight on special tokens, mean over queries; NaN where the keys are other tokens."""
    special = torch.tensor(capture.example.is_special)

    def score(weights: Tensor) -> Tensor:
        return weights[..., special].sum(-1).mean(-1) if weights.shape[-1] == len(special) else nowhere(weights)

    return by_head(capture, score)


@head_scores.add(
    family="pattern",
    source="Voita et al. 2019, sec. 5 (positional heads)",
    label="Mass on previous token",
    low=0,
    high=1,
    unit="share",
)
def previous_token(capture: Capture) -> Scores:
    """Weight on the token before the query, mean over the queries that have one; NaN in cross-attention."""
    return by_head(capture, lambda w: diagonal_mass(w, -1) if capture.stacks()[0][1] == "self" else nowhere(w))


@head_scores.add(
    family="pattern", source="Clark et al. 2019, sec. 3.1", label="Mass on itself", low=0, high=1, unit="share"
)
def same_position(capture: Capture) -> Scores:
    """Weight on the query's own token, mean over queries; NaN in cross-attention."""
    return by_head(capture, lambda w: diagonal_mass(w, 0) if capture.stacks()[0][1] == "self" else nowhere(w))


@head_scores.add(
    family="pattern",
    source="Xiao et al. 2024 (attention sinks)",
    label="Mass on first token, from later tokens",
    low=0,
    high=1,
    unit="share",
)
def first_token(capture: Capture) -> Scores:
    """Weight on the first token, mean over the queries after it: high for a head that rests on a sink."""
    return by_head(capture, lambda w: w[:, 1:, 0].mean(-1) if w.shape[1] > 1 else nowhere(w))
