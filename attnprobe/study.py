"""One example under all methods: what they said, and how each stood up to removal against random orders."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.capture import Capture
from attnprobe.example import Example
from attnprobe.metrics import faithfulness as metrics
from attnprobe.metrics.erasure import BINS, measured, rows
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

# Shares of the tokens at which the curves are read.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
KINDS = ("removed", "alone")


@dataclass(frozen=True)
class Settings:
    """Choices that hold for a whole comparison."""

    operator: str
    n_random: int
    n_resamples: int
    seed: int
    target: str


@dataclass(frozen=True, eq=False)
class Judgement:
    """One order of the tokens, judged: metric values by name, and the curve [share] of each kind.

    method: the method's name, or None for a random order.
    """

    method: str | None
    values: dict[str, float]
    curves: dict[str, list[float]]


@dataclass(frozen=True, eq=False)
class Study:
    """One example: its target, what each method said, the judgements of their orders and of random ones."""

    example: Example
    target: ResolvedTarget
    attributions: tuple[Attribution, ...] = field(repr=False)
    judgements: tuple[Judgement, ...] = field(repr=False)
    capture: Capture = field(repr=False)

    def attribution(self, method: str) -> Attribution | None:
        """What a method said of this example, None where it failed."""
        return next((a for a in self.attributions if a.method == method), None)


def judge(model: Model, attributions: Sequence[Attribution], settings: Settings) -> tuple[Judgement, ...]:
    """Each attribution's order and n_random random orders under every faithfulness metric, in one evaluation."""
    orders = [*attributions, *random_orders(attributions[0], settings)]
    evaluate_ahead(model, orders, settings.operator)
    found = []
    for number, order in enumerate(orders):
        values = {
            name: float(entry.function(model, order, operator=settings.operator)) for name, entry in metrics.items()
        }
        name = order.method if number < len(attributions) else None
        found.append(Judgement(name, values, {kind: curve(model, order, settings.operator, kind) for kind in KINDS}))
    return tuple(found)


def random_orders(like: Attribution, settings: Settings) -> list[Attribution]:
    """Random orders of the same tokens."""
    draw = np.random.default_rng(settings.seed)
    n = like.example.n_tokens
    return [replace(like, scores=torch.from_numpy(draw.permutation(n)).float()) for _ in range(settings.n_random)]


def evaluate_ahead(model: Model, orders: Sequence[Attribution], operator: str) -> None:
    """Evaluate every row that the metrics and curves will ask for, in full batches; the evaluator remembers them."""
    wanted: list[Row] = [Row(orders[0].example)]
    for order in orders:
        for shares in (BINS, SHARES):
            wanted += rows(order, shares, operator, alone=False) + rows(order, shares, operator, alone=True)
    targets(model, wanted, measured(orders[0].target), progress="removal")


def curve(model: Model, order: Attribution, operator: str, kind: str) -> list[float]:
    """The label's probability at each share of the tokens removed ("removed") or left ("alone")."""
    answers: Tensor = targets(model, rows(order, SHARES, operator, alone=kind == "alone"), measured(order.target))
    return answers.tolist()
