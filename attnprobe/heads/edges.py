"""Edge attribution patching: what each edge between two parts of a network carries of the difference of two inputs.

    EAP      (z_u on corrupt − z_u on clean) · ∂y/∂(what v reads), at the clean input         (Syed et al. 2023)
    EAP-IG   the same with the mean gradient on the line between the embeddings of both       (Hanna et al. 2024)

That is to first order how much the target changes when v alone reads what u wrote on the corrupt input. Two passes for
what is written, one each way for gradients, and from each head the short way back to its layer's input tell it of all
edges. All edges out of a part add up to attribution patching of that part.
Heads read by query, key and value apart. It holds for networks whose parts add to one stream behind norms that stand
before them (GPT-2, Llama, T5, ViT); others are refused with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.heads.pairs import Baselines, Pair, baselines
from attnprobe.heads.stream_nodes import Flow, Node, read, written
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, batch_size
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

# Where on the line from the corrupt to the clean embeddings the gradient of step s of m is taken, as a share of it.
POINTS = {"middle": 0.5, "left": 0.0}


@dataclass(frozen=True, eq=False)
class Edges:
    """A number for each edge: the change of the target that it carries, to first order; NaN where there is no edge.

    n_steps: of the integrated form, None for the gradient at the clean input alone. names leave the stack out where the
    model has one.
    """

    values: Float[Tensor, "writer reader"]
    writers: tuple[Node, ...] = field(repr=False)
    readers: tuple[Node, ...] = field(repr=False)
    baselines: Baselines
    target: ResolvedTarget
    n_steps: int | None = None
    points: str = "middle"
    model: str = ""
    forward_passes: int = 0
    backward_passes: int = 0
    seconds: float = 0.0

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
        """All edges out of each writer together: attribution patching of the node, by name."""
        return pd.Series(self.values.nansum(1).tolist(), index=[self.name(node) for node in self.writers], name="value")


def edge_attribution(model: Any, pair: Pair, *, n_steps: int | None = None, points: str = "middle") -> Edges:
    """Every edge of a network at once, on a clean and a corrupt input.

    n_steps: None for EAP; a number for EAP-IG, whose gradients are taken in the "middle" of that many equal steps, or
    at their "left" ends as in the code of Hanna et al., where the corrupt input counts and the clean one does not.
    Errors: `InputError` for a model whose parts do not simply add to a stream, or whose target is the same on both.
    """
    model = load(model)
    if points not in POINTS:
        raise InputError(f"points is 'middle' or 'left', got '{points}'")
    if n_steps is not None and n_steps < 1:
        raise InputError(f"n_steps is at least 1, or None for the gradient at the clean input, got {n_steps}")
    with Meter() as meter:
        ends = baselines(model, pair)
        moves = _moves(written(model, pair.clean), written(model, pair.corrupt))
        reads = _mean_reads(model, _rows(model, pair, n_steps, points), pair.target)
    return Edges(
        _edges(moves, reads), tuple(flow.node for flow in moves), tuple(flow.node for flow in reads), ends,
        pair.target, n_steps, points, model.name, meter.forward, meter.backward, meter.seconds,
    )  # fmt: skip


def _moves(clean: Sequence[Flow], corrupt: Sequence[Flow]) -> list[Flow]:
    """What each writer writes on the corrupt input − what it writes on the clean one."""
    pairs = zip(clean, corrupt, strict=True)
    return [replace(a, states=(b.states.double() - a.states.double()).cpu()) for a, b in pairs]


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


def _edges(moves: Sequence[Flow], reads: Sequence[Flow]) -> Float[Tensor, "writer reader"]:
    """Σ over tokens and dimensions of move times gradient, where what was written comes before what is read."""
    values = torch.full((len(moves), len(reads)), torch.nan, dtype=torch.float64)
    for stream in {flow.stream for flow in moves}:
        rows = [index for index, flow in enumerate(moves) if flow.stream == stream]
        columns = [index for index, flow in enumerate(reads) if flow.stream == stream]
        written, seen = (
            torch.stack([flows[index].states.flatten() for index in chosen])
            for flows, chosen in ((moves, rows), (reads, columns))
        )
        earlier = torch.tensor([[moves[row].at < reads[column].at for column in columns] for row in rows])
        values[torch.tensor(rows)[:, None], torch.tensor(columns)] = (written @ seen.T).where(earlier, torch.nan)
    return values
