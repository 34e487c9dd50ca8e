"""Attention weighted by the gradient that reaches it."""

from typing import Literal

import torch

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.evaluator import differentiable
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget


@methods.add(
    family="attention",
    source="Barkan et al. 2021 without the cut at 0; Serrano & Smith 2019",
    formula="Σ_l Σ_h Σ_i A^{l,h}_{ij} ∂y/∂A^{l,h}_{ij}",
    cost="1 F, 1 B",
    signed=True,
)
def attention_x_gradient(
    model: Model, example: Example, target: ResolvedTarget, *, layers: Literal["all", "last"] = "all"
) -> Scores:
    """Attention weight times the target's gradient, summed over heads and queries; target units, signed.

    layers: "all" (summed) or the "last" alone. By linearity the sum over all tokens is the effect of a gate on
    every head, not the change of the target: no completeness is claimed.
    """
    if layers not in ("all", "last"):
        raise InputError(f"layers is 'all' or 'last', got '{layers}'")
    stack = explained_stack(model, example)
    keep = Keep.of("weights", stack=stack.name, kind=stack.kind)
    logits, tape = differentiable(model, [Row(example)], keep)
    sites = tape.sites if tape is not None else []
    if any(site.n_parts > 1 or (site.place.part and site.place.route != "layout") for site in sites):
        raise InputError(f"{model.name} keeps windows or images of a layer apart, so there is no weight on each token")
    weights = [site.need("weights") for site in sites]
    with torch.enable_grad():
        found = torch.autograd.grad(target(logits).sum(), weights, allow_unused=True)
    gradients = [gradient for gradient in found if gradient is not None]
    if len(gradients) < len(found):
        raise InputError(
            f"no gradient reaches the attention weights of {model.name} in {len(found) - len(gradients)} of "
            f"{len(found)} layers (quantized maps, or parts that run without gradients); use a method without gradients"
        )
    products = [(w * g)[0].sum(0).detach().float().cpu() for w, g in zip(weights, gradients, strict=True)]
    last = sites[-1].place.layer
    chosen = [p for p, s in zip(products, sites, strict=True) if layers == "all" or s.place.layer == last]
    if len({tuple(product.shape) for product in chosen}) > 1:
        raise InputError(f"{model.name} has parts of a layer over other keys than its tokens; use a method by removal")
    product = torch.stack(chosen).sum(0)
    return Scores(product.sum(0), map=product)
