"""One example under all methods: what they said, and how each stood up to removal against random orders."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods.controls import seed_of
from attnprobe.metrics import by_default
from attnprobe.metrics import faithfulness as metrics
from attnprobe.metrics.erasure import BINS, measured, rows
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

# Shares of the tokens at which the curves are read.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
KINDS = ("removed", "alone")
# Weights of at most this many numbers are kept for the page.
KEPT_WEIGHTS = 4_000_000


@dataclass(frozen=True)
class Settings:
    """Choices that hold for a whole comparison; `InputError` for a number that is no count."""

    operator: str
    n_random: int
    n_resamples: int
    seed: int
    target: str

    def __post_init__(self) -> None:
        for name, least, most in (("n_random", 0, 10_000), ("n_resamples", 1, 1_000_000), ("seed", 0, 2**31)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
                raise InputError(f"{name} is a whole number of at least {least}, got {value!r}")
            if int(value) > most:
                raise InputError(f"{name} is at most {most}, got {value!r}")


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


def check_removal(model: Model, example: Example, target: ResolvedTarget, operator: str) -> None:
    """Take away every token that may be; `InputError` where the operator or the target does not allow that."""
    kept = torch.tensor(example.is_special)
    if target.last_seen is not None:
        kept[target.last_seen + 1 :] = True
    targets(model, [Row(example, kept=kept, operator=operator)], measured(target))


def capture_for_page(model: Model, example: Example) -> Capture:
    """The example's attention on the CPU, kept where it is small enough for a page; the checks in any case."""
    capture = model.capture(example)
    size = sum(site.weights.numel() for site in capture.sites if site.weights is not None)
    sites = () if size > KEPT_WEIGHTS else tuple(site.map(torch.Tensor.cpu) for site in capture.sites)
    return replace(capture, sites=sites, logits=capture.logits.cpu())


def judge(model: Model, attributions: Sequence[Attribution], settings: Settings) -> tuple[Judgement, ...]:
    """Each attribution's order and n_random random orders under the default faithfulness metrics, in one evaluation."""
    orders = [*attributions, *random_orders(attributions[0], settings)]
    evaluate_ahead(model, orders, settings.operator)
    found = []
    for number, order in enumerate(orders):
        values = {
            name: float(entry.function(model, order, operator=settings.operator))
            for name, entry in by_default(metrics).items()
        }
        name = order.method if number < len(attributions) else None
        found.append(Judgement(name, values, {kind: curve(model, order, settings.operator, kind) for kind in KINDS}))
    return tuple(found)


def random_orders(like: Attribution, settings: Settings) -> list[Attribution]:
    """Random orders of the same tokens; other ones for another text of the same length."""
    draw = np.random.default_rng([settings.seed, seed_of(like.example)])
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
