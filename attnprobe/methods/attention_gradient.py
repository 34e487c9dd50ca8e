"""Attention weighted by the gradient that reaches it."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.attention import check_layer
from attnprobe.models.evaluator import differentiable
from attnprobe.models.layer_inputs import layer_input
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row
from attnprobe.site import Place, Site
from attnprobe.target import ResolvedTarget

Heads = Literal["all"] | int


@dataclass(frozen=True, eq=False)
class WeightGradient:
    """The weights of one layer and the target's gradient with respect to each of them, in the model's own dtype."""

    place: Place
    weights: Float[Tensor, "head query key"]
    gradient: Float[Tensor, "head query key"]

    @property
    def product(self) -> Float[Tensor, "head query key"]:
        """Weight times gradient."""
        return self.weights * self.gradient


def weight_gradients(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack | None = None
) -> list[WeightGradient]:
    """Weights and gradients of every layer of a stack (None: of all stacks), in the order in which they ran."""
    keep = Keep.of("weights") if stack is None else Keep.of("weights", stack=stack.name, kind=stack.kind)
    logits, tape = differentiable(model, [Row(example)], keep)
    sites = whole_sites(model, tape)
    weights = [site.need("weights") for site in sites]
    gradients = gradients_of(model, target(logits), weights)
    return [
        WeightGradient(site.place, w[0].detach(), g[0].detach())
        for site, w, g in zip(sites, weights, gradients, strict=True)
    ]


def whole_sites(model: Model, tape: Tape | None) -> list[Site]:
    """The sites of a pass, whose weights are over the tokens; `InputError` where a layer keeps parts of them apart."""
    sites = tape.sites if tape is not None else []
    refuse_parts(model, sites)
    return sites


def refuse_parts(model: Model, sites: Sequence[Site]) -> None:
    """`InputError` where a layer keeps windows or images apart, which are no rows of one map."""
    if any(site.n_parts > 1 or (site.place.part and site.place.route != "layout") for site in sites):
        raise InputError(f"{model.name} keeps windows or images of a layer apart, so there is no weight on each token")


def gradients_of(
    model: Model, answers: Tensor, live: Sequence[Tensor], what: str = "the attention weights"
) -> list[Tensor]:
    """The gradient of the sum of the answers with respect to each of the live tensors; `InputError` where one has none.

    Rows of a batch do not depend on one another, so that each row gets the gradient of its own answer.
    """
    with torch.enable_grad():
        found = torch.autograd.grad(answers.sum(), list(live), allow_unused=True)
    gradients = [gradient for gradient in found if gradient is not None]
    if len(gradients) < len(found):
        raise InputError(
            f"no gradient reaches {what} of {model.name} in {len(found) - len(gradients)} of "
            f"{len(found)} layers (quantized maps, or parts that run without gradients); use a method without gradients"
        )
    return gradients


def chosen_layers(
    found: Sequence[WeightGradient], layers: Literal["all", "last"] | int, n_layers: int
) -> list[WeightGradient]:
    """The layers that were asked for: all, the last, or one by number."""
    if isinstance(layers, str) and layers not in ("all", "last"):
        raise InputError(f"layers is 'all', 'last' or a number, got '{layers}'")
    if layers == "all":
        return list(found)
    number = check_layer(-1 if isinstance(layers, str) else layers, n_layers)
    return [f for f in found if f.place.layer == number]


def of_heads(model: Model, maps: Sequence[Float[Tensor, "head query key"]], heads: Heads) -> list[Tensor]:
    """Maps of all heads or of one, all of one shape, on the CPU."""
    if isinstance(heads, str) and heads != "all":
        raise InputError(f"heads is 'all' or a number, got '{heads}'")
    n_heads = min(len(m) for m in maps)
    if not isinstance(heads, str) and not 0 <= heads < n_heads:
        raise InputError(f"there is no head {heads}; the layers have {n_heads} heads (0 to {n_heads - 1})")
    if len({tuple(m.shape[1:]) for m in maps}) > 1:
        raise InputError(f"{model.name} has parts of a layer over other keys than its tokens; use a method by removal")
    return [(m if isinstance(heads, str) else m[heads : heads + 1]).cpu() for m in maps]


@methods.add(
    family="attention",
    source="Barkan et al. 2021 without the cut at 0; Serrano & Smith 2019",
    formula="Σ_l Σ_h Σ_i A^{l,h}_{ij} ∂y/∂A^{l,h}_{ij}",
    cost="1 F, 1 B",
    signed=True,
    passes=lambda size, o: (1, 1),
)
def attention_x_gradient(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layers: Literal["all", "last"] | int = "all",
    heads: Heads = "all",
) -> Scores:
    """Attention weight times the target's gradient, summed over heads and queries; target units, signed.

    layers: "all" (summed), the "last" alone, or one by number. heads: "all" (summed) or one. By linearity the sum over
    all tokens is the effect of a gate on every head, not the change of the target: no completeness is claimed.
    """
    stack = explained_stack(model, example)
    found = chosen_layers(weight_gradients(model, example, target, stack), layers, stack.n_layers)
    maps = of_heads(model, [f.product for f in found], heads)
    product = torch.stack([m.sum(0) for m in maps]).sum(0)
    return Scores(product.sum(0), map=product)


@methods.add(
    family="attention",
    source="Barkan et al. 2021 (Grad-SAM)",
    formula="mean over l, h, i of A^{l,h}_{ij} relu(∂y/∂A^{l,h}_{ij})",
    cost="1 F, 1 B",
    signed=False,
    passes=lambda size, o: (1, 1),
)
def grad_sam(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layers: Literal["all", "last"] | int = "all",
    heads: Heads = "all",
    tokens: Literal["keys", "queries"] = "keys",
) -> Scores:
    """Attention weight times the positive part of its gradient, mean over layers, heads and queries; target units.

    tokens: the method is stated in two ways, which rank differently: a score for each of the "keys", mean over the
    queries, or for each of the "queries", mean over the keys that it looks at. It sees no evidence against the target.
    """
    stack = explained_stack(model, example)
    if tokens not in ("keys", "queries"):
        raise InputError(f"tokens is 'keys' or 'queries', got '{tokens}'")
    if tokens == "queries" and stack.kind == "cross":
        raise InputError("the queries of an encoder-decoder are the answer's tokens, not those explained; use 'keys'")
    found = chosen_layers(weight_gradients(model, example, target, stack), layers, stack.n_layers)
    maps = of_heads(model, [f.weights * f.gradient.relu() for f in found], heads)
    product = torch.stack([m.mean(0) for m in maps]).mean(0)
    return Scores(product.mean(0) if tokens == "keys" else product.mean(1), map=product)


@methods.add(
    family="attention",
    source="Qiang et al. 2022 (AttCAT), sec. 3",
    formula="Σ_l (mean over h, i of A^{l,h}_{ij}) Σ_d x^l_{jd} ∂y/∂x^l_{jd}; x^l: input of layer l",
    cost="1 F, 1 B",
    signed=True,
    passes=lambda size, o: (1, 1),
    lacks={
        "seq2seq": "it weighs a layer's own tokens by its self-attention, which is not defined for an encoder-decoder; "
        "use attention_x_gradient (its cross-attention), or chefer_2021b"
    },
)
def attcat(model: Model, example: Example, target: ResolvedTarget) -> Scores:
    """What each layer is given of a token times its gradient, weighted by the attention on it; target units, signed.

    The attention is the mean over heads and over all queries, as published. Summed over layers, so the same evidence
    counts once a layer: no completeness is claimed.
    """
    stack = explained_stack(model, example, "self")
    keep = Keep.of("weights", stack=stack.name, kind=stack.kind)
    states: list[Tensor] = []

    def live(given: Tensor) -> Tensor:
        # Where nothing before a layer asks for gradients (frozen parameters), they start here.
        states.append(given if given.requires_grad else given.detach().requires_grad_())
        return states[-1]

    with ExitStack() as layers:
        for number in range(stack.n_layers):
            layers.enter_context(layer_input(model, example, number).through(live, 1))
        logits, tape = differentiable(model, [Row(example)], keep)
    sites = whole_sites(model, tape)
    if len(states) != len(sites):
        raise InputError(f"{model.name} keeps parts of a layer apart; use a method by removal")
    gradients = gradients_of(model, target(logits), states, "the states")
    n = example.n_tokens
    found = []
    for site, state, gradient in zip(sites, states, gradients, strict=True):
        effect = (state * gradient).detach().sum(-1).flatten()[:n]
        found.append(site.need("weights")[0].detach().mean((0, 1))[:n].to(effect) * effect)
    return Scores(torch.stack([f.cpu() for f in found]).sum(0))
