"""Counterfactual attention: the most different one under which the output stays (Jain & Wallace 2019, sec. 4.2.2).

For each example, weights as far from the model's own as can be found (Jensen-Shannon divergence, 0 to ln 2) that move
the output by a total variation of at most eps. Two searches: by gradient from random starts, and, where a head has
more visible keys than directions of value, corners of the set of all rows with exactly the same output. What is given
was measured anew in a pass without gradients, beside the model's own attention, which is always a candidate: so the
output is always within eps, and a JSD of 0 means that nothing else was found.

That such attention exists says that this output does not depend on where exactly the layer looked. It is no verdict:
with n > d_v it always exists, and it is not the attention that this model would ever have on this input.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.experiments.asking import MEASURES, Answer, Asked, asked, each, rounding, unit_keys
from attnprobe.experiments.identifiability import same_output, values_seen
from attnprobe.experiments.outcome import Outcome, cost_of, values_frame
from attnprobe.experiments.searching import Search, Searched, jsd_of, search
from attnprobe.intervention import Intervention
from attnprobe.metrics.ranks import kendall_tau
from attnprobe.models.evaluator import Meter
from attnprobe.models.rows import Row
from attnprobe.site import Site

Of = Literal["heads", "mean"]
Rows = Literal["read", "all"]
OWN_MEASURES = {
    "jsd": "Jensen-Shannon divergence of the weights found and the model's own, mean over heads, 0 to ln 2 = 0.693",
    "jsd_of_mean": "the same of their means over heads, the map that is looked at",
    **MEASURES,
    "kendall_tau": "rank agreement of the two mean maps over the tokens, −1 to 1",
    "top_changed": "1 where another token has the largest mean weight, else 0",
}
# Where a candidate moves the output too far: so much of the way from the model's own attention to it.
SHARES = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3, 0.15)
N_CORNERS = 8


@dataclass(frozen=True, eq=False)
class Found:
    """The attention found for one example. edits: put it in (`model.capture(example, edits=found.edits)`).

    weights: of each layer [head row key], in the order of layers; rows, heads: which they are. how: "gradient",
    "same output", or "own" where nothing was found. history: the largest JSD within eps so far, by step.
    """

    example_index: int
    layers: tuple[int, ...]
    heads: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[int, ...], ...]
    weights: tuple[Float[Tensor, "head row key"], ...] = field(repr=False)
    edits: tuple[Intervention, ...] = field(repr=False)
    how: str
    jsd: float
    total_variation: float
    history: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Counterfactual(Outcome):
    """What `counterfactual_attention` found: the measures by example, and the weights themselves."""

    found: tuple[Found, ...] = field(default=(), repr=False)


def counterfactual_attention(
    model: Any,
    examples: Any,
    target: Any = None,
    *,
    eps: float = 0.01,
    layers: int | Sequence[int] | str = "last",
    heads: int | Sequence[int] | None = None,
    rows: str = "read",
    of: str = "heads",
    how: Search | None = None,
    same_output_too: bool = True,
    kind: str = "any",
    seed: int = 0,
    n_resamples: int = 1000,
) -> Counterfactual:
    """The attention farthest from the model's own under which the output moves by a total variation of at most `eps`.

    layers: those whose weights are free, "last" (default), "all", one or several. rows: of the "read" positions, or of
    "all". of: what is to differ, the weights of each of the "heads" or their "mean". how: starts, steps and constants
    of the gradient search. same_output_too: also try rows with exactly the same head output.
    Errors: `InputError` for eps below 0, or rows that are no distributions.
    """
    _check(eps, rows, of)
    how = how or Search()
    found: list[Found] = []
    lines: list[tuple[Any, ...]] = []
    with Meter() as meter:
        given = asked(model, examples, target, kind)
        for one in each(given, "counterfactual attention"):
            best, measures = _of_example(one, eps, layers, heads, rows, of, how, same_output_too, seed + one.index)
            found.append(best)
            named = layers if isinstance(layers, str) else str(layers)
            where = (one.index, one.stack.name, one.stack.kind, named, "all" if heads is None else str(heads), "")
            lines += [(*where, measure, value) for measure, value in measures.items()]
    options = {"eps": eps, "layers": layers, "heads": heads, "rows": rows, "of": of, **vars(how)}
    return Counterfactual(
        "counterfactual_attention",
        given[0].model.name,
        tuple(one.goal.description for one in given),
        values_frame(lines),
        OWN_MEASURES,
        {**options, "same_output_too": same_output_too},
        seed,
        n_resamples=n_resamples,
        found=tuple(found),
        **cost_of(meter),
    )


def _check(eps: float, rows: str, of: str) -> None:
    if not 0 <= eps < 1:
        raise InputError(f"eps is a total variation from 0 to below 1, got {eps}")
    for name, given, known in (("rows", rows, get_args(Rows)), ("of", of, get_args(Of))):
        if given not in known:
            raise InputError(f"{name} is one of {', '.join(known)}, got '{given}'; {nearest(given, known)}")


def _of_example(
    one: Asked,
    eps: float,
    layers: int | Sequence[int] | str,
    heads: int | Sequence[int] | None,
    rows: str,
    of: str,
    how: Search,
    same_output_too: bool,
    seed: int,
) -> tuple[Found, dict[str, float]]:
    """The best candidate of one example, and its measures."""
    sites = one.sites(one.layers(layers), "weights", "value")
    free = [Searched.of(site, heads, one.read.tolist() if rows == "read" else None) for site in sites]
    before = one.answers([Row(one.example)])[0]
    own = [layer.shares for layer in free]
    candidates: list[tuple[str, list[Tensor]]] = [("own", own)]
    if same_output_too:
        candidates += [("same output", corner) for corner in _corners(sites, free, seed)]
    history = [0.0]
    if how.n_starts and how.n_steps:
        searched, history = search(one, free, _moved(one, before), eps, how, of, seed)
        candidates += [("gradient", _between(own, new, share)) for new in searched for share in SHARES]
    number, answer = _best(one, free, before, [shares for _, shares in candidates], eps, of)
    name, shares = candidates[number]
    edits = tuple(layer.edit(new, one) for layer, new in zip(free, shares, strict=True))
    distance = float(jsd_of(free, [new[None] for new in shares], "heads")[0])
    found = Found(
        one.index,
        tuple(layer.layer for layer in free),
        tuple(layer.heads for layer in free),
        tuple(layer.rows for layer in free),
        tuple(new * layer.mass for layer, new in zip(free, shares, strict=True)),
        edits,
        name,
        distance,
        before.total_variation(answer),
        tuple(history),
    )
    return found, _measures(one, free, shares, before, answer, distance)


def _moved(one: Asked, before: Answer) -> Any:
    """How far the output of each row of logits is from what it was, gradients kept."""

    def moved(logits: Tensor) -> Float[Tensor, " row"]:
        outputs = one.outputs_of(logits)
        if outputs is None or before.outputs is None:
            return (one.goal(logits).double() - before.value).abs().cpu()
        return ((outputs - before.outputs.to(outputs)).abs().sum(-1).amax(-1) / 2).cpu()

    return moved


def _corners(sites: Sequence[Site], free: Sequence[Searched], seed: int) -> list[list[Tensor]]:
    """Candidates with exactly the same output of every head, all layers moved at once; none where all is unique."""
    drawn = [layer.shares.clone().expand(N_CORNERS, *layer.shares.shape).clone() for layer in free]
    moved = False
    for site, layer, new in zip(sites, free, drawn, strict=True):
        for i, head in enumerate(layer.heads):
            values = values_seen(site, None, head)
            for j in range(len(layer.rows)):
                keys = layer.seen[i, j]
                corners = same_output(layer.shares[i, j, keys], values[keys], n_draws=N_CORNERS, seed=seed + 31 * i + j)
                for number, corner in enumerate(corners):
                    new[number, i, j, keys], moved = corner, True
    return [[new[number] for new in drawn] for number in range(N_CORNERS)] if moved else []


def _between(own: Sequence[Tensor], new: Sequence[Tensor], share: float) -> list[Tensor]:
    """So much of the way from the model's own attention to another."""
    return [(1 - share) * a + share * b for a, b in zip(own, new, strict=True)]


def _best(
    one: Asked, free: Sequence[Searched], before: Answer, candidates: Sequence[list[Tensor]], eps: float, of: str
) -> tuple[int, Answer]:
    """The number and the answer of the candidate with the largest JSD among those within eps, all measured anew."""
    batch = [
        Row(one.example, edits=tuple(layer.edit(new, one) for layer, new in zip(free, shares, strict=True)))
        for shares in candidates[1:]
    ]
    answers = [before, *one.answers(batch)]
    far = jsd_of(free, [torch.stack(layer) for layer in zip(*candidates, strict=True)], of).tolist()
    allowed = eps + rounding(one.model)
    within = [number for number, answer in enumerate(answers) if before.total_variation(answer) <= allowed]
    number = max(within, key=lambda candidate: far[candidate])
    return number, answers[number]


def _measures(
    one: Asked, free: Sequence[Searched], shares: Sequence[Tensor], before: Answer, answer: Answer, distance: float
) -> dict[str, float]:
    """Every measure of one example; the map that is looked at is that of the last layer."""
    layer, new = free[-1], shares[-1]
    at = [number for number, row in enumerate(layer.rows) if row in set(one.read.tolist())] or list(
        range(len(layer.rows))
    )
    units = unit_keys(one, layer.shares.shape[-1])
    old_map, new_map = ((part * layer.mass)[:, at].mean((0, 1))[units] for part in (layer.shares, new))
    top = int(old_map.argmax())
    return {
        "jsd": distance,
        "jsd_of_mean": float(jsd_of(free, [part[None] for part in shares], "mean")[0]),
        **before.measured(answer),
        "kendall_tau": kendall_tau(old_map, new_map) if len(units) > 1 else math.nan,
        "top_changed": float(new_map[top] < new_map.max()),
    }
