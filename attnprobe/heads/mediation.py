"""Causal mediation (Vig et al. 2020): what of the change from one input to another goes through a head.

    total      y(corrupt) − y(example)
    indirect   y(example; the head gives what it gives on corrupt) − y(example)
    direct     y(corrupt; the head gives what it gives on the example) − y(example)

In a linear network total = direct + indirect, head by head; elsewhere heads take one another's part.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.heads import head_effects
from attnprobe.heads.rows import changed, counterpart, z_of, z_put
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

Effects = Float[Tensor, "layer head"]


def total_effect(model: Model, example: Example, target: ResolvedTarget, corrupt: Any) -> float:
    """How much the target changes from the example to the corrupt input."""
    before, after = targets(model, [Row(example), Row(counterpart(model, example, corrupt))], target).double().tolist()
    return float(after - before)


@head_effects.add(
    family="mediation",
    source="Vig et al. 2020, sec. 3",
    label="Indirect effect",
    low=None,
    high=None,
    unit="target",
    sign="+: rises when patched",
)
def indirect_effect(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack, *, corrupt: Any = None
) -> Effects:
    """How much the target changes when one head alone gives what it gives on the corrupt input.

    corrupt: an input of equal length (what this model reads, or an `Example`). Errors: `InputError` without one.
    """
    other = counterpart(model, example, needed("indirect_effect", corrupt))
    given = z_of(model, other, stack)
    after, before = changed(
        model, example, target, stack, lambda layer, head: z_put(stack, layer, head, given[layer]), "indirect effect"
    )
    return after - before


@head_effects.add(
    family="mediation",
    source="Vig et al. 2020, sec. 3",
    label="Direct effect",
    low=None,
    high=None,
    unit="target",
    sign="+: rises when all else is patched",
)
def direct_effect(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack, *, corrupt: Any = None
) -> Effects:
    """How much the target changes with the whole input but one head, which gives what it gives on the example.

    corrupt: an input of equal length (what this model reads, or an `Example`). Errors: `InputError` without one.
    """
    other = counterpart(model, example, needed("direct_effect", corrupt))
    given = z_of(model, example, stack)
    after, _ = changed(
        model, other, target, stack, lambda layer, head: z_put(stack, layer, head, given[layer]), "direct effect"
    )
    return after - float(targets(model, [Row(example)], target)[0])


def needed(name: str, corrupt: Any) -> Any:
    if corrupt is None:
        raise InputError(f"{name} compares the example with another input; give it: corrupt=…")
    return corrupt
