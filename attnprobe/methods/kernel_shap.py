"""KernelSHAP: Shapley values as the coefficients of a weighted least-squares fit, its two constraints kept exactly."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.games import LACKS, Game, Units, all_coalitions, enumerable, gap_of
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget


def n_rows(n: int, n_samples: int | None) -> int:
    """Coalitions besides nobody and everybody that are run for n players: all where they are no more than asked for."""
    asked = max(512, 8 * n) if n_samples is None else n_samples
    return 2**n - 2 if enumerable(n, asked + 2) else 2 * ((asked + 1) // 2)


@methods.add(
    family="perturbation",
    source="Lundberg & Lee 2017, sec. 4.1; paired as in Covert & Lee 2021",
    formula="argmin_φ Σ_S (n − 1) / (C(n,|S|) |S| (n − |S|)) (y(S) − y(∅) − Σ_{j∈S} φ_j)², Σ_j φ_j = y(x) − y(∅)",
    cost="K F (K = n_samples)",
    signed=True,
    passes=lambda size, o: (n_rows(size.n_units, o["n_samples"]) + 2, 0),
    lacks=LACKS,
)
def kernel_shap(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int | None = None,
    operator: str | None = None,
    units: Units = "token",
    seed: int = 0,
) -> Scores:
    """Shapley values by a least-squares fit to what remains of the target; target units; adds up to y − y(nothing).

    n_samples: choices of what stays, in pairs with their complements (default: 8 a unit, at least 512); where these
    suffice for all choices the values are exact, else their spread gives the standard error. operator as in
    leave_one_out. units: what stays or goes at once: each "token", "word" or "sentence".
    """
    game = Game.of(model, example, target, operator, units)
    n = game.n_players
    m = n_rows(n, n_samples)
    every = m == 2**n - 2
    if not every and m < 2 * n:
        raise InputError(f"n_samples is at least twice the {n} units, got {n_samples}; coarser units need fewer")
    generator = torch.Generator().manual_seed(seed)
    kept = all_coalitions(n)[1:-1] if every else paired(n, m // 2, generator)
    edges = torch.tensor([[False], [True]]).expand(2, n)
    worth = game(torch.cat([edges, kept]), progress="kernel_shap")
    ends = (float(worth[0]), float(worth[1]))
    weights = kernel(kept) if every else torch.ones(m).double()
    values = fit(kept, worth[2:], ends, weights)
    error = None if every else standard_error(kept, worth[2:], ends, values)
    gap = gap_of("kernel_shap", values, ends)
    return game.scores(values, error, residual=gap, coalitions="all" if every else m)


def kernel(kept: Bool[Tensor, "coalition player"]) -> Float[Tensor, " coalition"]:
    """The weight of each coalition in the fit, (n − 1) / (C(n, s) s (n − s)) for s of n players."""
    n, size = kept.shape[1], kept.sum(1).double()
    log_choose = torch.lgamma(torch.tensor(n + 1.0).double()) - torch.lgamma(size + 1) - torch.lgamma(n - size + 1)
    return (n - 1) / (log_choose.exp() * size * (n - size))


def paired(n: int, n_drawn: int, generator: torch.Generator) -> Bool[Tensor, "coalition player"]:
    """Coalitions drawn as often as the kernel weighs them, each followed by its complement."""
    size = torch.arange(1, n).double()
    drawn = 1 + torch.multinomial(1 / (size * (n - size)), n_drawn, replacement=True, generator=generator)
    rank = torch.rand(n_drawn, n, generator=generator).argsort(1).argsort(1)
    kept = rank < drawn[:, None]
    return torch.stack([kept, ~kept], 1).flatten(0, 1)


def fit(
    kept: Bool[Tensor, "coalition player"],
    worth: Float[Tensor, " coalition"],
    ends: tuple[float, float],
    weights: Float[Tensor, " coalition"],
) -> Float[Tensor, " player"]:
    """The weighted least-squares values that add up exactly: the last player's is what the others leave.

    Errors: `InputError` where the coalitions leave values open.
    """
    design, answer = _without_last(kept, worth, ends)
    root = weights.sqrt()
    found, rank = np.zeros(0), 0
    if design.shape[1]:
        found, _, rank, _ = np.linalg.lstsq((root[:, None] * design).numpy(), (root * answer).numpy(), rcond=None)
    if rank < design.shape[1]:
        raise InputError(
            f"kernel_shap: {len(kept)} coalitions leave the values of {kept.shape[1]} units open; give more n_samples"
        )
    others = torch.from_numpy(found)
    return torch.cat([others, (ends[1] - ends[0] - others.sum())[None]])


def standard_error(
    kept: Bool[Tensor, "coalition player"],
    worth: Float[Tensor, " coalition"],
    ends: tuple[float, float],
    values: Float[Tensor, " player"],
) -> Float[Tensor, " player"] | None:
    """Of each value, by the sandwich estimator with a coalition and its complement as one draw; None for too few."""
    design, answer = _without_last(kept, worth, ends)
    n_drawn, n_free = len(design) // 2, design.shape[1]
    if n_drawn <= n_free:
        return None
    pull = (design * (answer - design @ values[:-1])[:, None]).unflatten(0, (n_drawn, 2)).sum(1)
    bread = torch.linalg.inv(design.T @ design)
    spread = bread @ (pull.T @ pull) @ bread * n_drawn / (n_drawn - n_free)
    # The last value is what the others leave, so it spreads as their sum does.
    return torch.cat([spread.diagonal(), spread.sum()[None]]).clamp(min=0).sqrt()


def _without_last(
    kept: Bool[Tensor, "coalition player"], worth: Float[Tensor, " coalition"], ends: tuple[float, float]
) -> tuple[Float[Tensor, "coalition other"], Float[Tensor, " coalition"]]:
    """The regression with the last player's value replaced by the change of the target minus all others."""
    present = kept.double()
    design = present[:, :-1] - present[:, -1:]
    return design, worth - ends[0] - present[:, -1] * (ends[1] - ends[0])
