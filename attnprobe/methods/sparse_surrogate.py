"""A sparse linear surrogate on random masks, as in ContextCite, and how well it predicts masks that it has not seen."""

import warnings

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import spearmanr
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.games import LACKS, Game, Units, coalitions, n_coalitions
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget


def n_held_out(n_samples: int) -> int:
    """Masks that a surrogate of n_samples masks is judged on."""
    return max(n_samples // 2, 2)


@methods.add(
    family="perturbation",
    source="Cohen-Wang et al. 2024, sec. 3 (ContextCite)",
    formula="argmin_b 1/(2K) Σ_k (y(m_k) − b_0 − Σ_j b_j z_kj)² + α Σ_j |b_j|, z = (m − mean) / sd; φ_j = b_j / sd_j",
    cost="1.5 K F (K = n_samples)",
    signed=True,
    passes=lambda size, o: (n_coalitions(size.n_units, o["n_samples"]) + n_held_out(o["n_samples"]), 0),
    lacks=LACKS,
)
def sparse_surrogate(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int = 64,
    alpha: float = 0.01,
    keep: float = 0.5,
    operator: str | None = None,
    units: Units = "token",
    seed: int = 0,
) -> Scores:
    """Coefficients of a sparse linear fit to the target under random masks; target units; most are 0 where few count.

    n_samples: masks to fit, and half as many again to judge by: fit is R² on those, used["lds"] the rank correlation of
    predicted and actual. alpha: what a standardised coefficient must exceed, in target units (0: least squares). keep:
    chance of a unit to stay. operator as in leave_one_out. units: what stays or goes at once: each "token", "word", or
    "sentence" (as published). y is the target as it is asked for.
    """
    check_alpha(alpha)
    if not 0 < keep < 1:
        raise InputError(f"keep is a chance between 0 and 1, got {keep}")
    game = Game.of(model, example, target, operator, units)
    generator = torch.Generator().manual_seed(seed)
    masks = coalitions(game.n_players, n_samples, keep, generator)
    unseen = torch.rand(n_held_out(n_samples), game.n_players, generator=generator) < keep
    worth = game(torch.cat([masks, unseen]), progress="sparse_surrogate")
    values, constant = sparse_fit(masks, worth[: len(masks)], alpha)
    predicted, actual = constant + unseen.double() @ values, worth[len(masks) :]
    lds = rank_correlation(predicted, actual)
    judged = r_squared(predicted, actual)
    return game.scores(values, fit=judged, lds=lds, n_nonzero=int((values != 0).sum()), masks=len(masks))


def sparse_fit(
    masks: Bool[Tensor, "mask player"], worth: Float[Tensor, " mask"], alpha: float
) -> tuple[Float[Tensor, " player"], float]:
    """Coefficients of the masks, fitted after each player's column was standardised, and the constant."""
    present = masks.double().numpy()
    mean, spread = present.mean(0), present.std(0)
    # A player that every mask keeps, or none, tells nothing: its column is 0 and so is its coefficient.
    spread = np.where(spread > 0, spread, 1.0)
    even = np.full(len(present), 1 / len(present))
    found = lasso((present - mean) / spread, worth.numpy(), even, alpha) / spread
    return torch.from_numpy(found), float(worth.mean()) - float(mean @ found)


def lasso(x: np.ndarray, y: np.ndarray, chance: np.ndarray, alpha: float) -> np.ndarray:
    """argmin_b ½ Σ_k chance_k (y_k − b_0 − x_k · b)² + alpha Σ_j |b_j|, by coordinate descent; chance adds up to 1.

    The same numbers as scikit-learn's Lasso, on which this package does not depend. alpha = 0 is least squares, the
    shortest solution where there are many.
    """
    x, y = x - chance @ x, y - chance @ y
    if alpha == 0:
        root = np.sqrt(chance)
        return np.asarray(np.linalg.lstsq(root[:, None] * x, root * y, rcond=None)[0])
    among, with_y = x.T @ (chance[:, None] * x), x.T @ (chance * y)
    own, found = among.diagonal(), np.zeros(x.shape[1])
    moving = np.flatnonzero(own > 1e-12)
    scale = max(float(np.abs(y).max(initial=0.0)), 1e-12)
    for _ in range(5000):
        largest = 0.0
        for j in moving:
            pull = with_y[j] - among[j] @ found + own[j] * found[j]
            new = np.sign(pull) * max(abs(pull) - alpha, 0.0) / own[j]
            largest, found[j] = max(largest, abs(new - found[j])), new
        if largest <= 1e-10 * scale:
            return found
    warnings.warn(
        f"the sparse fit still moves by {largest:.2g} after 5000 rounds; give a larger alpha or more n_samples",
        stacklevel=2,
    )
    return found


def check_alpha(alpha: float) -> None:
    """Refuse a negative penalty."""
    if not alpha >= 0:
        raise InputError(f"alpha is a penalty of 0 or more, got {alpha}")


def r_squared(predicted: Tensor, actual: Tensor, weights: Tensor | None = None) -> float | None:
    """1 − the weighted squared error over that of the mean; None where what is to be predicted does not vary."""
    share = torch.full_like(actual, 1 / len(actual)) if weights is None else weights / weights.sum()
    total = float(share @ (actual - share @ actual) ** 2)
    return None if total <= 1e-20 else 1 - float(share @ (actual - predicted) ** 2) / total


def rank_correlation(predicted: Tensor, actual: Tensor) -> float | None:
    """Spearman's correlation; None where one of the two does not vary."""
    if len(actual) < 2 or float(predicted.std()) == 0 or float(actual.std()) == 0:
        return None
    return float(spearmanr(predicted.numpy(), actual.numpy()).statistic)
