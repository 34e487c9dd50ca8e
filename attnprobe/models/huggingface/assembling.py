"""A site from what a product of weights and value shows: axes in order, query and key found, the softmax proven."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.axes import Heads, Product
from attnprobe.models.huggingface.traces import Scored, Weighed
from attnprobe.site import Normalizer, Place, Site, softmax

UNKNOWN = "unknown"
# A weight that no head gives more than this was hidden by a mask; a row of scores all below this was hidden whole.
NOTHING_LEFT = 1e-30
ALL_HIDDEN = -9e3


def site_of(
    place: Place, trace: Weighed, way: Product, heads: Heads, weights: Tensor, value: Tensor, z: Tensor
) -> Site:
    """The site of operands in the common form [lead… query key], [lead… key d_value], [lead… query d_value]."""
    query, key = _factors(trace, heads, tuple(weights.shape)) or (None, None)
    moved = way.weights(trace.moved(trace.scores))
    scores = heads.split(moved) if moved.shape == weights.shape else None
    site = Site(place, query, key, heads.split(value), scores, heads.split(weights), heads.split(z))
    return _told(site, trace)


def _factors(trace: Weighed, heads: Heads, shape: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
    """Query and key [row head token d_head], as the product that made the scores had them; None where unknown."""
    form = None if trace.scored is None else _scored_form(trace.scored)
    if form is None:
        return None
    query, key = form if trace.keys_right else form[::-1]
    *lead, n_queries, n_keys = shape
    if query.shape[-2] != n_queries or key.shape[-2] != n_keys or query.shape[-1] != key.shape[-1]:
        return None
    rows = [_rows(tensor, tuple(lead), heads) for tensor in (query, key)]
    return None if rows[0] is None or rows[1] is None else (rows[0], rows[1])


def _rows(tensor: Tensor, lead: tuple[int, ...], heads: Heads) -> Tensor | None:
    """[lead… token d_head] as [row head token d_head]; a key that heads share is repeated."""
    if len(tensor.shape) - 2 == len(lead) and all(a in (1, b) for a, b in zip(tensor.shape, lead, strict=False)):
        return heads.split(tensor)
    if tensor.numel() == math.prod(lead) * tensor.shape[-1] * tensor.shape[-2]:
        return heads.split(tensor.reshape(*lead, *tensor.shape[-2:]))
    return None


def _scored_form(scored: Scored) -> tuple[Tensor, Tensor] | None:
    """Query [lead… query d_head] and key [lead… key d_head] of the product that made the scores."""
    if scored.equation is None:
        return scored.left, scored.right.transpose(-1, -2)
    inputs, out = scored.equation.split("->")
    left, right = inputs.split(",")
    width = [label for label in left if label in right and label not in out]
    query = [label for label in left if label not in right]
    key = [label for label in right if label not in left]
    lead = [label for label in out if label in left and label in right]
    if len(width) != 1 or len(query) != 1 or len(key) != 1:
        return None
    return (
        scored.left.permute([left.index(label) for label in (*lead, *query, *width)]),
        scored.right.permute([right.index(label) for label in (*lead, *key, *width)]),
    )


def _told(site: Site, trace: Weighed) -> Site:
    """The site with what its scores and weights tell: hidden keys, and how scores become weights."""
    weights = site.need("weights")
    if trace.cut or site.scores is None:
        return replace(site, normalizer=_unknown(site.place, "at_most_one" if trace.cut else "one"))
    made = softmax(site.scores.to(trace.dtype or site.scores.dtype)).to(weights.dtype)
    dropped = (weights == 0) & (made != 0)
    seen = _visible(site.scores, weights)
    visible = None if bool(seen.all()) else seen
    if bool(dropped.any()):  # a mask behind the softmax, or a choice by weight: other scores would choose otherwise
        return replace(site, visible=seen & ~dropped, normalizer=_unknown(site.place, "at_most_one"))
    if not torch.allclose(made, weights, rtol=1e-3, atol=1e-5, equal_nan=True):
        return replace(site, visible=visible, normalizer=_unknown(site.place, "any"))

    inside, outside = trace.dtype, weights.dtype

    def normalize(scores: Tensor) -> Tensor:
        return softmax(scores.to(inside or scores.dtype)).to(outside)

    return replace(site, visible=visible, normalizer=Normalizer("softmax", normalize))


def _visible(scores: Tensor, weights: Tensor) -> Tensor:
    """Keys that some head gives weight, in rows not hidden whole: masks may be -100, and scores far below 0."""
    alive = (weights.float() > NOTHING_LEFT).any(1, keepdim=True)
    blind = scores.amax(-1, keepdim=True) <= ALL_HIDDEN
    return (alive & ~blind).expand(weights.shape)


def _unknown(place: Place, row_sum: Any) -> Normalizer:
    """The normalizer of weights that were changed after their softmax in a way that cannot be told."""

    def refuse(scores: Tensor) -> Tensor:
        raise CaptureError(f"{place} changes its weights after the softmax; edit weights, value or z instead of scores")

    return Normalizer(UNKNOWN, refuse, row_sum)
