"""Gradients integrated from a baseline to the input, by captum."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from captum.attr import IntegratedGradients
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.gradient import SOUNDS, answer, precise
from attnprobe.methods.paths import Baseline, allowed, n_baselines, starts, until_complete, warn_of_gap
from attnprobe.models.evaluator import batch_size, even_batches, targets
from attnprobe.models.layer_inputs import LayerInput, layer_input
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget


@methods.add(
    family="gradient",
    source="Sundararajan et al. 2017; captum IntegratedGradients",
    formula="Σ_d (E − E′)_{jd} ∫₀¹ ∂y/∂E_{jd}(E′ + t(E − E′)) dt",
    cost="m F, m B (m = n_steps) a baseline",
    signed=True,
    passes=lambda size, options: (
        1 + n_baselines(options) * (options["n_steps"] + 1),
        n_baselines(options) * options["n_steps"],
    ),
    lacks=SOUNDS,
)
def integrated_gradients(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    baseline: Baseline = None,
    path: Literal["words", "embeddings"] = "words",
    n_steps: int = 50,
    tolerance: float = 0.05,
    max_steps: int = 400,
) -> Scores:
    """Gradient integrated on the line from a baseline, times the way; target units; adds up to y − y(baseline).

    baseline: mask, mean, pad, unk or zero embedding in the place of every token that is not special, or a tensor
    [d_model] or [token d_model] (default: what removal puts there, [MASK], else the mean; zero fails to converge under
    RMSNorm). Of a list the mean is taken, and the standard error is that of the mean over its baselines.
    path: the line is one of "words" vectors, or of whole "embeddings", the input of the first layer (with positions).
    Steps are doubled until the gap is below `tolerance` of the change, up to max_steps; what is left is the residual.
    """
    if path not in ("words", "embeddings"):
        raise InputError(f"path is 'words' or 'embeddings', got '{path}'")
    begins = starts(model, example, baseline)
    rows = [Row(example), *(Row(example, embeddings=start) for start in begins.values())]
    entry = layer_input(model, example) if path == "embeddings" else None
    ends, points = _ends(model, rows, target, entry)
    changes, found, gaps, steps = (ends[0] - ends[1:]).tolist(), [], [], []
    most = partial(allowed, tolerance, size=float(ends.abs().max()), dtype=model.embed(example).dtype)
    with tqdm(desc="integrated gradients", delay=1.0, leave=False, unit="step") as bar:
        ask = answer(model, example, target, entry, bar)
        for start, change in zip(points[1:], changes, strict=True):
            run = partial(_integrate, ask, points[0], start, batch_size(example.n_tokens))
            values, gap, n = until_complete(run, change, most(change), n_steps, max_steps)
            warn_of_gap("integrated_gradients", gap, change, most(change), f"after {n} steps")
            found.append(values.cpu())
            gaps.append(gap)
            steps.append(n)
    return _together(list(begins), found, gaps, changes, max(steps))


def _integrate(ask: Callable[[Tensor], Tensor], end: Tensor, start: Tensor, size: int, steps: int) -> Tensor:
    found = IntegratedGradients(ask).attribute(
        end[None].clone(), baselines=start[None], n_steps=steps, internal_batch_size=even_batches(steps, size)
    )
    return found[0].sum(-1).detach()  # type: ignore[no-any-return]


def _together(names: list[str], found: list[Tensor], gaps: list[float], changes: list[float], steps: int) -> Scores:
    """The scores of one baseline, or the mean over several with its standard error."""
    n, values = len(found), torch.stack(found)
    used: dict[str, object] = {"baseline": names[0] if n == 1 else names, "n_steps": steps, "change": sum(changes) / n}
    if n == 1:
        return Scores(values[0], residual=gaps[0], used=used)
    used |= {"changes": changes, "gaps": gaps}
    error = values.std(0).float() / n**0.5
    return Scores(values.mean(0), residual=sum(gaps) / n, standard_error=error, used=used)


def _ends(model: Model, rows: list[Row], target: ResolvedTarget, entry: LayerInput | None) -> tuple[Tensor, Tensor]:
    """The target of each row, and the vectors [row position d_model] that the line is drawn through."""
    if entry is None:
        embeddings = [model.embed(row.example) if row.embeddings is None else row.embeddings for row in rows]
        return targets(model, rows, target).double(), precise(torch.stack(embeddings))
    logits, states = entry.read(model, rows)
    return target(logits).detach().double().cpu(), precise(states)
