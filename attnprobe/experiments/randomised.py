"""Cascading randomisation: do a method's scores depend on what the model learned? (Adebayo et al. 2018, sec. 3)

The parameters of a copy are replaced by random ones, group by group from the top: what is behind the last attention
layer, then each layer, then the embeddings. After each step every method explains the same target again; scores that
stay in order do not depend on what was replaced. By design, a method that reads attention alone does not see what is
behind the last attention layer: its scores are unchanged by the first step, and `notes` say so.

The model that was given is never touched.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import pandas as pd
import torch
from torch import Tensor

from attnprobe.attributing import Method, attribute
from attnprobe.errors import AttnprobeError, InputError, nearest
from attnprobe.experiments.asking import MEASURES, Answer, Asked, asked, each, rounding
from attnprobe.experiments.copying import copy_of, randomise
from attnprobe.experiments.outcome import Outcome, cost_of, values_frame
from attnprobe.experiments.parameter_groups import groups_from_top
from attnprobe.methods import methods as registry
from attnprobe.metrics.ranks import spearman
from attnprobe.models.evaluator import Meter
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.registry import Entry

How = Literal["normal", "shuffle"]
# One of attention alone, one with its gradient, one of gradients, one of removal.
METHODS: tuple[Method, ...] = ("raw_attention", "rollout", "attention_x_gradient", "input_x_gradient", "leave_one_out")
OWN_MEASURES = {
    "spearman": "rank correlation of a method's scores before and after, over the tokens, −1 to 1",
    "spearman_absolute": "the same of their absolute values",
    "unchanged": "1 where the scores are the same to 1e-5 of the largest, else 0",
    "total_variation": MEASURES["total_variation"],
}
SAME = 1e-5


def cascading_randomisation(
    model: Any,
    examples: Any,
    target: Any = None,
    *,
    methods: Sequence[Method] = METHODS,
    how: How = "normal",
    kind: str = "any",
    seed: int = 0,
    n_resamples: int = 1000,
) -> Outcome:
    """Rank correlation of each method's scores with those of the model as it is, after each step of the cascade.

    layer: of the values, the group that was randomised last, all above it are too; variant: the method. how: "normal",
    draws of the mean and spread of each parameter, or "shuffle", its own numbers in another order (so what is constant
    stays). Examples with fewer than 3 tokens to rank give NaN.
    Errors: `InputError` for an encoder-decoder, whose layers are no one cascade.
    """
    if how not in get_args(How):
        raise InputError(f"how is 'normal' or 'shuffle', got '{how}'; {nearest(how, get_args(How))}")
    entries = [registry.get_entry(method) for method in methods]
    rows: list[tuple[Any, ...]] = []
    failures: list[str] = []
    with Meter() as meter:
        given = asked(model, examples, target, kind)
        groups = groups_from_top(given[0])
        before = [_said(one, one.model, entries, failures) for one in given]
        for step, group in enumerate(groups):
            randomised = copy_of(given[0].model)
            randomise(randomised.module, groups[: step + 1], how, seed)
            for one in each(given, f"random down to {group.name}"):
                where = (one.index, one.stack.name, one.stack.kind, group.name, "all")
                after = _said(one, randomised, entries, failures)
                rows += [(*where, *row) for row in _beside(entries, before[one.index], after)]
    values = values_frame(rows)
    return Outcome(
        "cascading_randomisation",
        given[0].model.name,
        tuple(one.goal.description for one in given),
        values,
        OWN_MEASURES,
        {"how": how, "methods": "+".join(entry.name for entry in entries)},
        seed,
        notes=(*_unmoved(values, groups[0].name, rounding(given[0].model)), *dict.fromkeys(failures)),
        n_resamples=n_resamples,
        **cost_of(meter),
    )


Said = tuple[Answer, list[Tensor | None]]


def _said(one: Asked, model: Model, entries: Sequence[Entry], failures: list[str]) -> Said:
    """What a model answers to an example, and each method's scores."""
    (answer,) = replace(one, model=model).answers([Row(one.example)])
    return answer, [scores_of(model, one, entry, failures) for entry in entries]


def _beside(entries: Sequence[Entry], before: Said, after: Said) -> list[tuple[str, str, float]]:
    """Variant, measure and value of each comparison of a step."""
    rows = [("", "total_variation", before[0].total_variation(after[0]))]
    for entry, old, new in zip(entries, before[1], after[1], strict=True):
        if old is not None and new is not None:
            rows += [(entry.name, measure, value) for measure, value in compared(old, new).items()]
    return rows


def scores_of(model: Model, one: Asked, entry: Entry, failures: list[str]) -> Tensor | None:
    """A method's scores of the tokens that it ranks; None, and the reason noted, where it gives none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = attribute(model, one.example, entry, one.goal)
    except AttnprobeError as error:
        failures.append(f"{entry.name} failed: {error}")
        return None
    return found.scores[found.units]


def compared(old: Tensor, new: Tensor) -> Mapping[str, float]:
    """Rank agreement of two scorings of the same tokens, what differs by rounding alone tied; NaN below 3 tokens."""
    step = SAME * max(float(old.abs().max()), float(new.abs().max()), torch.finfo(old.dtype).tiny)
    a, b = (old / step).round(), (new / step).round()
    enough = len(old) >= 3
    return {
        "spearman": spearman(a, b) if enough else math.nan,
        "spearman_absolute": spearman(a.abs(), b.abs()) if enough else math.nan,
        "unchanged": float(bool((old - new).abs().max() <= step)),
    }


def _unmoved(values: pd.DataFrame, top: str, rounding: float) -> list[str]:
    """A sentence on the methods that the first step leaves as they were on every example, though the output moved."""
    first = values[values.layer == top]
    moved = first[first.measure == "total_variation"].value
    if not bool((moved > rounding).any()):
        return [f"{top}: random numbers of the same mean and spread leave the output as it was (constant parameters)"]
    unchanged = first[first.measure == "unchanged"]
    same = [str(name) for name, group in unchanged.groupby("variant", sort=False) if bool((group.value == 1).all())]
    if not same:
        return []
    return [
        f"{', '.join(same)}: unchanged on all {len(moved)} examples after {top} was randomised and the output moved; "
        "such scores do not depend on what is behind the last attention layer at all"
    ]
