"""What page and viewer call what is explained, and its units, decided here alone: texts of tokens, or pictures."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from attnprobe.example import Example


@dataclass(frozen=True)
class Nouns:
    """One thing and several: what was explained (text), its units (token), and what readers call those (word)."""

    text: str
    texts: str
    token: str
    tokens: str
    word: str
    words: str

    def said(self, sentence: str) -> str:
        """A sentence that was made for texts, in these nouns; what stands in quotes stays, and so do special tokens."""
        if self is TEXTS:
            return sentence
        parts = re.split(r"(“[^”]*”|(?<!\w)'[^']*'(?!\w))", sentence)
        return "".join(part if i % 2 else _NOUN.sub(self._other, part) for i, part in enumerate(parts))

    def _other(self, match: re.Match[str]) -> str:
        found = match.group()
        noun: str = getattr(self, found.lower())
        return noun.capitalize() if found[0].isupper() else noun

    def of(self, n: int, total: int) -> str:
        """How many of all: "none of the 4 texts", "2 of 4 texts", "all 4 texts"."""
        if total == 1:
            return f"{n} of 1 {self.text}"
        return f"none of the {total} {self.texts}" if n == 0 else f"{few(n, total)} {self.texts}"


TEXTS = Nouns("text", "texts", "token", "tokens", "word", "words")
PICTURES = Nouns("picture", "pictures", "patch", "patches", "patch", "patches")
_NOUN = re.compile(r"(?<![\w-])(?<!special )(?:texts?|tokens?|words?)(?![\w-])", re.IGNORECASE)


def nouns_of(examples: Iterable[Example]) -> Nouns:
    """Pictures where all that was explained are such."""
    return PICTURES if all(example.axis == "patches" for example in examples) else TEXTS


def few(n: int, total: int) -> str:
    """A count in a sentence, where 0 and all have words of their own.

    >>> few(0, 4), few(3, 4), few(4, 4)
    ('none', '3 of 4', 'all 4')
    """
    return "none" if n == 0 else f"all {total}" if n == total else f"{n} of {total}"
