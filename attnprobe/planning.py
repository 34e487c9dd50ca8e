"""What a comparison is going to do: examples, targets, methods and operators, all checked before any work."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.choosing import Methods, Operators, chosen, operators_of
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.example import Example
from attnprobe.judging import check_removal
from attnprobe.methods.controls import seed_of
from attnprobe.models.model import Model
from attnprobe.registry import Entry
from attnprobe.target import ResolvedTarget, Target


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be done, everything checked that can be checked before any work.

    asked: the operators that were asked for. operators: the main one first, then the others that work on at least one
    example. lacking: for each example the operators that do not work on it, with the reason.
    """

    model: Model
    examples: list[Example]
    targets: list[ResolvedTarget]
    entries: list[tuple[Entry, dict[str, Any]]]
    target: Target
    asked: tuple[str, ...]
    operators: tuple[str, ...]
    lacking: list[dict[str, str]]

    def other(self, index: int) -> int | None:
        """The example whose maps serve as foreign ones: the nearest before it, in a ring, that reads something else."""
        mine = seed_of(self.examples[index])
        n = len(self.examples)
        ring = ((index - step) % n for step in range(1, n))
        return next((at for at in ring if seed_of(self.examples[at]) != mine), None)

    def others(self, index: int) -> list[Example]:
        """The inputs that read something else than this one, each once: what tokens may be drawn from."""
        found: dict[int, Example] = {}
        for example in self.examples:
            found.setdefault(seed_of(example), example)
        mine = seed_of(self.examples[index])
        return [example for seed, example in found.items() if seed != mine]


def plan_of(
    model: Model,
    examples: Any,
    methods: Methods,
    target: Target,
    options: Mapping[str, Mapping[str, Any]],
    operators: Operators,
) -> Plan:
    """The plan; `InputError` for whatever does not exist or does not work, with the number of the text."""
    for name in (target.label, target.against):
        if name is not None:
            model.outputs.index(name)
    named = operators_of(model, operators)
    entries = chosen(methods, options)
    given = list(inputs_of(examples))
    if not given:
        raise InputError("there is no text; give at least one")
    read, targets, lacking = [], [], []
    for index, item in enumerate(given):
        try:
            read.append(model.example(item))
            targets.append(model.resolve(read[-1], target))
            lacking.append(_lacking(model, read[-1], targets[-1], named))
        except AttnprobeError as error:
            raise InputError(f"text {index + 1} of {len(given)}: {error}" if len(given) > 1 else str(error)) from error
    return Plan(model, read, targets, entries, target, tuple(named), _ordered(named, lacking), lacking)


def blank(example: Example, target: ResolvedTarget) -> Attribution:
    """Scores of 0: what stands for an example where only its units count."""
    return Attribution("", "control", example, target, torch.zeros(example.n_tokens), signed=False)


def _lacking(model: Model, example: Example, target: ResolvedTarget, operators: Sequence[str]) -> dict[str, str]:
    """The operators that do not work on an example, each with the reason; an error where there is but one."""
    found: dict[str, str] = {}
    for operator in operators:
        try:
            check_removal(model, blank(example, target), operator)
        except AttnprobeError as error:
            if len(operators) == 1:
                raise
            found[operator] = str(error)
    if len(found) == len(operators):
        raise InputError(f"no operator works here; '{operators[0]}': {found[operators[0]]}")
    return found


def _ordered(operators: Sequence[str], lacking: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Those that work on some example, first the one that works on the most, in the order given where equal."""
    n = {operator: sum(operator not in found for found in lacking) for operator in operators}
    used = [operator for operator in operators if n[operator]]
    main = max(used, key=lambda operator: n[operator])
    return (main, *(operator for operator in used if operator != main))


def inputs_of(examples: Any) -> Iterable[Any]:
    """One input in a list of its own, or the inputs that a list, a generator, a series or an array holds."""
    if isinstance(examples, pd.DataFrame):
        columns = ", ".join(map(str, examples.columns))
        raise InputError(f"examples is a table; give one of its columns, such as df['text'] (it has {columns})")
    if isinstance(examples, bytes):
        raise InputError("examples is bytes, expected text; decode it first, such as examples.decode()")
    if isinstance(examples, str | Example | Mapping | Tensor) or not isinstance(examples, Iterable):
        return [examples]
    if isinstance(examples, np.ndarray) and examples.ndim != 1:
        return [examples]  # a picture
    given = examples.tolist() if isinstance(examples, np.ndarray) else list(examples)
    ids = bool(given) and all(isinstance(item, Integral) and not isinstance(item, bool) for item in given)
    return [list(map(int, given))] if ids else given
