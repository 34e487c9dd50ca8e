"""Heads on pictures: how far they look, in patches."""

import re

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.example import Example
from attnprobe.heads import head_scores
from attnprobe.heads.sides import Scores, by_head, by_tokens, nowhere, shares

# A patch is named by its place on the grid: "row,column", or "time,row,column" of a video.
_PLACE = re.compile(r"\d+(,\d+)+")


def places(example: Example) -> Float[Tensor, "token axis"] | None:
    """Place of each patch on the grid, NaN for tokens that are none; None where the tokens are no patches."""
    if example.axis != "patches":
        return None
    named = [[float(part) for part in t.split(",")] if _PLACE.fullmatch(t) else None for t in example.tokens]
    n_axes = {len(place) for place in named if place is not None}
    if len(n_axes) != 1:
        return None
    none = [torch.nan] * n_axes.pop()
    return torch.tensor([none if place is None else place for place in named], dtype=torch.float64)


def _looks(capture: Capture, apart: Float[Tensor, "token token"]) -> Scores:
    """Σ over patches of a query's share of weight times a number a pair, mean over the queries that are patches."""
    patch = ~apart.isnan().all(-1)

    def score(weights: Tensor) -> Tensor:
        return (shares(weights[:, patch][..., patch]) * apart[patch][:, patch]).sum(-1).mean(-1)

    return by_tokens(capture, score)


@head_scores.add(
    family="patch",
    source="Dosovitskiy et al. 2021, app. D.7 (attention distance)",
    label="Distance, patches",
    low=0,
    high=None,
    unit="patches",
    needs="patches of a picture",
)
def patch_distance(capture: Capture) -> Scores:
    """How far a head looks on a picture: distance on the grid in patches, of its weight on patches; mean over them."""
    at = places(capture.example)
    if at is None:
        return by_head(capture, nowhere)
    return _looks(capture, (at[:, None] - at).square().sum(-1).sqrt())


@head_scores.add(
    family="patch",
    source="Cordonnier et al. 2020 (heads like convolutions)",
    label="Mass on neighbouring patches",
    low=0,
    high=1,
    unit="share",
    needs="patches of a picture",
)
def near_patches(capture: Capture) -> Scores:
    """Share of a patch's weight on patches that stays within one step of it on the grid, diagonals too; mean."""
    at = places(capture.example)
    if at is None:
        return by_head(capture, nowhere)
    steps = (at[:, None] - at).abs().amax(-1)
    return _looks(capture, (steps <= 1).double().masked_fill(steps.isnan(), torch.nan))
