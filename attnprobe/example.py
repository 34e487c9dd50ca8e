"""One input, never padded: the unit that everything else works on."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor

from attnprobe.errors import InputError

Axis = Literal["source", "target", "patches", "frames", "positions"]


@dataclass(frozen=True, eq=False)
class Example:
    """A text (or pair, picture, sound, series) as one model reads it.

    inputs: the model's own arguments, batch axis 1, no padding; flags and lists as they were given. tokens, spans,
    is_special, words and in_pair describe the explained axis, one entry a token; a span is a pair of character offsets
    into the text that the token belongs to, None where there is none; words numbers the word of each token, None for
    special tokens; in_pair says which tokens belong to the second text of a pair. n_truncated: tokens that were cut off
    (stated, never silent). notes: what else the model said of it.
    """

    text: str
    inputs: Mapping[str, Any] = field(repr=False)
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int] | None, ...] = field(repr=False)
    is_special: tuple[bool, ...] = field(repr=False)
    words: tuple[int | None, ...] = field(repr=False)
    axis: Axis = "source"
    pair: str | None = None
    in_pair: tuple[bool, ...] | None = field(default=None, repr=False)
    picture: Any = field(default=None, repr=False)
    n_truncated: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        lengths = {len(self.tokens), len(self.spans), len(self.is_special), len(self.words)}
        if lengths != {len(self.tokens)} or not self.tokens:
            raise InputError(f"an example needs tokens, spans, is_special and words of one length >= 1, got {lengths}")

    @property
    def n_tokens(self) -> int:
        """Number of tokens of the explained axis."""
        return len(self.tokens)

    @property
    def pieces(self) -> tuple[str, ...]:
        """Each token as people read it: the characters it covers, or the token itself where it covers none."""
        return tuple(
            token if span is None else (self._text_of(index)[span[0] : span[1]] or token)
            for index, (token, span) in enumerate(zip(self.tokens, self.spans, strict=True))
        )

    def _text_of(self, index: int) -> str:
        second = self.pair is not None and self.in_pair is not None and self.in_pair[index]
        return self.pair if second and self.pair is not None else self.text

    @property
    def hidden(self) -> tuple[bool, ...]:
        """Whether the caller's own attention mask hides a token from everybody, one entry a token."""
        mask = self.inputs.get("attention_mask")
        if not isinstance(mask, Tensor) or mask.shape[-1] != self.n_tokens:
            return (False,) * self.n_tokens
        additive = mask.ndim > 2 and mask.is_floating_point()
        seen = mask > torch.finfo(mask.dtype).min / 2 if additive else mask != 0
        return tuple((~seen.reshape(-1, self.n_tokens).any(0)).tolist())

    def word_groups(self) -> list[list[int]]:
        """Token indices of each word in order; a special token is a group of its own."""
        groups: list[list[int]] = []
        last: int | None = None
        for index, word in enumerate(self.words):
            if word is not None and word == last:
                groups[-1].append(index)
            else:
                groups.append([index])
            last = word
        return groups

    def to_frame(self) -> pd.DataFrame:
        """One row a token: token_index, token, piece, start, end, word_index, is_special."""
        return pd.DataFrame(
            {
                "token_index": range(self.n_tokens),
                "token": self.tokens,
                "piece": self.pieces,
                "start": pd.array([s and s[0] for s in self.spans], dtype="Int64"),
                "end": pd.array([s and s[1] for s in self.spans], dtype="Int64"),
                "word_index": pd.array(list(self.words), dtype="Int64"),
                "is_special": self.is_special,
            }
        )


# Letters and digits, with an apostrophe or hyphen inside; every other mark is a word of its own.
WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def words_of_spans(text: str, spans: Sequence[tuple[int, int] | None]) -> tuple[int | None, ...]:
    """Number the words of tokens by where their characters lie; punctuation is a word of its own.

    >>> words_of_spans("a very good, isn't", [None, (0, 1), (2, 6), (7, 9), (9, 11), (11, 12), (13, 16), (16, 18)])
    (None, 0, 1, 2, 2, 3, 4, 4)
    """
    starts = [match.start() for match in WORD.finditer(text)]
    found: list[int | None] = []
    for span in spans:
        if span is None:
            found.append(None)
            continue
        # Byte-level tokens begin with the space before their word.
        first = span[0] + len(text[span[0] : span[1]]) - len(text[span[0] : span[1]].lstrip())
        found.append(bisect_right(starts, first))
    order = {word: number for number, word in enumerate(dict.fromkeys(w for w in found if w is not None))}
    return tuple(None if word is None else order[word] for word in found)
