"""Chance levels: what a score says of attention that is spread evenly over all that each query may look at.

The score itself is asked, on the same text and with the same mask, so it is the number that a head without any
preference would get. Effects and scores of parameters have none.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.errors import AttnprobeError
from attnprobe.heads.sides import Scores
from attnprobe.intervention import uniform
from attnprobe.models.edited import EditedModel
from attnprobe.models.model import Model, Stack
from attnprobe.registry import Entry
from attnprobe.site import Site


def visible_of(site: Site) -> Bool[Tensor, "head query key"]:
    """Which keys each query of each head may look at."""
    weights = site.need("weights")[0]
    if site.visible is None:
        return torch.ones_like(weights, dtype=torch.bool, device="cpu")
    seen = site.visible[0].cpu()
    kept = seen if site.heads is None or len(seen) in (1, len(weights)) else seen[list(site.heads)]
    return kept.expand_as(weights)


def even(capture: Capture) -> Capture:
    """The same capture with every row of weights spread evenly over the keys that are visible; weights alone."""
    return replace(capture, sites=tuple(map(_even, capture.sites)))


def _even(site: Site) -> Site:
    visible = visible_of(site).to(torch.float64)
    weights = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    return Site(
        site.place,
        weights=weights[None],
        visible=site.visible,
        normalizer=site.normalizer,
        heads=site.heads,
        n_kv_heads=site.n_kv_heads,
    )


def of_score(entry: Entry, capture: Capture, options: Mapping[str, Any]) -> Scores | None:
    """What a score of maps says of even attention on an example; None of one that has no answer there."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has warned of the text itself
            return entry.function(even(capture), **options)
    except Exception:  # a score may be anybody's, and need more of a capture than weights
        return None


def of_probe(entry: Entry, model: Model, stack: Stack, options: Mapping[str, Any]) -> Scores | None:
    """What a probe of weights says of a stack whose attention is even; None of other probes.

    One sample of random tokens is enough: an even map does not depend on which tokens are there.
    """
    if entry.facts.get("unit") != "share":
        return None
    one = {**options, "n_samples": 1} if "n_samples" in options else dict(options)
    try:
        edited = EditedModel(model, [uniform(stack=stack.name, kind=stack.kind)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return entry.function(edited, stack, **one)
    except AttnprobeError:  # the probe itself has said why
        return None


def level(numbers: Tensor | None) -> float:
    """One number of several: their mean, NaN of none."""
    known = torch.zeros(0) if numbers is None else numbers[~numbers.isnan()]
    return float(known.double().mean()) if len(known) else math.nan
