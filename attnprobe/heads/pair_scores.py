"""The front door of scores of pairs of heads: one score of a stack, with what it was made with, as a table."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.heads import head_pairs
from attnprobe.models import load
from attnprobe.models.model import Model, Stack


@dataclass(frozen=True, eq=False)
class HeadPairs:
    """A score of every pair of heads of a stack: writer, then reader, both [layer head]; NaN where there is none.

    options: all of them, the seed left out. seconds: how long it took.
    """

    name: str
    model: str
    stack: str
    kind: str
    values: Float[Tensor, "layer head layer2 head2"] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    seconds: float = 0.0

    def to_frame(self) -> pd.DataFrame:
        """score (its name), writer, reader (as `layer.head`) and value of each pair that has one, the highest first."""
        pairs = (~self.values.isnan()).nonzero().tolist()
        rows = [(f"{a}.{h}", f"{b}.{k}", float(self.values[a, h, b, k])) for a, h, b, k in pairs]
        frame = pd.DataFrame(rows, columns=["writer", "reader", "value"])
        frame.insert(0, "score", self.name)
        return frame.sort_values("value", ascending=False, kind="stable", ignore_index=True)

    def top(self, k: int = 10) -> pd.DataFrame:
        """The `k` pairs that score highest."""
        if k < 1:
            raise InputError(f"k is at least 1, got {k}")
        return self.to_frame().head(k)


def head_pairs_of(model: Any, name: Any, stack: Stack | None = None, **options: Any) -> HeadPairs:
    """A score of pairs of heads by name ("q_composition", "k_composition", "v_composition").

    stack: one of `model.stacks` (default: the first). options: of the score, its seed among them.
    Errors: `InputError` for a score, an option or a stack that is not there, and for several stacks without a choice.
    """
    model, entry = load(model), head_pairs.get_entry(name)
    chosen = _stack(model, stack)
    given = entry.check_options(options)
    start = time.perf_counter()
    values = entry.function(model, chosen, **given)
    seconds, seed = time.perf_counter() - start, given.pop("seed", 0)
    return HeadPairs(entry.name, model.name, chosen.name, chosen.kind, values, given, seed, seconds)


def _stack(model: Model, stack: Stack | None) -> Stack:
    """The stack that was given, or the only one of self-attention."""
    known = [(one.name, one.kind) for one in model.stacks]
    if stack is not None:
        if (stack.name, stack.kind) not in known:
            raise InputError(f"{model.name} has no {stack.kind}-attention stack '{stack.name}'; it has {known}")
        return stack
    of_self = [one for one in model.stacks if one.kind == "self"]
    if len(of_self) != 1:
        raise InputError(f"{model.name} has several stacks ({known}); give stack=, one of model.stacks")
    return of_self[0]
