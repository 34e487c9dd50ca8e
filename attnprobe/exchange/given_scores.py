"""from_scores(): a method that was computed elsewhere, as one that compare() and attribute() take."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.exchange.matching import Form, Names, Pairs, Spread, fitted, form_of
from attnprobe.methods import FAMILIES, Scores
from attnprobe.methods import methods as registry
from attnprobe.methods.controls import seed_of
from attnprobe.models.model import Model
from attnprobe.registry import Entry
from attnprobe.target import ResolvedTarget

# What a method of a caller's own belongs to, unless it says otherwise.
OWN = "own"
# A text, a text and its pair, an example, or a number among `texts`.
Key = Any


@dataclass(frozen=True, eq=False)
class GivenScores:
    """Scores that were computed elsewhere; called as any method is, it gives those of the example.

    digest: of all that was given, by which a comparison on disk knows it again.
    """

    name: str
    scores: tuple[tuple[Key, Form], ...] = field(repr=False)
    texts: tuple[Any, ...] | None = field(default=None, repr=False)
    spread: Spread = "share"
    missing: float | None = None
    digest: str = ""
    source: str = ""

    def __call__(self, model: Model, example: Example, target: ResolvedTarget) -> Scores:
        """The scores of the example's tokens; `InputError` where none were given, or tokens do not match."""
        for key, form in self.scores:
            if key is not None and self._is_of(key, model, example):
                return Scores(self._fitted(form, example), used={"source": self.source})
        unkeyed = [form for key, form in self.scores if key is None]
        if not unkeyed:
            raise InputError(f"'{self.name}' has no scores of “{example.text}”; {self._nearest(example)}")
        return Scores(self._by_tokens(unkeyed, example), used={"source": self.source})

    def _fitted(self, form: Form, example: Example) -> Tensor:
        try:
            return fitted(form, example, spread=self.spread, missing=self.missing)
        except InputError as error:
            raise InputError(f"'{self.name}': {error}") from error

    def _is_of(self, key: Key, model: Model, example: Example) -> bool:
        """Whether a key names the example, by its text, its text and pair, itself, or its number among `texts`."""
        if isinstance(key, Example):
            return key is example or _read_alike(key, example)
        if isinstance(key, str):
            return example.pair is None and key == example.text
        if isinstance(key, tuple):
            return key == (example.text, example.pair)
        given = (self.texts or ())[key]
        return self._is_of(given, model, example) if isinstance(given, str | tuple | Example) else _read_alike(
            model.example(given), example
        )  # fmt: skip

    def _by_tokens(self, forms: Sequence[Form], example: Example) -> Tensor:
        """The first scores whose tokens spell the example, for those that came without a text."""
        said = ""
        for form in forms:
            try:
                return self._fitted(form, example)
            except InputError as error:
                said = said or str(error)
        raise InputError(f"none of the {len(forms)} lists of tokens fits; of the first, {said}" if forms[1:] else said)

    def _nearest(self, example: Example) -> str:
        texts = [key if isinstance(key, str) else getattr(key, "text", str(key)) for key, _ in self.scores]
        return f"it has scores of {len(texts)} text{'s' * (len(texts) > 1)}; {nearest(example.text, texts)}"


def from_scores(
    name: str,
    scores: Any,
    *,
    signed: bool = True,
    family: str = OWN,
    texts: Iterable[Any] | None = None,
    spread: str = "share",
    missing: float | None = None,
    source: str = "given by the caller",
) -> Entry:
    """A method made of scores that were computed elsewhere, judged like all others: `compare(methods=[..., it])`.

    name: one word of letters, digits and _ ("my_method"), which no method of attnprobe has.
    scores: by text, (text, pair), example, or number among `texts`, the scores of one text: numbers, one a token (or
    one a token that is not special, or one a word); (token, score) pairs in the order of the text, whose tokens may be
    cut otherwise; {token: score}, where a name counts wherever it stands. A list of pairs alone is found by its tokens.
    Special tokens that are not named get 0. spread: a score of a word is shared equally among its pieces, so that their
    sum is the word's ("share"), or copied to each ("copy"). missing: for tokens that {token: score} does not name.
    family: one of `attnprobe.methods.FAMILIES`; what claims "attention" gets a verdict as an attention map.
    signed: whether scores have a direction. source: where they are from.
    Errors: `InputError` for what cannot be read; when called, for a text without scores, or tokens that do not match.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"a method's name is a word such as 'my_method' (letters, digits and _), got {name!r}")
    if name in registry:
        raise InputError(f"attnprobe has a method named '{name}'; give from_scores another name, such as 'my_{name}'")
    if family not in (*FAMILIES, OWN):
        raise InputError(f"no family is named '{family}'; {nearest(family, (*FAMILIES, OWN))}")
    listed = None if texts is None else tuple(texts)
    items = tuple(_items(name, scores, listed))
    given = GivenScores(name, items, listed, _checked_spread(spread), missing, _digest(items), source)
    facts = {
        "signed": signed,
        "formula": "computed elsewhere",
        "cost": "none here",
        "passes": lambda size, options: (0, 0),
    }
    return Entry(name, given, family, source, facts)


def _checked_spread(given: str) -> Spread:
    for known in get_args(Spread):
        if known == given:
            return known
    raise InputError(f"spread is 'share' or 'copy', got {given!r}")


def _items(name: str, scores: Any, texts: tuple[Any, ...] | None) -> Iterable[tuple[Key, Form]]:
    """Each text's key with its scores; the key is None where tokens alone tell which text it is."""
    if isinstance(scores, Mapping):
        pairs = list(scores.items())
    elif isinstance(scores, Sequence) and not isinstance(scores, str):
        pairs = list(enumerate(scores))
    else:
        raise InputError(f"'{name}' needs {{text: scores}} or a list of scores, got {type(scores).__name__}")
    if not pairs:
        raise InputError(f"'{name}' was given no scores; give {{text: scores}}")
    if all(isinstance(one, int | float) for _, one in pairs):
        raise InputError(f"'{name}' was given one number a text; give {{text: scores of its tokens}}")
    for key, one in pairs:
        form = form_of(one, f"'{name}', {_named(key)}")
        yield _checked_key(name, key, form, texts), form


def _checked_key(name: str, key: Key, form: Form, texts: tuple[Any, ...] | None) -> Key:
    if isinstance(key, str | Example) or (isinstance(key, tuple) and len(key) == 2):
        return key
    if not isinstance(key, int) or isinstance(key, bool):
        raise InputError(f"'{name}': scores are given by text, (text, pair), example or number, got {key!r}")
    if texts is None and isinstance(form, Pairs):
        return None
    if texts is None:
        raise InputError(f"'{name}': scores by number need texts=[...], the texts that the numbers count")
    if not 0 <= key < len(texts):
        raise InputError(f"'{name}': there is no text {key} among the {len(texts)} of texts=")
    return key


def _named(key: Key) -> str:
    return f"text {key}" if isinstance(key, int) else f"text “{getattr(key, 'text', key)}”"


def _read_alike(one: Example, other: Example) -> bool:
    return one.tokens == other.tokens and seed_of(one) == seed_of(other)


def _digest(items: Sequence[tuple[Key, Form]]) -> str:
    """A short name of what was given, the same in another run."""
    found = hashlib.blake2b(digest_size=8)
    for key, form in items:
        numbers = form if isinstance(form, Tensor) else torch.tensor([])
        if isinstance(form, Pairs):
            numbers = torch.tensor(form.scores)
        names = form.names if isinstance(form, Pairs) else ()
        if isinstance(form, Names):
            names, numbers = tuple(form.scores), torch.tensor(list(form.scores.values()))
        text = key.text if isinstance(key, Example) else str(key)
        found.update("\0".join((text, *names)).encode() + numbers.numpy().tobytes())
    return found.hexdigest()
