"""Gradients at random points, by captum: around the input, and on the way from random baselines."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from captum.attr import GradientShap, NoiseTunnel, Saliency
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.gradient import SOUNDS, Reduction, answer, precise, reduced
from attnprobe.methods.paths import allowed, filled, scale_free_norm, warn_of_gap
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.randomness import seeded
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

GROUPS = 5


def _noise(sigma: float, embeddings: Float[Tensor, "token d_model"], example: Example) -> float:
    """Standard deviation of the noise, from a share of that of the embeddings of tokens that are not special."""
    if sigma < 0:
        raise InputError(f"sigma is a share of the embeddings' standard deviation, 0 or more; got {sigma}")
    words = embeddings[~torch.tensor(example.is_special, device=embeddings.device)]
    return sigma * float((words if len(words) else embeddings).std(correction=0))


@methods.add(
    family="gradient",
    source="Smilkov et al. 2017; captum NoiseTunnel",
    formula="‖mean over k of ∂y/∂E_j(E + ε_k)‖₂, ε ~ N(0, (σ std E)²)",
    cost="K F, K B (K = n_samples)",
    signed=False,
    passes=lambda size, options: (options["n_samples"], options["n_samples"]),
    lacks=SOUNDS,
)
def smooth_grad(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int = 50,
    sigma: float = 0.15,
    reduction: Reduction = "l2",
    seed: int = 0,
) -> Scores:
    """Gradient at each word embedding, mean over noisy copies of the input, then its length; no direction.

    sigma: noise as a share of the standard deviation of the embeddings (0: the plain gradient). reduction as in
    saliency, of the mean gradient.
    """
    if n_samples < 1:
        raise InputError(f"n_samples is at least 1, got {n_samples}")
    embeddings = precise(model.embed(example))
    noise = _noise(sigma, embeddings, example)
    n = n_samples if noise > 0 else 1
    with tqdm(total=n, desc="smooth grad", delay=1.0, leave=False, unit="sample") as bar, seeded(seed):
        method = NoiseTunnel(Saliency(answer(model, example, target, bar=bar)))
        inputs = embeddings[None].clone().requires_grad_()
        gradient = method.attribute(inputs, nt_type="smoothgrad", nt_samples=n, stdevs=noise, abs=False)[0]
    return Scores(reduced(gradient, reduction).detach(), used={"noise": noise})


def distribution(
    model: Model, example: Example, against: Sequence[Any] | None
) -> dict[str, Float[Tensor, "token d_model"]]:
    """The baselines that gradient_shap draws from, by name: each filler of the model, or the words of each text.

    A text is repeated or cut to the tokens that are not special. The zero filler is left out where a norm divides the
    size away and the model has another.
    """
    embeddings = model.embed(example)
    if against is None:
        fillers = dict(model.fillers)
        if len(fillers) > 1 and scale_free_norm(model.module) is not None:
            fillers.pop("zero", None)
        if not fillers:
            raise InputError(f"{model.name} has no embedding to draw as a baseline; give texts with against=[…]")
        return {name: filled(example, embeddings, vector) for name, vector in fillers.items()}
    if isinstance(against, str) or not against:
        raise InputError(f"against is a list of texts, got {against!r}; give at least one in a list")
    texts = [model.example(text) for text in against]
    return {text.text: _words_of(model, text, example, embeddings) for text in texts}


def _words_of(model: Model, text: Example, example: Example, embeddings: Tensor) -> Float[Tensor, "token d_model"]:
    words = model.embed(text)[[i for i, special in enumerate(text.is_special) if not special]]
    if not len(words):
        raise InputError(f"the text {text.text!r} has no words to begin at; give one that has")
    place = torch.tensor([i for i, special in enumerate(example.is_special) if not special], dtype=torch.long)
    found = embeddings.clone()
    found[place] = words[torch.arange(len(place)) % len(words)]
    return found


@methods.add(
    family="gradient",
    source="Lundberg & Lee 2017; captum GradientShap",
    formula="mean over b, t ~ U(0, 1) of Σ_d (E − E′_b)_{jd} ∂y/∂E_{jd}(E′_b + t(E − E′_b))",
    cost="K F, K B (K = n_samples)",
    signed=True,
    passes=lambda size, options: (
        options["n_samples"] + 1 + (len(options["against"]) if options["against"] else 5),
        options["n_samples"],
    ),
    lacks=SOUNDS,
)
def gradient_shap(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int = 50,
    against: Sequence[Any] | None = None,
    sigma: float = 0.0,
    tolerance: float = 0.2,
    seed: int = 0,
) -> Scores:
    """Gradient at random points on the ways from random baselines, times the way; target units, signed.

    against: texts (or ids) whose words are the baselines (default: the model's fillers, each in the place of every
    token that is not special). sigma: noise at the input, as in smooth_grad. On average the scores add up to the change
    from the mean over baselines; the residual is how far these samples are from it, with a warning above `tolerance` of
    that change. Five groups of samples give the standard error.
    """
    if n_samples < GROUPS:
        raise InputError(f"n_samples is at least {GROUPS}, got {n_samples}")
    baselines, embeddings = distribution(model, example, against), model.embed(example)
    rows = [Row(example), *(Row(example, embeddings=baseline) for baseline in baselines.values())]
    ends = targets(model, rows, target).double()
    change = float(ends[0] - ends[1:].mean())
    begins, noise = precise(torch.stack(list(baselines.values()))), _noise(sigma, embeddings, example)
    sizes = [n_samples // GROUPS + (group < n_samples % GROUPS) for group in range(GROUPS)]
    with tqdm(total=n_samples, desc="gradient shap", delay=1.0, leave=False, unit="sample") as bar, seeded(seed):
        ask = answer(model, example, target, bar=bar)
        groups = [_draw(ask, precise(embeddings), begins, noise, n) for n in sizes]
    weights = torch.tensor(sizes, device=groups[0].device)[:, None] / n_samples
    values = (torch.stack(groups) * weights).sum(0)
    gap = float(values.double().sum()) - change
    most = allowed(tolerance, change, float(ends.abs().max()), embeddings.dtype)
    warn_of_gap("gradient_shap", gap, change, most, f"with {n_samples} samples")
    error = (torch.stack(groups).std(0) / GROUPS**0.5).float().cpu()
    used: dict[str, object] = {"baselines": list(baselines), "change": change}
    return Scores(values, residual=gap, standard_error=error, used=used)


def _draw(ask: Callable[[Tensor], Tensor], end: Tensor, begins: Tensor, noise: float, n: int) -> Tensor:
    inputs = end[None].clone()
    return GradientShap(ask).attribute(inputs, baselines=begins, n_samples=n, stdevs=noise)[0].sum(-1).detach()
