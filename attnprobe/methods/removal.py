"""What changes when tokens are taken away, one at a time or in windows, by captum."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from captum.attr import FeatureAblation, Occlusion
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.games import groups_of
from attnprobe.models.draws import Removal, Replacement, removal
from attnprobe.models.model import Model
from attnprobe.models.removal import units as removable
from attnprobe.models.rows import DRAWN
from attnprobe.target import ResolvedTarget

# captum asks for at most this many rows at once; the evaluator makes batches of them as memory allows.
ROWS_AT_ONCE = 256

Groups = Sequence[Sequence[int]]


def answers(
    model: Model, taken: Removal, target: ResolvedTarget, groups: Groups, progress: str
) -> Callable[[Tensor], Tensor]:
    """captum's forward function: the target [row draw] with the groups of each row kept (> 0) or taken away."""
    member = torch.zeros(len(groups), taken.example.n_tokens)
    for number, group in enumerate(groups):
        member[number, list(group)] = 1

    def forward(kept_groups: Tensor) -> Tensor:
        kept = ((kept_groups <= 0).float() @ member) == 0
        return taken.targets(model, list(kept), target, progress=progress)

    return forward


def scores(found: Tensor, groups: Groups, taken: Removal, **used: object) -> Scores:
    """What a method gives, from what captum found [draw group]: the mean over draws, shared equally within a group."""
    found, n_draws = found.detach().double().cpu(), len(found)
    error = found.std(0) / n_draws**0.5 if n_draws > 1 else None
    return Scores(
        _on_tokens(found.mean(0), groups, taken.example.n_tokens),
        standard_error=None if error is None else _on_tokens(error, groups, taken.example.n_tokens),
        used={**taken.used, **used},
    )


def _on_tokens(values: Tensor, groups: Groups, n_tokens: int) -> Tensor:
    """Values of groups as values of tokens; 0 for tokens of no group."""
    on_tokens = torch.zeros(n_tokens)
    for value, group in zip(values.tolist(), groups, strict=True):
        on_tokens[list(group)] = value / len(group)
    return on_tokens


def n_passes(n_choices: int, options: Mapping[str, Any]) -> int:
    """Forward passes for so many choices of tokens to take away, the whole text and an infiller's passes included."""
    drawn = options["operator"] in DRAWN and options["replacement"] == "drawn"
    infilling = n_choices if options["operator"] == "infill" else 0
    return n_choices * (options["n_samples"] if drawn else 1) + infilling + 1


@methods.add(
    family="ablation",
    source="Li et al. 2016; captum FeatureAblation; infill: Kim et al. 2020 (input marginalization)",
    formula="y(x) − y(x without token j)",
    cost="n F (drawn: K n F, K = n_samples)",
    signed=True,
    passes=lambda size, o: (n_passes(size.n_units, o), 0),
)
def leave_one_out(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    operator: str | None = None,
    units: Literal["token", "word"] = "token",
    data: list[str] | Sequence[Any] | None = None,
    infiller: Any = None,
    replacement: Replacement = "drawn",
    n_samples: int = 8,
    seed: int = 0,
) -> Scores:
    """How much the target falls when a token is taken away; target units, signed; special tokens stay and get 0.

    operator: what stands in for it (default: [MASK], else the mean embedding). Its key stays in the softmax: mask,
    mean, pad, unk, zero, or a draw: resample (a token of `data`, texts; without any, another one of this text), infill
    (what a masked language model expects there: `infiller`, or the model itself where it is one; "drawn", or the
    "likeliest" other token). The other weights grow: attention_mask (nobody looks at it), pad_mask (that, and the pad
    embedding in its place), delete (what is behind it moves up; refused for the position that is explained).
    units: "word" takes the tokens of a word away together and shares the fall equally among them.
    n_samples: draws, whose mean is the score and whose spread gives the standard error. seed: of the draws.
    """
    groups = groups_of(example, removable(example, target).tolist(), _checked(units))
    taken = removal(
        model,
        example,
        operator,
        groups,
        data=data,
        infiller=infiller,
        replacement=replacement,
        n_samples=n_samples,
        seed=seed,
    )
    method = FeatureAblation(answers(model, taken, target, groups, "leave one out"))
    found = method.attribute(torch.ones(1, len(groups)), baselines=0, perturbations_per_eval=_at_once(taken))
    shared = {} if units == "token" else {"shared": "the fall of a word equally among its tokens"}
    return scores(found, groups, taken, **shared)


def _checked(units: str) -> Literal["token", "word"]:
    if units not in ("token", "word"):
        raise InputError(f"units is 'token' or 'word', got '{units}'")
    return "word" if units == "word" else "token"


def _at_once(taken: Removal) -> int:
    return max(1, ROWS_AT_ONCE // taken.n_draws)


@methods.add(
    family="ablation",
    source="Zeiler & Fergus 2014; captum Occlusion",
    formula="mean over windows w ∋ j of y(x) − y(x without w)",
    cost="n F (drawn: K n F, K = n_samples)",
    signed=True,
    passes=lambda size, o: (n_passes(max(size.n_units - o["window"] + 1, 1), o), 0),
)
def occlusion(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    window: int = 3,
    operator: str | None = None,
    data: list[str] | Sequence[Any] | None = None,
    infiller: Any = None,
    replacement: Replacement = "drawn",
    n_samples: int = 8,
    seed: int = 0,
) -> Scores:
    """How much the target falls when a window of neighbouring tokens is taken away, mean over the windows of a token.

    window: tokens a window (cut to the text's length). The other options as in leave_one_out; each token of a window
    is drawn by itself. Target units, signed.
    """
    if window < 1:
        raise InputError(f"a window has at least 1 token, got {window}")
    groups = groups_of(example, removable(example, target).tolist(), "token")
    taken = removal(
        model,
        example,
        operator,
        groups,
        data=data,
        infiller=infiller,
        replacement=replacement,
        n_samples=n_samples,
        seed=seed,
    )
    method = Occlusion(answers(model, taken, target, groups, "occlusion"))
    found = method.attribute(
        torch.ones(1, len(groups)),
        sliding_window_shapes=(min(window, len(groups)),),
        baselines=0,
        perturbations_per_eval=_at_once(taken),
    )
    return scores(found, groups, taken)
