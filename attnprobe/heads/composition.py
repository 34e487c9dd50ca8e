"""Composition: how much of what one head writes is what a head of a later layer reads (Elhage et al. 2021).

‖A B‖ / (‖A‖ ‖B‖) of the writer's W_OV and what the reader does with it: W_QK from the side of its queries (Q) or of its
keys (K), or its W_OV (V). Gain and centring of the norms on the direct way are folded in. Matrices that have nothing to
do with one another score about 1/√d_model; that is subtracted.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.heads import head_pairs
from attnprobe.heads.wiring import Side, Wiring, wiring
from attnprobe.models.model import Model, Stack
from attnprobe.models.ways import Way

Pairs = Float[Tensor, "layer head layer2 head2"]
Baseline = Literal["random", "none"]
SOURCE = "Elhage et al. 2021"


@head_pairs.add(family="composition", source=SOURCE, label="Q-composition", low=-1, high=1, unit="number")
def q_composition(
    model: Model, stack: Stack, *, offset: int = 0, baseline: Baseline = "random", n_draws: int = 20, seed: int = 0
) -> Pairs:
    """How much of what the first head writes the second reads into its queries, above random matrices.

    offset: of the key under RoPE. baseline: "random", less the mean over `n_draws` pairs of random matrices of the same
    shapes; "none", the plain ratio, 0 to 1. NaN where the second head is in no later layer, or nothing leads there.
    """
    return _composed(model, stack, "query", offset, baseline, n_draws, seed)


@head_pairs.add(family="composition", source=SOURCE, label="K-composition", low=-1, high=1, unit="number")
def k_composition(
    model: Model, stack: Stack, *, offset: int = 0, baseline: Baseline = "random", n_draws: int = 20, seed: int = 0
) -> Pairs:
    """How much of what the first head writes the second reads into its keys, above random matrices.

    Options and NaN as for `q_composition`.
    """
    return _composed(model, stack, "key", offset, baseline, n_draws, seed)


@head_pairs.add(family="composition", source=SOURCE, label="V-composition", low=-1, high=1, unit="number")
def v_composition(
    model: Model, stack: Stack, *, baseline: Baseline = "random", n_draws: int = 20, seed: int = 0
) -> Pairs:
    """How much of what the first head writes the second reads into its values, above random matrices.

    Options and NaN as for `q_composition`.
    """
    return _composed(model, stack, "value", 0, baseline, n_draws, seed)


@dataclass(frozen=True, eq=False)
class _Written:
    """What the heads of a layer write: cores [head rank d_model] with the lengths of the W_OV that they stand for."""

    cores: Float[Tensor, "head rank d_model"]
    norms: Float[Tensor, " head"]
    behind: Way
    d_in: int = 0


@dataclass(frozen=True, eq=False)
class _Reading:
    """What the heads of a layer read: left [head d_in rank] as it is, and right [head rank d_out] as a triangle."""

    left: Float[Tensor, "head d_in rank"]
    triangle: Float[Tensor, "head rank rank2"]
    d_out: int = 0


def _composed(
    model: Model, stack: Stack, side: Side, offset: int, baseline: Baseline, n_draws: int, seed: int
) -> Pairs:
    if baseline not in ("random", "none"):
        raise InputError(f"baseline is 'random' or 'none', got {baseline!r}")
    if n_draws < 1:
        raise InputError(f"n_draws is at least 1, got {n_draws}")
    wires, most = wiring(model, stack), max(stack.n_heads)
    found = torch.full((stack.n_layers, most, stack.n_layers, most), torch.nan, dtype=torch.float64)
    written = [_written(wires, layer) for layer in range(stack.n_layers - 1)]
    draws = _Draws(n_draws, seed)
    for later in range(1, stack.n_layers):
        reading = _reading(wires, later, side, offset)
        for layer, one in enumerate(written[:later]):
            way = wires.stream.way(wires.writer(layer), wires.reader(later, side))
            if way is None:
                continue
            ratio = _ratio(one, _folded(reading, way.behind(one.behind)))
            by_chance = draws.mean(one, reading) if baseline == "random" else 0.0
            found[layer, : ratio.shape[0], later, : ratio.shape[1]] = (ratio - by_chance).cpu()
    return found


def _written(wires: Wiring, layer: int) -> _Written:
    factors = wires.OV(layer)
    # ‖L R M‖ = ‖U R M‖ for L = Q U with orthonormal columns of Q: a core of few rows stands for W_OV.
    cores = torch.linalg.qr(factors.left, mode="r").R @ factors.right
    return _Written(cores, cores.norm(dim=(-2, -1)), wires.behind(layer), factors.left.shape[-2])


def _reading(wires: Wiring, layer: int, side: Side, offset: int) -> _Reading:
    """What stands behind the norms before the maps; the other side has its own norm folded in."""
    left = wires.weight(layer, side)
    if side == "value":
        right = wires.OV(layer).right
    elif side == "key":
        right = wires.QK(layer, offset=offset).left.mT
    else:
        left, right = wires.weight(layer, "query", offset), wires.QK(layer).right
    return _Reading(left, torch.linalg.qr(right.mT, mode="r").R.mT, right.shape[-1])


def _folded(reading: _Reading, way: Way) -> Float[Tensor, "head d_model rank"]:
    """Cores of the reader's matrices as they read what the writer wrote."""
    return way.folded(reading.left) @ reading.triangle


def _ratio(one: _Written, reads: Float[Tensor, "head d_model rank"]) -> Float[Tensor, "head head2"]:
    """‖A B‖ / (‖A‖ ‖B‖) for all pairs of heads of two layers; 0 where one of them is 0."""
    products = torch.einsum("hrd,kds->hkrs", one.cores, reads).norm(dim=(-2, -1))
    lengths = one.norms[:, None] * reads.norm(dim=(-2, -1))
    return products / lengths.where(lengths > 0, 1.0)


@dataclass
class _Draws:
    """The mean ratio of random matrices by their shapes, drawn once each."""

    n_draws: int
    seed: int
    known: dict[tuple[int, ...], float] = field(default_factory=dict)

    def mean(self, one: _Written, reading: _Reading) -> float:
        """Of Gaussian factors of the shapes of a writer's and a reader's matrices."""
        shape = (one.d_in, one.cores.shape[-2], one.cores.shape[-1], reading.left.shape[-1], reading.d_out)
        if shape not in self.known:
            d_in, rank, d_model, rank2, d_out = shape
            draw = partial(torch.randn, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64)
            total = 0.0
            for _ in range(self.n_draws):
                A = draw(1, d_in, rank), draw(1, rank, d_model)
                B = draw(1, d_model, rank2), draw(1, rank2, d_out)
                core = torch.linalg.qr(A[0], mode="r").R @ A[1]
                reads = B[0] @ torch.linalg.qr(B[1].mT, mode="r").R.mT
                total += float(_ratio(_Written(core, core.norm(dim=(-2, -1)), Way()), reads))
            self.known[shape] = total / self.n_draws
        return self.known[shape]
