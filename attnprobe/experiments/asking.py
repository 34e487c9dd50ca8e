"""What every experiment on a captured model begins with: examples, targets, where attention is read, what was answered.

Outputs are compared as distributions: those of a softmax; where labels do not exclude one another, one of yes and no a
label. An answer of several steps (encoder-decoders) has one a step. Distances are the largest over them:

    total_variation   1/2 Σ |p − q|, 0 to 1; of a model that gives one number |Δ target| in the target's own units
    change            target after − before, in the target's scale
    kept              1 where every most probable output stayed, else 0; NaN of a model that gives one number
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.attention.seam import Keep
from attnprobe.capture import finite
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods.attention import check_layer
from attnprobe.methods.attention_gradient import refuse_parts
from attnprobe.methods.mixing import visible_keys
from attnprobe.models import load
from attnprobe.models.evaluator import of_each
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import explained_stack, kind_of, read_rows
from attnprobe.models.rows import Row
from attnprobe.planning import inputs_of
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget, as_target

# Two runs of one model on one input, batched otherwise, differ by this much of a probability at most.
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-6}
LARGEST_ROUNDING = 1e-2

MEASURES = {
    "total_variation": "total variation of the output, 0 to 1 (|Δ target| of a model that gives one number)",
    "change": "target after − before, in the target's scale",
    "kept": "1 where the decision stayed, else 0",
}


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model answered: the target, and its outputs as distributions; None where it gives one number."""

    value: float
    outputs: Float[Tensor, "place output"] | None

    def total_variation(self, after: "Answer") -> float:
        """How far the outputs are apart, 0 to 1; |Δ target| where there are none."""
        if self.outputs is None or after.outputs is None:
            return abs(after.value - self.value)
        return float((after.outputs - self.outputs).abs().sum(-1).amax() / 2)

    def kept(self, after: "Answer") -> float:
        """1 where every most probable output is the same, else 0; NaN where there is no decision."""
        if self.outputs is None or after.outputs is None:
            return float("nan")
        return float((self.outputs.argmax(-1) == after.outputs.argmax(-1)).all())

    def measured(self, after: "Answer") -> dict[str, float]:
        """The three distances of the module, by name."""
        kept, moved = self.kept(after), self.total_variation(after)
        return {"total_variation": moved, "change": after.value - self.value, "kept": kept}


@dataclass(frozen=True, eq=False)
class Asked:
    """One example with what is asked of it: the target, the stack whose attention is explained, the positions read."""

    index: int
    model: Model
    example: Example
    goal: ResolvedTarget
    stack: Stack

    @property
    def where(self) -> dict[str, Any]:
        """Stack and kind, for edits."""
        return {"stack": self.stack.name, "kind": self.stack.kind}

    @property
    def read(self) -> Int[Tensor, " row"]:
        """Queries whose attention the answer is read from."""
        return read_rows(self.model, self.example, self.goal, self.stack.kind)

    def layers(self, layers: int | Sequence[int] | str) -> tuple[int, ...]:
        """Numbers of the layers that were asked for: one, several, "last" or "all"."""
        if isinstance(layers, str):
            if layers not in ("all", "last"):
                raise InputError(f"layers is 'all', 'last', a number or several, got '{layers}'")
            return tuple(range(self.stack.n_layers)) if layers == "all" else (self.stack.n_layers - 1,)
        numbers = (layers,) if isinstance(layers, int) else tuple(layers)
        if not numbers:
            raise InputError("layers is empty; name at least one, or 'all'")
        return tuple(check_layer(number, self.stack.n_layers) for number in numbers)

    def sites(self, layers: Sequence[int], *tensors: str) -> list[Site]:
        """The sites of some layers with the named tensors; `InputError` where a layer has its map in parts."""
        keep = Keep.of(*tensors, layers=list(layers), **self.where)
        found = self.model.capture(self.example, keep=keep).select(self.stack.name, self.stack.kind)
        refuse_parts(self.model, found)
        by_layer = {site.place.layer: site for site in found}
        if len(by_layer) < len(found):
            raise InputError(
                f"{self.model.name} lays the attention of a layer out in several parts ({len(found)} for "
                f"{len(by_layer)} layers); this asks for maps that are in one piece"
            )
        return [by_layer[number] for number in layers]

    def answers(self, rows: Sequence[Row], progress: str = "") -> list[Answer]:
        """What the model answers to each row; no gradients."""
        return of_each(self.model, rows, lambda logits, _: self.answers_of(logits), progress=progress)

    def answers_of(self, logits: Float[Tensor, " row *rest"]) -> list[Answer]:
        """Answers from the logits of some rows."""
        values = finite("the model's output", self.goal(logits)).double().cpu().tolist()
        outputs = self.outputs_of(logits)
        spread = [None] * len(values) if outputs is None else list(outputs.cpu())
        return [Answer(value, one) for value, one in zip(values, spread, strict=True)]

    def outputs_of(self, logits: Float[Tensor, " row *rest"]) -> Float[Tensor, "row place output"] | None:
        """The outputs as distributions, gradients kept; None of a model that gives one number."""
        picked = self._picked(logits).double()
        if picked.shape[-1] == 1 and self.goal.exclusive:
            return None
        if self.goal.exclusive:
            return picked.softmax(-1)
        yes = picked.sigmoid().flatten(1)
        return torch.stack([yes, 1 - yes], dim=-1)

    def _picked(self, logits: Tensor) -> Float[Tensor, "row place output"]:
        """The logits where the model answers."""
        if logits.ndim == 2:
            return logits[:, None]
        if self.goal.position is not None:
            return logits[:, self.goal.position][:, None]
        if kind_of(self.model, self.example) == "seq2seq":
            return logits
        raise InputError(
            f"{self.model.name} has outputs at every position, and a function of them all has no one decision; "
            "name the one to explain with Target(position=…)"
        )


def asked(model: Any, examples: Any, target: Any = None, kind: str = "any") -> list[Asked]:
    """Each example with its target and the stack that is explained: of an encoder-decoder the cross-attention.

    examples: one input or many, as in `compare`. kind: "self" or "cross" to insist on one.
    Errors: `InputError` for no example, and for a label or kind that the model does not have.
    """
    model = load(model)
    read = [model.example(item) for item in inputs_of(examples)]
    if not read:
        raise InputError("there is no example; give at least one")
    found = []
    for index, example in enumerate(read):
        goal = target if isinstance(target, ResolvedTarget) else model.resolve(example, as_target(target))
        found.append(Asked(index, model, example, goal, explained_stack(model, example, kind)))
    return found


def each(given: Sequence[Asked], what: str) -> Iterator[Asked]:
    """The examples one by one, with a progress bar where it takes long."""
    return iter(tqdm(given, desc=what, delay=1.0, leave=False, disable=None, unit="example"))


def heads_of(site: Site, heads: int | Sequence[int] | None) -> list[int]:
    """Numbers of the heads that were asked for (None: all); `InputError` for one that is not there."""
    chosen = range(site.n_heads) if heads is None else [heads] if isinstance(heads, int) else list(heads)
    for head in chosen:
        if not 0 <= head < site.n_heads:
            raise InputError(f"{site.place} has heads 0 to {site.n_heads - 1}, got head {head}")
    if not len(chosen):
        raise InputError("heads is empty; name at least one, or None for all")
    return list(chosen)


def mean_row(site: Site, rows: Tensor) -> tuple[Float[Tensor, " key"], Bool[Tensor, " key"]]:
    """The mean over heads and rows of a site's weights, and which keys some head may look at from there."""
    weights, seen = site.need("weights")[0].double().cpu(), visible_keys(site).cpu()
    return weights[:, rows].mean((0, 1)), seen[:, rows].any(0).any(0)


def unit_keys(one: Asked, n_keys: int) -> Int[Tensor, " unit"]:
    """The keys that are explained: no specials, nothing hidden or behind the answer; all, where keys are no tokens."""
    example = one.example
    if n_keys != example.n_tokens:
        return torch.arange(n_keys)
    last = n_keys if one.goal.last_seen is None else one.goal.last_seen + 1
    free = [i for i in range(last) if not example.is_special[i] and not example.hidden[i]]
    return torch.tensor(free or list(range(last)))


def rounding(model: Model) -> float:
    """How far a probability may differ between two runs that should be equal, by the model's precision."""
    dtype = next((p.dtype for p in model.module.parameters() if p.is_floating_point()), torch.float32)
    return ROUNDING.get(dtype, LARGEST_ROUNDING)
