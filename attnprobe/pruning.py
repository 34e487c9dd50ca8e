"""Pruning: heads taken away one after the other in some order, and how right the model still is.

`prune` gives the edits, `head_order` an order from anything that says how much each head matters, `pruning_curve` what
each order costs on a set of examples, beside random orders. Which few heads suffice is in `sufficient_heads`; a model
without the heads is saved by `pruned_saving.save_pruned`.
"""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.errors import InputError, nearest
from attnprobe.head_profile import PLACE, HeadProfile
from attnprobe.heads.addresses import Head, head_of, heads_named, heads_of_stack
from attnprobe.heads.measuring import HeadEffect
from attnprobe.intervals import check_resampling
from attnprobe.intervention import Intervention, silence_head
from attnprobe.models import load
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row
from attnprobe.pruning_curves import PruningCurve
from attnprobe.right_answers import Measure, Question, better_high, name_of, questions

RANDOM = "random"
MOST_STEPS = 24  # points of a curve, unless more are asked for


def prune(model: Any, heads: Any) -> tuple[Intervention, ...]:
    """The edits that silence some heads: one a layer, for `capture(edits=…)` or `Row(edits=…)`.

    heads: addresses ("5.1", (5, 1), "decoder.cross.5.1", `Head`). What they add goes; the output bias stays.
    Errors: `InputError` for a head that the model does not have.
    """
    return Silencer()(heads_named(load(model), heads))


class Silencer:
    """Edits for sets of heads; equal sets, and equal parts of a layer, get the same edits, so that they run once."""

    def __init__(self) -> None:
        self._layers: dict[tuple[str, str, int, frozenset[int]], Intervention] = {}
        self._sets: dict[frozenset[Head], tuple[Intervention, ...]] = {}

    def __call__(self, heads: Iterable[Head]) -> tuple[Intervention, ...]:
        """The edits of a set, layer by layer."""
        wanted = frozenset(heads)
        if wanted not in self._sets:
            layers: dict[tuple[str, str, int], set[int]] = {}
            for head in sorted(wanted):
                layers.setdefault((head.stack, head.kind, head.layer), set()).add(head.head)
            self._sets[wanted] = tuple(self._layer(*place, frozenset(numbers)) for place, numbers in layers.items())
        return self._sets[wanted]

    def _layer(self, stack: str, kind: Any, layer: int, numbers: frozenset[int]) -> Intervention:
        key = (stack, kind, layer, numbers)
        if key not in self._layers:
            self._layers[key] = silence_head(layer, sorted(numbers), stack=stack, kind=kind)
        return self._layers[key]


def head_order(
    model: Any,
    given: Any,
    score: str | None = None,
    *,
    stack: Stack | None = None,
    absolute: bool = False,
    highest_first: bool = False,
) -> tuple[Head, ...]:
    """Heads in the order in which they are to be taken away: those with the lowest number first.

    given: a `HeadProfile` or a table (stack, kind, layer, head and a column `score`), a `HeadEffect`, a tensor [layer
    head] of `stack`, or addresses, which are an order already. absolute: by size, whatever the direction.
    highest_first: those with the highest number first. Equal numbers go layer by layer.
    Errors: `InputError` for a head without a number, or a score, stack or head that is not there.
    """
    model = load(model)
    if not isinstance(given, HeadProfile | HeadEffect | pd.DataFrame | Tensor | np.ndarray):
        return heads_named(model, given)
    values = _values(given, score, stack)
    missing = [str(head) for head, value in values.items() if value != value]
    if missing:
        raise InputError(f"{len(missing)} heads have no number ({', '.join(missing[:4])}), so they have no place")
    numbers = {head: abs(value) if absolute else value for head, value in values.items()}
    order = sorted(numbers, key=lambda head: -numbers[head] if highest_first else numbers[head])
    return tuple(head_of(model, head) for head in order)


def _values(given: Any, score: str | None, stack: Stack | None) -> dict[Head, float]:
    if isinstance(given, Tensor | np.ndarray):
        if stack is None:
            raise InputError("numbers [layer head] are those of one stack; say which with stack=model.stacks[…]")
        numbers = torch.as_tensor(given)
        expected = (stack.n_layers, max(stack.n_heads))
        if tuple(numbers.shape) != expected:
            raise InputError(f"got numbers of {tuple(numbers.shape)}, expected {expected} [layer head]")
        return {head: float(numbers[head.layer, head.head]) for head in heads_of_stack(stack)}
    if isinstance(given, HeadEffect):
        given, score = given.to_frame(), "value"
    frame = given.to_frame() if isinstance(given, HeadProfile) else given
    known = _scores(frame)
    if score is None and len(known) == 1:
        score = known[0]
    if score not in known:
        raise InputError(f"say by which score with score=…; no column is '{score}': {nearest(score, known)}")
    if stack is not None:
        frame = frame[(frame["stack"] == stack.name) & (frame["kind"] == stack.kind)]
    rows = zip(*(frame[name].tolist() for name in (*PLACE, score)), strict=True)
    return {Head(name, kind, int(layer), int(head)): float(value) for name, kind, layer, head, value in rows}


def pruning_curve(
    model: Any,
    examples: Any,
    orders: Mapping[str, Any],
    labels: Any = None,
    *,
    measure: Measure = "accuracy",
    steps: Sequence[int] | None = None,
    n_random: int = 10,
    stack: Stack | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> PruningCurve:
    """How right a model is with more and more heads silenced, in several orders.

    orders: by name, "random" (`n_random` orders, from `seed`), addresses (first to go first, see `head_order`), or what
    `head_order` takes of one score. All hold the same heads: those of the first that is not random, else those of
    `stack` (None: all). labels: what is right for each example, by name or number; without them the next tokens of a
    language model's text, the answer of an encoder-decoder, and of everything else what the whole model says, so that
    accuracy is 1 where nothing is gone. measure: "accuracy", "loss", or as `right_answers.questions`. steps: how many
    heads are gone at each point (None: every number, or some 24 of them), 0 and all are added. A row is a forward pass;
    equal sets run once.
    Errors: `InputError` for an order that lacks heads or has others.
    """
    check_resampling(n_resamples, seed)
    model = load(model)
    drawn = _orders(model, orders, stack, n_random, seed)
    n_heads = len(next(iter(drawn.values()))[0])
    removed = _steps(steps, n_heads)
    asked = questions(model, examples, labels, measure)
    sets = [frozenset(order[:n]) for draws in drawn.values() for order in draws for n in removed]
    values = answers(model, asked, sets, progress="pruning" if progress else None)
    parts = np.split(values, np.cumsum([len(draws) * len(removed) for draws in drawn.values()])[:-1])
    return PruningCurve(
        model=model.name,
        measure=name_of(measure),
        higher_is_better=better_high(measure),
        removed=removed,
        values={
            name: part.reshape(len(drawn[name]), len(removed), len(asked))
            for name, part in zip(drawn, parts, strict=True)
        },
        orders=drawn,
        n_resamples=n_resamples,
        seed=seed,
        right=asked[0].right,
    )


def answers(
    model: Model, asked: Sequence[Question], sets: Sequence[frozenset[Head]], *, progress: str | None = None
) -> Float[np.ndarray, "set example"]:
    """The measure of each example with each set of heads silenced; equal sets run once."""
    silence, columns = Silencer(), []
    edits = [silence(heads) for heads in sets]
    for one in tqdm(asked, desc=progress, delay=1.0, leave=False, disable=None if progress else True, unit="example"):
        rows = [Row(one.example, edits=edit) for edit in edits]
        columns.append(targets(model, rows, one.measured).double().numpy())
    return np.stack(columns, axis=1)


def _orders(
    model: Model, orders: Mapping[str, Any], stack: Stack | None, n_random: int, seed: int
) -> dict[str, tuple[tuple[Head, ...], ...]]:
    """The orders by name, each checked; of random ones several."""
    if not isinstance(orders, Mapping) or not orders:
        raise InputError("orders are a mapping of names to orders, such as {'entropy': order, 'random': 'random'}")
    if n_random < 1:
        raise InputError(f"n_random is at least 1, got {n_random}")
    fixed = {name: _fixed(model, name, order) for name, order in orders.items() if not _is_random(order)}
    stacks = model.stacks if stack is None else [stack]
    pool = next(iter(fixed.values()), tuple(head for one in stacks for head in heads_of_stack(one)))
    for name, order in fixed.items():
        if set(order) != set(pool):
            other = sorted(set(order) ^ set(pool))
            raise InputError(f"the orders hold different heads; '{name}' and the first differ in {other[0]}"
                             + (f" and {len(other) - 1} more" if len(other) > 1 else ""))  # fmt: skip
    draw, heads = np.random.default_rng(seed), sorted(pool)
    return {
        name: (fixed[name],)
        if name in fixed
        else tuple(tuple(heads[at] for at in draw.permutation(len(heads))) for _ in range(n_random))
        for name in orders
    }


def _fixed(model: Model, name: str, given: Any) -> tuple[Head, ...]:
    """An order of `pruning_curve`; of several scores one must be chosen, by head_order."""
    frame = given.to_frame() if isinstance(given, HeadProfile) else given
    if isinstance(frame, pd.DataFrame) and len(known := _scores(frame)) > 1:
        score = name if name in known else known[0]
        raise InputError(
            f"the order '{name}' holds {len(known)} scores, so it is no order; give "
            f"{{'{name}': head_order(model, heads, '{score}')}}"
        )
    return head_order(model, given)


def _scores(frame: pd.DataFrame) -> list[str]:
    """The columns of a table that are scores of heads."""
    return [str(name) for name in frame if name not in (*PLACE, "n")]


def _is_random(order: Any) -> bool:
    return isinstance(order, str) and order == RANDOM


def _steps(steps: Sequence[int] | None, n_heads: int) -> tuple[int, ...]:
    if steps is None:
        few = n_heads <= MOST_STEPS
        steps = range(n_heads + 1) if few else np.linspace(0, n_heads, MOST_STEPS + 1).round().astype(int).tolist()
    outside = [n for n in steps if not isinstance(n, Integral) or isinstance(n, bool) or not 0 <= int(n) <= n_heads]
    if outside:
        raise InputError(f"steps are numbers of heads from 0 to {n_heads}, got {outside[0]!r}")
    return tuple(sorted({0, n_heads, *map(int, steps)}))
