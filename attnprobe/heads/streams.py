"""The residual stream of a network as its parts read it and add to it: found by watching one pass.

A reading is what one part of a layer is given: the input of the norm before it, or of the part itself where no norm
stands there. In a network whose norms stand before its parts, the stream at a reading is the embedding plus everything
that was written before; where norms stand in the stream (BERT) each takes it on its way. What comes between two
readings was written by the first of them: by its heads where attention ran there, or else by a feed-forward part; by
both where they run side by side.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import running
from attnprobe.errors import InputError
from attnprobe.models.anatomy import Rule, norm_of, replacing
from attnprobe.models.model import Model
from attnprobe.models.norm_roles import norm_roles
from attnprobe.models.recorded import blocks_of

States = Float[Tensor, "*place d_model"]
Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Crossing:
    """One run of a norm: what went in, and what came out. forward: the norm itself."""

    given: States = field(repr=False)
    output: States = field(repr=False)
    forward: Callable[[Tensor], Tensor] = field(repr=False)

    def linear(self, shape: torch.Size, *, frozen: bool) -> Linear:
        """What the norm makes of a small change [*part token d_model] of its first row, as a linear map.

        frozen: σ stays what it was in this run; otherwise it follows the change to first order.
        Errors: `InputError` where nothing that can be held fast divides.
        """
        x = self.given.detach().reshape(shape)[:1]
        return _frozen(self.forward, x) if frozen else partial(_moving, self.forward, x)


def _frozen(forward: Callable[[Tensor], Tensor], x: Tensor) -> Linear:
    norm = norm_of(forward, x)
    if norm is None:
        raise InputError("a norm of the stream divides by more than one number a position; norms='moving' can do that")
    coefficient = norm.coefficient[0].double().cpu()
    return lambda d: (d - d.mean(-1, keepdim=True) if norm.centred else d) * coefficient


@torch.enable_grad()
def _moving(forward: Callable[[Tensor], Tensor], x: Tensor, changes: Tensor) -> Tensor:
    """The derivative at x along changes: of the gradient, which is linear in what it starts from."""
    rows = changes.reshape(-1, *changes.shape[-2:]).to(x)
    start = x.expand_as(rows).clone().requires_grad_()
    towards = torch.zeros_like(rows, requires_grad=True)
    (back,) = torch.autograd.grad(forward(start), start, towards, create_graph=True)
    (slope,) = torch.autograd.grad(back, towards, rows)
    return slope.double().cpu().view_as(changes)


@dataclass(eq=False)
class Reading:
    """One reading of a stream. states: as they come; given: the same numbers, which go to those who read here alone.

    layer, path: which layer of the stream it is in. first, last: the sites that ran behind it, `last` not included.
    shape: [row token d_model], for parts that are given the rows end to end. outputs: norms that took what was written
    before it was added. norms: those of the stream itself, from here to the next reading.
    """

    layer: int
    path: str
    states: States = field(repr=False)
    given: States = field(repr=False)
    first: int
    shape: torch.Size
    version: int
    last: int = -1
    outputs: list[Crossing] = field(default_factory=list, repr=False)
    norms: list[Crossing] = field(default_factory=list, repr=False)

    @property
    def attends(self) -> bool:
        """Whether attention reads here; otherwise a feed-forward part does alone."""
        return self.last > self.first

    def has(self, x: Tensor) -> bool:
        """Whether a tensor is these states (not what a network has made of them in place)."""
        return _alike(x, self.states) and x.data_ptr() == self.states.data_ptr() and x._version == self.version


@dataclass(eq=False)
class Stream:
    """One residual stream: its readings in order, and the states behind its last layer. name: of its list of layers."""

    name: str
    readings: list[Reading] = field(default_factory=list)
    end: States | None = None

    def after(self, index: int) -> States:
        """The states of the stream as soon as one reading's parts have written, before any norm takes them."""
        norms = self.readings[index].norms
        return norms[0].given if norms else self.next(index)

    def next(self, index: int) -> States:
        """The states at the reading behind one, or at the end."""
        if index + 1 < len(self.readings):
            return self.readings[index + 1].states
        if self.end is None:
            raise InputError(f"the layers '{self.name}' gave no states")
        return self.end

    def alone(self, index: int) -> bool:
        """Whether all parts of a layer read at this one place."""
        here = self.readings[index]
        return sum((r.layer, r.path) == (here.layer, here.path) for r in self.readings) == 1


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
    """Notes what the parts of layers read, and gives each reading a copy, so that it has a gradient of its own."""

    def __init__(self, model: Model) -> None:
        self.paths = {id(part): path for path, part in model.module.named_modules()}
        self.streams: dict[str, Stream] = {}
        self.layers: Counter[str] = Counter()
        self.open: Stream | None = None
        self.path = ""  # of the running layer
        self.begin: States | None = None  # what the running layer was given
        self.rules: dict[nn.Module, Rule] = {}
        for block in blocks_of(model):
            self.rules |= {part: partial(self._reads, part) for part in self._readers(model, block)}
            self.rules[block] = partial(self._block, block)

    def _readers(self, model: Model, block: nn.Module) -> Iterator[nn.Module]:
        """The norms of a layer, and maps that read the stream itself; the parts of a layer without norms."""
        if not any(_may_be_norm(part) for part in block.modules()):
            yield from (child for child in block.children() if next(child.parameters(), None) is not None)
            return
        roles = norm_roles(model)
        for part in block.modules():
            path = self.paths[id(part)]
            role = roles.norms.get(path)
            if role in ("stream", "output"):
                self.rules[part] = partial(self._crosses, role == "output")
            elif role == "before" or path in roles.maps:
                yield part

    def _block(self, block: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        if self.open is not None:  # a layer within a layer is a part of it
            return forward(*args, **kwargs)
        self.path = self.paths[id(block)]
        name = self.path.rpartition(".")[0]
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

    def _reads(self, part: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        """A part that reads the stream; all that read the same states are one reading."""
        stream, x = self.open, args[0] if args else None
        if stream is None or not isinstance(x, Tensor) or self.begin is None or not _alike(x, self.begin):
            return forward(*args, **kwargs)
        if not (stream.readings and stream.readings[-1].has(x)):
            self._close(stream)
            shape, layer = self.begin.shape, self.layers[stream.name]
            stream.readings.append(Reading(layer, self.path, x, x.clone(), _n_seen(), shape, x._version))
        return forward(stream.readings[-1].given.view_as(x), *args[1:], **kwargs)

    def _crosses(self, output: bool, forward: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """A norm that takes what was written, or the stream."""
        y = forward(x, *args, **kwargs)
        if self.open is not None and self.open.readings:
            crossing = Crossing(x, y, lambda given: forward(given, *args, **kwargs))
            (self.open.readings[-1].outputs if output else self.open.readings[-1].norms).append(crossing)
        return y

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
