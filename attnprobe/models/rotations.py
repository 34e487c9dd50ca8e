"""Queries and keys that were turned by their position (RoPE): told from what a pass did, and the turn of one step.

The first position is not turned, so the map that gave its queries gave them all, where lengths are the same at every
position. Which entries turn together, and how far, is fitted to the second position and checked on all others.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

# How far lengths and turned vectors may be off, of the largest entry: sines are float32 in models of float64 too.
OFF = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
# Entries that change less than this in one step count as not turned; fewer samples than this tell no pairs apart.
STILL = 1e-5
FEWEST = 3


@dataclass(frozen=True, eq=False)
class Turned:
    """What became of the output of a map: by position, before and after. Both are [row token head d_head]."""

    made: Float[Tensor, "row token head d_head"]
    used: Float[Tensor, "row token head d_head"]

    @property
    def dtype(self) -> torch.dtype:
        """Of what was used."""
        return self.used.dtype

    @property
    def factor(self) -> float:
        """The number that all entries of the first position were multiplied by."""
        return length_ratio(self.used[:, 0].flatten(), self.made[:, 0].flatten())

    @property
    def keeps_lengths(self) -> bool:
        """Whether every vector is as long as what the map gave for it, but for the factor."""
        made, used = self.made.double().norm(dim=-1) * self.factor, self.used.double().norm(dim=-1)
        return bool(((made - used).abs() <= 10 * OFF[self.dtype] * used.abs().max()).all())

    def fits(self, turn: Float[Tensor, "d_head d_head"]) -> bool:
        """Whether position t is what the map gave, turned t times."""
        expected = self.made.double() * self.factor
        for token in range(expected.shape[1]):
            off = (expected[:, token] @ torch.linalg.matrix_power(turn, token) - self.used[:, token].double()).abs()
            if not float(off.max()) <= OFF[self.dtype] * float(expected.abs().max()):
                return False
        return True

    def one_step(self) -> Float[Tensor, "d_head d_head"] | None:
        """The turn from one position to the next, for rows; None where it is none of pairs, or not the same each time.

        Precise to about 1e-6 in float32; of coarser types it is not told.
        """
        if self.dtype not in (torch.float32, torch.float64) or self.made.shape[1] < 2:
            return None
        made, used = (part[:, 1].double().flatten(0, -2) for part in (self.made, self.used))
        turn = fitted_turn(made * self.factor, used)
        return turn if turn is not None and self.fits(turn) else None


def length_ratio(used: Float[Tensor, " n"], made: Float[Tensor, " n"]) -> float:
    """The number c of used = c made, by least squares; exactly 1 where both are the same."""
    if torch.equal(used, made):
        return 1.0
    made = made.double()
    return float(used.double() @ made / (made @ made))


def fitted_turn(before: Float[Tensor, "sample d"], after: Float[Tensor, "sample d"]) -> Float[Tensor, "d d"] | None:
    """T of after = before T that turns entries in pairs; None where no pairs explain the change.

    >>> angle = torch.tensor(0.5).double()
    >>> turn = torch.tensor([[angle.cos(), angle.sin()], [-angle.sin(), angle.cos()]])
    >>> x = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 1.0]]).double()
    >>> torch.allclose(fitted_turn(x, x @ turn), turn)
    True
    """
    n, d = before.shape
    if n < FEWEST:
        return None
    turn = torch.eye(d, dtype=torch.float64)
    moves = (after - before).norm(dim=0) > STILL * before.norm(dim=0)
    own, other, partner = _best_pairs(before, after)
    for i in moves.nonzero()[:, 0].tolist():
        j = int(partner[i])
        if j == i or int(partner[j]) != i or not bool(moves[j]):
            return None
        angle = torch.atan2((other[j] - other[i]) / 2, (own[i] + own[j]) / 2)
        turn[i, i], turn[j, i] = angle.cos(), -angle.sin()
    return turn


def _best_pairs(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Int[Tensor, " d"]]:
    """For each entry i the other entry j that explains after_i = own before_i + other before_j best."""
    length, cross = before.square().sum(0), before.T @ before
    with_own, with_other = (before * after).sum(0)[:, None], after.T @ before
    determinant = (length[:, None] * length - cross.square()).fill_diagonal_(torch.inf)
    own = (with_own * length - with_other * cross) / determinant
    other = (with_other * length[:, None] - with_own * cross) / determinant
    left = torch.stack(
        [(y[:, None] - own * x[:, None] - other * x).square() for x, y in zip(before, after, strict=True)]
    )
    partner = left.sum(0).fill_diagonal_(torch.inf).argmin(1)
    every = torch.arange(len(partner))
    return own[every, partner], other[every, partner], partner
