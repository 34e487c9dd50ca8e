"""profile(): what each head of a model does on some examples, a row a head, a column a score.

Scores are of three kinds: what a head's weights look like on each example (`head_scores`), what the target owes to it
there (`head_effects`), and what it does on inputs of a probe's own making or by its parameters (`probe_scores`), which
are one number a head and have no interval.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.attention.seam import Keep
from attnprobe.capture import Capture, head_numbers
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.example import Example
from attnprobe.head_profile import PLACE, HeadProfile, Told, mean_of, silence_of
from attnprobe.heads import chance, head_effects, head_scores, probe_scores
from attnprobe.heads.asked import Choices, Wanted, chosen_of, never_of, takes_others
from attnprobe.heads.spoken import OF_TARGET, target_unit
from attnprobe.heads.whole import whole
from attnprobe.intervals import check_resampling
from attnprobe.models import load
from attnprobe.models.evaluator import remembering
from attnprobe.models.model import Model, Stack
from attnprobe.planning import inputs_of
from attnprobe.registry import Entry
from attnprobe.target import ResolvedTarget, as_target

EXCERPT = 30  # characters of a text by which a warning names it


def profile(
    model: Any,
    examples: Any,
    scores: Wanted = None,
    effects: Wanted = (),
    probes: Wanted = (),
    target: Any = None,
    *,
    stack: str | None = None,
    kind: str | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> HeadProfile:
    """A profile of every head: scores and effects on each example with intervals over them, and probes.

    scores, effects, probes: names, functions of that form, or a mapping of either to options (None: all scores that
    are registered). target: what effects explain (None: the prediction). stack, kind: of several stacks, those named.
    What fails on an example is a warning of the profile that names it; the rest goes on, and so is a score that was
    asked for by name and has no number. Resampling, given no data, takes z from the other examples, where there are 4.
    Errors: `InputError` for a name that is not there, for no example, and where every example failed.
    """
    check_resampling(n_resamples, seed)
    model = load(model)
    chosen = Choices(
        chosen_of(head_scores, scores), chosen_of(head_effects, effects), chosen_of(probe_scores, probes, seed)
    )
    given = list(inputs_of(examples))
    if not given:
        raise InputError("there is no example; give at least one")
    work = _Work(model, chosen, _stacks(model, stack, kind), target, given)
    total = len(given) + len(chosen.probes) * len(work.stacks)
    with tqdm(total=total, desc="profiling heads", delay=1.0, leave=False, disable=None if progress else True) as bar:
        for index, item in enumerate(given):
            work.add(index, item)
            bar.update()
        if not work.any_known():
            raise InputError(f"no example could be profiled: {work.said[0]}")
        for entry, options in chosen.probes:
            for place in work.stacks:
                work.probe(entry, options, place)
                bar.update()
    work.say_what_is_silent(() if scores is None else [entry.name for entry, _ in chosen.scores])
    return work.result(n_resamples, seed)


def _stacks(model: Model, name: str | None, kind: str | None) -> list[Stack]:
    known = [s for s in model.stacks if name in (None, s.name) and kind in (None, s.kind)]
    if not known:
        there = ", ".join(f"{s.name} {s.kind}" for s in model.stacks)
        raise InputError(f"{model.name} has no {kind or 'any'}-attention in a stack '{name or 'any'}'; it has {there}")
    return known


class _Work:
    """A profile on its way: a row of numbers an example for each score, NaN where something failed."""

    def __init__(self, model: Model, chosen: Choices, stacks: list[Stack], target: Any, given: list[Any]) -> None:
        self.model, self.chosen, self.stacks, self.target = model, chosen, stacks, target
        places = [
            (s.name, s.kind, layer, head) for s in stacks for layer, n in enumerate(s.n_heads) for head in range(n)
        ]
        self.heads = pd.DataFrame(places, columns=list(PLACE))
        self.at = {place: number for number, place in enumerate(places)}
        self.rows: dict[str, list[np.ndarray]] = {entry.name: [] for _, entry, _ in chosen.named()}
        self.even: dict[str, list[np.ndarray]] = {entry.name: [] for _, entry, _ in chosen.named()}
        self.targets: list[str] = []
        self.texts: list[str] = []
        self.unit = ""
        self.given = given
        self.said: list[str] = []
        self.never = {entry.name: why for entry, options in chosen.effects if (why := never_of(entry, options, given))}
        self.said += [f"{name}: {why}" for name, why in self.never.items()]

    def add(self, index: int, item: Any) -> None:
        """One example: its scores and effects; what fails is said, and its numbers are NaN."""
        for entry, _ in (*self.chosen.scores, *self.chosen.effects):
            self.rows[entry.name].append(np.full(len(self.heads), np.nan))
        label = f"example {index}" + (f" ('{item[:EXCERPT]}')" if isinstance(item, str) else "")
        example: Example | None = None
        with self._saying(label):
            example = self.model.example(item)
        self.targets.append("")
        self.texts.append("" if example is None else example.text)
        if example is None:
            return
        if self.chosen.scores:
            for place in self.stacks:
                with self._saying(f"{label}, {place.name} {place.kind}-attention"):
                    self._score(example, place, label)
        if self.chosen.effects:
            with self._saying(label):
                self._effects(example, index, label)

    def _score(self, example: Example, place: Stack, label: str) -> None:
        keep = Keep.of("weights", stack=place.name, kind=place.kind)
        capture = whole(self.model.capture(example, keep=keep).only(place.name, place.kind))
        for entry, options in self.chosen.scores:
            with self._saying(f"{label}, {entry.name}"):
                self._put(entry, place, entry.function(capture, **options), _places(capture))
                self._put_chance(entry, place, chance.of_score(entry, capture, options))

    def _effects(self, example: Example, index: int, label: str) -> None:
        target = self.target
        goal = target if isinstance(target, ResolvedTarget) else self.model.resolve(example, as_target(target))
        self.targets[-1], self.unit = goal.description, target_unit(goal)
        with remembering():
            for entry, options in self.chosen.effects:
                if entry.name in self.never:
                    continue
                if takes_others(entry, options):
                    options = {**options, "data": [one for at, one in enumerate(self.given) if at != index]}
                for place in self.stacks:
                    with self._saying(f"{label}, {entry.name}, {place.name} {place.kind}-attention"):
                        found = entry.function(self.model, example, goal, place, **options)
                        self._put(entry, place, found, _all_places(place))

    def probe(self, entry: Entry, options: Mapping[str, Any], place: Stack) -> None:
        """One number a head, in a row of its own."""
        rows = self.rows[entry.name]
        if not rows:
            rows.append(np.full(len(self.heads), np.nan))
        with self._saying(f"{entry.name}, {place.name} {place.kind}-attention"):
            self._put(entry, place, entry.function(self.model, place, **options), _all_places(place))
            self._put_chance(entry, place, chance.of_probe(entry, self.model, place, options))

    def _put_chance(self, entry: Entry, place: Stack, found: Tensor | None) -> None:
        """What even attention scores on one input: one number for the heads of a stack, whatever their mask."""
        row = np.full(len(self.heads), np.nan)
        mine = (self.heads["stack"] == place.name) & (self.heads["kind"] == place.kind)
        row[mine.to_numpy()] = chance.level(found)
        self.even[entry.name].append(row)

    def chances(self) -> dict[str, np.ndarray]:
        """What even attention scores, mean over examples; only of scores that have such a number."""
        means = {name: mean_of(np.stack(rows)) for name, rows in self.even.items() if rows}
        return {name: mean for name, mean in means.items() if not np.isnan(mean).all()}

    def _put(self, entry: Entry, place: Stack, found: Tensor, places: list[tuple[int, int, int]]) -> None:
        """The numbers of some heads; places: the row of the score, the layer and the head of each."""
        if not isinstance(found, Tensor) or found.ndim != 2:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(f"'{entry.name}' gives a tensor [layer head], got {got}")
        expected = tuple(1 + max(place[axis] for place in places) for axis in (0, 2))
        if tuple(found.shape) != expected:
            raise InputError(
                f"'{entry.name}' gives a number for each [layer head] {expected}, got {tuple(found.shape)}"
            )
        numbers, row = found.detach().double().cpu(), self.rows[entry.name][-1]
        for at, layer, head in places:
            row[self.at[place.name, place.kind, layer, head]] = float(numbers[at, head])

    @contextmanager
    def _saying(self, where: str) -> Iterator[None]:
        """What fails within the block, and what warns, is kept with where it was."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            except AttnprobeError as error:
                self.said.append(f"{where}: {error}")
            except Exception as error:  # a score may be anybody's: whatever goes wrong in it is its own failure
                self.said.append(f"{where}: {type(error).__name__}: {error}")
        said = dict.fromkeys(f"{where}: {one.message}" for one in caught)
        self.said += [one for one in said if one not in self.said]

    def any_known(self) -> bool:
        """Whether some example gave some number, or nothing was asked of examples."""
        mine = [entry.name for entry, _ in (*self.chosen.scores, *self.chosen.effects)]
        return not self.said or not mine or any(not np.isnan(row).all() for name in mine for row in self.rows[name])

    def say_what_is_silent(self, scores: Sequence[str]) -> None:
        """What was asked for by name and gave no head a number is not left out without a word."""
        for form, entry, _ in self.chosen.named():
            told = any(f"{entry.name}: " in said or f"{entry.name}, " in said for said in self.said)
            asked = form != "score" or entry.name in scores
            if asked and not told and all(np.isnan(row).all() for row in self.rows[entry.name]):
                self.said.append(f"{entry.name}: {silence_of(self._needs(entry), self.model.name)}")

    def _needs(self, entry: Entry) -> str:
        """Without what a score has no number; a model without a tokenizer has ids, and knows the words of none."""
        needs = str(entry.facts.get("needs", ""))
        inner = getattr(self.model, "inner", self.model)
        ids = getattr(inner, "tokenizer", inner) is None and entry.family in ("token", "segment")
        return needs + " (these are ids, without a tokenizer that knows their words)" * bool(needs and ids)

    def result(self, n_resamples: int, seed: int) -> HeadProfile:
        """All that was found."""
        return HeadProfile(
            model=self.model.name,
            heads=self.heads,
            values=self.values(),
            facts={entry.name: self.told(entry, options, form) for form, entry, options in self.chosen.named()},
            targets=tuple(self.targets),
            warnings=tuple(self.said),
            n_resamples=n_resamples,
            seed=seed,
            chance=self.chances(),
            target_unit=self.unit or (OF_TARGET if self.chosen.effects else ""),
            texts=tuple(self.texts),
        )

    def values(self) -> dict[str, np.ndarray]:
        """The numbers of each score [example head]; of a probe one row."""
        return {name: np.stack(rows) for name, rows in self.rows.items()}

    def told(self, entry: Entry, options: Mapping[str, Any], form: str) -> Told:
        """What people need to know of a column."""
        facts = {"label": entry.name.replace("_", " "), "low": None, "high": None, "unit": "number",
                 "sign": "", "needs": "", **entry.facts}  # fmt: skip
        if form == "effect" and takes_others(entry, options) and entry.name not in self.never:
            options = {**options, "data": f"the {len(self.given) - 1} other examples"}
            facts["label"] = f"{facts['label']}, from the {len(self.given) - 1} other texts"
        facts["needs"] = self._needs(entry)
        if options.get("signed"):
            facts["sign"], facts["low"] = "+: rises with it", None
        kept = {name: value if isinstance(value, int | float | str | None) else repr(value)[:80]
                for name, value in options.items()}  # fmt: skip
        return Told(form=form, family=entry.family, source=entry.source, description=entry.description, options=kept,
                    **{name: facts[name] for name in ("label", "low", "high", "unit", "sign", "needs")})  # fmt: skip


def _places(capture: Capture) -> list[tuple[int, int, int]]:
    return [(row, site.place.layer, head) for row, site in enumerate(capture.sites) for head in head_numbers(site)]


def _all_places(stack: Stack) -> list[tuple[int, int, int]]:
    return [(layer, layer, head) for layer, n in enumerate(stack.n_heads) for head in range(n)]
