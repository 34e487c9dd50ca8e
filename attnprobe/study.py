"""One example under all methods: what they said, and how each order of the tokens stood up to removal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from attnprobe.answer_steps import AnswerSteps
from attnprobe.attribution import Attribution
from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.models.rows import RENORMALISING
from attnprobe.other_attention import OtherAttention
from attnprobe.target import ResolvedTarget

# Shares of the tokens at which the curves are read.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
KINDS = ("removed", "alone")
# What an order of the tokens can be. METHOD: as a method ranks them. RANDOM: drawn. REVERSED: a method's, last first.
# FOREIGN: as the method ranks the tokens of another input. ORACLE: the best that a search found.
METHOD, RANDOM_ORDER, REVERSED, FOREIGN, ORACLE = ROLES = ("method", "random", "reversed", "foreign", "oracle")
# Weights of at most this many numbers are kept for the page.
KEPT_WEIGHTS = 4_000_000


@dataclass(frozen=True)
class Settings:
    """Choices that hold for a whole comparison; `InputError` for a number that is no count.

    operator: the main one, which curves are of; operators: all, the main one first. oracle: whether the best order of
    each example is searched for.
    """

    operator: str
    n_random: int
    n_resamples: int
    seed: int
    target: str
    operators: tuple[str, ...] = ()
    oracle: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", tuple(self.operators) or (self.operator,))
        for name, least, most in (("n_random", 0, 10_000), ("n_resamples", 1, 1_000_000), ("seed", 0, 2**31)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
                raise InputError(f"{name} is a whole number of at least {least}, got {value!r}")
            if int(value) > most:
                raise InputError(f"{name} is at most {most}, got {value!r}")


def kind_of_operator(operator: str) -> str:
    """Whether an operator leaves a token's key in the softmax ("content") or takes it out ("renormalising").

    >>> kind_of_operator("mask"), kind_of_operator("delete")
    ('content', 'renormalising')
    """
    return "renormalising" if operator in RENORMALISING else "content"


@dataclass(frozen=True, eq=False)
class Judged:
    """All orders of one example under one operator, in arrays with an entry an order.

    roles: what each order is (`ROLES`); names: the method's name, empty for a random one and the oracle. values: by
    metric. curves: by kind, the measured number at each of `SHARES`; only under the main operator. effects: what falls
    when a unit alone is taken away. exact: metrics whose best order was found among all orders. failed: metrics that
    came to no number (NaN in `values`), and what they said.
    """

    operator: str
    roles: tuple[str, ...]
    names: tuple[str, ...]
    values: Mapping[str, Float[np.ndarray, " order"]]
    curves: Mapping[str, Float[np.ndarray, "order share"]] = field(default_factory=dict, repr=False)
    effects: Float[np.ndarray, " unit"] = field(default_factory=lambda: np.zeros(0), repr=False)
    exact: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Content or renormalising."""
        return kind_of_operator(self.operator)

    def value(self, metric: str, method: str, role: str = METHOD) -> float:
        """A metric of a method's order; NaN where there is none."""
        found = self.values[metric][self._where(role, method)]
        return float(found[0]) if len(found) else float("nan")

    def random(self, metric: str) -> Float[np.ndarray, " order"]:
        """A metric of the random orders."""
        return self.values[metric][self._where(RANDOM_ORDER)]

    def curve(self, kind: str, role: str, method: str | None = None) -> Float[np.ndarray, "order share"]:
        """The curves of orders of one role; none where they were not kept."""
        return self.curves[kind][self._where(role, method)] if kind in self.curves else np.zeros((0, len(SHARES)))

    def _where(self, role: str, method: str | None = None) -> list[int]:
        return self._places.get((role, method), [])

    @cached_property
    def _places(self) -> dict[tuple[str, str | None], list[int]]:
        """Where the orders of a role are, and those of a role and method; asked for thousands of times."""
        found: dict[tuple[str, str | None], list[int]] = {}
        for place, (role, name) in enumerate(zip(self.roles, self.names, strict=True)):
            found.setdefault((role, None), []).append(place)
            found.setdefault((role, name), []).append(place)
        return found


@dataclass(frozen=True, eq=False)
class Study:
    """One example: its target, what each method said, how all orders stood up under each operator, and the verdicts.

    verdicts: a row a map; evidence: a row a map and operator; empty where no map was judged. lacking: operators that
    do not work here, with the reason. other: another attention with the answer kept, where it was looked for. answer:
    of an encoder-decoder, what each token of its answer owes to each token of the text.
    """

    example: Example
    target: ResolvedTarget
    attributions: tuple[Attribution, ...] = field(repr=False)
    judged: tuple[Judged, ...] = field(repr=False)
    capture: Capture = field(repr=False)
    verdicts: pd.DataFrame = field(repr=False, default_factory=pd.DataFrame)
    evidence: pd.DataFrame = field(repr=False, default_factory=pd.DataFrame)
    lacking: Mapping[str, str] = field(repr=False, default_factory=dict)
    other: OtherAttention | None = field(repr=False, default=None)
    answer: AnswerSteps | None = field(repr=False, default=None)

    def attribution(self, method: str) -> Attribution | None:
        """What a method said of this example, None where it failed."""
        return next((a for a in self.attributions if a.method == method), None)

    def under(self, operator: str) -> Judged | None:
        """The orders under an operator, None where it could not judge this example."""
        return next((j for j in self.judged if j.operator == operator), None)


def capture_for_page(model: Model, example: Example) -> Capture:
    """The example's attention on the CPU, kept where it is small enough for a page; the checks in any case."""
    capture = model.capture(example)
    size = sum(site.weights.numel() for site in capture.sites if site.weights is not None)
    sites = () if size > KEPT_WEIGHTS else tuple(site.map(torch.Tensor.cpu) for site in capture.sites)
    return replace(capture, sites=sites, logits=capture.logits.cpu())
