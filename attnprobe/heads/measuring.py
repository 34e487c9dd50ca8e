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
from attnprobe.heads.rows import places_of
from attnprobe.models import load
from attnprobe.models.evaluator import Meter
from attnprobe.models.model import Stack
from attnprobe.site import Kind
from attnprobe.target import ResolvedTarget, as_target


@dataclass(frozen=True, eq=False)
class HeadEffect:
    """What one effect says of every head of a stack, in the target's units; NaN for heads that a layer lacks.

    options: all, defaults included; seed: of draws, None where nothing is drawn. seconds: of the whole question.
    """

    values: Float[Tensor, "layer head"]
    name: str
    label: str
    example: Example = field(repr=False)
    target: ResolvedTarget
    stack: str
    kind: Kind
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    model: str = ""
    forward_passes: int = 0
    backward_passes: int = 0
    seconds: float = 0.0

    def to_frame(self) -> pd.DataFrame:
        """A row a head that is there: stack, kind, layer, head, effect, value."""
        known = (~self.values.isnan()).nonzero()
        frame = pd.DataFrame(known.tolist(), columns=["layer", "head"])
        frame.insert(0, "stack", self.stack)
        frame.insert(1, "kind", self.kind)
        return frame.assign(effect=self.name, value=self.values[known[:, 0], known[:, 1]].tolist())

    def top(self, n: int = 10) -> pd.DataFrame:
        """The n heads with the largest effect, whatever its direction."""
        frame = self.to_frame()
        return frame.loc[frame.value.abs().sort_values(ascending=False, kind="stable").index[:n]].reset_index(drop=True)


def head_effect(
    model: Any, example: Any, name: str, target: Any = None, *, stack: Stack | str | None = None, **options: Any
) -> HeadEffect:
    """An effect of `attnprobe.heads.head_effects` for every head of a stack, with its options and what it cost.

    model, example, target: as in `attribute`. stack: one of `model.stacks`, or its name ("decoder", "decoder.cross");
    None for the one that is explained. options: keyword arguments of the effect.
    Errors: `InputError` for a name, option or stack that does not exist, and for an effect that this model cannot have.
    """
    model = load(model)
    entry = head_effects[name]
    options = entry.check_options(options)
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
    )


def _check(name: str, values: Tensor, stack: Stack) -> None:
    """A number for every head that is there, NaN for the others."""
    expected = (stack.n_layers, max(stack.n_heads))
    if not isinstance(values, Tensor) or tuple(values.shape) != expected:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(f"{name} gave {got}, expected {expected} [layer head]")
    layers, heads = zip(*places_of(stack), strict=True)
    if not bool(torch.isfinite(values[list(layers), list(heads)]).all()):
        raise InputError(f"{name} gave a head of {stack.name} {stack.kind}-attention no finite number")
