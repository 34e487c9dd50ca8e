"""Edge attribution patching: what each edge between two parts of a network carries of the difference of two inputs.

    EAP      (z_u on corrupt − z_u on clean) · ∂y/∂(what v reads), at the clean input         (Syed et al. 2023)
    EAP-IG   the same with the mean gradient on the line between the embeddings of both       (Hanna et al. 2024)

That is to first order how much the target changes when v alone reads what u wrote on the corrupt input. Two passes for
what is written, one each way for gradients, and from each head the short way back to its layer's input tell it of all
edges. Heads read by query, key and value apart; where attention and feed-forward part of a layer run side by side,
neither reads the other.

What u wrote reaches v as it is where norms stand before the parts (GPT-2, Llama, T5, ViT), and all edges out of a part
add up to attribution patching of that part. Where norms stand in the stream (BERT), or behind outputs (Gemma 2), it
goes through them, to first order: what a norm divides by follows ("moving"), and the sums hold there as well. With
`norms="frozen"` a norm stays (x − m) gain / σ with σ of each token on the clean input: nearer to a large change that
comes from the embedding, but how an edge moves σ is left out, which can turn the sign of small edges, and what reaches
the answer no longer adds up to its change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.heads.pairs import Baselines, Pair, baselines
from attnprobe.heads.spoken import said, target_unit
from attnprobe.heads.stream_nodes import Flow, Node, Writes, read, written
from attnprobe.heads.streams import Linear
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, batch_size
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

# Where on the line from the corrupt to the clean embeddings the gradient of step s of m is taken, as a share of it.
POINTS = {"middle": 0.5, "left": 0.0}
NORMS = ("frozen", "moving")


@dataclass(frozen=True, eq=False, repr=False)
class Edges:
    """A number for each edge: the change of the target that it carries, to first order; NaN where there is no edge.

    n_steps: of the integrated form, None for the gradient at the clean input alone. norms: how those between two parts
    were taken. names leave the stack out where the model has one.
    """

    values: Float[Tensor, "writer reader"]
    writers: tuple[Node, ...]
    readers: tuple[Node, ...]
    baselines: Baselines
    target: ResolvedTarget
    n_steps: int | None = None
    points: str = "middle"
    norms: str = "moving"
    model: str = ""
    forward_passes: int = 0
    backward_passes: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        """On what, and the edges that carry most."""
        best = self.top(3)
        shares = said(best.share.tolist(), signs=True)
        named = [f"{a} to {b} {share}" for a, b, share in zip(best.writer, best.reader, shares, strict=True)]
        return (
            f"Edges of {self.model}: {int((~self.values.isnan()).sum())} edges, on the {self.target.description}, in "
            f"{target_unit(self.target)}\nlargest shares of the change: {', '.join(named)}"
        )

    @property
    def shares(self) -> Float[Tensor, "writer reader"]:
        """The values as shares of the change from the clean to the corrupt input."""
        return self.values / -self.baselines.gap

    def name(self, node: Node) -> str:
        """A node in words."""
        return str(node) if len({n.stack for n in self.writers}) > 1 else node.short

    def to_frame(self) -> pd.DataFrame:
        """A row an edge: writer, reader (by name), value (target units), share."""
        known = (~self.values.isnan()).nonzero()
        at = tuple(known.T)
        return pd.DataFrame(
            {
                "writer": [self.name(self.writers[index]) for index in known[:, 0].tolist()],
                "reader": [self.name(self.readers[index]) for index in known[:, 1].tolist()],
                "value": self.values[at].tolist(),
                "share": self.shares[at].tolist(),
            }
        )

    def top(self, n: int = 10) -> pd.DataFrame:
        """The n edges that carry most, whatever the direction."""
        frame = self.to_frame()
        return frame.loc[frame.value.abs().sort_values(ascending=False, kind="stable").index[:n]].reset_index(drop=True)

    def nodes(self) -> pd.Series:
        """All edges out of each writer together, by name: attribution patching of the node, but for frozen norms."""
        return pd.Series(self.values.nansum(1).tolist(), index=[self.name(node) for node in self.writers], name="value")


def edge_attribution(
    model: Any, pair: Pair, *, n_steps: int | None = None, points: str = "middle", norms: str = "moving"
) -> Edges:
    """Every edge of a network at once, on a clean and a corrupt input.

    n_steps: None for EAP; a number for EAP-IG, whose gradients are taken in the "middle" of that many equal steps, or
    at their "left" ends as in the code of Hanna et al., where the corrupt input counts and the clean one does not.
    norms: those between what is written and what reads it (BERT; behind outputs: Gemma 2): "moving" lets what they
    divide by follow to first order, so that edges out of a part add up to its attribution patching; "frozen" keeps it
    as it is on the clean input. In networks whose norms stand before their parts both are the same.
    Errors: `InputError` for a model whose parts do not simply add to a stream, or whose target is the same on both.
    """
    model = load(model)
    if points not in POINTS:
        raise InputError(f"points is 'middle' or 'left', got '{points}'")
    if n_steps is not None and n_steps < 1:
        raise InputError(f"n_steps is at least 1, or None for the gradient at the clean input, got {n_steps}")
    if norms not in NORMS:
        raise InputError(f"norms is 'frozen' or 'moving', got '{norms}'")
    with Meter() as meter:
        ends = baselines(model, pair)
        clean = written(model, pair.clean, frozen=norms == "frozen")
        moves = _moves(clean, written(model, pair.corrupt))
        reads = _mean_reads(model, _rows(model, pair, n_steps, points), pair.target)
    return Edges(
        _edges(moves, reads, clean), tuple(flow.node for flow in moves), tuple(flow.node for flow in reads), ends,
        pair.target, n_steps, points, norms, model.name, meter.forward, meter.backward, meter.seconds,
    )  # fmt: skip


def _moves(clean: Writes, corrupt: Writes) -> list[Flow]:
    """What each writer gives to the stream on the corrupt input − what it gives on the clean one."""
    found = list[Flow]()
    for a, b in zip(clean.flows, corrupt.flows, strict=True):
        move = (b.states.double() - a.states.double()).cpu()
        found.append(replace(a, states=_through(move, clean.outputs.get((a.stream, a.at), ()))))
    return found


def _through(moves: Float[Tensor, "*writer token d_model"], norms: Sequence[Linear]) -> Tensor:
    """What becomes of differences in norms that are held fast."""
    for norm in norms:
        moves = norm(moves)
    return moves


def _rows(model: Model, pair: Pair, n_steps: int | None, points: str) -> list[Row]:
    """The inputs at which gradients are taken."""
    if n_steps is None:
        return [Row(pair.clean)]
    clean, corrupt = model.embed(pair.clean).detach(), model.embed(pair.corrupt).detach()
    shares = [(step + POINTS[points]) / n_steps for step in range(n_steps)]
    return [Row(pair.clean, embeddings=corrupt + share * (clean - corrupt)) for share in shares]


def _mean_reads(model: Model, rows: Sequence[Row], target: ResolvedTarget) -> list[Flow]:
    """The gradient with respect to what each node reads, mean over rows."""
    size, found = batch_size(rows[0].length), list[Flow]()
    for first in range(0, len(rows), size):
        part = read(model, rows[first : first + size], target)
        known = [flow.states for flow in found] or [torch.zeros(())] * len(part)
        found = [
            replace(flow, states=before + flow.states.double().cpu() / len(rows))
            for before, flow in zip(known, part, strict=True)
        ]
    return found


def _edges(moves: Sequence[Flow], reads: Sequence[Flow], clean: Writes) -> Float[Tensor, "writer reader"]:
    """Σ over tokens and dimensions of move times gradient, where what was written comes before what is read."""
    values = torch.full((len(moves), len(reads)), torch.nan, dtype=torch.float64)
    for stream in {flow.stream for flow in moves}:
        rows = [index for index, flow in enumerate(moves) if flow.stream == stream]
        on_the_way = torch.stack([moves[index].states for index in rows])
        for at in range(max(flow.at for flow in reads if flow.stream == stream) + 1):
            there = [index for index, row in enumerate(rows) if moves[row].at < at]
            columns = [index for index, flow in enumerate(reads) if (flow.stream, flow.at) == (stream, at)]
            if columns:
                seen = torch.stack([reads[index].states.flatten() for index in columns])
                found = on_the_way[there].flatten(1) @ seen.T
                values[torch.tensor(rows)[there, None], torch.tensor(columns)] = found
            norms = clean.norms.get((stream, at), ())
            if norms:
                arrived = [index for index, row in enumerate(rows) if moves[row].at <= at]
                on_the_way[arrived] = _through(on_the_way[arrived], norms)
    return values
