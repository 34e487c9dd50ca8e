"""What another seed, or another rounding, makes of the head: a row a run, with the three weights read off it."""

from collections.abc import Sequence

import pandas as pd
from tqdm.auto import tqdm

from attnprobe.models.declaration.training import STEPS, Trained, train

# (query, key) places in the first sentence: "rights" looks at "beings", "beings" at "rights", "all" at "are".
CLAIMS: dict[str, tuple[int, int]] = {"rights → beings": (11, 2), "beings → rights": (2, 11), "all → are": (0, 3)}


def claims(trained: Trained) -> dict[str, float]:
    """The three weights by name."""
    return {name: float(trained.weights[place]) for name, place in CLAIMS.items()}


def over_seeds(
    seeds: Sequence[int], *, gradient: str = "cross_entropy", steps: int = STEPS, progress: bool = True
) -> pd.DataFrame:
    """A row a seed: seed, roundings, gradient, loss_per_token, n_right, n_lost, and the three weights."""
    runs = tqdm(seeds, desc="seeds", disable=None if progress else True, leave=False)
    return pd.DataFrame([_row(train(seed, gradient=gradient, steps=steps)) for seed in runs])


def over_roundings(
    roundings: Sequence[int],
    *,
    seed: int = 0,
    gradient: str = "cross_entropy",
    steps: int = STEPS,
    progress: bool = True,
) -> pd.DataFrame:
    """A row a start that is so many roundings of its embeddings away from the seed's own; columns as `over_seeds`."""
    runs = tqdm(roundings, desc="roundings", disable=None if progress else True, leave=False)
    return pd.DataFrame([_row(train(seed, gradient=gradient, steps=steps, roundings=n)) for n in runs])


def _row(trained: Trained) -> dict[str, object]:
    return {
        "seed": trained.seed,
        "roundings": trained.roundings,
        "gradient": trained.gradient,
        "loss_per_token": trained.loss_per_token,
        "n_right": trained.n_right,
        "n_lost": trained.n_lost,
        **claims(trained),
    }
