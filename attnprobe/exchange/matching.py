"""Scores of tokens named elsewhere -> scores of an example's own tokens [token].

What was given comes in three forms: numbers alone, names with their scores in the order of the text (`Pairs`), or each
name once (`Names`). Names are compared without spaces, case and the marks that vocabularies put on pieces of words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example

Spread = Literal["share", "copy"]
# Tokens that stand for no part of the text.
_SPECIAL = re.compile(r"\[(CLS|SEP|PAD|BOS|EOS)\]|</?s>|<(pad|bos|eos|cls|sep)>|<\|\w+\|>")
_MARKS = re.compile(r"^##(?=.)|^[Ġ▁Ċ]+|</w>$|@@$")


@dataclass(frozen=True)
class Pairs:
    """Names with their scores, in the order of the text."""

    names: tuple[str, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Names:
    """A score for each name, wherever in the text it stands."""

    scores: Mapping[str, float]


Form = Tensor | Pairs | Names


def form_of(given: Any, where: str) -> Form:
    """What was given for one text, in one of the three forms; `InputError` for what is none of them, or not finite.

    given: numbers, a mapping of names, (name, score) pairs, or a frame with the columns "score" and "token" (or
    "piece", "word").
    """
    if isinstance(given, Pairs | Names):
        return given
    if isinstance(given, pd.DataFrame):
        column = next((name for name in ("token", "piece", "word") if name in given), None)
        if column is None or "score" not in given:
            raise InputError(
                f"{where}: a frame needs the columns 'token' and 'score', got {', '.join(map(str, given))}"
            )
        given = list(zip(given[column], given["score"], strict=True))
    if isinstance(given, Mapping):
        return Names({str(name): _number(score, f"{where}, '{name}'") for name, score in given.items()})
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(
            f"{where}: expected scores, {{token: score}} or (token, score) pairs, got {type(given).__name__} {given!r}"
        )
    return _of_list(list(given), where)


def _of_list(given: list[Any], where: str) -> Form:
    paired = [isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[0], str) for one in given]
    if given and all(paired):
        names = tuple(str(name) for name, _ in given)
        return Pairs(names, tuple(_number(score, f"{where}, '{name}'") for name, score in given))
    if any(paired) or not given:
        raise InputError(f"{where}: expected one score a token or (token, score) pairs, got {given[:3]!r}")
    return torch.tensor([_number(score, f"{where}, score {at}") for at, score in enumerate(given)])


def _number(given: Any, where: str) -> float:
    try:
        found = float(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{where}: a score is one number, got {type(given).__name__} {given!r}") from error
    if found != found or found in (float("inf"), float("-inf")):
        raise InputError(f"{where}: a score is a finite number, got {found}")
    return found


def fitted(form: Form, example: Example, *, spread: Spread = "share", missing: float | None = None) -> Tensor:
    """The scores of the example's own tokens [token]; `InputError` that says which tokens do not match."""
    if isinstance(form, Tensor):
        return _of_numbers(form, example, spread)
    if isinstance(form, Names):
        return _of_names(form, example, spread, missing)
    found = _one_by_one(form, example)
    return _by_characters(form, example, spread) if found is None else found


def bare(name: str) -> str:
    """A token without spaces, case and the marks of its vocabulary.

    >>> bare("##Ing"), bare("Ġfilm"), bare(" film "), bare("##"), bare("▁")
    ('ing', 'film', 'film', '##', '')
    """
    text = unicodedata.normalize("NFKC", _MARKS.sub("", name.strip()))
    return "".join(text.casefold().split())


def names_of(example: Example, index: int) -> tuple[str, ...]:
    """What a token may be called: as the vocabulary has it, as the text has it, and both bare."""
    token, piece = example.tokens[index], example.pieces[index]
    return tuple(dict.fromkeys([token, piece, piece.strip(), bare(token), bare(piece)]))


def words_of(example: Example) -> list[list[int]]:
    """The tokens of each word, special tokens apart."""
    return [group for group in example.word_groups() if not example.is_special[group[0]]]


def _spread(scores: Tensor, group: Sequence[int], score: float, spread: Spread) -> None:
    scores[list(group)] = score / len(group) if spread == "share" else score


def _of_numbers(given: Tensor, example: Example, spread: Spread) -> Tensor:
    """Numbers alone: one a token, one a token that is not special, or one a word."""
    plain = [i for i in range(example.n_tokens) if not example.is_special[i]]
    words = words_of(example)
    scores = torch.zeros(example.n_tokens)
    if len(given) == example.n_tokens:
        return given.clone()
    if len(given) == len(plain):
        scores[plain] = given
    elif len(given) == len(words):
        for group, score in zip(words, given.tolist(), strict=True):
            _spread(scores, group, score, spread)
    else:
        raise InputError(
            f"{len(given)} scores fit no reading of {_said(example)}: it has {example.n_tokens} tokens, {len(plain)} "
            f"without special ones, {len(words)} words; give (token, score) pairs to have them matched by name"
        )
    return scores


def _of_names(form: Names, example: Example, spread: Spread, missing: float | None) -> Tensor:
    """A score by name: of the word where it is named, else of its pieces; special tokens by their own name alone."""
    counted = Counter(bare(name) for name in form.scores)
    known = {bare(name): name for name in form.scores if counted[bare(name)] == 1} | {n: n for n in form.scores}
    used: set[str] = set()
    unnamed: list[str] = []
    scores = torch.zeros(example.n_tokens)

    def put(group: Sequence[int], names: Iterable[str]) -> bool:
        name = next((known[name] for name in names if name in known), None)
        if name is not None:
            used.add(name)
            _spread(scores, group, form.scores[name], spread)
        return name is not None

    for group in example.word_groups():
        if example.is_special[group[0]]:
            put(group, [example.tokens[group[0]]])
            continue
        word = "".join(example.pieces[i] for i in group)
        if put(group, [word.strip(), bare(word)]):
            continue
        for i in group:
            if not put([i], names_of(example, i)):
                unnamed.append(example.pieces[i].strip())
                scores[i] = missing or 0.0
    _check_names(form, example, used, unnamed if missing is None else [])
    return scores


def _check_names(form: Names, example: Example, used: set[str], unnamed: Sequence[str]) -> None:
    unused = [name for name in form.scores if name not in used and not _SPECIAL.fullmatch(name)]
    if unused:
        raise InputError(
            f"scores are given for {_listed(unused)}, which {_said(example)} does not have; "
            + nearest(unused[0], dict.fromkeys(piece.strip() for piece in example.pieces))
        )
    if unnamed:
        raise InputError(
            f"no score is given for {_listed(unnamed)} of {_said(example)}; name them too, or say missing=0.0"
        )


def _one_by_one(form: Pairs, example: Example) -> Tensor | None:
    """Scores of tokens that are the example's own one by one, with or without special ones; None where they are not."""
    specials = {example.tokens[i] for i in range(example.n_tokens) if example.is_special[i]}
    everything = list(range(example.n_tokens))
    plain = [i for i in everything if not example.is_special[i]]
    pairs = list(zip(form.names, form.scores, strict=True))
    texts = [pair for pair in pairs if not stands_for_nothing(pair[0], specials)]
    for own, given in ((everything, pairs), (plain, texts)):
        if len(own) == len(given) and all(_same(example, i, name) for i, (name, _) in zip(own, given, strict=True)):
            scores = torch.zeros(example.n_tokens)
            scores[own] = torch.tensor([score for _, score in given])
            return scores
    return None


def _same(example: Example, index: int, name: str) -> bool:
    names = names_of(example, index)
    return name in names or bare(name) in names or (example.is_special[index] and not name.strip())


def stands_for_nothing(name: str, specials: Iterable[str] = ()) -> bool:
    """Whether a token stands for no part of the text: an empty one, or a special one by its usual name."""
    return not name.strip() or name in specials or bool(_SPECIAL.fullmatch(name))


def _by_characters(form: Pairs, example: Example, spread: Spread) -> Tensor:
    """Scores of tokens that cut the same text in other places.

    The smallest stretches that both cut out are found; the given scores of a stretch are added up, and their sum is
    shared among the example's tokens there (or copied to each).
    """
    specials = {example.tokens[i] for i in range(example.n_tokens) if example.is_special[i]}
    plain = [i for i in range(example.n_tokens) if not example.is_special[i]]
    own = [(i, text) for i in plain if (text := bare(example.pieces[i]))]
    pairs = zip(form.names, form.scores, strict=True)
    given = [(n, s, text) for n, s in pairs if not stands_for_nothing(n, specials) and (text := bare(n))]
    _check_text("".join(text for _, text in own), [(name, text) for name, _, text in given], example)
    mine, theirs = _ends([text for _, text in own]), _ends([text for _, _, text in given])
    scores, begin = torch.zeros(example.n_tokens), 0
    for end in sorted(set(mine) & set(theirs)):
        group = [i for (i, _), at in zip(own, mine, strict=True) if begin < at <= end]
        total = sum(score for (_, score, _), at in zip(given, theirs, strict=True) if begin < at <= end)
        _spread(scores, group, total, spread)
        begin = end
    return scores


def _ends(texts: Sequence[str]) -> list[int]:
    """Where each text ends when all stand one behind the other."""
    return torch.tensor([len(text) for text in texts]).cumsum(0).tolist() if texts else []


def _check_text(whole: str, given: Sequence[tuple[str, str]], example: Example) -> None:
    at = 0
    for number, (name, text) in enumerate(given, 1):
        if not whole.startswith(text, at):
            raise InputError(
                f"token {number} of the given scores is '{name}', where {_said(example)} goes on with "
                f"'{whole[at : at + 12]}'; the tokens have to spell the text"
            )
        at += len(text)
    if at < len(whole):
        raise InputError(f"the given scores end before '{whole[at : at + 12]}' of {_said(example)}; give all tokens")


def _said(example: Example) -> str:
    text = example.text if len(example.text) <= 40 else example.text[:39] + "…"
    return f"the text “{text}”" if text else "this input"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
