"""Nodes of a network on its residual streams: what each writes, and what the answer owes to what each reads.

Writers are the embedding, every head (z W_O) and every feed-forward part; readers are the queries, keys and values of
every head, every feed-forward part, and the answer. What a reader is given is the stream before its norm, so a gradient
with respect to it goes through the norm as it is at that input.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.heads.streams import Reading, Stream, watched_streams
from attnprobe.models.evaluator import count, differentiable, refuse_unseen
from attnprobe.models.model import Model
from attnprobe.models.projections import projections
from attnprobe.models.rows import Row
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

# How far two ways to the same number may differ, of the largest one; parts of float64 models work in float32 inside.
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}

INSTEAD = "edges need layers that only add to one stream; ask for nodes: attribution_patching, indirect_effect"


@dataclass(frozen=True)
class Node:
    """A part of a network that writes to a residual stream or reads it. reads: what of a head reads: q, k or v."""

    part: Literal["embedding", "head", "mlp", "answer"]
    stack: str = ""
    kind: str = ""
    layer: int = -1
    head: int = -1
    reads: str = ""

    @property
    def short(self) -> str:
        """Its name where one stack is spoken of: embedding, 5.1, 5.1.q, mlp 5, answer."""
        if self.part == "head":
            return f"{self.layer}.{self.head}" + (f".{self.reads}" if self.reads else "")
        return f"mlp {self.layer}" if self.part == "mlp" else self.part

    def __str__(self) -> str:
        if self.part == "answer":
            return self.short
        return f"{self.stack}.{self.kind}.{self.short}" if self.part == "head" else f"{self.stack} {self.short}"


@dataclass(frozen=True, eq=False)
class Flow:
    """What a writer wrote, or the gradient with respect to what a reader read.

    stream: number of the stream; at: number of the reading behind which it was written (−1: the embedding), or at which
    it is read.
    """

    node: Node
    stream: int
    at: int
    states: Float[Tensor, "token d_model"] = field(repr=False)


@torch.no_grad()
def written(model: Model, example: Example) -> tuple[Flow, ...]:
    """What every node writes in a pass of one example.

    Errors: `InputError` where the streams are no sums of what is written; `CaptureError` where W_O was not found.
    """
    tape = Tape(keep=Keep.of("z"), check=False, n_rows=1)
    count(forward=1)
    streams = watched_streams(model, lambda: model.forward([Row(example)], tape))
    refuse_unseen(model)
    sites = ordered_sites(model, tape, streams)
    maps = {(p.stack, p.kind, p.layer): p for p in projections(model)}
    found = list[Flow]()
    for number, stream in enumerate(streams):
        name = _stack_of(stream, sites)
        found.append(
            Flow(Node("embedding", name), number, -1, _rows(stream.readings[0].states, stream.readings[0])[0].detach())
        )
        for at, reading in enumerate(stream.readings):
            added = (_rows(stream.after(at), reading) - _rows(reading.states, reading))[0]
            heads = _heads(model, sites[reading.first : reading.last], maps, added)
            found += [Flow(node, number, at, states) for node, states in heads]
            if not heads:
                found.append(Flow(Node("mlp", name, layer=reading.layer), number, at, added))
    return tuple(found)


def _heads(model: Model, sites: Sequence[Site], maps: Any, added: Tensor) -> list[tuple[Node, Tensor]]:
    """What the heads behind one reading write; together with the bias it must be what was added to the stream."""
    found, rest = list[tuple[Node, Tensor]](), added
    for site in sites:
        place = site.place
        projection = maps[place.stack, place.kind, place.layer]
        outputs = projection.head_outputs(site.need("z")[0])
        rest = rest - outputs.sum(0) - projection.need("b_O").to(rest)
        nodes = [Node("head", place.stack, place.kind, place.layer, head) for head in range(site.n_heads)]
        found += list(zip(nodes, outputs, strict=True))
    if found and not _is_nothing(rest, added):
        raise InputError(
            f"{model.name}: what is added to the stream at {sites[0].place} is not what its heads write (another part "
            f"runs beside them, or a norm or scale comes behind them); {INSTEAD}"
        )
    return found


def read(model: Model, rows: Sequence[Row], target: ResolvedTarget) -> tuple[Flow, ...]:
    """The gradient of the target with respect to what every node reads, sum over rows; one pass each way.

    Errors: `InputError` where layers do more than add to their stream.
    """
    found: dict[str, Any] = {}

    def run() -> None:
        found["logits"], found["tape"] = differentiable(model, rows, Keep.of("query", "weights", "z"))

    streams = watched_streams(model, run)
    sites = ordered_sites(model, found["tape"], streams)
    with torch.enable_grad():
        answer = target(found["logits"]).sum()
    back = _Backward(model, answer, streams, sites)
    flows = list[Flow]()
    for number, stream in enumerate(streams):
        flows += _of_stream(model, back, number, streams, sites)
        back.check_skips(stream)
    for stream in streams[:-1]:
        back.check_all(stream.end, f"behind '{stream.name}'")
    return tuple(flows)


def _of_stream(
    model: Model, back: "_Backward", number: int, streams: Sequence[Stream], sites: Sequence[Site]
) -> list[Flow]:
    """The readers of one stream; keys and values of attention to it are in the stream that looks."""
    stream, flows = streams[number], list[Flow]()
    name = _stack_of(stream, sites)
    for at, reading in enumerate(stream.readings):
        if not reading.attends:
            gradient = _rows(back.of(reading.given), reading).sum(0)
            flows.append(Flow(Node("mlp", name, layer=reading.layer), number, at, gradient))
        for site in sites[reading.first : reading.last]:
            source = _looked_at(model, site, number, streams)
            for head in range(site.n_heads):
                node = ("head", site.place.stack, site.place.kind, site.place.layer, head)
                for reads, gradient in back.of_head(site, head, reading, source).items():
                    where = (number, at) if reads == "q" or source is None else _end_of(streams, source)
                    flows.append(Flow(Node(*node, reads), *where, gradient.sum(0)))  # type: ignore[arg-type]
        if reading.attends:
            back.check_all(reading.given, f"at {sites[reading.first].place}")
    if number == len(streams) - 1:
        flows.append(Flow(Node("answer"), number, len(stream.readings), back.of(stream.end).sum(0)))
    return flows


def _end_of(streams: Sequence[Stream], source: Tensor) -> tuple[int, int]:
    """Number of the stream that ends in these states, and the reading behind all of its own."""
    number = next(index for index, stream in enumerate(streams) if stream.end is source)
    return number, len(streams[number].readings)


def _looked_at(model: Model, site: Site, number: int, streams: Sequence[Stream]) -> Tensor | None:
    """The states that a cross-attention looks at; None for self-attention."""
    if site.place.kind == "self":
        return None
    if number != 1:
        raise InputError(f"{model.name}: it cannot be told which states {site.place} looks at; {INSTEAD}")
    return streams[0].end


class _Backward:
    """Gradients of one answer: with respect to streams, and of single heads with respect to what they read."""

    def __init__(self, model: Model, answer: Tensor, streams: Sequence[Stream], sites: Sequence[Site]) -> None:
        self.model = model
        wanted = [t for s in streams for r in s.readings for t in (r.states, r.given)]
        wanted += [s.end for s in streams if s.end is not None]
        wanted += [t for site in sites for t in (site.z, site.weights, site.query) if t is not None]
        wanted = list({id(t): t for t in wanted if t.requires_grad}.values())
        found = torch.autograd.grad(answer, wanted, retain_graph=True, allow_unused=True)
        self.known = {id(t): g for t, g in zip(wanted, found, strict=True) if g is not None}
        self.parts: dict[int, Tensor] = {}  # what single heads account for, by the tensor that they read

    def of(self, tensor: Tensor | None) -> Tensor:
        """The gradient with respect to a tensor; zeros where it does not reach the answer."""
        if tensor is None:
            raise InputError(f"{self.model.name}: states were not seen; {INSTEAD}")
        return self.known.get(id(tensor), torch.zeros_like(tensor))

    def of_head(self, site: Site, head: int, reading: Reading, source: Tensor | None) -> dict[str, Tensor]:
        """Gradient of the answer with respect to what queries, keys and values of one head read."""

        def through(name: str, given: Tensor) -> Tensor:
            start = self._live(site, name)
            only = torch.zeros_like(start)
            if id(start) in self.known:
                only[:, head] = self.known[id(start)][:, head]
            (found,) = torch.autograd.grad(start, given, only, retain_graph=True, allow_unused=True)
            return torch.zeros_like(given) if found is None else found

        q = through("query", reading.given)
        if source is None:
            whole, matched = (through(name, reading.given) for name in ("z", "weights"))
            self._account(reading.given, whole)
            return {"q": q, "k": matched - q, "v": whole - matched}
        # What is looked at has also reached the queries, by the cross-attention of layers before.
        whole, matched, asked = (through(name, source) for name in ("z", "weights", "query"))
        self._account(reading.given, q)
        self._account(source, whole - asked)
        return {"q": q, "k": matched - asked, "v": whole - matched}

    def _live(self, site: Site, name: str) -> Tensor:
        tensor: Tensor | None = getattr(site, name)
        reached = id(tensor) in self.known or id(site.z) not in self.known
        if tensor is None or not tensor.requires_grad or not reached:
            raise InputError(f"{self.model.name}: no gradient reaches the {name} of {site.place}; {INSTEAD}")
        return tensor

    def _account(self, given: Tensor, gradient: Tensor) -> None:
        self.parts[id(given)] = self.parts.get(id(given), torch.zeros_like(given)) + gradient

    def check_all(self, given: Tensor | None, where: str) -> None:
        """Raise where something else than queries, keys and values reads these states."""
        whole = self.of(given)
        if not _is_nothing(whole - self.parts.get(id(given), torch.zeros_like(whole)), whole):
            raise InputError(
                f"{self.model.name}: queries, keys and values are not all that reads the stream {where}; {INSTEAD}"
            )

    def check_skips(self, stream: Stream) -> None:
        """Raise where what comes out of a part is more than what went in and what the part added."""
        for at, reading in enumerate(stream.readings):
            readings = (reading.states, reading.given, stream.after(at))
            whole, here, after = (_rows(self.of(states), reading) for states in readings)
            if not _is_nothing(whole - here - after, whole):
                raise InputError(
                    f"{self.model.name}: layer {reading.layer} of '{stream.name}' does more than add to its stream (a "
                    f"norm behind the sum, parts side by side, a scale); {INSTEAD}"
                )


def _rows(states: Tensor, reading: Reading) -> Float[Tensor, "row token d_model"]:
    """States, or a gradient, row by row, where a layer lays the rows end to end."""
    return states.reshape(reading.shape)


def _is_nothing(rest: Tensor, whole: Tensor) -> bool:
    """Whether what is left is rounding."""
    size = float(whole.detach().abs().max())
    return float(rest.detach().abs().max()) <= TOLERANCE.get(rest.dtype, 5e-2) * size + 1e-12


def ordered_sites(model: Model, tape: Tape, streams: Sequence[Stream]) -> Sequence[Site]:
    """The sites in the order in which the pass saw them, one for each layer, each behind a reading of a stream.

    Errors: `InputError` where a layer has several parts, or attention reads what no norm in its layer gave.
    """
    if len(tape.sites) != len(tape.seen) or any(place.part for place in tape.seen):
        raise InputError(f"{model.name} keeps windows or images apart, which read a stream of their own; {INSTEAD}")
    behind = {number for s in streams for reading in s.readings for number in range(reading.first, reading.last)}
    alone = [site for number, site in enumerate(tape.sites) if number not in behind]
    if alone:
        raise InputError(
            f"{model.name}: no norm in its layer stands before {alone[0].place} (norms come behind the sums), so that "
            f"there is no stream that parts only add to; {INSTEAD}"
        )
    return tape.sites


def _stack_of(stream: Stream, sites: Sequence[Site]) -> str:
    """The stack whose layers a stream goes through."""
    first = next((reading for reading in stream.readings if reading.attends), None)
    if first is None:
        raise CaptureError(f"no attention was seen in the layers '{stream.name}'")
    return sites[first.first].place.stack
