"""Identifiability: which other attention gives a head the same output (Brunner et al. 2020, sec. 3).

A head passes on Σ_j α_j f(x_j). With more visible keys than directions that f tells apart, α can move along δ with
δ T = 0 (T: rows f(x_j)) and nothing behind the head changes. That this is possible is a matter of sizes (n > d_v); it
says that the weights are not unique, not that they are wrong.

    n_keys                     keys that the row may look at
    rank, rank_keeping_sum     directions that T (T and a column of ones) tells apart
    free, free_keeping_sum     n_keys − rank: dimensions of other attention with the same output
    lost, lost_keeping_sum     |α − effective α| / |α|, 0 to 1: the part of the row that makes no difference
    kendall_tau(_keeping_sum)  α beside the effective α, over the visible keys; top_kept(_…): 1 where the first stayed
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.optimize import linprog
from torch import Tensor

from attnprobe.errors import CaptureError
from attnprobe.experiments.asking import Asked, asked, each
from attnprobe.experiments.outcome import Outcome, cost_of, values_frame
from attnprobe.methods.effective_attention import RANK_TOLERANCE, reached
from attnprobe.methods.mixing import visible_keys
from attnprobe.metrics.ranks import kendall_tau
from attnprobe.models.evaluator import Meter
from attnprobe.models.projections import Projection, projections
from attnprobe.site import Site

OWN_MEASURES = {
    "n_keys": "keys that the row may look at",
    "rank": "directions that the values tell apart",
    "free": "dimensions of other rows with the same output",
    "lost": "share of the row's length that makes no difference, 0 to 1",
    "kendall_tau": "the row beside its effective part, −1 to 1",
    "top_kept": "1 where the largest weight is the largest of the effective row, else 0",
}
SUMMED = ("rank", "free", "lost", "kendall_tau", "top_kept")
OWN_MEASURES |= {f"{name}_keeping_sum": f"{OWN_MEASURES[name]}; rows that sum to the same alone" for name in SUMMED}
# Two weights of a row that differ by less are tied: least squares leaves that much.
TIED = 1e-9


@dataclass(frozen=True, eq=False)
class Identifiability(Outcome):
    """What `attention_identifiability` found.

    tokens: a row an example, layer, head and key: weight, effective, effective_keeping_sum. f: what the values were
    seen through, "W_O" or, where that was not found, "values" as they are.
    """

    tokens: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    f: str = "W_O"


def attention_identifiability(
    model: Any,
    examples: Any,
    target: Any = None,
    *,
    layers: int | Sequence[int] | str = "all",
    kind: str = "any",
    rank_tolerance: float = RANK_TOLERANCE,
    n_resamples: int = 1000,
) -> Identifiability:
    """For each layer and head, how much of the row at the position read is free, and what of it reaches the output.

    Rows of earlier layers are those of the same position. Of several positions the measures are means. Nothing is
    drawn. rank_tolerance: singular values below this share of the largest count as 0.
    """
    rows: list[tuple[Any, ...]] = []
    tokens: list[pd.DataFrame] = []
    with Meter() as meter:
        given = asked(model, examples, target, kind)
        through = _projections(given[0])
        for one in each(given, "identifiability"):
            numbers = one.layers(layers)
            for number, site in zip(numbers, one.sites(numbers, "weights", "value"), strict=True):
                for head in range(site.n_heads):
                    found, table = _of_head(one, site, through, head, rank_tolerance)
                    where = (one.index, one.stack.name, one.stack.kind, str(number), str(head), "")
                    rows += [(*where, measure, value) for measure, value in found.items()]
                    tokens.append(table.assign(example_index=one.index, layer=number, head=head))
    return Identifiability(
        "attention_identifiability",
        given[0].model.name,
        tuple(one.goal.description for one in given),
        values_frame(rows),
        OWN_MEASURES,
        {"layers": layers, "rank_tolerance": rank_tolerance},
        n_resamples=n_resamples,
        tokens=pd.concat(tokens, ignore_index=True),
        f="values" if through is None else "W_O",
        **cost_of(meter),
    )


def _projections(one: Asked) -> tuple[Projection, ...] | None:
    """W_O of each layer; None where it was not found, and the values are seen as they are."""
    try:
        found = projections(one.model, one.stack.name, one.stack.kind)
        for projection in found:
            projection.need("W_O")
    except CaptureError:
        return None
    return found


def values_seen(site: Site, projection: Projection | None, head: int) -> Float[Tensor, "key direction"]:
    """f(x_j) = v_j W_O of one head, in d_value coordinates: lengths and angles stay; v_j without a projection."""
    value = site.need("value")[0, head].double().cpu()
    if projection is None:
        return value
    return value @ torch.linalg.qr(projection.need("W_O")[head].detach().double().cpu().mT).R.mT


def _of_head(
    one: Asked, site: Site, through: Sequence[Projection] | None, head: int, tolerance: float
) -> tuple[dict[str, float], pd.DataFrame]:
    """Measures and rows of one head: means over the positions read."""
    values = values_seen(site, None if through is None else through[site.place.layer], head)
    weights, seen = site.need("weights")[0, head].double().cpu(), visible_keys(site)[head].cpu()
    found, shown = [], []
    for row in _rows(one, weights):
        keys = seen[row]
        parts = {"weight": weights[row, keys]}
        numbers: dict[str, float] = {"n_keys": float(keys.sum())}
        for suffix, keep_sum in (("", False), ("_keeping_sum", True)):
            basis, rank = reached(values[keys], keep_sum, tolerance)
            effective = (parts["weight"] @ basis) @ basis.T
            parts[f"effective{suffix}"] = effective
            numbers |= {f"{k}{suffix}": v for k, v in _compared(parts["weight"], effective, rank).items()}
        found.append(numbers)
        index = {"row": row, "key_index": keys.nonzero().flatten().numpy()}
        shown.append(pd.DataFrame(index | {name: part.numpy() for name, part in parts.items()}))
    means = {name: float(np.mean([numbers[name] for numbers in found])) for name in found[0]}
    return means, pd.concat(shown, ignore_index=True)


def _rows(one: Asked, weights: Tensor) -> list[int]:
    """The positions read, as far as this layer has them as queries."""
    return [row for row in one.read.tolist() if row < len(weights)] or list(range(len(weights)))


def _compared(weights: Tensor, effective: Tensor, rank: int) -> dict[str, float]:
    """The measures of one row beside its effective part."""
    length = float(weights.norm())
    near = (effective / TIED).round()
    return {
        "rank": float(rank),
        "free": float(len(weights) - rank),
        "lost": float((weights - effective).norm()) / length if length else math.nan,
        "kendall_tau": kendall_tau((weights / TIED).round(), near),
        "top_kept": float(near[weights.argmax()] == near.max()),
    }


def same_output(
    weights: Float[Tensor, " key"], values: Float[Tensor, "key direction"], *, n_draws: int, seed: int
) -> list[Float[Tensor, " key"]]:
    """Other rows of weights, at least 0 and of the same sum, that give this head the same output exactly; far corners.

    They are corners of the set of all such rows, found by linear programs: the first leaves as much as possible of the
    weight that was, the others go into random directions. Empty where the weights are unique.
    """
    basis, rank = reached(values, True)
    if rank >= len(weights):
        return []
    generator = np.random.default_rng(seed)
    costs = [weights.numpy(), *generator.standard_normal((n_draws - 1, len(weights)))] if n_draws else []
    held, start = basis.T.numpy(), weights.numpy()
    found = []
    for cost in costs:
        solved = linprog(cost, A_eq=held, b_eq=held @ start, bounds=(0, None), method="highs")
        if solved.status == 0:
            found.append(_exact(weights, torch.from_numpy(solved.x), basis))
    return found


def _exact(start: Tensor, corner: Tensor, basis: Tensor) -> Float[Tensor, " key"]:
    """The corner freed of the solver's rounding: moved along what makes no difference alone, as far as nothing is
    negative."""
    step = corner - start
    step = step - basis @ (basis.T @ step)
    falling = step < 0
    limit = (start[falling] / -step[falling]).min() if bool(falling.any()) else torch.tensor(1.0)
    return (start + step * min(1.0, float(limit))).clamp(min=0)
