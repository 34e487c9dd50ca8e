"""Uniform attention: what a layer or a head loses when it looks at all keys alike (Wiegreffe & Pinter 2019, sec. 3).

A prediction that stays shows that *where* this attention looked was not needed for it; not that the tokens were not.
"""

from collections.abc import Sequence
from typing import Any

from attnprobe.errors import InputError
from attnprobe.experiments.asking import MEASURES, Asked, asked, each
from attnprobe.experiments.outcome import Outcome, cost_of, values_frame
from attnprobe.intervention import Intervention, uniform
from attnprobe.models.evaluator import Meter
from attnprobe.models.rows import Row

EACH = ("layer", "head")


def uniform_attention(
    model: Any,
    examples: Any,
    target: Any = None,
    *,
    each_of: Sequence[str] | str = EACH,
    layers: int | Sequence[int] | str = "all",
    kind: str = "any",
    n_resamples: int = 1000,
) -> Outcome:
    """Give equal weights to all visible keys: in each layer, in each head, and in all of these layers at once.

    each_of: "layer", "head", or both; all layers at once is always there (layer "all", head "all"). layers: "all",
    "last", one or several. kind: "self" or "cross" to insist on one. Nothing is drawn, so there is no seed.
    """
    each_of = (each_of,) if isinstance(each_of, str) else each_of
    unknown = [name for name in each_of if name not in EACH]
    if unknown:
        raise InputError(f"each_of holds 'layer' and 'head', got '{unknown[0]}'")
    rows: list[tuple[Any, ...]] = []
    with Meter() as meter:
        given = asked(model, examples, target, kind)
        for one in each(given, "uniform attention"):
            places = _places(one, each_of, one.layers(layers))
            batch = [Row(one.example), *(Row(one.example, edits=(edit,)) for _, _, edit in places)]
            before, *after = one.answers(batch, "uniform attention")
            for (layer, head, _), answer in zip(places, after, strict=True):
                where = (one.index, one.stack.name, one.stack.kind, layer, head, "")
                rows += [(*where, measure, value) for measure, value in before.measured(answer).items()]
    return Outcome(
        "uniform_attention",
        given[0].model.name,
        tuple(one.goal.description for one in given),
        values_frame(rows),
        MEASURES,
        {"each_of": "+".join(each_of), "layers": layers},
        n_resamples=n_resamples,
        **cost_of(meter),
    )


def _places(one: Asked, each_of: Sequence[str], layers: Sequence[int]) -> list[tuple[str, str, Intervention]]:
    """Layer, head and edit of every place."""
    places = []
    for layer in layers:
        if "head" in each_of:
            heads = range(one.stack.n_heads[layer])
            places += [(str(layer), str(h), uniform(layers=layer, heads=h, **one.where)) for h in heads]
        if "layer" in each_of:
            places.append((str(layer), "all", uniform(layers=layer, **one.where)))
    return [*places, ("all", "all", uniform(layers=list(layers), **one.where))]
