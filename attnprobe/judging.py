"""Every order of an example under an operator: the sets of tokens that they go through, each evaluated once."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float

from attnprobe.attribution import Attribution
from attnprobe.errors import told
from attnprobe.metrics import by_default
from attnprobe.metrics import faithfulness as metrics
from attnprobe.metrics.areas import deletion_area
from attnprobe.metrics.erasure import BINS, TENTHS, comprehensiveness, draws, measured, sufficiency
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.orders import (
    EXACT_UNITS,
    Ranks,
    Sets,
    Wanted,
    as_attribution,
    draw_for,
    foreign_ranks,
    oracles,
    random_ranks,
    ranks_of,
)
from attnprobe.registry import Entry
from attnprobe.study import FOREIGN, KINDS, METHOD, ORACLE, RANDOM_ORDER, REVERSED, SHARES, Judged, Settings


@dataclass(frozen=True, eq=False)
class Answers:
    """The measured number of an example with sets of its units gone; each set is evaluated once.

    like: any attribution of the example. whole: the number of the whole input.
    """

    model: Model
    like: Attribution
    operator: str
    known: dict[bytes, float] = field(default_factory=dict, repr=False)

    def __call__(self, gone: Sets) -> Float[np.ndarray, " set"]:
        """One number a set."""
        keys = [row.tobytes() for row in np.packbits(gone, axis=1)]
        new = {key: number for number, key in enumerate(keys) if key not in self.known}
        if new:
            wanted = torch.from_numpy(gone[list(new.values())])
            staying = torch.ones(len(wanted), self.like.example.n_tokens, dtype=torch.bool)
            staying[:, self.like.units] = ~wanted
            found = draws(self.model, self.like, staying, self.operator, measured(self.like.target)).mean(1)
            self.known.update(zip(new, found.tolist(), strict=True))
        return np.array([self.known[key] for key in keys])

    def curves(self, ranks: Ranks, sizes: Sequence[int], *, alone: bool) -> Float[np.ndarray, "order size"]:
        """The number of each order with its first so many units gone, or (`alone`) with nothing but them."""
        gone = ranks[:, None, :] < np.array(sizes)[:, None]
        gone = ~gone if alone else gone
        return self(gone.reshape(-1, ranks.shape[1])).reshape(len(ranks), len(sizes))

    @property
    def n_units(self) -> int:
        """Number of units."""
        return int(self.like.units.sum())

    @property
    def whole(self) -> float:
        """The number with nothing gone."""
        return float(self(np.zeros((1, self.n_units), dtype=bool))[0])


def sizes_of(shares: Sequence[float], n_units: int) -> list[int]:
    """How many units each share is, rounded up."""
    return [math.ceil(share * n_units - 1e-9) for share in shares]


def _falls(answers: Answers, ranks: Ranks, alone: bool) -> Float[np.ndarray, " order"]:
    return answers.whole - answers.curves(ranks, sizes_of(BINS, answers.n_units), alone=alone).mean(1)


def _area(answers: Answers, ranks: Ranks) -> Float[np.ndarray, " order"]:
    sizes = _area_sizes(answers.n_units)
    return np.trapezoid(answers.curves(ranks, sizes, alone=False), np.array(sizes) / answers.n_units, axis=1)


def _area_sizes(n_units: int) -> list[int]:
    return sorted({0, n_units, *sizes_of(TENTHS, n_units)})


def _bin_weights(n_units: int) -> list[float]:
    return np.bincount(sizes_of(BINS, n_units), minlength=n_units + 1).astype(float).tolist()


def _area_weights(n_units: int) -> list[float]:
    sizes = _area_sizes(n_units)
    weights = [0.0] * (n_units + 1)
    for before, after in pairwise(sizes):
        weights[before] += (after - before) / 2
        weights[after] += (after - before) / 2
    return weights


@dataclass(frozen=True)
class Quick:
    """A registered metric for all orders at once, and what its best order is to make least or greatest."""

    values: Callable[[Answers, Ranks], Float[np.ndarray, " order"]]
    wanted: Callable[[int], Wanted]


# The same numbers as the registered functions give, order by order; other metrics are asked order by order.
QUICK: Mapping[Callable[..., float], Quick] = {
    comprehensiveness: Quick(lambda a, r: _falls(a, r, False), lambda n: Wanted(_bin_weights(n), False, low=True)),
    sufficiency: Quick(lambda a, r: _falls(a, r, True), lambda n: Wanted(_bin_weights(n), True, low=False)),
    deletion_area: Quick(_area, lambda n: Wanted(_area_weights(n), False, low=True)),
}


def check_removal(model: Model, like: Attribution, operator: str) -> None:
    """Take away every token that may be; `InputError` where the operator or the target does not allow that."""
    staying = ~like.units[None]
    if bool(staying.all()):
        targets(model, [Row(like.example)], measured(like.target))
    else:
        draws(model, like, staying, operator, measured(like.target))


def judge(
    model: Model,
    attributions: Sequence[Attribution],
    settings: Settings,
    operator: str,
    foreign: Sequence[Attribution] = (),
) -> Judged:
    """Every method's order and its controls under an operator: reversed, of another input, random, and the best.

    foreign: what the methods say of another input.
    """
    answers = Answers(model, attributions[0], operator)
    named = _named(attributions, foreign)
    random = random_ranks(answers.n_units, settings.n_random, draw_for(attributions[0], settings))
    chosen = by_default(metrics)
    # In one go, so that batches are full; what the metrics ask for is then known.
    ahead = np.concatenate([np.stack([ranks for _, _, ranks in named]), random])
    _evaluate_ahead(answers, ahead)
    best = _best(answers, chosen) if settings.oracle else random[:0]
    ranks = np.concatenate([ahead, best])
    roles = [role for role, _, _ in named] + [RANDOM_ORDER] * len(random) + [ORACLE] * len(best)
    names = [name for _, name, _ in named] + [""] * (len(random) + len(best))
    failed: dict[str, str] = {}
    values = {name: _values(answers, entry, ranks, failed) for name, entry in chosen.items()}
    main = operator == settings.operator
    return Judged(
        operator,
        tuple(roles),
        tuple(names),
        values,
        _curves(answers, ranks, roles) if main else {},
        answers.whole - answers(np.eye(answers.n_units, dtype=bool)),
        tuple(_quick(chosen)) if answers.n_units <= EXACT_UNITS and settings.oracle else (),
        failed,
    )


def _named(attributions: Sequence[Attribution], foreign: Sequence[Attribution]) -> list[tuple[str, str, np.ndarray]]:
    """(role, method, ranks) of the orders that methods give: as they are, last first, and of another input."""
    own = [(METHOD, a.method, ranks_of(a)) for a in attributions]
    back = [(REVERSED, name, len(ranks) - 1 - ranks) for _, name, ranks in own]
    others = {a.method: a for a in foreign}
    brought = [(FOREIGN, a.method, foreign_ranks(a, others[a.method])) for a in attributions if a.method in others]
    return [*own, *back, *brought]


def _best(answers: Answers, chosen: Mapping[str, Entry]) -> Ranks:
    """The best orders that a search finds, for the quick metrics."""
    return oracles(answers.n_units, answers, [q.wanted(answers.n_units) for q in _quick(chosen).values()])


def _quick(chosen: Mapping[str, Entry]) -> dict[str, Quick]:
    return {name: QUICK[entry.function] for name, entry in chosen.items() if entry.function in QUICK}


def _evaluate_ahead(answers: Answers, ranks: Ranks) -> None:
    """Ask for the sets of the quick metrics in one go, so that batches are full."""
    n = answers.n_units
    first, left = {*sizes_of(BINS, n), *_area_sizes(n)}, {n - size for size in sizes_of(BINS, n)}
    gone = [ranks < size for size in sorted(first)] + [ranks >= n - size for size in sorted(left)]
    answers(np.concatenate([*gone, np.eye(n, dtype=bool), np.zeros((1, n), dtype=bool)]))


def _values(answers: Answers, entry: Entry, ranks: Ranks, failed: dict[str, str]) -> Float[np.ndarray, " order"]:
    """A metric of each order; one that goes wrong, which may be anybody's, is NaN, and `failed` keeps what it said."""
    function = entry.function
    if function in QUICK:
        return QUICK[function].values(answers, ranks)
    orders = (as_attribution(answers.like, one) for one in ranks)
    try:
        return np.array([float(function(answers.model, order, operator=answers.operator)) for order in orders])
    except Exception as error:
        failed[entry.name] = told(error)
        return np.full(len(ranks), math.nan)


def _curves(answers: Answers, ranks: Ranks, roles: Sequence[str]) -> dict[str, Float[np.ndarray, "order share"]]:
    """The curves of methods, of random orders and of the best ones; NaN for the other orders, which nobody draws."""
    wanted = [number for number, role in enumerate(roles) if role in (METHOD, RANDOM_ORDER, ORACLE)]
    found = {}
    for kind in KINDS:
        curve = np.full((len(ranks), len(SHARES)), math.nan)
        curve[wanted] = answers.curves(ranks[wanted], sizes_of(SHARES, answers.n_units), alone=kind == "alone")
        found[kind] = curve
    return found
