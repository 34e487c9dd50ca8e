"""What changes when tokens are taken away, one at a time or in windows, by captum."""

from collections.abc import Callable

import torch
from captum.attr import FeatureAblation, Occlusion
from jaxtyping import Bool
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator, units
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

# captum asks for at most this many rows at once; the evaluator makes batches of them as memory allows.
ROWS_AT_ONCE = 256


def answer_of_units(
    model: Model, example: Example, target: ResolvedTarget, operator: str, unit: Tensor
) -> Callable[[Tensor], Tensor]:
    """captum's forward function: the target with the units of each row [row unit] kept (> 0) or taken away."""

    def forward(kept_units: Tensor) -> Tensor:
        rows = [Row(example, kept=keep(row > 0, unit, example.n_tokens), operator=operator) for row in kept_units]
        return targets(model, rows, target)

    return forward


def keep(kept_units: Bool[Tensor, " unit"], unit: Tensor, n_tokens: int) -> Bool[Tensor, " token"]:
    """Which tokens stay when these units stay; tokens that are no unit always stay."""
    kept = torch.ones(n_tokens, dtype=torch.bool)
    kept[unit] = kept_units.cpu()
    return kept


def on_tokens(values: Tensor, unit: Tensor, n_tokens: int) -> Tensor:
    """Values of units as values of tokens; 0 for tokens that are no unit."""
    scores = torch.zeros(n_tokens)
    scores[unit] = values.detach().float().cpu()
    return scores


@methods.add(
    family="ablation",
    source="Li et al. 2016; captum FeatureAblation",
    formula="y(x) − y(x without token j)",
    cost="n F",
    signed=True,
)
def leave_one_out(model: Model, example: Example, target: ResolvedTarget, *, operator: str | None = None) -> Scores:
    """How much the target falls when a token is taken away; target units, signed; special tokens stay and get 0.

    operator: what stands in for it: mask, mean, pad, unk, zero; or attention_mask, delete, which let the
    other weights grow (default: [MASK], else the mean embedding).
    """
    operator, unit = checked_operator(model, operator), units(example, target)
    method = FeatureAblation(answer_of_units(model, example, target, operator, unit))
    found = method.attribute(torch.ones(1, len(unit)), baselines=0, perturbations_per_eval=ROWS_AT_ONCE)
    return Scores(on_tokens(found[0], unit, example.n_tokens), used={"operator": operator})


@methods.add(
    family="ablation",
    source="Zeiler & Fergus 2014; captum Occlusion",
    formula="mean over windows w ∋ j of y(x) − y(x without w)",
    cost="n F",
    signed=True,
)
def occlusion(
    model: Model, example: Example, target: ResolvedTarget, *, window: int = 3, operator: str | None = None
) -> Scores:
    """How much the target falls when a window of neighbouring tokens is taken away, mean over the windows of a token.

    window: tokens a window (cut to the text's length). operator as in leave_one_out. Target units, signed.
    """
    if window < 1:
        raise InputError(f"a window has at least 1 token, got {window}")
    operator, unit = checked_operator(model, operator), units(example, target)
    method = Occlusion(answer_of_units(model, example, target, operator, unit))
    found = method.attribute(
        torch.ones(1, len(unit)),
        sliding_window_shapes=(min(window, len(unit)),),
        baselines=0,
        perturbations_per_eval=ROWS_AT_ONCE,
    )
    return Scores(on_tokens(found[0], unit, example.n_tokens), used={"operator": operator})
