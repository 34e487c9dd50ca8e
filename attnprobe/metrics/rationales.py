"""Rationales: which tokens people marked as the reason, as words, as places in the text, or by rated words."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example

Span = tuple[int, int]
# A truth value a token, the words (or phrases), or the spans of characters of the text.
Rationale = Bool[Tensor, " token"] | Sequence[bool] | Sequence[str] | Sequence[Span]


def rationale_of(
    example: Example, words: Sequence[str] | None = None, *, spans: Sequence[Span] | None = None
) -> Bool[Tensor, " token"]:
    """The tokens that belong to given words or lie in given spans; special tokens never.

    words: words or phrases of the text, wherever they occur, upper or lower case. spans: pairs of character offsets
    into the text (the first of a pair of texts); a token counts that shares a character with one.
    Errors: `InputError` for a word that is not there, a span that holds no token, or neither of the two.
    """
    if isinstance(words, str):
        raise InputError(f"words is a list of words, got the text {words!r}; give [{words!r}]")
    if words is None and spans is None:
        raise InputError("a rationale is given by words or by spans; give one of them")
    marked = torch.zeros(example.n_tokens, dtype=torch.bool)
    for phrase in words or ():
        marked[_tokens_of(example, phrase)] = True
    for start, end in spans or ():
        inside = _between(example, start, end)
        if not inside:
            raise InputError(f"no token of '{example.text[:40]}' lies between characters {start} and {end}")
        marked[inside] = True
    return marked & ~torch.tensor(example.is_special)


def as_rationale(example: Example, given: Rationale) -> Bool[Tensor, " token"]:
    """A rationale in any of its forms as a truth value a token; `InputError` for another length or kind."""
    if isinstance(given, Tensor):
        if given.dtype != torch.bool or tuple(given.shape) != (example.n_tokens,):
            got = f"{str(given.dtype).removeprefix('torch.')} {tuple(given.shape)}"
            raise InputError(f"a rationale is a truth value a token ({example.n_tokens},), got {got}")
        return given.cpu()
    items: list[Any] = list(given) if not isinstance(given, str) else [given]
    if items and all(isinstance(item, bool) for item in items):
        return as_rationale(example, torch.tensor(items))
    if all(isinstance(item, str) for item in items):
        return rationale_of(example, items)
    if all(isinstance(item, Sequence) and len(item) == 2 for item in items):
        return rationale_of(example, spans=items)
    raise InputError("a rationale is a truth value a token, a list of words, or a list of (start, end) spans")


def _words(example: Example) -> list[tuple[str, list[int]]]:
    """Each word in lower case, and its tokens."""
    pieces = example.pieces
    groups = [group for group in example.word_groups() if not example.is_special[group[0]]]
    return [("".join(pieces[i] for i in group).strip().lower(), group) for group in groups]


def _tokens_of(example: Example, phrase: str) -> list[int]:
    """The tokens of a word or phrase, of each of its occurrences."""
    words, wanted = _words(example), "".join(phrase.lower().split())
    found: list[int] = []
    for first in range(len(words)):
        text = ""
        for last in range(first, len(words)):
            text += words[last][0]
            if text == wanted:
                found += [i for _, group in words[first : last + 1] for i in group]
            if len(text) >= len(wanted):
                break
    if not found or not wanted:
        known = dict.fromkeys(word for word, _ in words)
        raise InputError(f"'{phrase}' is not in the text; {nearest(phrase.lower(), known)}")
    return found


def _between(example: Example, start: int, end: int) -> list[int]:
    second = example.in_pair or (False,) * example.n_tokens
    return [
        i
        for i, span in enumerate(example.spans)
        if span is not None and not second[i] and not example.is_special[i] and span[0] < end and start < span[1]
    ]


def lexicon_rationale(
    example: Example,
    ratings: Mapping[str, float],
    *,
    side: Literal["either", "positive", "negative"] = "either",
    least: float = 0.0,
) -> Bool[Tensor, " token"]:
    """The tokens of words that people rated, such as those of a sentiment lexicon (`read_ratings`).

    ratings: by word, in lower case; words that are not in it are not rated. side: words rated above 0, below 0, or
    either. least: how far from 0 a rating has to be. All False where no word of the text is rated.
    """
    if side not in ("either", "positive", "negative"):
        raise InputError(f"side is 'either', 'positive' or 'negative', got '{side}'")
    marked = torch.zeros(example.n_tokens, dtype=torch.bool)
    for word, group in _words(example):
        rating = ratings.get(word, 0.0)
        wanted = {"either": abs(rating), "positive": rating, "negative": -rating}[side]
        marked[group] = wanted > 0 and wanted >= least
    return marked


def read_ratings(path: str | Path) -> dict[str, float]:
    """Mean ratings by word from a file with a word and its rating in each line, a tab between them.

    The form of VADER's vader_lexicon.txt (7,506 words, -4 to 4; more columns may follow), which is in the source
    archive of the package vaderSentiment. Errors: `InputError` with the number of a line that is not of that form.
    """
    found: dict[str, float] = {}
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), 1):
        parts = line.split("\t")
        if not line.strip():
            continue
        try:
            rating = float(parts[1])
        except (IndexError, ValueError):
            rating = math.nan
        if math.isnan(rating):
            raise InputError(f"{path}, line {number}: expected a word, a tab and a rating, got {line[:60]!r}")
        found[parts[0].lower()] = rating
    return found
