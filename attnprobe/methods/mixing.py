"""How a layer's attention is mixed with what passes it by: the steps before maps are multiplied or flowed through."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.model import Model, Stack
from attnprobe.models.vectors.layers import mixing_ratios
from attnprobe.site import Site


def mixed(layer: Float[Tensor, "query key"], share: float | Float[Tensor, " query"]) -> Float[Tensor, "query key"]:
    """A share of identity and the rest of the map, rows summing to 1.

    Of shares [query] that are measured, each is all that a token keeps, its weight on itself included; so the rest is
    shared out over the other tokens.
    """
    own = torch.eye(layer.shape[-1], dtype=layer.dtype, device=layer.device)
    if isinstance(share, Tensor):
        others = layer * (1 - own)
        total = others.sum(-1, keepdim=True)
        kept = share.to(layer)[:, None].where(total > 0, 1.0)
        return (1 - kept) * others / total.where(total > 0, 1.0) + kept * own
    both = (1 - share) * layer + share * own
    # Sinks keep a share back, and "max" of heads exceeds 1: rows must sum to 1 before they are multiplied.
    return both / both.sum(-1, keepdim=True).clamp(min=1e-12)


def without_lowest(layer: Float[Tensor, "query key"], share: float) -> Float[Tensor, "query key"]:
    """The map with the lowest share of its weights set to 0; the first token's on itself stays, as in vit-explain.

    Weights that are 0 already (what is hidden) do not count.

    >>> without_lowest(torch.tensor([[0.1, 0.9], [0.4, 0.6]]), 0.5)
    tensor([[0.1000, 0.9000],
            [0.0000, 0.6000]])
    """
    if not 0 <= share < 1:
        raise InputError(f"discard is a share from 0 to below 1, got {share}")
    flat = layer.flatten().clone()
    there = flat.nonzero().flatten()
    lowest = there[flat[there].argsort(stable=True)[: int(share * len(there))]]
    flat[lowest[lowest != 0]] = 0
    return flat.view_as(layer)


def visible_keys(site: Site) -> Bool[Tensor, "head query key"]:
    """Which keys each query of a captured site may look at; where no mask is stated, those that some head looks at."""
    weights = site.need("weights")[0]
    seen = (weights != 0).any(0)[None] if site.visible is None else site.visible[0].to(weights.device)
    return seen.expand(weights.shape)


def uniform_maps(capture: Capture, stack: Stack) -> list[Float[Tensor, "query key"]]:
    """For each layer, equal weights on every key that a query may look at in some head."""
    stated = {s.place.layer: s for s in capture.select(stack.name, stack.kind) if not s.place.part}
    found = []
    for number, layer in enumerate(capture.maps(stack.name, stack.kind)):
        seen = visible_keys(stated[number]).any(0) if number in stated else (layer != 0).any(0)
        # Parts that are rows of one map are joined in `maps`; a mask of one part does not speak for the others.
        even = (seen if seen.shape == layer.shape[1:] else (layer != 0).any(0)).float()
        found.append(even / even.sum(-1, keepdim=True).clamp(min=1))
    return found


def identity_shares(model: Model, example: Example) -> list[Float[Tensor, " query"]]:
    """For each layer, the share of itself that each token keeps: 1 − the mixing ratio of Kobayashi et al. 2021.

    Errors: `InputError` or `NumericsError` for a layer in which what is kept and what is got cannot be told apart.
    """
    return [1 - ratio.float().cpu() for ratio in mixing_ratios(model, example)]
