"""Layers whose one map lies in several parts: Longformer's band and its global rows, steps of a recurrent model."""

from dataclasses import replace

import torch
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.site import Site


def whole(capture: Capture) -> Capture:
    """The capture with one site a layer: parts that are rows of one map put together; weights and visible only there.

    Errors: `InputError` where a layer keeps windows or pictures apart, that is, has no one map.
    """
    sites: list[Site] = []
    for stack, kind in capture.stacks():
        mine = capture.select(stack, kind)
        layers: dict[int, list[Site]] = {}
        for site in mine:
            layers.setdefault(site.place.layer, []).append(site)
        if all(len(parts) == 1 for parts in layers.values()):
            sites += mine
            continue
        maps = capture.maps(stack, kind)
        for parts, weights in zip(layers.values(), maps, strict=True):
            sites.append(_joined(parts, weights) if len(parts) > 1 else parts[0])
    return replace(capture, sites=tuple(sites))


def _joined(parts: list[Site], weights: Tensor) -> Site:
    """One site of several; a key is visible where it is so in the part that holds the row."""
    seen = torch.zeros_like(weights, dtype=torch.bool)
    for part in parts:
        mine = part.need("weights")[0].to(weights)
        rows = mine.abs().sum(-1, keepdim=True) > 0
        visible = torch.ones_like(seen) if part.visible is None else part.visible[0].to(seen.device).expand_as(seen)
        seen |= rows & visible
    first = parts[0]
    return Site(
        first.place,
        weights=weights[None],
        visible=seen[None],
        normalizer=first.normalizer,
        heads=first.heads,
        n_kv_heads=first.n_kv_heads,
    )
