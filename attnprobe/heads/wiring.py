"""How the heads of a stack are wired to the residual stream: their maps, and the norms before and behind them.

W_OV of a head is W_V W_O, and W_QK is W_Q W_Kᵀ; both are kept as two factors, [d_model d_head] and [d_head d_model].
"""

from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.models.model import Model, Stack
from attnprobe.models.projections import Projection, projections
from attnprobe.models.residual_stream import Source, Stream, residual_stream
from attnprobe.models.ways import Way

Side = Literal["query", "key", "value"]


@dataclass(frozen=True, eq=False)
class Factors:
    """Matrices of the heads of one layer as left @ right; float64."""

    left: Float[Tensor, "head d_in rank"] = field(repr=False)
    right: Float[Tensor, "head rank d_out"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Wiring:
    """One stack: its projections, and the residual stream that they read from and write to."""

    stack: Stack
    stream: Stream
    layers: tuple[Projection, ...]

    def reader(self, layer: int, side: Side) -> tuple[str, int]:
        """The map of one side of a layer, and which of its runs."""
        self.layers[layer].need({"query": "W_Q", "key": "W_K", "value": "W_V"}[side])
        return self._run([getattr(one, f"{side}_map") for one in self.layers], layer)

    def writer(self, layer: int) -> Source:
        """What a layer's heads write."""
        self.layers[layer].need("W_O")
        return ("written", *self._run([one.output_map for one in self.layers], layer))

    def _run(self, paths: list[str | None], layer: int) -> tuple[str, int]:
        path = paths[layer] or ""
        runs = sum(read[0] == path for read in self.stream.reads)
        if runs != paths.count(path):
            raise InputError(
                f"{self.layers[layer]}: '{path}' ran {runs} times as a module for {paths.count(path)} layers, so what "
                "it reads and writes cannot be told"
            )
        return path, paths[:layer].count(path)

    def weight(self, layer: int, side: Side, offset: int = 0) -> Float[Tensor, "head d_in d_head"]:
        """W_Q, W_K or W_V as they are; queries turned to the offset of their key."""
        one = self.layers[layer]
        found = one.need({"query": "W_Q", "key": "W_K", "value": "W_V"}[side]).double()
        turn = one.turned(offset) if side == "query" else None
        return found if turn is None else found @ turn.to(found)

    def before(self, layer: int, side: Side) -> Way:
        """The norm that stands before a map alone (pre-LN)."""
        return self.stream.own_norm(self.reader(layer, side))

    def behind(self, layer: int) -> Way:
        """The norms that take what the heads write before it is added to anything."""
        return self.stream.own_output_norm(self.writer(layer))

    def OV(self, layer: int, *, fold: bool = True) -> Factors:  # noqa: N802
        """W_V W_O of each head, its own norms folded in."""
        W_V, W_O = self.weight(layer, "value"), self.layers[layer].need("W_O").double()
        if not fold:
            return Factors(W_V, W_O)
        return Factors(self.before(layer, "value").folded(W_V), self.behind(layer).forward(W_O))

    def QK(self, layer: int, *, offset: int = 0, fold: bool = True) -> Factors:  # noqa: N802
        """W_Q W_Kᵀ of each head, its own norms folded in."""
        W_Q, W_K = self.weight(layer, "query", offset), self.weight(layer, "key")
        if fold:
            W_Q, W_K = self.before(layer, "query").folded(W_Q), self.before(layer, "key").folded(W_K)
        return Factors(W_Q, W_K.mT)


def wiring(model: Model, stack: Stack) -> Wiring:
    """Watch a model, and say how a stack is wired."""
    return Wiring(stack, residual_stream(model), projections(model, stack.name, stack.kind))


def stack_of(model: Model, name: str, kind: str) -> Stack:
    """The stack of a head."""
    return next(stack for stack in model.stacks if (stack.name, stack.kind) == (name, kind))
