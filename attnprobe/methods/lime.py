"""LIME: a linear surrogate fitted to random masks, those near the whole text weighed most; captum's LimeBase."""

from typing import Any, Literal

import numpy as np
import torch
from captum._utils.models.model import Model as Surrogate
from captum.attr import LimeBase
from captum.attr._core.lime import get_exp_kernel_similarity_function
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.games import LACKS, Game, Units, coalitions, n_coalitions
from attnprobe.methods.removal import ROWS_AT_ONCE
from attnprobe.methods.sparse_surrogate import check_alpha, lasso, n_held_out, r_squared
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget


@methods.add(
    family="perturbation",
    source="Ribeiro et al. 2016, sec. 3.4; captum LimeBase",
    formula="argmin_{b_0,b} Σ_k π_k (y(m_k) − b_0 − b · m_k)² + α ‖b‖², π = exp(−(1 − cos(m, 1))² / 2σ²)",
    cost="1.5 K F (K = n_samples)",
    signed=True,
    passes=lambda size, o: (n_coalitions(size.n_units, o["n_samples"]) + n_held_out(o["n_samples"]), 0),
    lacks=LACKS,
)
def lime(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int = 256,
    kernel_width: float = 0.25,
    surrogate: Literal["ridge", "lasso"] = "ridge",
    alpha: float = 0.01,
    operator: str | None = None,
    units: Units = "token",
    seed: int = 0,
) -> Scores:
    """Coefficients of a linear fit to the target under random masks, near masks weighed most; target units, signed.

    n_samples: masks to fit (each unit stays with chance ½; all masks where these suffice), and half as many again to
    judge by: fit is the weighted R² on those. kernel_width: σ of the cosine distance between a mask and the whole text.
    surrogate: "ridge" adds alpha ‖b‖² to the weighted squared error, "lasso" alpha Σ |b_j| to half its mean. operator
    as in leave_one_out. units: what stays or goes at once: each "token", "word" or "sentence".
    """
    check_alpha(alpha)
    if not kernel_width > 0:
        raise InputError(f"kernel_width is greater than 0, got {kernel_width}")
    if surrogate not in ("ridge", "lasso"):
        raise InputError(f"surrogate is 'ridge' or 'lasso', got '{surrogate}'")
    game = Game.of(model, example, target, operator, units)
    generator = torch.Generator().manual_seed(seed)
    masks = coalitions(game.n_players, n_samples, 0.5, generator)
    unseen = torch.rand(n_held_out(n_samples), game.n_players, generator=generator) < 0.5
    near = get_exp_kernel_similarity_function("cosine", kernel_width)
    linear = Linear(surrogate, alpha)
    values = fitted(game, masks, linear, near)
    everyone = torch.ones(1, game.n_players)
    weights = torch.tensor([near(everyone, row[None], None) for row in unseen.float()], dtype=torch.float64)
    judged = r_squared(linear(unseen.double()), game(unseen), weights)
    return game.scores(values, fit=judged, surrogate=surrogate, kernel_width=kernel_width, masks=len(masks))


def fitted(game: Game, masks: Tensor, linear: "Linear", near: Any) -> Tensor:
    """captum's LimeBase on masks that were drawn before, since captum would draw from the global generator."""

    drawn = iter(masks.float()[:, None])
    method = LimeBase(
        lambda kept: game(kept > 0, progress="lime"),
        interpretable_model=linear,
        similarity_func=near,
        perturb_func=lambda whole, **settings: next(drawn),
        perturb_interpretable_space=True,
        from_interp_rep_transform=lambda mask, whole, **settings: mask,
        to_interp_rep_transform=None,
    )
    whole = torch.ones(1, game.n_players)
    found: Tensor = method.attribute(whole, n_samples=len(masks), perturbations_per_eval=ROWS_AT_ONCE)
    return found


class Linear(Surrogate):
    """The linear surrogate that captum fits; captum's own ridge and lasso need scikit-learn.

    coefficients [player] and constant are there once it was fitted.
    """

    def __init__(self, kind: Literal["ridge", "lasso"], alpha: float) -> None:
        self.kind, self.alpha = kind, alpha
        self.coefficients, self.constant = torch.zeros(0).double(), 0.0

    def fit(self, train_data: Any, **settings: Any) -> None:
        """Fit to masks, answers and weights. The data are taken whole: going through a loader draws random numbers."""
        masks, answers, weights = (given.double().cpu().numpy() for given in train_data.dataset.tensors)
        chance = weights / weights.sum()
        if self.kind == "lasso":
            found = lasso(masks, answers, chance, self.alpha)
        else:
            found = ridge(masks, answers, weights, self.alpha)
        self.coefficients = torch.from_numpy(found)
        self.constant = float(chance @ answers - chance @ masks @ found)

    def representation(self) -> Tensor:
        """The coefficients."""
        return self.coefficients

    def __call__(self, masks: Tensor) -> Tensor:
        """What the fit predicts of masks [mask player]."""
        return masks @ self.coefficients + self.constant


def ridge(x: np.ndarray, y: np.ndarray, weights: np.ndarray, alpha: float) -> np.ndarray:
    """argmin_b Σ_k weights_k (y_k − b_0 − x_k · b)² + alpha ‖b‖²; for alpha = 0 the shortest of the best."""
    chance = weights / weights.sum()
    x, y, root = x - chance @ x, y - chance @ y, np.sqrt(weights)
    rows = np.concatenate([root[:, None] * x, np.sqrt(alpha) * np.eye(x.shape[1])])
    return np.asarray(np.linalg.lstsq(rows, np.concatenate([root * y, np.zeros(x.shape[1])]), rcond=None)[0])
