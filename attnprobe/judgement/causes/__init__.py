"""Causes: why attention and a prediction part, each recognised by a measurement that is shown with it.

A cause is a fact about a model and one prediction; whether it touches a map is told by `place`, where the map ranks the
tokens in question. Adding one means adding a file here, or decorating a function anywhere:

    @causes.add(family="attention", source="…", look_at="value_norms")
    def sink(case, *, threshold=0.3) -> Sign: ...

look_at: the method to look at instead. Thresholds were set on planted models (benchmarks/CAUSES.md); a cause that is
present need not be the only one, nor does it decide whether a map explains.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.errors import AttnprobeError, InputError, nearest
from attnprobe.judgement import asking
from attnprobe.judgement.causes.case import Case
from attnprobe.judgement.effects import N_ORDERS, Effects, effects_under
from attnprobe.models.evaluator import Meter
from attnprobe.models.removal import units as units_of
from attnprobe.models.rows import FILLING
from attnprobe.registry import Registry

FAMILIES = ("attention", "route", "effect")

causes = Registry("cause", "attnprobe.judgement.causes", facts=("look_at",))


@dataclass(frozen=True)
class Sign:
    """What was measured of one cause: the number, what it was held against, the tokens in question, and a sentence."""

    present: bool
    measure: float
    threshold: float
    units: tuple[int, ...]
    sentence: str


@dataclass(frozen=True)
class Cause:
    """One cause: whether it is present, its measure beside the threshold, the tokens in question, what to look at.

    place: the best place of these tokens in the map's order of the units, 1 for the first; None where they are none.
    """

    name: str
    present: bool
    measure: float
    threshold: float
    units: tuple[int, ...]
    sentence: str
    look_at: str
    place: int | None = None


@dataclass(frozen=True, eq=False)
class Causes:
    """What was found of every cause, present or not. lacking: causes that could not be measured here, and why.

    explained: the tokens that a map ranks. method: the map that `place` is about.
    """

    found: tuple[Cause, ...]
    lacking: Mapping[str, str]
    explained: tuple[int, ...]
    method: str
    target: str
    operators: tuple[str, ...]
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    forward_passes: int = 0
    backward_passes: int = 0
    seconds: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the causes that are present."""
        return tuple(cause.name for cause in self.found if cause.present)

    def seen_by(self, scores: asking.Map) -> "Causes":
        """The same causes, and where another map ranks the tokens in question; nothing is measured anew."""
        given = torch.as_tensor(scores.scores if isinstance(scores, Attribution) else scores).abs()
        found = tuple(replace(cause, place=_place(given, self.explained, cause.units)) for cause in self.found)
        return replace(self, found=found, method=_name_of(scores))

    def __getitem__(self, name: str) -> Cause:
        for cause in self.found:
            if cause.name == name:
                return cause
        if name in self.lacking:
            raise InputError(f"'{name}' was not measured here: {self.lacking[name]}")
        raise InputError(f"no cause is named '{name}'; {nearest(name, [cause.name for cause in self.found])}")

    def to_frame(self) -> pd.DataFrame:
        """A row a cause: cause, present, measure, threshold, units, place, look_at, sentence, then how it was found.

        One that could not be measured has present None and the reason as its sentence.
        """
        rows: list[tuple[Any, ...]] = [
            (c.name, c.present, c.measure, c.threshold, list(c.units), c.place, c.look_at, c.sentence)
            for c in self.found
        ]
        rows += [
            (name, None, math.nan, math.nan, [], None, causes[name].facts["look_at"], f"not measured: {why}")
            for name, why in self.lacking.items()
        ]
        names = ["cause", "present", "measure", "threshold", "units", "place", "look_at", "sentence"]
        frame = pd.DataFrame(rows, columns=names).astype({"present": "boolean", "place": "Int64"})
        return frame.assign(
            method=self.method,
            target=self.target,
            operators=", ".join(self.operators),
            options=str(dict(self.options)),
            seed=self.seed,
            forward_passes=self.forward_passes,
            backward_passes=self.backward_passes,
        )


def find_causes(
    model: Any,
    example: Any,
    target: Any,
    scores: asking.Map,
    *,
    effects: Sequence[Effects] | None = None,
    data: Sequence[Any] | None = None,
    n_orders: int = N_ORDERS,
    seed: int = 0,
    only: Sequence[str] | None = None,
) -> Causes:
    """Every cause in the registry, measured on one prediction, and where the map `scores` ranks the tokens in question.

    effects: what `unit_effects` gave under content operators, and under "value_zero" if it is at hand (None: under
    "mean" and "resample", over n_orders orders). data: texts that resampling draws from. only: names of causes.
    Errors: `InputError` for scores that are not one finite number a token, effects of other tokens or under no content
    operator, or a cause that does not exist.
    """
    model, example, target = asking.read(model, example, target)
    given, index = asking.scores_of(scores, example).abs(), units_of(example, target)
    with Meter() as meter:
        if effects is None:
            effects, _ = effects_under(
                model, example, target, ("mean", "resample"), n_orders=n_orders, seed=seed, data=data
            )
        case = Case(model, example, target, given, tuple(effects), data, seed)
        for one in case.effects:
            asking.check_units(one.units, index)
        found, lacking = _measured(case, list(causes) if only is None else only)
    return Causes(
        found,
        lacking,
        tuple(index.tolist()),
        _name_of(scores),
        target.description,
        tuple(e.operator for e in case.effects),
        seed,
        {"n_orders": case.effects[0].n_orders},
        meter.forward,
        meter.backward,
        meter.seconds,
    )


def _measured(case: Case, names: Sequence[str]) -> tuple[tuple[Cause, ...], dict[str, str]]:
    if not case.content:
        raise InputError(f"causes need effects under a content operator ({', '.join(FILLING)}); got none")
    found, lacking = [], dict[str, str]()
    for name in names:
        entry = causes[name]
        try:
            sign: Sign = entry.function(case)
        except AttnprobeError as error:
            lacking[name] = str(error)
            continue
        found.append(
            Cause(
                name,
                sign.present,
                sign.measure,
                sign.threshold,
                sign.units,
                sign.sentence,
                entry.facts["look_at"],
                _place(case.scores, case.units.tolist(), sign.units),
            )
        )
    return tuple(found), lacking


def _name_of(scores: asking.Map) -> str:
    return scores.method if isinstance(scores, Attribution) else "given scores"


def _place(scores: Tensor, explained: Sequence[int], tokens: Sequence[int]) -> int | None:
    """The best place of any of these tokens in the map's order; those of equal score share the later place."""
    sizes = scores[list(explained)]
    return min((int((sizes >= scores[token]).sum()) for token in tokens if token in explained), default=None)


def named(words: Sequence[str]) -> str:
    """Tokens in words, quoted: 'a', 'b' and 'c'.

    >>> named(["a"]), named(["a", "b", "c"])
    ("'a'", "'a', 'b' and 'c'")
    """
    quoted = [f"'{word}'" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}" if quoted else "no token"


def sign_of(
    case: Case, present: bool, measure: float, threshold: float, units: Sequence[int] | Tensor, sentence: str
) -> Sign:
    """A sign whose sentence may say {units}: the tokens in question."""
    tokens = tuple(int(token) for token in units)
    words = named([case.example.pieces[token] for token in tokens])
    return Sign(bool(present), float(measure), threshold, tokens, sentence.replace("{units}", words))


__all__ = ["FAMILIES", "Case", "Cause", "Causes", "Sign", "causes", "find_causes", "named", "sign_of"]
