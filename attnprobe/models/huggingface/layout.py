"""What a tokenizer says of its tokens: where they lie in the text, which word and which text of a pair they are of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from attnprobe.example import words_of_spans

Span = tuple[int, int] | None


@dataclass(frozen=True)
class Layout:
    """Spans, words and texts of the tokens of one encoding; see `Example` for what each means."""

    text: str
    pair: str | None
    spans: tuple[Span, ...]
    is_special: tuple[bool, ...]
    in_pair: tuple[bool, ...] | None
    words: tuple[int | None, ...]
    numbered: tuple[int | None, ...]

    @classmethod
    def of(cls, encoding: Mapping[str, Any], is_special: tuple[bool, ...], text: str, pair: str | None) -> "Layout":
        """As the tokenizer says where it is a fast one; else each token is a word and there are no spans."""
        known = (getattr(encoding, "encodings", None) or [None])[0]
        if known is None or len(known.offsets) != len(is_special):
            words = _numbered([None if special else i for i, special in enumerate(is_special)])
            return cls(text, pair, (None,) * len(is_special), is_special, None, words, words)
        second = tuple(number == 1 for number in known.sequence_ids)
        spans = tuple(None if s or a == b else (a, b) for (a, b), s in zip(known.offsets, is_special, strict=True))
        given = zip(second, known.word_ids, is_special, strict=True)
        numbered = _numbered([None if special or word is None else (side, word) for side, word, special in given])
        in_pair = second if pair is not None else None
        return cls(text, pair, spans, is_special, in_pair, _words(text, pair, spans, in_pair), numbered)

    def without_offsets(self) -> "Layout":
        """Without spans, for offsets into a text that is not at hand; words are the tokenizer's own."""
        return replace(self, spans=(None,) * len(self.spans), words=self.numbered)

    def of_words(self, words: Sequence[str], others: Sequence[str]) -> "Layout":
        """The same for texts given as words: offsets within a word become offsets within the words joined by spaces."""
        starts = [list(accumulate((len(word) + 1 for word in side), initial=0)) for side in (words, others)]
        first = len({word for word, second in zip(self.numbered, self._sides, strict=True) if not second} - {None})
        spans: list[Span] = []
        for span, word, second in zip(self.spans, self.numbered, self._sides, strict=True):
            start = 0 if word is None else starts[second][word - first if second else word]
            spans.append(None if span is None or word is None else (start + span[0], start + span[1]))
        return replace(self, spans=tuple(spans), words=self.numbered)

    @property
    def _sides(self) -> tuple[bool, ...]:
        return self.in_pair or (False,) * len(self.spans)

    def between(self, first: int, last: int) -> "Layout":
        """The part of the tokens from `first` up to `last`."""
        cut = slice(first, last)
        return replace(
            self,
            spans=self.spans[cut],
            is_special=self.is_special[cut],
            in_pair=self.in_pair and self.in_pair[cut],
            words=_numbered(self.words[cut]),
            numbered=_numbered(self.numbered[cut]),
        )


def _numbered(words: Sequence[Any]) -> tuple[int | None, ...]:
    """Words by number in the order of appearance, None where there is none."""
    order = {word: number for number, word in enumerate(dict.fromkeys(w for w in words if w is not None))}
    return tuple(None if word is None else order[word] for word in words)


def _words(text: str, pair: str | None, spans: Sequence[Span], second: Sequence[bool] | None) -> tuple[int | None, ...]:
    """Word numbers from where the characters lie; the second text of a pair goes on counting."""
    if pair is None or second is None:
        return words_of_spans(text, spans)
    sides = list(zip(spans, second, strict=True))
    first = words_of_spans(text, [None if other else span for span, other in sides])
    rest = words_of_spans(pair, [span if other else None for span, other in sides])
    given = zip(first, rest, strict=True)
    return _numbered([(0, a) if a is not None else None if b is None else (1, b) for a, b in given])
