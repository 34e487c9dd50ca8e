"""The plan of a planted model: everything about it in numbers and in words.

    scores = x W_QK x^T + B             B: the same whatever the tokens say; log p gives the weights p
    h      = x + sum_h A_h x W_V^h      then, where there is one, h + relu(h M_1 + b_1) M_2 + b_2
    y      = w · h_r                    read at one token

Dimensions of the residual stream have names; W_V = {("val", "out"): 2} is 2 E_{val,out}. All in float64.
A plan grows: distractors share the weight on one token of no content, and look where it looks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import comb
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.target import Target

Entries = Mapping[tuple[str, str], float]
Row = tuple[float, ...]
Probabilities = tuple[Row, ...]

# Content of distractors, in a dimension that no part of a network reads.
IDLE = "idle"


@dataclass(frozen=True)
class Head:
    """One head: the weights that its bias B gives (a row a query; one row: for all), its W_V, and its W_Q W_K^T.

    scores: {("query", "key"): 2.0} adds 2 times the query token's "query" times the key token's "key".
    """

    probabilities: Probabilities
    value: Entries
    scores: Entries = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """One ReLU of the MLP: reads relu(sum of weights * dimensions + bias), writes it times `out`."""

    weights: Mapping[str, float]
    bias: float
    out: float


@dataclass(frozen=True)
class Layer:
    """Heads side by side, then an MLP that writes sum of units + offset into one dimension (no units: no MLP).

    residual: False where the stream is what attention gives, and no more. shared: how many heads in a row share one
    head of keys and values. side: what looks at what: "tokens" at tokens, the "steps" of a decoder at steps so far, or
    ("cross") steps at tokens; a decoder has both, in turn.
    """

    heads: tuple[Head, ...]
    units: tuple[Unit, ...] = ()
    offset: float = 0.0
    writes: str = "out"
    residual: bool = True
    shared: int = 1
    side: Literal["tokens", "steps", "cross"] = "tokens"


@dataclass(frozen=True)
class Plan:
    """One planted model.

    truth: what each token's content does to y, its exact Shapley value against zero contents, which is the
    known mechanism where tokens act one by one. other_truth: a second reading that is right too, by name.
    players: the tokens that can change y at all. right, misled: methods that must rank the tokens as the truth does,
    and methods that must not, with default options. layers: one that is there twice has one set of parameters.
    readout: weights of dimensions for each output (of a causal model: a word); label: the one that is explained, read
    at token `read`. positions: added to the contents, and never taken away. steps: contents of a decoder's steps, the
    last of which is read.
    """

    name: str
    title: str
    story: str
    tokens: tuple[str, ...]
    dims: tuple[str, ...]
    contents: Mapping[str, Mapping[str, float]]
    layers: tuple[Layer, ...]
    answer: float
    truth: tuple[float, ...]
    players: tuple[int, ...]
    readout: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"y": {"out": 1.0}})
    label: str = "y"
    read: int = 0
    causal: bool = False
    positions: tuple[Mapping[str, float], ...] = ()
    steps: tuple[Mapping[str, float], ...] = ()
    other_truth: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    right: tuple[str, ...] = ()
    misled: tuple[str, ...] = ()

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word that has a row in the table of contents, in order of appearance."""
        return tuple(dict.fromkeys((*self.tokens, *self.contents, *(self.readout if self.causal else ()))))


@dataclass(frozen=True, eq=False)
class PlantedModel:
    """A planted model, the example it was planted for, the target, its y there, and the truth about every token.

    plan: the numbers that it was built from. variant: how it differs from them (tokens, order, rotation, noise, …).
    """

    name: str
    model: Model
    example: Example
    target: Target | None
    answer: float
    truth: Float[Tensor, " token"]
    other_truth: Mapping[str, Float[Tensor, " token"]]
    plan: Plan
    variant: Mapping[str, object] = field(default_factory=dict)

    @property
    def story(self) -> str:
        """What was planted, which methods point at the truth, which do not, and why."""
        return self.plan.story

    @property
    def right(self) -> tuple[str, ...]:
        """Methods that must rank the tokens as the truth does."""
        return self.plan.right

    @property
    def misled(self) -> tuple[str, ...]:
        """Methods that must not."""
        return self.plan.misled


def grow(rows: Probabilities, n_tokens: int, neutral: int | None = 0) -> Probabilities:
    """The rows with distractors behind the tokens: they share the weight on `neutral` (None: they get none).

    Where there is a row a query, distractors look where the neutral token looks.

    >>> grow(((0.2, 0.8),), 4)
    ((0.06666666666666667, 0.8, 0.06666666666666667, 0.06666666666666667),)
    """
    extra = n_tokens - len(rows[0])
    if extra == 0:
        return rows
    wide = [tuple(_shared(row, extra, neutral)) for row in rows]
    return tuple(wide) if len(rows) == 1 else (*wide, *[wide[neutral or 0]] * extra)


def _shared(row: Row, extra: int, neutral: int | None) -> list[float]:
    share = 0.0 if neutral is None else row[neutral] / (extra + 1)
    return [share if j == neutral else p for j, p in enumerate(row)] + [share] * extra


def with_distractors(
    n_tokens: int | None, tokens: Sequence[str], dims: Sequence[str]
) -> tuple[int, tuple[str, ...], tuple[str, ...], dict[str, dict[str, float]]]:
    """Number of tokens, tokens, dimensions and contents, with as many distractors d1, d2, … as are asked for.

    Errors: `InputError` for fewer tokens than the plan has.
    """
    n = len(tokens) if n_tokens is None else n_tokens
    if n < len(tokens):
        raise InputError(f"n_tokens is at least {len(tokens)} ({', '.join(tokens)}), got {n_tokens}")
    more = tuple(f"d{number + 1}" for number in range(n - len(tokens)))
    wide = (*dims, IDLE) if more else tuple(dims)
    return n, (*tokens, *more), wide, {name: {IDLE: 1.0} for name in more}


def padded(values: Sequence[float], n_tokens: int) -> tuple[float, ...]:
    """The values with 0 for every distractor."""
    return (*values, *[0.0] * (n_tokens - len(values)))


def shapley(worth: Callable[..., float], n_players: int) -> list[float]:
    """Exact Shapley values of `worth(present_1, …, present_n)`, by all coalitions.

    >>> shapley(lambda a, b: float(a or b), 2)
    [0.5, 0.5]
    """
    known = {coalition: worth(*coalition) for coalition in product((False, True), repeat=n_players)}
    values = [0.0] * n_players
    for coalition, before in known.items():
        size = sum(coalition)
        for player in range(n_players):
            if not coalition[player]:
                joined = (*coalition[:player], True, *coalition[player + 1 :])
                values[player] += (known[joined] - before) / (n_players * comb(n_players - 1, size))
    return values


def reordered(plan: Plan, order: Sequence[int]) -> Plan:
    """The plan with its tokens in another order: token `order[i]` comes at place i. y and the mechanism stay.

    Errors: `InputError` for a causal plan, whose order is a part of it, or for no order of all tokens.
    """
    if plan.causal or plan.positions:
        raise InputError(f"{plan.name} is causal: the order of its tokens is a part of what was planted")
    order = tuple(order)
    if sorted(order) != list(range(len(plan.tokens))):
        raise InputError(f"order names every token of {len(plan.tokens)} once, by number from 0, got {order}")
    at = {old: new for new, old in enumerate(order)}
    moved = {
        id(layer): replace(layer, heads=tuple(_moved(head, layer, order) for head in layer.heads))
        for layer in plan.layers
    }
    return replace(
        plan,
        tokens=_picked(plan.tokens, order),
        layers=tuple(moved[id(layer)] for layer in plan.layers),
        truth=_picked(plan.truth, order),
        other_truth={name: _picked(values, order) for name, values in plan.other_truth.items()},
        players=tuple(sorted(at[player] for player in plan.players)),
        read=plan.read if plan.steps else at[plan.read],
    )


def _moved(head: Head, layer: Layer, order: tuple[int, ...]) -> Head:
    if layer.side == "steps":
        return head
    by_token = layer.side == "tokens" and len(head.probabilities) > 1
    rows = _picked(head.probabilities, order) if by_token else head.probabilities
    return replace(head, probabilities=tuple(_picked(row, order) for row in rows))


def _picked(values: tuple, order: tuple[int, ...]) -> tuple:
    return tuple(values[index] for index in order)


def as_tensor(values: Sequence[float | int]) -> Float[Tensor, " token"]:
    """Numbers in float64."""
    return torch.tensor(list(values), dtype=torch.float64)
