"""CoNLL-U: sentences with the head and the relation of each word, and where its word of the surface stands.

Ten columns a word, tabs between them, an empty line behind each sentence. Words of a multiword token (`del`: `de`,
`el`) share its place in the text; empty nodes (8.1) and comments are passed over.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attnprobe.errors import InputError

ID, FORM, HEAD, RELATION, MISC = 0, 1, 6, 7, 9
COLUMNS = 10


@dataclass(frozen=True)
class Sentence:
    """One sentence with its syntax; every tuple has an entry a word, but `spans`, which has one a surface token.

    heads: number of the word that each depends on, from 0; -1 of the root. places: which surface token each word is
    (part of). spans: character offsets of the surface tokens in `text`.
    """

    text: str
    forms: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    places: tuple[int, ...] = field(repr=False)
    spans: tuple[tuple[int, int], ...] = field(repr=False)

    @property
    def n_places(self) -> int:
        """Number of surface tokens."""
        return len(self.spans)


@dataclass
class _Reading:
    """What was read of a sentence so far."""

    forms: list[str] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    surface: list[tuple[str, bool]] = field(default_factory=list)  # form, whether a space follows
    until: int = 0  # the last word of the multiword token that is open
    begun: int = 0  # number of the line on which the sentence begins


def read_conllu(source: str | Path) -> list[Sentence]:
    """The sentences of a file, or of a text in the format (one with tabs and line breaks).

    Errors: `InputError` with the number of the line, for what is not CoNLL-U.
    """
    text = isinstance(source, str) and "\t" in source and "\n" in source
    if text:
        return parsed(str(source).split("\n"))
    try:
        lines = Path(source).read_text(encoding="utf-8").split("\n")  # other breaks may stand within a form
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be read as CoNLL-U in UTF-8: {error}") from error
    return parsed(lines)


def parsed(lines: Iterable[str]) -> list[Sentence]:
    """The sentences of some lines; `InputError` where there is none."""
    found, now, number = [], _Reading(), 0
    for number, line in enumerate(lines, start=1):
        line = line.rstrip("\r\n").lstrip("\N{ZERO WIDTH NO-BREAK SPACE}")
        if not line.strip():
            found += _ended(now, number)
            now = _Reading()
        elif not line.startswith("#"):
            now.begun = now.begun or number
            _add(now, line.split("\t"), number)
    found += _ended(now, number)
    if not found:
        raise InputError("there is no sentence in this CoNLL-U; give lines of ten columns with tabs between them")
    return found


def _add(now: _Reading, columns: Sequence[str], number: int) -> None:
    """One line: a word, a multiword token (3-4), or an empty node (8.1), which is passed over."""
    if len(columns) != COLUMNS:
        raise InputError(f"line {number}: {COLUMNS} columns with tabs between them are expected, got {len(columns)}")
    name, form, space = columns[ID], columns[FORM], "SpaceAfter=No" not in columns[MISC].split("|")
    if re.fullmatch(r"\d+\.\d+", name):
        return
    n_words = len(now.forms)
    if (span := re.fullmatch(r"(\d+)-(\d+)", name)) is not None:
        first, last = map(int, span.groups())
        if first != n_words + 1 or last < first or now.until > n_words:
            raise InputError(f"line {number}: the multiword token {name} does not begin at word {n_words + 1}")
        now.until = last
        now.surface.append((form, space))
        return
    if name != str(n_words + 1):
        raise InputError(f"line {number}: word {n_words + 1} is expected, got '{name}'")
    if re.fullmatch(r"[0-9]{1,9}", columns[HEAD]) is None:
        raise InputError(
            f"line {number}: the head of '{form}' is the number of a word, 0 of the root; got '{columns[HEAD]}'"
        )
    if n_words >= now.until:
        now.surface.append((form, space))
    now.forms.append(form)
    now.heads.append(int(columns[HEAD]) - 1)
    now.relations.append(columns[RELATION])
    now.places.append(len(now.surface) - 1)


def _ended(now: _Reading, number: int) -> list[Sentence]:
    """The sentence that was read, checked; none where there were no words."""
    if not now.forms:
        if now.surface:
            raise InputError(f"line {number}: a multiword token without its words")
        return []
    if now.until > len(now.forms):
        raise InputError(
            f"line {number}: the sentence ends at word {len(now.forms)} of a multiword token to {now.until}"
        )
    for word, head in enumerate(now.heads):
        if head >= len(now.forms) or head == word:
            raise InputError(
                f"sentence from line {now.begun}: the head of word {word + 1} is {head + 1}, "
                f"another word of 1 to {len(now.forms)} (or 0) is expected"
            )
    text, spans = "", []
    for form, space in now.surface:
        spans.append((len(text), len(text) + len(form)))
        text += form + (" " if space else "")
    facts = (tuple(now.forms), tuple(now.heads), tuple(now.relations), tuple(now.places), tuple(spans))
    return [Sentence(text.rstrip(" "), *facts)]
