"""Direct logit attribution: what each head writes into the answer itself, past all later layers.

What a head writes, z W_O, goes along the residual stream through the norms, whose σ is held fast, to the logit. What
later layers make of it is not counted. Heads, other maps, the embedding and the constants add up to the logit.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.heads import head_effects
from attnprobe.models.direct_path import DirectPath, Written, direct_path
from attnprobe.models.model import Model, Stack
from attnprobe.models.projections import Projection, projections
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

SOURCE = "Elhage et al. 2021; Wang et al. 2023"


@dataclass(frozen=True, eq=False)
class DirectLogit:
    """A logit as a sum: `heads` of one stack (NaN for heads that a layer lacks), and everything else.

    by_source: the share of each head that comes from each of its keys. maps: what other maps wrote (feed-forward
    parts, the attention of other stacks), by path, all their runs together. biases: of the output projections of the
    stack. constant: shifts of norms, and biases behind the layers.
    """

    heads: Float[Tensor, "layer head"]
    by_source: Float[Tensor, "layer head key"]
    maps: dict[str, float]
    embedding: float
    biases: float
    constant: float
    total: float

    @property
    def sum(self) -> float:
        """Of all summands; the logit."""
        return float(self.heads.nansum()) + sum(self.maps.values()) + self.embedding + self.biases + self.constant


@head_effects.add(
    family="direct",
    source=SOURCE,
    label="Direct logit attribution",
    low=None,
    high=None,
    unit="target",
    sign="+: raises it",
)
def direct_logit(model: Model, example: Example, target: ResolvedTarget, stack: Stack) -> Float[Tensor, "layer head"]:
    """What a head writes into the logit itself, the σ of norms held fast; use by later layers is not counted."""
    return direct_logits(model, example, target, stack).heads


def direct_logit_by_source(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack
) -> Float[Tensor, "layer head key"]:
    """`direct_logit` by the key that it comes from: weight times value, through W_O; adds up over keys."""
    return direct_logits(model, example, target, stack).by_source


def direct_logits(model: Model, example: Example, target: ResolvedTarget, stack: Stack) -> DirectLogit:
    """The logit as a sum of heads, other maps, embedding and constants.

    Errors: `InputError` for a target that is no logit (or difference of two), and for a network in which something
    between the layers and the answer is neither a map, a norm nor an activation; `CaptureError` where W_O is not found.
    """
    path = direct_path(model, example, target, stack)
    if any(site.place.part or site.n_parts > 1 for site in path.sites):
        raise InputError(
            f"{model.name} keeps windows or pictures of a layer apart, and what each writes is not followed; "
            "use zero_ablation"
        )
    layers = projections(model, stack.name, stack.kind)
    written = {(one.path, one.call): one for one in path.maps}
    own = [_output_of(layers, number, written) for number in range(len(layers))]
    n_keys = max(site.need("weights").shape[-1] for site in path.sites)
    shares = torch.full((stack.n_layers, max(stack.n_heads), n_keys), torch.nan, dtype=torch.float64)
    biases = 0.0
    for site, layer, output in zip(path.sites, layers, own, strict=True):
        found = _by_source(site, layer, output)
        shares[site.place.layer, : found.shape[0]] = 0.0
        shares[site.place.layer, : found.shape[0], : found.shape[1]] = found
        biases += 0.0 if output is None else float((output.gradient.double() * layer.need("b_O").double()).sum())
    return _sum(path, shares, biases, {id(output) for output in own if output is not None})


def _sum(path: DirectPath, shares: Tensor, biases: float, own: set[int]) -> DirectLogit:
    maps: dict[str, float] = {}
    for one in path.maps:
        if id(one) not in own:
            maps[one.path] = maps.get(one.path, 0.0) + one.amount
    heads = shares.sum(-1)
    return DirectLogit(heads, shares, maps, path.embedding, biases, path.constant, path.total)


def _output_of(layers: tuple[Projection, ...], number: int, written: dict[tuple[str, int], Written]) -> Written | None:
    """The run of the output projection that belongs to a layer; None where nothing of it reaches the answer."""
    layers[number].need("W_O")
    path = layers[number].output_map or ""
    call = sum(layer.output_map == path for layer in layers[:number])
    return written.get((path, call))


def _by_source(site: Site, layer: Projection, output: Written | None) -> Float[Tensor, "head key"]:
    """weight · value W_O · gradient, summed over the queries."""
    weights, value = site.need("weights")[0].double(), site.need("value")[0].double()
    if output is None:
        return weights.new_zeros(weights.shape[0], weights.shape[-1]).cpu()
    towards = torch.einsum("hvd,qd->hqv", layer.need("W_O").double(), output.gradient[0].double())
    return torch.einsum("hqk,hkv,hqv->hk", weights, value, towards).cpu()
