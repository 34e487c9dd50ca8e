"""What each norm of a layer does to the residual stream, and which maps read the stream without a norm.

Told from what feeds what (`residual_stream`), by no name:

    before   stands before a part and is given the stream                          GPT-2, Llama, T5
    stream   takes the whole stream on its way: what comes out is the stream       BERT, BART (norms behind the sums)
    output   takes what one map wrote before it is added to anything               Gemma 2, OLMo 2

Norms within a part (of queries and keys, of the middle of a feed-forward part) do nothing to the stream.
"""

from dataclasses import dataclass, field
from typing import Literal

from attnprobe.models.model import Model
from attnprobe.models.recorded import blocks_of
from attnprobe.models.residual_stream import Source, Stream, residual_stream

Role = Literal["before", "stream", "output"]
Run = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Roles:
    """norms: the role of each by its path. maps: paths of maps that read the stream itself."""

    norms: dict[str, Role] = field(default_factory=dict)
    maps: frozenset[str] = frozenset()


def norm_roles(model: Model) -> Roles:
    """The roles of all norms within layers; watched once and remembered.

    Errors: those of `residual_stream`.
    """
    parts = tuple((path, type(part)) for path, part in model.module.named_modules())
    known = model.__dict__.setdefault("_norm_roles", {})
    if known.get("parts") != parts:
        known.update(parts=parts, roles=_roles(_Layers(model)))
    found: Roles = known["roles"]
    return found


class _Layers:
    """Which layer a path lies in, and what feeds what in layers."""

    def __init__(self, model: Model) -> None:
        inside = {id(block) for block in blocks_of(model)}
        self.blocks = [path for path, part in model.module.named_modules() if id(part) in inside]
        stream: Stream = residual_stream(model)
        self.touched: dict[Run, set[Source]] = {run: set(stream.feeding(run)) for run in stream.reads}
        # Without a factor (None) something else came between, or a part of the input was laid beside another.
        self.fed: dict[Run, set[Source]] = {
            run: {source for source in sources if stream.feeding(run)[source] is not None}
            for run, sources in self.touched.items()
        }
        self.norms = {run for run in stream.norms if self.block(run[0])}
        self.all_norms = set(stream.norms)

    def block(self, path: str) -> str:
        """The innermost layer of a path; "" outside of layers."""
        return max((b for b in self.blocks if path == b or path.startswith(b + ".")), key=len, default="")

    def of(self, path: str) -> str:
        """The list of layers that a path lies in."""
        return self.block(path).rpartition(".")[0]

    def origins(self, run: Run) -> set[str]:
        """The lists of layers whose states are read; keys of a decoder may be those of the encoder."""
        found = set[str]()
        for kind, path, call in self.fed.get(run, ()):
            here = {self.of(path)} - {""}
            found |= here or (self.origins((path, call)) if kind == "norm" else set())
        return found

    def feeds(self, norm: Run) -> set[Run]:
        """What reads a norm's output past sums and factors alone."""
        return {run for run, sources in self.fed.items() if ("norm", *norm) in sources}


def _roles(layers: _Layers) -> Roles:
    output = {norm[0] for norm in layers.norms if _takes_one_map(layers, norm)}
    chained = {n[0] for n in layers.norms if n[0] not in output and layers.feeds(n) & layers.all_norms}
    last = {n[0] for n in layers.norms if n[0] not in output | chained and _ends(layers, n, chained)}
    stream = chained | last
    reading = {
        run
        for run in layers.fed
        if layers.block(run[0])
        for source in (layers.touched if run in layers.norms else layers.fed)[run]
        if _is_stream(layers, run, source, output | stream)
    }
    norms: dict[str, Role] = dict.fromkeys({n[0] for n in layers.norms & reading} - output - stream, "before")
    norms |= dict.fromkeys(stream, "stream") | dict.fromkeys(output, "output")  # type: ignore[arg-type]
    maps = {run for run in reading - layers.norms if layers.origins(run) <= {layers.of(run[0])}}
    return Roles(norms, frozenset(path for path, _ in maps))


def _takes_one_map(layers: _Layers, norm: Run) -> bool:
    """Whether a norm takes what one map of its layer wrote, and what comes out goes further than this map's part."""
    sources, here = layers.fed[norm], layers.block(norm[0])
    alone = len(sources) == 1 and all(kind == "written" and layers.block(path) == here for kind, path, _ in sources)
    return alone and any(run in layers.all_norms or layers.block(run[0]) != here for run in layers.feeds(norm))


def _ends(layers: _Layers, norm: Run, stream: set[str]) -> bool:
    """Whether a norm takes the stream behind other norms of it and gives it to no part of its layer: the last one."""
    given = any(kind == "norm" and path in stream for kind, path, _ in layers.fed[norm])
    return given and not any(layers.block(run[0]) == layers.block(norm[0]) for run in layers.feeds(norm))


def _is_stream(layers: _Layers, run: Run, source: Source, norms: set[str]) -> bool:
    """Whether what feeds a reading is part of the stream, rather than something made within the reading's own part."""
    kind, path, _ = source
    if kind == "norm":
        return path in norms or not layers.block(path)
    return kind in ("table", "given") or layers.block(path) != layers.block(run[0])
