"""The game that perturbation methods play: players are tokens, words or sentences, the worth is the target of some.

Shapley values, their kin and linear surrogates are different summaries of the worth of many coalitions.
"""

import re
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator
from attnprobe.models.removal import units as removable
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

Units = Literal["token", "word", "sentence"]
LACKS = {
    "audio": "a frame is no word of a vocabulary, so there is no embedding to put in its place; use attention methods",
}
# A mark that ends a sentence, with what closes behind it, before a space or the end; or a new line.
_END = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s|$)|[。！？]+|\n+")


@dataclass(frozen=True, eq=False)
class Game:
    """Groups of tokens that are kept or taken away together, and the target for any choice of them.

    groups: the tokens of each player; tokens of none always stay. operator: what stands in for those taken away.
    """

    model: Model
    example: Example
    target: ResolvedTarget
    operator: str
    units: Units
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls, model: Model, example: Example, target: ResolvedTarget, operator: str | None = None, units: Units = "token"
    ) -> "Game":
        """The game of an example: its tokens that may be taken away, one by one, by word, or by sentence."""
        found = groups_of(example, removable(example, target).tolist(), units)
        return cls(model, example, target, checked_operator(model, operator), units, found)

    @property
    def n_players(self) -> int:
        """Number of groups."""
        return len(self.groups)

    @cached_property
    def _player(self) -> Tensor:
        """The player of each token; behind the last player for tokens of none."""
        player = torch.full((self.example.n_tokens,), self.n_players)
        for number, group in enumerate(self.groups):
            player[list(group)] = number
        return player

    def __call__(
        self, kept: Bool[Tensor, "coalition player"], progress: str | None = None
    ) -> Float[Tensor, " coalition"]:
        """The target when only these players stay, in float64; equal coalitions run once."""
        everyone = torch.cat([kept.cpu(), torch.ones(len(kept), 1, dtype=torch.bool)], 1)
        rows = [Row(self.example, kept=row, operator=self.operator) for row in everyone[:, self._player]]
        return targets(self.model, rows, self.target, progress=progress).double()

    def ends(self) -> tuple[float, float]:
        """The target when nobody stays, and when all do."""
        nothing, everything = self(torch.tensor([[False], [True]]).expand(2, self.n_players)).tolist()
        return nothing, everything

    def on_tokens(self, values: Tensor) -> Float[Tensor, " token"]:
        """Values of players as values of tokens: a group's is shared equally, tokens of none get 0."""
        scores = torch.zeros(self.example.n_tokens)
        for value, group in zip(values.tolist(), self.groups, strict=True):
            scores[list(group)] = value / len(group)
        return scores

    def scores(
        self,
        values: Tensor,
        error: Tensor | None = None,
        *,
        residual: float | None = None,
        fit: float | None = None,
        **used: Any,
    ) -> Scores:
        """What a method gives, from the values of players and their standard errors; used: its choices."""
        shared: dict[str, object] = {"units": self.units, "n_units": self.n_players}
        if self.units != "token":
            shared["shared"] = f"the score of a {self.units} equally among its tokens"
        return Scores(
            self.on_tokens(values),
            residual=residual,
            standard_error=None if error is None else self.on_tokens(error),
            used={"operator": self.operator, **shared, **used},
            fit=fit,
        )


def gap_of(method: str, values: Tensor, ends: tuple[float, float]) -> float:
    """How far values are from adding up to the change of the target; a warning where that is more than rounding."""
    change = ends[1] - ends[0]
    gap = float(values.sum()) - change
    if abs(gap) > 0.01 * abs(change) + 1e-3:
        warnings.warn(
            f"{method}: the scores add up to {change + gap:.4g}, the target changes by {change:.4g}; the model does "
            "not give the same answer to the same input",
            stacklevel=3,
        )
    return gap


def groups_of(example: Example, index: Sequence[int], units: Units) -> tuple[tuple[int, ...], ...]:
    """The tokens of `index` in groups, in order: each alone, by word, or by sentence."""
    if units not in ("token", "word", "sentence"):
        raise InputError(f"units is 'token', 'word' or 'sentence', got '{units}'")
    sentences = sentences_of(example) if units == "sentence" else []
    found: dict[Any, list[int]] = {}
    for i in index:
        word = example.words[i]
        alone = units == "token" or (units == "word" and word is None)
        found.setdefault(("token", i) if alone else word if units == "word" else sentences[i], []).append(i)
    return tuple(tuple(group) for group in found.values())


def sentences_of(example: Example) -> list[int]:
    """Number of the sentence of each token; one ends at . ! ? … before a space, and at a new line.

    Tokens without a place in the text are of the sentence before them. "Dr. Who" is cut in two.
    """
    ends = [match.end() for match in _END.finditer(example.text)]
    later = [match.end() for match in _END.finditer(example.pair or "")]
    second = example.in_pair or (False,) * example.n_tokens
    found, current = [], 0
    for span, in_second in zip(example.spans, second, strict=True):
        if span is not None:
            text = (example.pair or "") if in_second else example.text
            # Byte-level tokens begin with the space before their word.
            first = span[0] + len(text[span[0] : span[1]]) - len(text[span[0] : span[1]].lstrip())
            current = len(ends) + 1 + bisect_right(later, first) if in_second else bisect_right(ends, first)
        found.append(current)
    return found


def all_coalitions(n: int) -> Bool[Tensor, "coalition player"]:
    """All 2^n coalitions of n players; player j stays where bit j of the row's number is set.

    >>> all_coalitions(2).int().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    return ((torch.arange(2**n)[:, None] >> torch.arange(n)) & 1).bool()


def coalitions(n: int, n_samples: int, keep: float, generator: torch.Generator) -> Bool[Tensor, "coalition player"]:
    """Every coalition where there are no more than n_samples, else that many in which each player stays by chance."""
    if n_samples < 2:
        raise InputError(f"n_samples is at least 2, got {n_samples}")
    if enumerable(n, n_samples):
        return all_coalitions(n)
    return torch.rand(n_samples, n, generator=generator) < keep


def enumerable(n: int, n_samples: int) -> bool:
    """Whether n players have no more than n_samples coalitions."""
    return n < 60 and 2**n <= n_samples


def n_coalitions(n: int, n_samples: int) -> int:
    """How many `coalitions` gives."""
    return min(2**n, n_samples) if n < 60 else n_samples
