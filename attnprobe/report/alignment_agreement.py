"""How far alignments agree with what each step of the answer owes to the text: a sentence, and a row a map."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from torch import Tensor

from attnprobe.answer_steps import (
    INPUT_X_GRADIENT,
    LEAST,
    LEAVE_ONE_OUT,
    MATRICES,
    AnswerSteps,
    StepAgreement,
    step_agreement,
    units_of,
)
from attnprobe.appearance import inline, interval, number, percent, seconds, signed
from attnprobe.intervals import Interval, over_texts
from attnprobe.report.making import operator
from attnprobe.study import Settings, Study

# A map of alignment [step token] under its name; maps of several texts under one name are taken together.
Named = tuple[str, Tensor]
Of = Sequence[tuple[Study, Sequence[Named]]]
BEST = "the best head"


@dataclass(frozen=True)
class Together:
    """The steps of some texts, a map and an attribution of each: how far the two agree."""

    found: tuple[StepAgreement, ...]
    n_units: tuple[int, ...]
    settings: Settings

    @cached_property
    def n_steps(self) -> int:
        """Steps of all texts at which both have an order."""
        return sum(len(_known(one.same_top)) for one in self.found)

    @cached_property
    def n_same(self) -> int:
        """At how many of them both are largest at the same token."""
        return int(sum(sum(_known(one.same_top)) for one in self.found))

    @cached_property
    def chance(self) -> float:
        """The share of steps at which that would happen by chance: 1 of the tokens."""
        weighted = [len(_known(one.same_top)) / n for one, n in zip(self.found, self.n_units, strict=True) if n]
        return sum(weighted) / self.n_steps if self.n_steps else math.nan

    @cached_property
    def tau(self) -> Interval:
        """Kendall's tau, mean over the steps of the one text, or over texts of their means."""
        taus = [_known(one.kendall_tau) for one in self.found]
        values = taus[0] if len(taus) == 1 else [fmean(one) for one in taus if one]
        return over_texts(values, n_resamples=self.settings.n_resamples, seed=self.settings.seed)


def agreement(of: Of, settings: Settings) -> dict[str, Any] | None:
    """What the part says of it; None where no text has both."""
    both = [(study, maps) for study, maps in of if study.answer is not None and maps]
    if not both:
        return None
    methods = [name for name in MATRICES if any(name in _answer(study) for study, _ in both)]
    kinds = list(dict.fromkeys(name for _, maps in both for name, _ in maps))
    kinds = [k for k in kinds if k == BEST or sum(k in dict(maps) for _, maps in both) == len(both)]
    table = {
        k: [together([(s, dict(m)[k]) for s, m in both if k in dict(m)], m, settings) for m in methods] for k in kinds
    }
    rows = [_row(k if k != BEST or len(both) == 1 else f"{k} of each text", cells) for k, cells in table.items()]
    if methods == list(MATRICES):
        other = together([(s, _answer(s)[INPUT_X_GRADIENT].abs()) for s, _ in both], LEAVE_ONE_OUT, settings)
        rows.append(_row(f"for comparison: {inline(INPUT_X_GRADIENT)}", [other, None]))
    return {
        "heading": _heading({name: cells[0] for name, cells in table.items()}, methods[0]),
        "methods": [inline(name) for name in methods],
        "rows": rows,
        "over": "steps" if len(both) == 1 else "texts",
        "how": how([study for study, _ in both]),
    }


def together(of: Sequence[tuple[Study, Tensor]], method: str, settings: Settings) -> Together:
    """A map of each text beside what a method says of its steps."""
    known = [(study, weights) for study, weights in of if method in _answer(study)]
    units = [units_of(study.example) for study, _ in known]
    found = [
        step_agreement(weights, study.answer, method, unit)
        for (study, weights), unit in zip(known, units, strict=True)
        if study.answer is not None
    ]
    return Together(tuple(found), tuple(int(u.sum()) for u in units), settings)


def how(studies: Sequence[Study]) -> str:
    """What the attributions of steps are, and what they took, in sentences."""
    answers = [study.answer for study in studies if study.answer is not None]
    removed = next((one.operator for one in answers if one.leave_one_out is not None), "")
    said = "What a step owes to a token, for the log-probability of the answer’s token there, given those before it. "
    if removed:
        said += f"Leave-one-out: by how much it falls when the token {operator(removed)}. Left out are steps that no "
        said += f"single token moves by {LEAST} nats, a hundredth of their probability: {_left_out(answers)}. "
    said += (
        "Input × gradient: the word’s embedding times the gradient there, summed (Shrikumar et al. 2016); its rows add "
        "up to the method’s scores of the whole answer. Both are computed for all steps at once: "
    )
    n = len(answers)
    passes = [number(sum(getattr(one, f"{way}_passes") for one in answers) / n, 0) for way in ("forward", "backward")]
    mean = seconds(sum(one.seconds for one in answers) / n)
    return f"{said}{passes[0]} forward and {passes[1]} backward passes, {mean}{' a text' if n > 1 else ''}."


def _left_out(answers: Sequence[AnswerSteps]) -> str:
    """How many steps do not depend on the text."""
    dependent = [one.dependent for one in answers]
    return f"{sum(int((~one).sum()) for one in dependent)} of {sum(map(len, dependent))}"


def _answer(study: Study) -> dict[str, Tensor]:
    return {} if study.answer is None else study.answer.maps


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if value == value]


def _heading(table: Mapping[str, Together], method: str) -> str:
    """The finding: at how many steps attention is largest where the attribution is, by the best head and a mean."""
    best, means = table[BEST], [one for name, one in table.items() if name != BEST]
    if not best.n_steps:
        return "Where the answer looks in the text"
    several = len(best.found) > 1
    n, *others = [percent(one.n_same / one.n_steps, 0) if several else str(one.n_same) for one in (best, *means[-1:])]
    chance = percent(best.chance, 0) if several else number(best.chance * best.n_steps, 1)
    steps = f"{n} of the steps" if several else f"{n} of {best.n_steps} steps"
    steps += " that depend on the text" if method == LEAVE_ONE_OUT else ""
    what = "the token they depend on most" + (", by gradient" if method == INPUT_X_GRADIENT else "")
    mean = f"the last layer’s mean at {others[0]}; " if others else ""
    return f"At {steps} the best head looks most at {what}; {mean}by chance {chance}"


def _row(name: str, found: Sequence[Together | None]) -> dict[str, Any]:
    """A map in the table: beside each method the share of steps with the same token, by chance, and tau."""
    return {"name": name[0].upper() + name[1:], "cells": [None if one is None else _cell(one) for one in found]}


def _cell(one: Together) -> dict[str, str]:
    tau = one.tau
    return {
        "top": f"{one.n_same} of {one.n_steps}" if one.n_steps else "–",
        "chance": number(one.chance * one.n_steps, 1) if one.n_steps else "–",
        "tau": f"{signed(tau.mean, 2)} {interval(tau.low, tau.high)}".strip(),
    }
