"""Another seed: how far explanations of models differ that were trained alike but for their random numbers.

What two such models share is the task; scores that differ between them speak of one model's way, not of the input
(Wiegreffe & Pinter 2019, sec. 3.3, who ask how far attention strays by chance alone).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch

from attnprobe.attributing import Method
from attnprobe.errors import InputError
from attnprobe.experiments.asking import Asked, asked, mean_row
from attnprobe.experiments.outcome import Outcome, cost_of, values_frame
from attnprobe.experiments.randomised import METHODS, compared, scores_of
from attnprobe.experiments.searching import jensen_shannon
from attnprobe.methods import methods as registry
from attnprobe.models.evaluator import Meter
from attnprobe.models.rows import Row

OWN_MEASURES = {
    "spearman": "rank correlation of a method's scores in two models, over the tokens, −1 to 1",
    "spearman_absolute": "the same of their absolute values",
    "jsd": "Jensen-Shannon divergence of the last layer's mean weights in two models, 0 to ln 2 = 0.693",
    "total_variation": "total variation of the two outputs, 0 to 1",
    "same_decision": "1 where both decide alike, else 0",
}


def other_seeds(
    models: Sequence[Any],
    examples: Any,
    target: Any = None,
    *,
    methods: Sequence[Method] = METHODS,
    n_resamples: int = 1000,
) -> Outcome:
    """Each pair of models on the same examples: how their scores, weights and outputs agree.

    models: of one kind, that read the same inputs, trained from different seeds. target: None for what the first of
    them predicts; of a pair, both explain that one. variant: the method; values of several pairs are means.
    """
    if len(models) < 2:
        raise InputError(f"other_seeds compares models with each other: give at least 2, got {len(models)}")
    entries = [registry.get_entry(method) for method in methods]
    rows: list[tuple[Any, ...]] = []
    failures: list[str] = []
    with Meter() as meter:
        given = [asked(models[0], examples, target)]
        given += [[_again(model, one) for one in given[0]] for model in models[1:]]
        for same in zip(*given, strict=True):
            where = (same[0].index, same[0].stack.name, same[0].stack.kind, "last", "mean")
            scores = [[scores_of(one.model, one, entry, failures) for entry in entries] for one in same]
            for name, value in _of_pairs(same):
                rows.append((*where, "", name, value))
            for number, entry in enumerate(entries):
                there = [found for of_model in scores if (found := of_model[number]) is not None]
                pairs = [compared(a, b) for a, b in combinations(there, 2)]
                for name in ("spearman", "spearman_absolute") if pairs else ():
                    rows.append((*where, entry.name, name, sum(pair[name] for pair in pairs) / len(pairs)))
    return Outcome(
        "other_seeds",
        " and ".join(dict.fromkeys(of_model[0].model.name for of_model in given)),
        tuple(one.goal.description for one in given[0]),
        values_frame(rows),
        OWN_MEASURES,
        {"n_models": len(models), "methods": "+".join(entry.name for entry in entries)},
        notes=tuple(dict.fromkeys(failures)),
        n_resamples=n_resamples,
        **cost_of(meter),
    )


def _again(model: Any, one: Asked) -> Asked:
    """The same example and target for another model of the kind."""
    (other,) = asked(model, one.example, one.goal)
    return replace(other, index=one.index)


def _of_pairs(same: Sequence[Asked]) -> list[tuple[str, float]]:
    """Distances of outputs and weights, means over the pairs of models."""
    answers = [one.answers([Row(one.example)])[0] for one in same]
    maps = []
    for one in same:
        weights = mean_row(one.sites(one.layers("last"), "weights")[0], one.read)[0]
        maps.append(weights / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny))
    pairs = list(combinations(range(len(same)), 2))
    found = {
        "jsd": [float(jensen_shannon(maps[a], maps[b])) for a, b in pairs],
        "total_variation": [answers[a].total_variation(answers[b]) for a, b in pairs],
        "same_decision": [answers[a].kept(answers[b]) for a, b in pairs],
    }
    return [(name, sum(values) / len(values)) for name, values in found.items()]
