"""Values of several batch rows multiplied at once.

Rows with edits of their own go through them one by one, each with a copy of its maps. Most questions zero the values of
other tokens in every row: that is one factor a row. The rows can stay together then, and where nothing else is asked
the model's own kernel can make z of the values that were multiplied.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.site import Place, Site

# For each batch row, the edits that act at a place.
Here = Sequence[Sequence[Any]]


def scaled(site: Site, here: Here) -> Site | None:
    """The site with each batch row's values times its edit's factor; None where an edit does anything else.

    A row without any edit keeps its z as the model made it, bit for bit.
    """
    if site.value is None or site.weights is None or site.z is None:
        return None
    factors = factors_of(here, site.place, site.n_heads, site.value)
    if factors is None:
        return None
    changed = site.replace(value=site.value * factors[..., None])
    if all(here):
        return changed
    touched = torch.tensor([bool(edits) for edits in here], device=site.device)
    return replace(changed, z=torch.where(touched[:, None, None, None], changed.need("z"), site.z))


def factors_of(
    here: Here, place: Place, n_heads: int, value: Float[Tensor, "row value_head key d_head"]
) -> Float[Tensor, " row #head key"] | None:
    """What the values of each row are multiplied by; None where that is not all that the edits do."""
    if len(here) != len(value) or any(len(edits) > 1 for edits in here):
        return None
    by_row = [getattr(edits[0], "value_factor", None) if edits else _one for edits in here]
    if None in by_row or all(factor is _one for factor in by_row):
        return None
    factors = [factor(place, n_heads, value.shape[2]) for factor in by_row]  # type: ignore[misc]
    return torch.stack(list(torch.broadcast_tensors(*factors))).to(value)


def _one(place: Place, n_heads: int, n_keys: int) -> Float[Tensor, "#head key"]:
    return torch.ones(1, n_keys)
