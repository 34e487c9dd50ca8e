"""Attribution: what one method says of one prediction, with everything needed to read it."""

import importlib
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.example import Example
from attnprobe.target import ResolvedTarget

TOP = 3  # tokens in the line that stands for an attribution


@dataclass(frozen=True, eq=False)
class Attribution:
    """Scores of the tokens [token], CPU float32: larger supports the target.

    signed: whether the scores have a direction; a method that has none (attention weights) only says how much.
    map: [query token], where the method makes one. residual: gap to completeness, target units. standard_error:
    of each score, where estimated. fit: R² of a surrogate on inputs held back. options: all, defaults included; used:
    what the method chose while running.
    """

    method: str
    family: str
    example: Example
    target: ResolvedTarget
    scores: Float[Tensor, " token"]
    signed: bool
    map: Float[Tensor, "query token"] | None = field(default=None, repr=False)
    residual: float | None = None
    standard_error: Float[Tensor, " token"] | None = field(default=None, repr=False)
    fit: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    used: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    forward_passes: int = 0
    backward_passes: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line: the method, what it explains, and the tokens with the largest scores."""
        first = self.scores.abs().argsort(descending=True, stable=True).tolist()
        said = ", ".join(f"{self.example.pieces[i]!r} {float(self.scores[i]):.3g}" for i in first[:TOP])
        more = ", …" if len(first) > TOP else ""
        return f"<Attribution by {self.method} of {self.target.description}: {said}{more}>"

    def _repr_html_(self) -> str:
        # By name, since imports only go down: what notebooks show is built on the floors above.
        return str(importlib.import_module("attnprobe.notebook").attribution_html(self))

    @property
    def units(self) -> Bool[Tensor, " token"]:
        """The tokens that methods are compared on: not special, not hidden, and not behind what the answer can see.

        Behind the explained position of a causal model every method gives 0, and such ties make any two agree.
        """
        units = ~(torch.tensor(self.example.is_special) | torch.tensor(self.example.hidden))
        if self.target.last_seen is not None:
            units[self.target.last_seen + 1 :] = False
        return units

    def ranking(self) -> list[int]:
        """Indices of the unit tokens, largest score first; equal scores in the order of the text."""
        units = self.units.nonzero().flatten()
        order = torch.argsort(self.scores[units], descending=True, stable=True)
        return units[order].tolist()

    def words(self) -> pd.DataFrame:
        """A row a word (special tokens apart): word_index, word, score; the score is the sum over its tokens."""
        pieces, text = self.example.pieces, self.example.text
        rows = []
        for group in self.example.word_groups():
            spans = [s for i in group if (s := self.example.spans[i]) is not None]
            whole = (
                text[spans[0][0] : spans[-1][1]]
                if spans and self.example.pair is None
                else "".join(pieces[i] for i in group)
            )
            rows.append((self.example.words[group[0]], whole.strip() or whole, float(self.scores[group].sum())))
        frame = pd.DataFrame(rows, columns=["word_index", "word", "score"])
        return frame.astype({"word_index": "Int64"})

    def to_frame(self) -> pd.DataFrame:
        """A row a token: the example's columns, then method, family, signed, target, score, standard_error."""
        frame = self.example.to_frame()
        error = self.standard_error
        return frame.assign(
            method=self.method,
            family=self.family,
            signed=self.signed,
            target=self.target.description,
            score=self.scores.numpy(),
            standard_error=float("nan") if error is None else error.numpy(),
        )
