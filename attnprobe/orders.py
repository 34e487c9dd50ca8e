"""Orders in which the tokens of an example are taken away: those of methods, and those that they are set beside.

An order is said by ranks [unit]: which place each unit has in it, 0 first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from attnprobe.attribution import Attribution
from attnprobe.methods.controls import seed_of
from attnprobe.study import Settings

# So many units have all their sets looked at (2^8 passes); beyond, the oracle is greedy.
EXACT_UNITS = 8
# Random orders come from at least so many permutations that have nothing to do with one another.
LEAST_DRAWS = 4

Ranks = Int[np.ndarray, "order unit"]
Sets = Bool[np.ndarray, "set unit"]
Answer = Callable[[Sets], Float[np.ndarray, " set"]]


def ranks_of(attribution: Attribution) -> Int[np.ndarray, " unit"]:
    """The place of each unit in a method's order, largest score first; equal scores in the order of the text."""
    scores = attribution.scores[attribution.units]
    return torch.argsort(torch.argsort(scores, descending=True, stable=True)).numpy()


def random_ranks(n_units: int, n_orders: int, draw: np.random.Generator) -> Ranks:
    """Random orders, each as likely as any other. A permutation gives all its rotations, forwards and backwards.

    Rotations go through the same sets, so 2n orders of n units cost (n − 1)n sets instead of about four times as many;
    and every unit is in every place equally often, which makes means more exact than independent orders do.
    """
    if n_orders == 0:
        return np.zeros((0, n_units), dtype=int)
    n_turns = max(1, min(n_units, n_orders // (2 * LEAST_DRAWS)))
    turns = np.unique(np.arange(n_turns) * n_units // n_turns)
    found: list[np.ndarray] = []
    while len(found) < n_orders:
        base = draw.permutation(n_units)
        for turn in turns:
            ranks = (base + turn) % n_units
            found += [ranks, n_units - 1 - ranks]
    return np.stack(found[:n_orders])


def draw_for(attribution: Attribution, settings: Settings) -> np.random.Generator:
    """Where random orders come from: other ones for another text of the same length."""
    return np.random.default_rng([settings.seed, seed_of(attribution.example)])


def as_attribution(like: Attribution, ranks: Int[np.ndarray, " unit"]) -> Attribution:
    """An order as an attribution, for metrics that ask for one."""
    scores = torch.zeros(like.example.n_tokens)
    scores[like.units] = torch.from_numpy(len(ranks) - ranks).float()
    return replace(like, scores=scores)


def random_orders(like: Attribution, settings: Settings) -> list[Attribution]:
    """`settings.n_random` random orders of the tokens of an example."""
    n_units = int(like.units.sum())
    found = random_ranks(n_units, settings.n_random, draw_for(like, settings))
    return [as_attribution(like, ranks) for ranks in found]


def foreign_ranks(mine: Attribution, other: Attribution) -> Int[np.ndarray, " unit"]:
    """The order that a method's scores on another input give the units here, first unit to first unit.

    Units that the other input does not have come last, in the order of the text.
    """
    n_units = int(mine.units.sum())
    scores = other.scores[other.units][:n_units]
    rest = torch.full((n_units - len(scores),), float(scores.min()) - 1 if len(scores) else 0.0)
    return torch.argsort(torch.argsort(torch.cat([scores, rest]), descending=True, stable=True)).numpy()


# A greedy step takes one unit while fewer than twice so many are gone.
GROWTH = 6
# What is to be lowest: the number itself where units are taken away, its negative where they are brought back.
SIGNS = (1.0, -1.0)
# A step looks at so many units, and as many more as it takes. Where little is there yet, what a unit does depends on
# the few that were brought back before it, and an old look misleads: the first steps look at more.
CANDIDATES, FIRST_STEPS = (8, 16), 8
FIRST_CANDIDATES = (16, 32)
# All are looked at again when so many times as many are gone.
AGAIN = (8, 4)


@dataclass(frozen=True)
class Wanted:
    """What an oracle looks for: the least (greatest) Σ_k weights[k] · number, with the top k units gone or `alone`."""

    weights: Sequence[float]
    alone: bool
    low: bool


def oracles(n_units: int, answer: Answer, wanted: Sequence[Wanted]) -> Ranks:
    """The best orders: of few units the best of all for each wish, else two greedy ones, from both ends.

    answer: the measured number with these units gone.
    """
    if n_units <= EXACT_UNITS:
        values = answer(_all_sets(n_units))
        # A set's complement stands as far from the end as the set from the beginning.
        return np.stack([_exact(values[::-1] if one.alone else values, n_units, one) for one in wanted])
    return _greedy(n_units, answer)


def _all_sets(n_units: int) -> Bool[np.ndarray, "set unit"]:
    return (np.arange(1 << n_units)[:, None] >> np.arange(n_units) & 1).astype(bool)


def _exact(values: Float[np.ndarray, " set"], n: int, wanted: Wanted) -> Int[np.ndarray, " unit"]:
    """Ranks of the best of all orders, by the best way to each set of the top units."""
    sign = 1.0 if wanted.low else -1.0
    best, last = np.zeros(1 << n), np.zeros(1 << n, dtype=int)
    for one in range(1, 1 << n):
        units = [unit for unit in range(n) if one >> unit & 1]
        before = [best[one & ~(1 << unit)] for unit in units]
        at = int(np.argmin(before))
        best[one] = before[at] + sign * wanted.weights[len(units)] * values[one]
        last[one] = units[at]
    ranks, left = np.zeros(n, dtype=int), (1 << n) - 1
    for place in range(n - 1, -1, -1):
        ranks[last[left]] = place
        left &= ~(1 << int(last[left]))
    return ranks


def _greedy(n_units: int, answer: Answer) -> Ranks:
    """Two orders: each time take away the unit without which the number is lowest; bring back that with which highest.

    Both take a step in one evaluation. Where many are gone, a step takes several at once, a sixth of those at most.
    Steps look at all units at first and when several times as many are gone; between, at those that promised most when
    they were last looked at: else a text of a hundred units would cost ten thousand rows.
    """
    ends = answer(np.array([[False], [True]]) | np.zeros(n_units, dtype=bool))
    found = [_Found.at(n_units, *one) for one in zip(SIGNS, AGAIN, FIRST_CANDIDATES, CANDIDATES, ends, strict=True)]
    place = 0
    while place < n_units:
        at_once = _at_once(place, n_units)
        tried = [one.candidates(place, at_once) for one in found]
        taken, back = (one.sets(units) for one, units in zip(found, tried, strict=True))
        numbers = answer(np.concatenate([taken, ~back]))
        for one, units, values in zip(found, tried, np.split(numbers, [len(taken)]), strict=True):
            one.take(units, one.sign * values, place, at_once)
        place += at_once
    return np.stack([one.ranks for one in found])


def _at_once(place: int, n_units: int) -> int:
    """How many units a step takes: where half of many are gone, half of the rest: few numbers ask for it."""
    rest = n_units - place
    return max(1, rest // 2 if place >= max(n_units / 2, 2 * GROWTH) else min(place // GROWTH, rest))


@dataclass(eq=False)
class _Found:
    """A greedy order on its way. promised: by unit, how the number changed with it when it was last looked at."""

    sign: float
    again: int
    n_first: int
    n_later: int
    number: float
    taken: Bool[np.ndarray, " unit"]
    ranks: Int[np.ndarray, " unit"]
    promised: Float[np.ndarray, " unit"]
    looked: int = 0

    @classmethod
    def at(cls, n_units: int, sign: float, again: int, n_first: int, n_later: int, end: float) -> "_Found":
        """At its beginning, where the number is `end`."""
        none = np.zeros(n_units)
        return cls(sign, again, n_first, n_later, sign * end, none.astype(bool), none.astype(int), none)

    def candidates(self, place: int, at_once: int) -> Int[np.ndarray, " tried"]:
        """The units that a step looks at, in the order of the text."""
        left = np.flatnonzero(~self.taken)
        if place >= self.again * self.looked:
            self.looked = place
            return left
        n = at_once + (self.n_first if place < FIRST_STEPS else self.n_later)
        return np.sort(left[np.argsort(self.promised[left], kind="stable")[:n]])

    def sets(self, tried: Int[np.ndarray, " tried"]) -> Sets:
        """What was taken before, and one of these each."""
        found = np.repeat(self.taken[None], len(tried), axis=0)
        found[np.arange(len(tried)), tried] = True
        return found

    def take(self, tried: Int[np.ndarray, " tried"], values: Float[np.ndarray, " tried"], place: int, n: int) -> None:
        """Take the best `n`; with several at once, their changes are taken to add up until the next look."""
        self.promised[tried] = values - self.number
        best = tried[np.argsort(values, kind="stable")[:n]]
        self.taken[best], self.ranks[best] = True, place + np.arange(len(best))
        self.number += float(self.promised[best].sum())
