"""The residual stream of a network, by watching: what lies on the direct way from what one map writes to another map.

One short pass in which the input of every map is held fast, and noise is added to what it gives. Past the maps only
sums, factors and norms are left, and gradients tell which norm is fed by what: a graph of a few dozen nodes, no names.
A direct way that is not a chain of those is refused, and said.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from attnprobe.attention.seam import NOTHING, Tape
from attnprobe.errors import InputError, RowsError
from attnprobe.models.anatomy import Kind, Norm, Rule, kind_of, noise_like, norm_of, replacing
from attnprobe.models.evaluator import count
from attnprobe.models.model import Model
from attnprobe.models.projecting import probe
from attnprobe.models.rows import Row
from attnprobe.models.ways import Step, Way

# What a norm is tried on is this large, so that the number that keeps it from dividing by 0 does not show.
LOUD = 100.0
# The same input several times, each with noise of its own.
N_ROWS = 2
# How far factors may differ between positions, of the largest.
EVEN = {torch.float64: 1e-9, torch.float32: 1e-4}

Source = tuple[str, str, int]  # "table", "written", "norm" or "given"; path; how many calls came before


@dataclass(frozen=True, eq=False)
class Read:
    """What a map or a norm was given in one run."""

    path: str
    call: int
    x: Tensor = field(repr=False)
    n_sources: int = 0


@dataclass(eq=False)
class Stream:
    """What was watched: sources (starts of ways) in order, and reads (their ends) of maps and of norms.

    answer: the logits of the pass. outputs: of maps, in order.
    """

    name: str
    sources: dict[Source, Tensor] = field(default_factory=dict)
    reads: dict[tuple[str, int], Read] = field(default_factory=dict)
    norms: dict[tuple[str, int], Step] = field(default_factory=dict)
    outputs: list[tuple[str, int, Tensor]] = field(default_factory=list)
    answer: Tensor | None = None
    _fed: dict[tuple[str, int], dict[Source, Step | None]] = field(default_factory=dict)

    def way(self, source: Source, reader: tuple[str, int]) -> Way | None:
        """The direct way from a source to what a map reads; None where there is none.

        Errors: `InputError` where several lead there, or where something else than sums, factors and norms is on it.
        """
        self._known(reader)
        found = self._ways(source, reader, {})
        if len(found) > 1:
            raise InputError(f"{self.name}: several ways lead from '{source[1]}' to '{reader[0]}' past all maps")
        return Way(found[0]) if found else None

    def own_norm(self, reader: tuple[str, int]) -> Way:
        """The norm that stands before a map and nothing else of the stream (pre-LN); an empty way without one."""
        self._known(reader)
        fed = self.feeding(reader)
        if len(fed) != 1:
            return Way()
        ((source, stretch),) = fed.items()
        if source[0] != "norm" or stretch is None or any(source in self.feeding(other) for other in self.norms):
            return Way()
        return Way((self.norms[source[1:]], *_kept(stretch)))

    def own_output_norm(self, writer: Source) -> Way:
        """The norms that take what a map writes before anything else is added to it (Gemma 2); mostly none."""
        steps: list[Step] = []
        while (after := next((norm for norm in self.norms if set(self.feeding(norm)) == {writer}), None)) is not None:
            stretch = self.feeding(after)[writer]
            if stretch is None:
                break
            steps += [*_kept(stretch), self.norms[after]]
            writer = ("norm", *after)
        return Way(tuple(steps))

    def _known(self, reader: tuple[str, int]) -> None:
        if reader not in self.reads:
            raise InputError(
                f"{self.name}: '{reader[0]}' did not run as a module of its own (run {reader[1]} of it), so what it "
                "reads cannot be followed"
            )

    def _ways(
        self, source: Source, reader: tuple[str, int], known: dict[tuple[str, int], list[tuple[Step, ...]]]
    ) -> list[tuple[Step, ...]]:
        """At most two ways, which is enough to say that there are several."""
        if reader in known:
            return known[reader]
        found: list[tuple[Step, ...]] = []
        for start, stretch in self.feeding(reader).items():
            before: list[tuple[Step, ...]] = [()] if start == source else []
            if start[0] == "norm" and start != source:
                before = [(*way, self.norms[start[1:]]) for way in self._ways(source, start[1:], known)]
            if before and stretch is None:
                raise InputError(
                    f"{self.name}: between '{start[1]}' and '{reader[0]}' there is something that is neither a sum, a "
                    "factor nor a norm, so nothing was folded"
                )
            found += [(*way, *_kept(stretch)) for way in before if stretch is not None]
        known[reader] = found[:2]
        return known[reader]

    def feeding(self, reader: tuple[str, int]) -> dict[Source, Step | None]:
        """The sources that reach a read without a norm or a map between; None: by something that is no factor."""
        if reader not in self._fed:
            read = self.reads[reader]
            self._fed[reader] = self._fed_by(read) if read.x.requires_grad else {}
        return self._fed[reader]

    def _fed_by(self, read: Read) -> dict[Source, Step | None]:
        before = dict(list(self.sources.items())[: read.n_sources])
        towards = noise_like(torch.ones_like(read.x), seed=3)
        found = torch.autograd.grad(read.x, list(before.values()), towards, retain_graph=True, allow_unused=True)
        pairs = zip(before, found, strict=True)
        return {source: _factor(towards, g) for source, g in pairs if g is not None and bool(g.any())}


def _kept(stretch: Step) -> tuple[Step, ...]:
    """A stretch that does something."""
    return () if bool((stretch.gain == 1).all()) else (stretch,)


def _factor(towards: Tensor, gradient: Tensor) -> Step | None:
    """The number by which each entry goes on, the same at all positions; None where there is no such thing."""
    if towards.shape[-1] != gradient.shape[-1]:
        return None
    towards, gradient = towards.flatten(0, -2), gradient.flatten(0, -2)
    reached = gradient[gradient.any(-1)]
    if len(reached) != len(towards) or len(towards) < 2:  # a single position shows nothing that differs
        return None
    ratio = reached / towards
    off = float((ratio - ratio.mean(0)).abs().max())
    if not off <= EVEN.get(ratio.dtype, 2e-2) * float(ratio.abs().max()):
        return None
    gain = ratio.mean(0)
    even = float((gain - gain.mean()).abs().max()) <= EVEN.get(ratio.dtype, 2e-2) * float(gain.abs().max())
    gain = torch.full_like(gain, float(gain.mean())) if even else gain
    return Step(torch.ones_like(gain) if even and abs(float(gain[0]) - 1) <= 1e-4 else gain)


def residual_stream(model: Model) -> Stream:
    """Watch one short pass of a model; of an edited one, of the model without its edits."""
    model = getattr(model, "inner", model)
    try:
        return _watched(model, N_ROWS)
    except RowsError:  # some attention lays several inputs out in its own way
        return _watched(model, 1)


def _watched(model: Model, n_rows: int) -> Stream:
    stream = Stream(model.name)
    watch = _Watch(model, stream)
    example = probe(model)
    count(forward=n_rows)
    tape = Tape(keep=NOTHING, check=False, n_rows=n_rows)
    rows = [Row(example)] * n_rows
    with torch.enable_grad(), replacing(watch.rules()):
        if "input_ids" in example.inputs and not watch.has_tables:
            given = watch.start(("given", "", 0), torch.stack([model.embed(example)] * n_rows))
            rows = [Row(example, embeddings=row) for row in given]
        stream.answer = model.forward(rows, tape).detach()
    return stream


class _Watch:
    """Holds what maps are given fast, cuts the graph behind norms, and notes both."""

    def __init__(self, model: Model, stream: Stream) -> None:
        self.stream, self.module = stream, model.module
        self.paths = {id(part): path for path, part in model.module.named_modules()}
        self.kinds: dict[int, Kind | None] = {}
        self.steps: dict[int, Step | None] = {}
        self.calls: Counter[int] = Counter()
        # Our own networks are given embeddings; pretrained ones look them up.
        self.has_tables = getattr(model, "vocabulary", None) is None

    def rules(self) -> dict[nn.Module, Rule]:
        """A rule for every innermost module."""
        leaves = (part for part in self.module.modules() if next(part.children(), None) is None)
        return {leaf: partial(self._leaf, leaf) for leaf in leaves}

    def _leaf(self, leaf: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        x = next((t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)), None)
        if isinstance(leaf, nn.Embedding):
            return self._source(leaf, "table", forward(*args, **kwargs))
        if x is None or not x.is_floating_point():
            return forward(*args, **kwargs)
        if any(parameter.ndim > 1 for parameter in leaf.parameters()):
            return self._map(leaf, forward, x, args, kwargs)
        if id(leaf) not in self.kinds:
            self.kinds[id(leaf)] = kind_of(leaf, x.detach(), forward)
        if self.kinds[id(leaf)] != "norm":
            return forward(*args, **kwargs)
        step = self._norm(leaf, forward, x.detach())
        if step is None:
            return forward(*args, **kwargs)
        self.stream.norms[self._read(leaf, x)] = step
        return self._source(leaf, "norm", forward(*args, **kwargs))

    def _map(self, leaf: nn.Module, forward: Any, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._read(leaf, x)
        held = tree_map_only(Tensor, Tensor.detach, (args, kwargs))
        at = (self.paths[id(leaf)], self.calls[id(leaf)])
        output = self._source(leaf, "written", forward(*held[0], **held[1]))
        if isinstance(output, Tensor):
            self.stream.outputs.append((*at, output.detach().clone()))
        return output

    def _read(self, leaf: nn.Module, x: Tensor) -> tuple[str, int]:
        at = (self.paths[id(leaf)], self.calls[id(leaf)])
        # A copy: what the network adds to x in place afterwards (Falcon) was not read.
        self.stream.reads[at] = Read(*at, x.clone(), len(self.stream.sources))
        return at

    def _source(self, leaf: nn.Module, kind: str, output: Any) -> Any:
        """The output as the start of ways of its own."""
        call, self.calls[id(leaf)] = self.calls[id(leaf)], self.calls[id(leaf)] + 1
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return output
        return self.start((kind, self.paths[id(leaf)], call), output)

    def start(self, source: Source, output: Tensor) -> Tensor:
        """A start with noise of its own size, so that no two positions are alike: what is no factor shows by that."""
        noise = 0.0 if source[0] == "norm" else noise_like(output, seed=len(self.stream.sources))
        self.stream.sources[source] = (output.detach() + noise).requires_grad_()
        return self.stream.sources[source].clone()  # which a network may add to in place

    @torch.no_grad()
    def _norm(self, leaf: nn.Module, forward: Any, x: Float[Tensor, "*position d"]) -> Step | None:
        """Gain and centring of a norm, without what it divides by."""
        if id(leaf) not in self.steps:
            loud = LOUD * noise_like(torch.ones_like(x), seed=9)
            self.steps[id(leaf)] = _step(norm_of(forward, loud), loud, self.paths[id(leaf)])
        return self.steps[id(leaf)]


def _step(found: Norm | None, x: Float[Tensor, "*position d"], path: str) -> Step | None:
    """A norm at x without what it divides by."""
    if found is None:
        return None
    middle = x - x.mean(-1, keepdim=True) if found.centred else x
    size = middle.double().square().mean(-1, keepdim=True).sqrt()
    return Step((found.coefficient.double() * size).flatten(0, -2).mean(0).to(x.dtype), found.centred, path)
