"""swap(): a pretrained model with another attention mechanism: how far predictions move, and explanations with them.

For each layer alone, and for all of them at once, on each text (p: the model's own probabilities, q: those after):

    change            target after - target before, in the target's scale
    kl                sum p ln(p / q), in nats
    total_variation   1/2 sum |p - q|, 0 to 1
    kept              1 where the most probable output stayed the same, else 0
    kendall_tau       of each method: its scores of the same target before and after, over the tokens that are no
                      specials; 1: the same order. What differs by rounding alone is tied; NaN where all of
                      one are, as under uniform attention

The last three of the prediction are NaN where there is no one distribution: a single number, outputs that do not
exclude one another (kept is there), a target that is a function (the answer of an encoder-decoder).
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.attention.indices import Index, numbers
from attnprobe.attention_swap import swapped
from attnprobe.attributing import Method, attribute
from attnprobe.attribution import Attribution
from attnprobe.capture import finite
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.example import Example
from attnprobe.intervals import over_texts
from attnprobe.intervention import Intervention
from attnprobe.methods import methods as registry
from attnprobe.metrics.ranks import kendall_tau
from attnprobe.models import load
from attnprobe.models.edited import EditedModel
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.planning import inputs_of
from attnprobe.registry import Entry
from attnprobe.site import Kind
from attnprobe.target import ResolvedTarget, as_target

# Two of attention alone, one of gradients, one of removal.
METHODS: tuple[Method, ...] = ("raw_attention", "rollout", "input_x_gradient", "leave_one_out")
# The model's own mechanism under other names: that nothing moves is no surprise.
CONTROLS = ("scaled_dot", "online")
# Of a layer alone its number stands in the tables; of all layers at once this.
ALL = "all"
# Scores are ranked in steps of this part of the largest.
STEP = 1e-5
PREDICTION = ("change", "kl", "total_variation", "kept")
KEYS = ["mechanism", "stack", "kind", "layer", "measure", "method"]


@dataclass(frozen=True, eq=False)
class Swap:
    """What swap() found; see the module for the measures.

    texts: a row a text, place and measure: example_index, mechanism, stack, kind, layer (its number, or "all"),
    measure, method (of kendall_tau, else ""), value. failures: example_index, layer, method, error. notes: what of the
    model the mechanism dropped, in sentences.
    """

    model: str
    mechanism: str
    texts: pd.DataFrame = field(repr=False)
    failures: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = field(repr=False, default=())
    n_resamples: int = 1000

    def __repr__(self) -> str:
        """What was put where, on how many texts, and what to ask next."""
        n_texts, layers = self.texts.example_index.nunique(), list(dict.fromkeys(self.texts.layer))
        lost = f", {len(self.failures)} failures" if len(self.failures) else ""
        said = f", {len(self.notes)} notes" if self.notes else ""
        where = f"{self.mechanism} in {self.model}: layers {', '.join(layers)}"
        return f"Swap({where}, {n_texts} texts{lost}{said}; to_frame())"

    def to_frame(self) -> pd.DataFrame:
        """A row a place, measure and method: mean over the texts, low and high (95 % bootstrap interval), n."""
        rows = []
        for key, group in self.texts.groupby(KEYS, sort=False):
            found = over_texts(group.value.tolist(), n_resamples=self.n_resamples, seed=0)
            rows.append((*key, found.mean, found.low, found.high, found.n))
        return pd.DataFrame(rows, columns=[*KEYS, "mean", "low", "high", "n"])


@dataclass(frozen=True, eq=False)
class _Place:
    """Where the mechanism is put, a layer or all of them ("all"), and the model with it there."""

    stack: str
    kind: str
    layer: str
    edit: Intervention
    model: EditedModel

    def row(self, measure: str, method: str, value: float) -> tuple[Any, ...]:
        """A row of the table of texts, without the number of the text."""
        return self.edit.name, self.stack, self.kind, self.layer, measure, method, value


def swap(
    model: Any,
    mechanism: Any,
    examples: Any,
    target: Any = None,
    *,
    layers: Index = None,
    heads: Index = None,
    stack: str | None = None,
    kind: Kind | None = None,
    each: bool = True,
    methods: Sequence[Method] = METHODS,
    n_resamples: int = 1000,
    progress: bool = True,
    **options: Any,
) -> Swap:
    """Run a model with another attention mechanism: in each layer alone, then in all of them at once.

    mechanism, heads, options: as in `swapped`. examples: one input or many, as in `compare`. target: what is measured
    and explained; None for what the model itself predicts on each. layers: only these (None: all). stack, kind: only
    there (an encoder-decoder has several). each: False for all of them at once only. methods: whose scores are compared
    before and after; () for none.
    Errors: `InputError` for a name, layer or target that does not exist; `EditError` where the mechanism cannot run. A
    method that fails is a row in `failures`, and the others go on.
    """
    model = load(model)
    entries = [registry.get_entry(method) for method in methods]
    places = _places(model, mechanism, layers, each, {"heads": heads, "stack": stack, "kind": kind, **options})
    read = [model.example(item) for item in inputs_of(examples)]
    if not read:
        raise InputError("there is no text; give at least one")
    goals = [model.resolve(example, as_target(target)) for example in read]
    name, total = places[0].edit.name, len(read) * len(places) * (1 + len(entries))
    rows, failures, notes = [], [], list(map(_without_distribution, goals))
    still = [place for place in places if name not in CONTROLS]
    with tqdm(total=total, desc=name, disable=None if progress else True, delay=1.0, leave=False) as bar:
        for index, (example, goal) in enumerate(zip(read, goals, strict=True)):
            found, told, moved = _predictions(model, example, goal, places)
            bar.update(len(places))
            notes, still = notes + told, [place for place in still if place not in moved]
            for entry in entries:
                taus, failed = _explanations(model, example, goal, entry, places)
                bar.update(len(places))
                found += taus
                failures += [(index, *row) for row in failed]
            rows += [(index, *row) for row in found]
    notes.append(_without_effect(still, places, read))
    texts = pd.DataFrame(rows, columns=["example_index", *KEYS, "value"])
    lost = pd.DataFrame(failures, columns=["example_index", "layer", "method", "error"])
    return Swap(model.name, name, texts, lost, tuple(dict.fromkeys(filter(None, notes))), n_resamples)


def _places(model: Model, mechanism: Any, layers: Index, each: bool, options: dict[str, Any]) -> list[_Place]:
    """Each layer alone, in the order of the stacks, then all at once; `InputError` for one that is not there."""
    given = numbers(layers, "layer")
    stack, kind = options["stack"], options["kind"]
    stacks = [s for s in model.stacks if stack in (None, s.name) and kind in (None, s.kind)]
    if not stacks:
        known = ", ".join(f"{s.name} {s.kind}" for s in model.stacks)
        raise InputError(f"{model.name} has no attention of stack={stack!r}, kind={kind!r}; it has {known}")
    deepest = max(s.n_layers for s in stacks)
    wrong = [layer for layer in given or () if not 0 <= layer < deepest]
    if wrong:
        raise InputError(f"{model.name} has layers 0 to {deepest - 1}, got {wrong[0]}")
    alone = [(s, n) for s in stacks for n in (range(s.n_layers) if given is None else given) if n < s.n_layers]
    found = []
    for one, number in alone if each else ():
        edit = swapped(mechanism, **{**options, "layers": number, "stack": one.name, "kind": one.kind})
        found.append(_Place(one.name, one.kind, str(number), edit, EditedModel(model, [edit])))
    if len(alone) > 1 or not each:
        edit = swapped(mechanism, layers=given, **options)
        names, kinds = ({s.name for s in stacks}, {s.kind for s in stacks})
        whole = (names.pop() if len(names) == 1 else ALL, kinds.pop() if len(kinds) == 1 else ALL)
        found.append(_Place(*whole, ALL, edit, EditedModel(model, [edit])))
    return found


def _without_effect(still: Sequence[_Place], places: Sequence[_Place], read: Sequence[Example]) -> str:
    """A note where the mechanism moved no prediction at all; "" where it moved each."""
    if not still:
        return ""
    where = "everywhere" if len(still) == len(places) else f"in {', '.join(f'{p.stack} {p.layer}' for p in still)}"
    lengths = sorted({example.n_tokens for example in read})
    return (
        f"{still[0].edit.name} is the same as full attention at this length ({lengths[0]} to {lengths[-1]} tokens)"
        f" {where}: nothing moved; a k, window, landmarks or recent tokens of the text's length change nothing, and "
        "temperature 1 does not either"
    )


def _without_distribution(goal: ResolvedTarget) -> str:
    """A note where the measures of the prediction are NaN; "" where they are there."""
    what = f"{goal.label_name} has no one distribution, so kl, total_variation and kept are NaN"
    return "" if goal.function is None else f"{what}; for one step of an answer give Target(position=…)"


# ---------------------------------------------------------------- predictions


class _Answers:
    """A target for the evaluator, which hands back one number a row: the place of the row's answer in this list."""

    def __init__(self, goal: ResolvedTarget) -> None:
        self.goal = goal
        self.known: list[tuple[float, Tensor]] = []

    def __call__(self, logits: Float[Tensor, " row *rest"]) -> Float[Tensor, " row"]:
        """Note the target and the outputs [output] of each row."""
        values, start = finite("the model's output", self.goal(logits)).double().cpu(), len(self.known)
        position = self.goal.position
        outputs = (logits if position is None else logits[:, position]).double().cpu()
        self.known += zip(values.tolist(), outputs, strict=True)
        return torch.arange(start, len(self.known), dtype=torch.float64)


def _predictions(
    model: Model, example: Example, goal: ResolvedTarget, places: Sequence[_Place]
) -> tuple[list[tuple[Any, ...]], list[str], list[_Place]]:
    """How far the prediction moves at each place, all in one evaluation; what the mechanism said; where it moved."""
    answers = _Answers(goal)
    rows = [Row(example), *(Row(example, edits=(place.edit,)) for place in places)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        order = targets(model, rows, answers).long().tolist()
    before, *after = [answers.known[ticket] for ticket in order]
    moved = []
    for place, (value, outputs) in zip(places, after, strict=True):
        numbers = (value - before[0], *distances(before[1], outputs, goal))
        moved += [place.row(measure, "", number) for measure, number in zip(PREDICTION, numbers, strict=True)]
    size = STEP * max(1.0, float(before[1].abs().max()))
    there = [p for p, (_, out) in zip(places, after, strict=True) if not bool((out - before[1]).abs().max() <= size)]
    return moved, [str(w.message) for w in caught if issubclass(w.category, UserWarning)], there


def distances(before: Tensor, after: Tensor, goal: ResolvedTarget) -> tuple[float, float, float]:
    """KL divergence in nats, total variation and whether the first output stayed, of outputs [output] before and after.

    NaN where the outputs are no one distribution.
    """
    if goal.function is not None or before.ndim != 1 or len(before) == 1:
        return math.nan, math.nan, math.nan
    kept = float(before.argmax() == after.argmax())
    if not goal.exclusive:
        return math.nan, math.nan, kept
    p, q = before.log_softmax(-1), after.log_softmax(-1)
    kl, variation = (p.exp() * (p - q)).sum(), (p.exp() - q.exp()).abs().sum() / 2
    return max(0.0, float(kl)), float(variation), kept


# ---------------------------------------------------------------- explanations


def _explanations(
    model: Model, example: Example, goal: ResolvedTarget, entry: Entry, places: Sequence[_Place]
) -> tuple[list[tuple[Any, ...]], list[tuple[str, str, str]]]:
    """Kendall's tau of a method's scores before and after, at each place; and where the method failed."""
    rows: list[tuple[Any, ...]] = []
    failed: list[tuple[str, str, str]] = []
    before = _attributed(model, example, goal, entry)
    if isinstance(before, str):
        return rows, [("", entry.name, before)]
    for place in places:
        after = _attributed(place.model, example, goal, entry)
        if isinstance(after, str):
            failed.append((place.layer, entry.name, after))
        else:
            x, y = before.scores[before.units], after.scores[before.units]
            rows.append(place.row("kendall_tau", entry.name, kendall_tau(_steps(x), _steps(y))))
    return rows, failed


def _steps(scores: Float[Tensor, " unit"]) -> Float[Tensor, " unit"]:
    """Scores as whole numbers of steps: those that differ by rounding alone are tied, and have no order to compare."""
    largest = scores.abs().max()
    return (scores / (STEP * largest)).round() if float(largest) > 0 else scores


def _attributed(model: Model, example: Example, goal: ResolvedTarget, entry: Entry) -> Attribution | str:
    """What a method says, or why it says nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the mechanism are noted where the predictions are made
            return attribute(model, example, entry, goal)
    except AttnprobeError as error:
        return str(error)
    except Exception as error:  # a method may be anybody's: whatever goes wrong in it is its own failure
        return f"{type(error).__name__}: {error}"
