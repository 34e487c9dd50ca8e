"""Nodes of a network on its residual streams: what each writes, and what the answer owes to what each reads.

Writers are the embedding, every head (z W_O) and every feed-forward part; readers are the queries, keys and values of
every head, every feed-forward part, and the answer. What a reader is given is the stream before its norm, so a gradient
with respect to it goes through the norm as it is at that input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.heads.stream_gradients import INSTEAD, Backward, by_row, is_nothing
from attnprobe.heads.streams import Linear, Stream, watched_streams
from attnprobe.models.evaluator import count, differentiable, refuse_unseen
from attnprobe.models.model import Model
from attnprobe.models.projections import Projection, projections
from attnprobe.models.rows import Row
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget


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


Ways = Mapping[tuple[int, int], tuple[Linear, ...]]


@dataclass(frozen=True, eq=False)
class Writes:
    """What every node writes in one pass, and what norms of that pass make of a change, by stream and reading.

    norms: those in the stream behind a reading. outputs: those that take what is written there before it is added.
    """

    flows: tuple[Flow, ...]
    norms: Ways = field(repr=False)
    outputs: Ways = field(repr=False)


@torch.no_grad()
def written(model: Model, example: Example, *, frozen: bool = True) -> Writes:
    """What every node writes in a pass of one example. frozen: as in `Crossing.linear`.

    Errors: `InputError` where the streams are no sums of what is written; `CaptureError` where W_O was not found.
    """
    tape = Tape(keep=Keep.of("z"), check=False, n_rows=1)
    count(forward=1)
    streams = watched_streams(model, lambda: model.forward([Row(example)], tape))
    refuse_unseen(model)
    sites, maps = ordered_sites(model, tape, streams), Maps(model)
    flows, norms, outputs = list[Flow](), {}, {}
    for number, stream in enumerate(streams):
        first, name = stream.readings[0], _stack_of(stream, sites)
        flows.append(Flow(Node("embedding", name), number, -1, by_row(first.states, first)[0].detach()))
        for at, reading in enumerate(stream.readings):
            _check_chain(model, stream, at)
            norms[number, at] = tuple(norm.linear(reading.shape, frozen=frozen) for norm in reading.norms)
            outputs[number, at] = tuple(norm.linear(reading.shape, frozen=frozen) for norm in reading.outputs)
            parts = _parts(stream, at, sites[reading.first : reading.last], maps)
            flows += [Flow(node or Node("mlp", name, layer=reading.layer), number, at, out) for node, out in parts]
    return Writes(tuple(flows), norms, outputs)


class Maps:
    """The projections of a model by layer, and which of its layers have maps beside them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.layers = {(p.stack, p.kind, p.layer): p for p in projections(model)}
        self.own = {path for p in self.layers.values() for path in (p.query_map, p.key_map, p.value_map, p.output_map)}

    def of(self, site: Site) -> Projection:
        """The projections of the layer of a site."""
        return self.layers[site.place.stack, site.place.kind, site.place.layer]

    def beside(self, stream: Stream, at: int) -> bool:
        """Whether a feed-forward part runs beside the attention that reads here."""
        reading = stream.readings[at]
        if not (reading.attends and stream.alone(at)):
            return False
        inside = self.model.module.get_submodule(reading.path).named_modules(prefix=reading.path)
        return any(p.ndim > 1 for path, part in inside if path not in self.own for p in part.parameters(recurse=False))


def _parts(stream: Stream, at: int, sites: Sequence[Site], maps: Maps) -> list[tuple[Node | None, Tensor]]:
    """What heads and feed-forward part (None) behind a reading write; all together are what was added to the stream."""
    reading, found = stream.readings[at], list[tuple[Node | None, Tensor]]()
    if len(reading.outputs) > 1:
        raise InputError(f"{maps.model.name}: several norms take what layer {reading.layer} writes; {INSTEAD}")
    where = reading.outputs[0].given if reading.outputs else stream.after(at) - reading.states.view_as(stream.after(at))
    rest = added = by_row(where, reading)[0]
    for site in sites:
        projection, place = maps.of(site), site.place
        outputs = projection.head_outputs(site.need("z")[0])
        rest = rest - outputs.sum(0) - projection.need("b_O").to(rest)
        nodes = [Node("head", place.stack, place.kind, place.layer, head) for head in range(site.n_heads)]
        found += list(zip(nodes, outputs, strict=True))
    beside = maps.beside(stream, at)
    if found and not beside and not is_nothing(rest, added):
        raise InputError(
            f"{maps.model.name}: what is added to the stream at {sites[0].place} is not what its heads write (a scale "
            f"or another part comes behind them); {INSTEAD}"
        )
    return found + ([(None, rest)] if beside or not found else [])


def _check_chain(model: Model, stream: Stream, at: int) -> None:
    """`InputError` where something comes between a norm of the stream and who reads behind it."""
    norms = stream.readings[at].norms
    behind = [*(crossing.given for crossing in norms[1:]), stream.next(at)]
    for crossing, states in zip(norms, behind, strict=False):
        if not is_nothing(states.reshape(crossing.output.shape) - crossing.output, states):
            raise InputError(
                f"{model.name}: layer {stream.readings[at].layer} of '{stream.name}' adds to its stream behind a norm "
                f"what no reading stands before; {INSTEAD}"
            )


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
    back, maps = Backward(model, answer, streams, sites), Maps(model)
    flows = list[Flow]()
    for number, stream in enumerate(streams):
        flows += _of_stream(back, number, streams, sites, maps)
        back.check_skips(stream)
    for stream in streams[:-1]:
        back.check_all(stream.end, f"behind '{stream.name}'")
    return tuple(flows)


def _of_stream(back: Backward, number: int, streams: Sequence[Stream], sites: Sequence[Site], maps: Maps) -> list[Flow]:
    """The readers of one stream; keys and values of attention to it are in the stream that looks."""
    stream, flows = streams[number], list[Flow]()
    name = _stack_of(stream, sites)
    for at, reading in enumerate(stream.readings):
        for site in sites[reading.first : reading.last]:
            back.check_heads(site, reading, stream.after(at), maps.of(site).need("W_O"))
            source = _looked_at(maps.model, site, number, streams)
            for head in range(site.n_heads):
                node = ("head", site.place.stack, site.place.kind, site.place.layer, head)
                for reads, gradient in back.of_head(site, head, reading, source).items():
                    where = (number, at) if reads == "q" or source is None else _end_of(streams, source)
                    flows.append(Flow(Node(*node, reads), *where, gradient.sum(0)))  # type: ignore[arg-type]
        if not reading.attends or maps.beside(stream, at):
            gradient = by_row(back.rest(reading.given), reading).sum(0)
            flows.append(Flow(Node("mlp", name, layer=reading.layer), number, at, gradient))
        else:
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


def ordered_sites(model: Model, tape: Tape, streams: Sequence[Stream]) -> Sequence[Site]:
    """The sites in the order in which the pass saw them, one for each layer, each behind a reading of a stream.

    Errors: `InputError` where a layer has several parts, or attention reads what is no stream.
    """
    if len(tape.sites) != len(tape.seen) or any(place.part for place in tape.seen):
        raise InputError(f"{model.name} keeps windows or images apart, which read a stream of their own; {INSTEAD}")
    behind = {number for s in streams for reading in s.readings for number in range(reading.first, reading.last)}
    alone = [site for number, site in enumerate(tape.sites) if number not in behind]
    if alone:
        raise InputError(
            f"{model.name}: it cannot be told what {alone[0].place} reads of the stream (no map of its own, or a norm "
            f"that was not found); {INSTEAD}"
        )
    return tape.sites


def _stack_of(stream: Stream, sites: Sequence[Site]) -> str:
    """The stack whose layers a stream goes through."""
    first = next((reading for reading in stream.readings if reading.attends), None)
    if first is None:
        raise CaptureError(f"no attention was seen in the layers '{stream.name}'")
    return sites[first.first].place.stack
