"""Permuted attention: how far the output moves when the weights are dealt out anew (Jain & Wallace 2019, sec. 4.2.1).

Their claim is read off two numbers an example: the largest weight, and the median over permutations of the mean change
of a probability. Much weight on one token and no change: the weights did not matter here.
"""

from collections.abc import Sequence
from typing import Any

import torch

from attnprobe.errors import InputError
from attnprobe.experiments.asking import MEASURES, Answer, asked, each, mean_row
from attnprobe.experiments.outcome import Outcome, cost_of, values_frame
from attnprobe.intervention import permute
from attnprobe.models.evaluator import Meter
from attnprobe.models.rows import Row

OWN_MEASURES = {
    "median_change": "median over permutations of the mean over outputs of |Δp| (of a single number: |Δ target|)",
    "median_total_variation": f"median over permutations of the {MEASURES['total_variation']}",
    "kept": "share of the permutations that left the decision",
    "max_weight": "largest weight before, mean over heads and the positions read, 0 to 1",
}


def permuted_attention(
    model: Any,
    examples: Any,
    target: Any = None,
    *,
    n_permutations: int = 100,
    layers: int | Sequence[int] | str = "last",
    heads: int | Sequence[int] | None = None,
    kind: str = "any",
    seed: int = 0,
    n_resamples: int = 1000,
) -> Outcome:
    """Shuffle each row's weights among its visible keys, `n_permutations` times, another shuffle a row and head.

    layers: "last" (as in the paper, whose models have one), "all" at once, one or several. heads: None for all.
    """
    if n_permutations < 1:
        raise InputError(f"n_permutations is 1 or more, got {n_permutations}")
    rows: list[tuple[Any, ...]] = []
    with Meter() as meter:
        given = asked(model, examples, target, kind)
        for one in each(given, "permuted attention"):
            numbers = one.layers(layers)
            edits = [
                permute(seed=seed * 1_000_003 + number, layers=numbers, heads=heads, **one.where)
                for number in range(n_permutations)
            ]
            batch = [Row(one.example), *(Row(one.example, edits=(edit,)) for edit in edits)]
            before, *after = one.answers(batch, "permuted attention")
            weights, _ = mean_row(one.sites(numbers[-1:], "weights")[0], one.read)
            where = (one.index, one.stack.name, one.stack.kind, _named(layers), "all" if heads is None else str(heads))
            found = {**_summary(before, after), "max_weight": float(weights.max())}
            rows += [(*where, "", measure, value) for measure, value in found.items()]
    return Outcome(
        "permuted_attention",
        given[0].model.name,
        tuple(one.goal.description for one in given),
        values_frame(rows),
        OWN_MEASURES,
        {"n_permutations": n_permutations, "layers": layers, "heads": heads},
        seed,
        n_resamples=n_resamples,
        **cost_of(meter),
    )


def _named(layers: int | Sequence[int] | str) -> str:
    return layers if isinstance(layers, str) else str(layers)


def _summary(before: Answer, after: Sequence[Answer]) -> dict[str, float]:
    """The measures of one example over its permutations."""
    moved = torch.tensor([_mean_change(before, answer) for answer in after]).double()
    variation = torch.tensor([before.total_variation(answer) for answer in after]).double()
    kept = torch.tensor([before.kept(answer) for answer in after]).double()
    return {
        "median_change": float(moved.quantile(0.5)),
        "median_total_variation": float(variation.quantile(0.5)),
        "kept": float(kept.mean()),
    }


def _mean_change(before: Answer, after: Answer) -> float:
    if before.outputs is None or after.outputs is None:
        return abs(after.value - before.value)
    return float((after.outputs - before.outputs).abs().mean())
