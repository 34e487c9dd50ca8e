"""Attribution methods: functions (model, example, target, *, options) -> scores [token].

Adding one means adding a file here, or decorating a function anywhere:

    @methods.add(family="attention", source="Abnar & Zuidema 2020, sec. 3", formula="…", cost="1 F", signed=False)
    def rollout(model, example, target, *, identity=0.5): ...

family: attention, gradient, ablation, perturbation, control. formula and cost are shown in reports
(F: a forward pass, B: a backward pass, n: tokens). signed: whether scores have a direction. passes: the same cost
as a function (size, options) -> (forward, backward). lacks: kinds of model that it does not do, each with the reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from attnprobe.registry import Registry

FAMILIES = ("attention", "gradient", "ablation", "perturbation", "control")

# What a model can be, in this order: what it reads (pictures, sounds), else how it answers.
KINDS = ("vision", "audio", "seq2seq", "causal", "classifier")

methods = Registry("attribution method", "attnprobe.methods", facts=("formula", "cost", "signed", "passes", "lacks"))


@dataclass(frozen=True)
class Size:
    """What the cost of a method depends on; layers and heads are those of the explained stack, units may be removed."""

    n_tokens: int
    n_units: int
    n_layers: int
    n_heads: int


Cost = Callable[[Size, Mapping[str, Any]], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Scores:
    """What a method gives: values [token], and what it knows beside them.

    map: [query token]. residual: how far the values are from adding up to the change of the target.
    standard_error: of each value, where it is estimated. used: choices made while running (baseline, steps).
    fit: R² of a surrogate on inputs that it was not fitted to, 1 at best.
    """

    values: Float[Tensor, " token"]
    map: Float[Tensor, "query token"] | None = None
    residual: float | None = None
    standard_error: Float[Tensor, " token"] | None = None
    used: dict[str, object] = field(default_factory=dict)
    fit: float | None = None
