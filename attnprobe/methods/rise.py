"""RISE: the mean of the target over random masks that keep a token."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.games import LACKS, Game, Units, coalitions, enumerable, n_coalitions
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget


@methods.add(
    family="perturbation",
    source="Petsiuk et al. 2018, eq. 6; centred",
    formula="E[y(m) | m_j = 1] − E[y(m)], m_i ~ Bernoulli(p)",
    cost="K F (K = n_samples)",
    signed=True,
    passes=lambda size, o: (n_coalitions(size.n_units, o["n_samples"]), 0),
    lacks=LACKS,
)
def rise(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int = 512,
    keep: float = 0.5,
    form: Literal["centred", "raw"] = "centred",
    operator: str | None = None,
    units: Units = "token",
    seed: int = 0,
) -> Scores:
    """How much more the target is on masks that keep a token than on all; target units, signed.

    n_samples: masks; where these suffice for all masks, all are run and weighed by their chance. keep: chance of a unit
    to stay. form="raw" as published, E[y m_j] / keep, which gives y to every token where y is constant. On an additive
    y the centred score is 1 − keep times the token's share. operator as in leave_one_out. units: what stays or goes at
    once: each "token", "word" or "sentence".
    """
    if not 0 < keep < 1:
        raise InputError(f"keep is a chance between 0 and 1, got {keep}")
    if form not in ("centred", "raw"):
        raise InputError(f"form is 'centred' or 'raw', got '{form}'")
    game = Game.of(model, example, target, operator, units)
    masks = coalitions(game.n_players, n_samples, keep, torch.Generator().manual_seed(seed))
    every = enumerable(game.n_players, n_samples)
    worth = game(masks, progress="rise")
    by_unit = torch.where(masks, keep, 1 - keep).double()
    chance = by_unit.prod(1) if every else torch.full_like(worth, 1 / len(masks))
    values, error = means(masks, worth, chance, keep, form)
    return game.scores(values, None if every else error, form=form, masks="all" if every else len(masks))


def means(
    masks: Bool[Tensor, "mask player"],
    worth: Float[Tensor, " mask"],
    chance: Float[Tensor, " mask"],
    keep: float,
    form: str,
) -> tuple[Float[Tensor, " player"], Float[Tensor, " player"]]:
    """The scores of one form under these chances of the masks, and their standard errors for masks drawn alike.

    Errors: `InputError` for a player that no mask keeps.
    """
    present = masks.double()
    if not bool(masks.any(0).all()):
        raise InputError(
            f"rise: some unit is kept by none of the {len(masks)} masks; give more n_samples or a larger keep"
        )
    if form == "raw":
        draws = worth[:, None] * present / keep
        return chance @ draws, draws.std(0) / len(masks) ** 0.5
    share, mean = chance @ present, chance @ worth
    where_kept = (chance * worth) @ present / share
    # Both means are of the same masks: what each mask adds to the difference of the two.
    draws = present * (worth[:, None] - where_kept) / share - (worth[:, None] - mean)
    return where_kept - mean, draws.std(0) / len(masks) ** 0.5
