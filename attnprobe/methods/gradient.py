"""Gradients with respect to word embeddings, by captum."""

import warnings
from collections.abc import Callable

import torch
from captum.attr import InputXGradient, IntegratedGradients
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.evaluator import batch_size, differentiable, even_batches, halving, targets
from attnprobe.models.model import Model
from attnprobe.models.removal import default_operator
from attnprobe.models.rows import Row, fill, filler
from attnprobe.target import ResolvedTarget


def answer(model: Model, example: Example, target: ResolvedTarget) -> Callable[[Tensor], Tensor]:
    """captum's forward function: the target of embeddings [row token d_model], with gradients."""

    def forward(embeddings: Tensor) -> Tensor:
        logits, _ = differentiable(model, [Row(example, embeddings=row) for row in embeddings])
        return target(logits)

    return forward


@methods.add(
    family="gradient",
    source="Shrikumar et al. 2016; captum InputXGradient",
    formula="Σ_d E_{jd} ∂y/∂E_{jd}",
    cost="1 F, 1 B",
    signed=True,
)
def input_x_gradient(model: Model, example: Example, target: ResolvedTarget) -> Scores:
    """Word embedding times the target's gradient, summed over its dimensions; target units, signed."""
    embeddings = model.embed(example)[None].clone().requires_grad_()
    product = InputXGradient(answer(model, example, target)).attribute(embeddings)
    return Scores(product[0].sum(-1).detach().float())


@methods.add(
    family="gradient",
    source="Sundararajan et al. 2017; captum IntegratedGradients",
    formula="Σ_d (E − E′)_{jd} ∫₀¹ ∂y/∂E_{jd}(E′ + t(E − E′)) dt",
    cost="m F, m B (m = n_steps)",
    signed=True,
)
def integrated_gradients(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    baseline: str | None = None,
    n_steps: int = 50,
    tolerance: float = 0.05,
    max_steps: int = 400,
) -> Scores:
    """Gradient integrated on the line from a baseline, times the way; target units; adds up to y − y(baseline).

    baseline: mask, mean, pad, unk or zero embedding in the place of every token that is not special (default: what
    removal puts there, [MASK], else the mean; zero fails to converge under RMSNorm). Steps are doubled until the gap is
    below `tolerance` of the change, up to max_steps; the gap that is left is the residual.
    """
    if n_steps < 1 or max_steps < n_steps:
        raise InputError(f"n_steps is from 1 to max_steps ({max_steps}), got {n_steps}")
    baseline = baseline or default_operator(model)
    embeddings = model.embed(example)
    special = torch.tensor(example.is_special, device=embeddings.device)
    start = fill(Row(example, kept=special), embeddings, filler(model.fillers, baseline, model.name)).embeddings
    if start is None:
        raise InputError("the baseline has no embeddings")
    ends = targets(model, [Row(example, embeddings=start), Row(example)], target)
    change = float(ends[1] - ends[0])
    steps = n_steps
    while True:
        scores = _integrate(model, example, target, embeddings, start, steps)
        gap = float(scores.sum()) - change
        if abs(gap) <= tolerance * max(abs(change), 1e-6) or steps >= max_steps:
            break
        steps = min(2 * steps, max_steps)
    if abs(gap) > tolerance * max(abs(change), 1e-3):
        warnings.warn(
            f"integrated_gradients: after {steps} steps the scores add up to {change + gap:.4g}, "
            f"the target changes by {change:.4g}",
            stacklevel=2,
        )
    return Scores(scores, residual=gap, used={"baseline": baseline, "n_steps": steps, "change": change})


def _integrate(
    model: Model, example: Example, target: ResolvedTarget, end: Tensor, start: Tensor, steps: int
) -> Tensor:
    method = IntegratedGradients(answer(model, example, target))

    def run(size: int) -> Tensor:
        found = method.attribute(end[None].clone(), baselines=start[None], n_steps=steps, internal_batch_size=size)
        return found[0].sum(-1).detach().float()

    return halving(run, even_batches(steps, batch_size(example.n_tokens)), "steps")
