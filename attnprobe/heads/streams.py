"""The residual stream of a network as its parts read it and add to it: found by watching one pass.

A reading is what one part of a layer is given: the input of the norm before it, or, in layers without norms, of the
part itself. In a network whose norms stand before its parts, the stream at a reading is the embedding plus everything
that was written before. What comes between two readings was written by the first of them: by its heads where attention
ran there, or else by a feed-forward part.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import running
from attnprobe.errors import InputError
from attnprobe.models.anatomy import Rule, kind_of, replacing
from attnprobe.models.model import Model
from attnprobe.models.recorded import blocks_of

States = Float[Tensor, "*place d_model"]


@dataclass(eq=False)
class Reading:
    """One reading of a stream. states: as they come; given: the same numbers, which go to this reader alone.

    layer: which layer of the stream it is in. first, last: the sites that ran behind it, `last` not included. reader,
    call: the module that reads, and which of its runs this is. shape: [row token d_model], for parts that are given the
    rows end to end.
    """

    layer: int
    states: States = field(repr=False)
    given: States = field(repr=False)
    first: int
    reader: nn.Module = field(repr=False)
    call: int
    shape: torch.Size
    last: int = -1

    @property
    def attends(self) -> bool:
        """Whether attention reads here; otherwise a feed-forward part does."""
        return self.last > self.first


@dataclass(eq=False)
class Stream:
    """One residual stream: its readings in order, and the states behind its last layer. name: of its list of layers."""

    name: str
    readings: list[Reading] = field(default_factory=list)
    end: States | None = None

    def after(self, index: int) -> States:
        """The states of the stream behind what one reading wrote."""
        if index + 1 < len(self.readings):
            return self.readings[index + 1].states
        if self.end is None:
            raise InputError(f"the layers '{self.name}' gave no states")
        return self.end


def watched_streams(model: Model, run: Callable[[], Any]) -> tuple[Stream, ...]:
    """The streams of one pass, in the order in which they end. run: makes the pass, under a tape that keeps all sites.

    Errors: `InputError` for a model without layers that run as modules, or whose layers read nothing that is known.
    """
    watch = _Watch(model)
    with replacing(watch.rules):
        run()
    found = tuple(watch.streams.values())
    if not found or any(stream.end is None for stream in found):
        raise InputError(f"{model.name} has no layers that run as modules, so no residual stream was seen")
    return found


class _Watch:
    """Notes what the parts of layers read, and gives each a copy, so that it has a gradient of its own."""

    def __init__(self, model: Model) -> None:
        self.paths = {id(part): path for path, part in model.module.named_modules()}
        self.streams: dict[str, Stream] = {}
        self.layers: Counter[str] = Counter()
        self.calls: Counter[int] = Counter()
        self.norms: dict[int, bool] = {}
        self.open: Stream | None = None
        self.begin: States | None = None  # what the running layer was given
        self.rules: dict[nn.Module, Rule] = {}
        for block in blocks_of(model):
            leaves = [part for part in block.modules() if _may_be_norm(part)]
            leaves += [part for part in block.modules() if leaves and isinstance(part, nn.Identity)]
            for part in leaves or [child for child in block.children() if next(child.parameters(), None) is not None]:
                self.rules[part] = partial(self._part, part, bool(leaves))
            self.rules[block] = partial(self._block, block)

    def _block(self, block: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        if self.open is not None:  # a layer within a layer is a part of it
            return forward(*args, **kwargs)
        name = self.paths[id(block)].rpartition(".")[0]
        self.open = stream = self.streams.setdefault(name, Stream(name))
        values = [*args, *kwargs.values()]
        place = next((index for index, x in enumerate(values) if _is_states(x)), None)
        if place is not None and not values[place].requires_grad:
            values[place] = values[place].detach().requires_grad_()
        self.begin = None if place is None else values[place]
        try:
            output = forward(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
        finally:
            self._close(stream)
            self.open = None
        self.layers[name] += 1
        stream.end = output if isinstance(output, Tensor) else output[0]
        return output

    def _part(self, part: nn.Module, norms: bool, forward: Any, *args: Any, **kwargs: Any) -> Any:
        """A part that reads the stream; anything else runs as it is."""
        stream, x = self.open, args[0] if args else None
        if stream is None or not isinstance(x, Tensor) or self.begin is None or not _alike(x, self.begin):
            return forward(*args, **kwargs)
        if norms and not self._reads(part, x, forward):
            return forward(*args, **kwargs)
        self._close(stream)
        given = x.clone()
        stream.readings.append(
            Reading(self.layers[stream.name], x, given, _n_seen(), part, self.calls[id(part)], self.begin.shape)
        )
        self.calls[id(part)] += 1
        return forward(given, *args[1:], **kwargs)

    def _reads(self, part: nn.Module, x: States, forward: Any) -> bool:
        """Whether a part is a norm, or stands in the place of the first one of a layer that has none there."""
        if isinstance(part, nn.Identity):
            return x is self.begin
        if id(part) not in self.norms:
            self.norms[id(part)] = kind_of(part, x.detach(), forward) == "norm"
        return self.norms[id(part)]

    def _close(self, stream: Stream) -> None:
        """The sites that ran since belong to the last reading of this layer."""
        if stream.readings and stream.readings[-1].last < 0:
            stream.readings[-1].last = _n_seen()


def _n_seen() -> int:
    tape = running()
    return 0 if tape is None else len(tape.seen)


def _may_be_norm(part: nn.Module) -> bool:
    """Whether an innermost module has parameters, and none that is a matrix."""
    own = list(part.parameters())
    return next(part.children(), None) is None and bool(own) and all(parameter.ndim < 2 for parameter in own)


def _alike(x: Tensor, states: States) -> bool:
    """Whether a tensor has the numbers of states, in their shape or with the rows laid end to end."""
    return x.shape[-1:] == states.shape[-1:] and x.numel() == states.numel()


def _is_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3
