"""Shapley values: by sampling orders (captum), and exactly."""

from collections.abc import Sequence

import torch
from captum.attr import ShapleyValueSampling
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.games import LACKS, Game, Units, all_coalitions, gap_of
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget

MOST_EXACT = 12
# Orders of a text of up to `LONG` units, and of a longer one, where an order costs a pass a unit.
N_ORDERS, N_ORDERS_LONG, LONG = 26, 16, 64


def n_pairs(n_samples: int) -> int:
    """Pairs of an order and its reverse, n_samples orders rounded up; two at least, for a standard error."""
    if n_samples < 3:
        raise InputError(f"n_samples is at least 3 orders (two orders and their reverses are run), got {n_samples}")
    return (n_samples + 1) // 2


def orders_for(n: int, n_samples: int | None) -> int:
    """How many orders n players get where none were asked for: 26, or 16 of more than 64."""
    return n_samples if n_samples is not None else N_ORDERS if n <= LONG else N_ORDERS_LONG


def passes_of_orders(n: int, n_samples: int) -> int:
    """Passes that `by_orders` takes for n players: nobody and everybody are run once for all orders."""
    return 2 * n_pairs(n_samples) * (n - 1) + 2


def by_orders(
    game: Game, drawn: Sequence[Sequence[int]], name: str
) -> tuple[Float[Tensor, " player"], Float[Tensor, " player"], tuple[float, float]]:
    """Mean change of the target when a player joins, over drawn orders and their reverses; standard errors; the ends.

    An order and its reverse are one draw: where the one has a player early the other has it late, so that the mean
    of the two spreads less. Each order adds up to the change between the ends, nobody and everybody.
    """
    orders = [order for one in drawn for order in (list(one), list(one)[::-1])]
    n = game.n_players
    # rank < size: the players that have joined, for every size from nobody to everybody.
    joined = torch.tensor(orders).argsort(1)[:, None] < torch.arange(n + 1)[:, None]
    asked = joined.flatten(0, 1)
    worth = game(asked, progress=name)
    known = dict(zip(map(_key, asked), worth, strict=True))
    method, found = ShapleyValueSampling(lambda kept: torch.stack([known[_key(row > 0)] for row in kept])), []
    for pair in zip(orders[::2], orders[1::2], strict=True):
        # captum's own orders are single and come from the global generator; it takes any others here.
        method.permutation_generator = lambda n_features, n_orders, pair=pair: pair
        one = method.attribute(torch.ones(1, n), baselines=0, n_samples=2, perturbations_per_eval=n)
        found.append(one[0].double())
    values = torch.stack(found)
    return values.mean(0), values.std(0) / len(values) ** 0.5, (float(worth[0]), float(worth[n]))


def _key(kept: Tensor) -> bytes:
    return kept.numpy().tobytes()


@methods.add(
    family="perturbation",
    source="Castro et al. 2009; captum ShapleyValueSampling, orders paired with their reverses",
    formula="mean over random orders and their reverses of y(before j, j) − y(before j)",
    cost="K n F (K = n_samples)",
    signed=True,
    passes=lambda size, o: (passes_of_orders(size.n_units, orders_for(size.n_units, o["n_samples"])), 0),
    lacks=LACKS,
)
def shapley_sampling(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int | None = None,
    operator: str | None = None,
    units: Units = "token",
    seed: int = 0,
) -> Scores:
    """Mean change of the target when a token is added in random order; target units; adds up to y − y(nothing).

    n_samples: orders, rounded up to whole pairs of an order and its reverse, whose spread gives the standard error
    (None: 26, or 16 of more than 64 units).
    operator as in leave_one_out. units: what is added at once: each "token", "word" or "sentence".
    """
    game = Game.of(model, example, target, operator, units)
    generator, n_orders = torch.Generator().manual_seed(seed), orders_for(game.n_players, n_samples)
    drawn = [torch.randperm(game.n_players, generator=generator).tolist() for _ in range(n_pairs(n_orders))]
    values, error, ends = by_orders(game, drawn, "shapley_sampling")
    gap = gap_of("shapley_sampling", values, ends)
    return game.scores(values, error, residual=gap, orders=2 * len(drawn))


@methods.add(
    family="perturbation",
    source="Shapley 1953, eq. 12",
    formula="Σ_{S ∌ j} |S|! (n − |S| − 1)! / n! (y(S ∪ j) − y(S))",
    cost="2^n F (n ≤ 12)",
    signed=True,
    passes=lambda size, o: (2 ** min(size.n_units, MOST_EXACT), 0),
    lacks=LACKS,
)
def shapley_exact(
    model: Model, example: Example, target: ResolvedTarget, *, operator: str | None = None, units: Units = "token"
) -> Scores:
    """Mean change of the target when a token is added, over all orders; target units; adds up to y − y(nothing).

    All 2^n choices of what stays are run, so at most 12 units. operator as in leave_one_out. units: what is added at
    once: each "token", "word" or "sentence".
    """
    game = Game.of(model, example, target, operator, units)
    if game.n_players > MOST_EXACT:
        coarser = {"token": "units='word', ", "word": "units='sentence', ", "sentence": ""}[units]
        raise InputError(
            f"shapley_exact runs all 2^n choices of n units and takes at most {MOST_EXACT}, this input has "
            f"{game.n_players}; use {coarser}kernel_shap or shapley_sampling"
        )
    worth = game(all_coalitions(game.n_players), progress="shapley_exact")
    values = of_all_coalitions(worth)
    gap = gap_of("shapley_exact", values, (float(worth[0]), float(worth[-1])))
    return game.scores(values, residual=gap)


def of_all_coalitions(worth: Float[Tensor, " coalition"]) -> Float[Tensor, " player"]:
    """Shapley values from the worth of every coalition, in the order of `all_coalitions`.

    captum's ShapleyValues goes through all n! orders; this sums the 2^n coalitions with the orders that meet them.

    >>> of_all_coalitions(torch.tensor([0.0, 1.0, 0.0, 3.0])).tolist()
    [2.0, 1.0]
    """
    n = len(worth).bit_length() - 1
    present = all_coalitions(n)
    size, number = present.sum(1).double(), torch.arange(len(worth))
    log_share = torch.lgamma(size + 1) + torch.lgamma(n - size) - torch.lgamma(torch.tensor(n + 1.0).double())
    values = []
    for j in range(n):
        without = number[~present[:, j]]
        change = worth[without + 2**j].double() - worth[without].double()
        values.append((log_share[without].exp() * change).sum())
    return torch.stack(values)
