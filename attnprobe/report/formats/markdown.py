"""A comparison in GitHub's Markdown: the claim, the findings, the tables, what it was made with."""

import re
from collections.abc import Iterator, Sequence

from attnprobe.comparison import Comparison
from attnprobe.errors import InputError, nearest
from attnprobe.report.data import EXTRA, TABLE_NAMES
from attnprobe.report.formats.digest import Block, digest
from attnprobe.report.making import lines, model_name, operator, stacks_in_words, versions, without_paths
from attnprobe.report.nouns import nouns
from attnprobe.report.texts import title
from attnprobe.report.tokens import visible

MOST_TEXTS = 200  # rows of the list of texts
# Within a sentence or a cell only these mean something.
_INLINE = re.compile(r"([\\`*_\[\]|<>~&$])")
# At the start of a paragraph these would begin a list, a heading, a quotation or a rule.
_FIRST = re.compile(r"^(\d+(?=[.)])|(?=[#+=-]))")


def markdown(
    comparison: Comparison, *, command: str = "", summary: Sequence[str] = (), without: Sequence[str] = ()
) -> str:
    """The whole as text. Tokens and texts stand as they are: nothing in them is taken for Markdown or HTML."""
    for name in without:
        if name not in (known := [*TABLE_NAMES, *EXTRA]):
            raise InputError(f"without={list(without)}: no table is named '{name}'; {nearest(str(name), known)}")
    found = digest(comparison)
    parts = [f"# {escaped(found.claim)}", f"*{escaped(found.scope[:1].upper() + found.scope[1:])}.*"]
    parts += [escaped(sentence) for sentence in summary]
    parts += ["## What was found", "\n".join(f"- {escaped(claim)}" for claim in found.findings)]
    parts += ["## What was explained", *_explained(comparison)]
    for block in found.blocks:
        parts += [f"## {escaped(block.title)}", *([escaped(block.note) + "."] if block.note else []), _table(block)]
    parts += ["## How it was made", *_made(comparison, command)]
    return "\n\n".join(parts) + "\n"


def escaped(text: str, *, begins: bool = True) -> str:
    r"""A text in which nothing is Markdown or HTML; control characters are shown. begins: it begins a paragraph.

    >>> print(escaped("<b> a|b *c* [d](e)"))
    \<b\> a\|b \*c\* \[d\](e)
    >>> print(escaped("1. a"), escaped("- b"), escaped("+3 [0, 5]", begins=False))
    1\. a \- b +3 \[0, 5\]
    """
    flat = " ".join(text.split())
    shown = "".join(c if c.isprintable() else visible(c) for c in flat)
    shown = _INLINE.sub(r"\\\1", shown)
    return _FIRST.sub(r"\1\\", shown) if begins else shown


def _table(block: Block) -> str:
    rule = ["---" if i in block.left else "---:" for i in range(len(block.headers))]
    rows = [[escaped(cell, begins=False) for cell in row] for row in (block.headers, *block.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))


def _explained(comparison: Comparison) -> Iterator[str]:
    studies, noun = comparison.studies, nouns(comparison)
    of = noun.text if len(studies) == 1 else noun.texts
    yield f"{escaped(model_name(comparison))}, {escaped(stacks_in_words(comparison))}; {len(studies)} {of}."
    rows = tuple(
        (str(number), title(study), str(study.target.predicted_name), study.target.description)
        for number, study in enumerate(studies[:MOST_TEXTS], 1)
    )
    yield _table(Block("", "", ("", noun.text, "predicted", "explained"), rows, frozenset({1, 2, 3})))
    if len(studies) > MOST_TEXTS:
        yield f"… and {len(studies) - MOST_TEXTS} more."


def _made(comparison: Comparison, command: str) -> Iterator[str]:
    settings, noun = comparison.settings, nouns(comparison)
    removed = "; ".join(f"`{name}`: a removed {noun.token} {operator(name, noun)}" for name in settings.operators)
    yield (
        f"Seed {settings.seed}; {settings.n_random} random orders a {noun.text}; {settings.n_resamples} resamples. "
        f"{removed}. Versions: {escaped(versions(comparison))}."
    )
    passed = int(comparison.checks.passed.sum()) if len(comparison.checks) else 0
    yield f"Checks of the captured attention: {passed} of {len(comparison.checks)} passed."
    if command:
        told = lines(without_paths(command))
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", told) or [""]))
        yield f"{fence}\n{told}\n{fence}"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")
