"""Effects of all heads at once from gradients with respect to z: gates, and first-order patching."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.heads import head_effects
from attnprobe.heads.mediation import needed
from attnprobe.heads.rows import Parts, counterpart, z_of
from attnprobe.models.evaluator import batch_size, differentiable
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

Effects = Float[Tensor, "layer head"]


@head_effects.add(
    family="gradient",
    source="Michel et al. 2019, sec. 4.1",
    label="Gate gradient",
    low=0,
    high=None,
    unit="target",
    sign="size, without a sign",
)
def gate_gradient(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack, *, signed: bool = False
) -> Effects:
    """|Σ z · ∂y/∂z| of a head: how fast the target moves with a gate on what the head gives, at 1.

    Summed over positions, then the absolute value, for this one example (a mean over examples is one of absolute
    values). signed: without the absolute value.
    """
    found = _sums(model, [Row(example)], target, stack, None)
    return found if signed else found.abs()


@head_effects.add(
    family="gradient",
    source="Nanda 2023 (attribution patching)",
    label="Attribution patching",
    low=None,
    high=None,
    unit="target",
    sign="+: rises when patched",
)
def attribution_patching(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack, *, corrupt: Any = None
) -> Effects:
    """What `indirect_effect` is to first order: Σ (z on corrupt − z) · ∂y/∂z, summed over positions.

    corrupt: an input of equal length (what this model reads, or an `Example`). Errors: `InputError` without one.
    """
    other = counterpart(model, example, needed("attribution_patching", corrupt))
    return _sums(model, [Row(example)], target, stack, _moves(model, example, other, stack))


@head_effects.add(
    family="gradient",
    source="Hanna et al. 2024 (EAP-IG), for nodes",
    label="Attribution patching, integrated",
    low=None,
    high=None,
    unit="target",
    sign="+: rises when patched",
)
def integrated_attribution_patching(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack, *, corrupt: Any = None, n_steps: int = 10
) -> Effects:
    """`attribution_patching` with the gradient's mean on the straight line between the embeddings of both inputs.

    n_steps: of equal length, the gradient is taken in the middle of each (an even number keeps clear of a kink half
    way). Errors: `InputError` without a corrupt input, and for a model whose embeddings cannot be given.
    """
    if n_steps < 1:
        raise InputError(f"n_steps is at least 1, got {n_steps}")
    other = counterpart(model, example, needed("integrated_attribution_patching", corrupt))
    moves = _moves(model, example, other, stack)
    clean, far = model.embed(example).detach(), model.embed(other).detach()
    shares = [(step + 0.5) / n_steps for step in range(n_steps)]
    rows = [Row(example, embeddings=far + share * (clean - far)) for share in shares]
    size, found = batch_size(example.n_tokens), torch.zeros(())
    for first in range(0, n_steps, size):
        found = found + _sums(model, rows[first : first + size], target, stack, moves)
    return found / n_steps


def _moves(model: Model, example: Example, other: Example, stack: Stack) -> list[Parts]:
    """z on the other input − z on the example."""
    pairs = zip(z_of(model, other, stack), z_of(model, example, stack), strict=True)
    return [{part: theirs[part] - z for part, z in mine.items()} for theirs, mine in pairs]


def _sums(
    model: Model, rows: Sequence[Row], target: ResolvedTarget, stack: Stack, moves: list[Parts] | None
) -> Effects:
    """Σ move · ∂y/∂z of every head, over positions, parts and rows; without moves, of z itself."""
    keep = Keep.of("z", stack=stack.name, kind=stack.kind)
    logits, tape = differentiable(model, rows, keep)
    if tape is None or not tape.sites:
        raise CaptureError(f"{model.name}: no attention of {stack.name} {stack.kind} was seen")
    live = [site.need("z") for site in tape.sites]
    with torch.enable_grad():
        gradients = torch.autograd.grad(target(logits).sum(), live, allow_unused=True)
    found = torch.full((stack.n_layers, max(stack.n_heads)), torch.nan, dtype=torch.float64)
    for layer, n in enumerate(stack.n_heads):
        found[layer, :n] = 0.0
    for site, z, gradient in zip(tape.sites, live, gradients, strict=True):
        if gradient is not None:
            move = z.detach() if moves is None else _beside(site, moves[site.place.layer], len(rows))
            total = (move.detach().double() * gradient.double()).sum((0, 2, 3)).cpu()
            found[site.place.layer, : len(total)] += total
    return found


def _beside(site: Site, parts: Parts, n_rows: int) -> Float[Tensor, "row head query d_value"]:
    """Moves for every batch row of a site; the parts of an input lie one after the other."""
    first = site.place.part
    return torch.stack([parts[part] for part in range(first, first + site.n_parts)]).repeat(n_rows, 1, 1, 1)
