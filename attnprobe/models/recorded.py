"""A recorded pass of a model: what its layers gave, and what the innermost modules before each attention gave.

What is kept is a copy. `replay.py` runs passes in which it stands in for what would run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.models.anatomy import Rule, replacing
from attnprobe.models.evaluator import count
from attnprobe.models.layers import block_of
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.site import Place, Site

Sites = Sequence[tuple[nn.Module, Place]]


@dataclass
class ResumableTape(Tape):
    """A tape that knows which module each site belongs to, and counts attention that did not have to run again."""

    entered: list[nn.Module] = field(default_factory=list)

    def enter(self, module: nn.Module, cross: bool, route: str = "seam", name: str = "") -> Place:
        """As every tape; the module is noted."""
        place = super().enter(module, cross, route, name)
        self.entered.append(module)
        return place

    def pass_by(self, sites: Sites) -> None:
        """What follows is numbered as if these had run."""
        for module, place in sites:
            if place.part == 0:
                self._layers[place.stack, place.kind] += 1
                self._calls[id(module)] += 1
            self.seen.append(replace(place, step=self.step))
            self.entered.append(module)


@dataclass(frozen=True, eq=False)
class LeafRun:
    """One run of an innermost module: its output, and how many sites the pass had seen before it."""

    leaf: nn.Module
    n_seen: int
    output: Any


@dataclass(eq=False)
class LayerRun:
    """One run of a layer: sites `first` to `last` (not included) of the pass, its output, the modules within it."""

    block: nn.Module
    first: int
    last: int = 0
    output: Any = None
    leaves: list[LeafRun] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Pass:
    """A pass of one example. sites: in order; runs: of the layers, in order; length: queries of the last attention."""

    sites: Sites
    runs: list[LayerRun]
    leaves: tuple[nn.Module, ...]
    length: int

    @property
    def n_parameters(self) -> int:
        """Parameters of the layers, once for every run."""
        return sum(p.numel() for run in self.runs for p in run.block.parameters())


def recorded(model: Model, example: Example) -> tuple[Pass, Tensor]:
    """Run an example once without gradients: what its layers gave, and the logits.

    Errors: `CaptureError` for a model without layers that run as modules, or whose attention is laid out afterwards.
    """
    lengths: list[int] = []
    last = tuple({stack.n_layers - 1 for stack in model.stacks})
    keep = Keep(frozenset(), layers=last, reduce=partial(_note, lengths))
    tape = ResumableTape(row_edits=[()], n_rows=1, keep=keep, check=False)
    leaves = tuple(part for part in model.module.modules() if next(part.children(), None) is None)
    recorder = _Recorder(tape)
    rules: dict[nn.Module, Rule] = {leaf: recorder.of_leaf(leaf) for leaf in leaves if has_numbers(leaf)}
    rules |= {block: recorder.of_block(block) for block in blocks_of(model)}
    count(forward=1)
    with torch.no_grad(), replacing(rules):
        answer = model.forward([Row(example)], tape)
    sites = list(zip(tape.entered, tape.seen, strict=True))
    if not recorder.runs or any(place.route == "layout" or place.step for place in tape.seen):
        raise CaptureError(f"{model.name} has no layers that could be resumed")
    return Pass(sites, recorder.runs, leaves, lengths[-1]), answer


def _note(lengths: list[int], site: Site) -> dict[str, Tensor]:
    """The number of queries of an attention."""
    lengths.append(site.need("z").shape[2])
    return {}


def blocks_of(model: Model) -> list[nn.Module]:
    """The layers of all stacks, each once; those of stacks without layers in a list are left out."""
    found: dict[int, nn.Module] = {}
    for stack in model.stacks:
        for path in stack.paths:
            try:
                block = block_of(model.module, path, stack.paths)
            except InputError:
                continue
            found[id(block)] = block
    return list(found.values())


def has_numbers(leaf: nn.Module) -> bool:
    """Whether an innermost module holds parameters; others (dropout at rest) cost nothing."""
    return next(leaf.parameters(), None) is not None


def copied(output: Any) -> Any:
    """The output with copies of its tensors."""
    return tree_map_only(Tensor, lambda t: t.detach().clone(), output)


class _Recorder:
    """Notes what layers and the modules within them give."""

    def __init__(self, tape: ResumableTape) -> None:
        self.tape, self.runs = tape, list[LayerRun]()
        self.open: LayerRun | None = None

    def of_block(self, block: nn.Module) -> Rule:
        """The rule that records one layer; a layer within another is a part of it."""

        def rule(forward: Any, *args: Any, **kwargs: Any) -> Any:
            if self.open is not None:
                return forward(*args, **kwargs)
            self.open = run = LayerRun(block, len(self.tape.seen))
            try:
                output = forward(*args, **kwargs)
            finally:
                self.open = None
            run.last, run.output = len(self.tape.seen), copied(output)
            run.leaves = [leaf for leaf in run.leaves if leaf.n_seen < run.last]
            self.runs.append(run)
            return output

        return rule

    def of_leaf(self, leaf: nn.Module) -> Rule:
        """The rule that records one innermost module."""

        def rule(forward: Any, *args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            if self.open is not None:
                known = isinstance(output, Tensor) and output.ndim > 1 and output.shape[0] == 1
                self.open.leaves.append(LeafRun(leaf, len(self.tape.seen), copied(output) if known else None))
            return output

        return rule
