"""head_effect(): the one place that asks for an effect of every head of a stack and checks the answer."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.heads import head_effects
from attnprobe.heads.addresses import stack_of
from attnprobe.heads.pairs import Pair
from attnprobe.heads.rows import listed, places_of
from attnprobe.heads.spoken import said, target_unit
from attnprobe.models import load
from attnprobe.models.evaluator import Meter
from attnprobe.models.model import Stack
from attnprobe.registry import Entry
from attnprobe.site import Kind
from attnprobe.target import ResolvedTarget, as_target


@dataclass(frozen=True, eq=False, repr=False)
class HeadEffect:
    """What one effect says of every head of a stack, in the target's units; NaN for heads that a layer lacks.

    sign: what a value above 0 means. options: all, defaults included; seed: of draws, None where nothing is drawn.
    seconds: of the whole question.
    """

    values: Float[Tensor, "layer head"]
    name: str
    label: str
    example: Example
    target: ResolvedTarget
    stack: str
    kind: Kind
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    model: str = ""
    forward_passes: int = 0
    backward_passes: int = 0
    seconds: float = 0.0
    sign: str = ""

    def __repr__(self) -> str:
        """The effect, where it was measured and on what, and its largest heads."""
        heads = self.top(3)
        numbers = said(heads.value.tolist(), signs=True)
        named = (
            f"{layer}.{head} {text}" for layer, head, text in zip(heads.layer, heads["head"], numbers, strict=True)
        )
        return (
            f"HeadEffect {self.name} of {self.model}, {self.stack} {self.kind}-attention, on the "
            f"{self.target.description}, in {self.unit}{f' ({self.sign})' if self.sign else ''}\n"
            f"largest: {', '.join(named)}; to_frame() has all {int((~self.values.isnan()).sum())} heads"
        )

    @property
    def unit(self) -> str:
        """In what the values are: logits, nats (of log-probability), or probability."""
        return target_unit(self.target)

    def to_frame(self) -> pd.DataFrame:
        """A row a head that is there: stack, kind, layer, head, score (the effect's name), value, unit."""
        known = (~self.values.isnan()).nonzero()
        frame = pd.DataFrame(known.tolist(), columns=["layer", "head"])
        frame.insert(0, "stack", self.stack)
        frame.insert(1, "kind", self.kind)
        return frame.assign(score=self.name, value=self.values[known[:, 0], known[:, 1]].tolist(), unit=self.unit)

    def top(self, n: int = 10) -> pd.DataFrame:
        """The n heads with the largest effect, whatever its direction."""
        frame = self.to_frame()
        return frame.loc[frame.value.abs().sort_values(ascending=False, kind="stable").index[:n]].reset_index(drop=True)


def head_effect(
    model: Any, example: Any, name: str, target: Any = None, *, stack: Stack | str | None = None, **options: Any
) -> HeadEffect:
    """An effect of `attnprobe.heads.head_effects` for every head of a stack, with its options and what it cost.

    model, example, target: as in `attribute`; in the place of the example, for effects that compare two inputs, a
    `pair(model, clean, corrupt)`. stack: one of `model.stacks`, or its name ("decoder", "decoder.cross");
    None for the one that is explained. options: keyword arguments of the effect.
    Errors: `InputError` for a name, option or stack that does not exist, and for an effect that this model cannot have.
    """
    model = load(model)
    entry = head_effects[name]
    if isinstance(example, Pair):
        example, target, options = _of_pair(name, entry, example, target, options)
    options = entry.check_options(listed(options))
    example = example if isinstance(example, Example) else model.example(example)
    resolved = target if isinstance(target, ResolvedTarget) else model.resolve(example, as_target(target))
    chosen = stack_of(model, example, stack)
    with Meter() as meter:
        values = entry.function(model, example, resolved, chosen, **options)
    _check(name, values, chosen)
    return HeadEffect(
        values=values,
        name=name,
        label=str(entry.facts["label"]),
        example=example,
        target=resolved,
        stack=chosen.name,
        kind=chosen.kind,
        options=options,
        seed=options.get("seed"),
        model=model.name,
        forward_passes=meter.forward,
        backward_passes=meter.backward,
        seconds=meter.seconds,
        sign="+: rises with it" if options.get("signed") else str(entry.facts.get("sign", "")),
    )


def _of_pair(
    name: str, entry: Entry, given: Pair, target: Any, options: dict[str, Any]
) -> tuple[Example, Any, dict[str, Any]]:
    """Example, target and options of a pair: the clean input, its target unless there is one, the corrupt input."""
    if "corrupt" not in entry.options:
        raise InputError(f"{name} looks at one input, got a pair; give one of its two: pair.clean or pair.corrupt")
    if options.get("corrupt") is not None:
        raise InputError("the pair has a corrupt input of its own; leave out corrupt=…, or give pair.clean")
    return given.clean, given.target if target is None else target, {**options, "corrupt": given.corrupt}


def _check(name: str, values: Tensor, stack: Stack) -> None:
    """A number for every head that is there, NaN for the others."""
    expected = (stack.n_layers, max(stack.n_heads))
    if not isinstance(values, Tensor) or tuple(values.shape) != expected:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(f"{name} gave {got}, expected {expected} [layer head]")
    layers, heads = zip(*places_of(stack), strict=True)
    if not bool(torch.isfinite(values[list(layers), list(heads)]).all()):
        raise InputError(f"{name} gave a head of {stack.name} {stack.kind}-attention no finite number")
