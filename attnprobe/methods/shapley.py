"""Shapley values by sampling orders, by captum."""

import threading

import torch
from captum.attr import ShapleyValueSampling

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.removal import ROWS_AT_ONCE, answer_of_units, on_tokens
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator, units
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

GROUPS = 5
_GENERATOR = threading.Lock()


@methods.add(
    family="perturbation",
    source="Castro et al. 2009; captum ShapleyValueSampling",
    formula="mean over random orders of y(before j, j) − y(before j)",
    cost="K n F (K = n_samples)",
    signed=True,
)
def shapley_sampling(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int = 25,
    operator: str | None = None,
    seed: int = 0,
) -> Scores:
    """Mean change of the target when a token is added in random order; target units; adds up to y − y(nothing).

    n_samples: orders, run in five groups whose spread gives the standard error. operator as in leave_one_out.
    """
    if n_samples < GROUPS:
        raise InputError(f"n_samples is at least {GROUPS}, got {n_samples}")
    operator, unit = checked_operator(model, operator), units(example, target)
    method = ShapleyValueSampling(answer_of_units(model, example, target, operator, unit))
    groups = []
    # captum draws from the global generator, which is lent to one thread at a time.
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for group in range(GROUPS):
            n = n_samples // GROUPS + (group < n_samples % GROUPS)
            found = method.attribute(
                torch.ones(1, len(unit)), baselines=0, n_samples=n, perturbations_per_eval=ROWS_AT_ONCE
            )
            groups.append(found[0].detach().float() * n)
    values = torch.stack(groups).sum(0) / n_samples
    sizes = torch.tensor([n_samples // GROUPS + (g < n_samples % GROUPS) for g in range(GROUPS)])[:, None]
    error = (torch.stack(groups) / sizes).std(0) / GROUPS**0.5
    nothing = torch.ones(example.n_tokens, dtype=torch.bool)
    nothing[unit] = False
    ends = targets(model, [Row(example, kept=nothing, operator=operator), Row(example)], target)
    residual = float(values.sum() - (ends[1] - ends[0]))
    on = on_tokens
    return Scores(
        on(values, unit, example.n_tokens), None, residual, on(error, unit, example.n_tokens), {"operator": operator}
    )
