"""The nouns of a comparison, and what was found in them; which nouns there are is decided in attnprobe.viewer.nouns."""

from dataclasses import replace

from attnprobe.comparison import Comparison
from attnprobe.finding import Finding, findings
from attnprobe.viewer.nouns import PICTURES, TEXTS, Nouns, few, nouns_of
from attnprobe.wording import of_tokens

__all__ = ["PICTURES", "TEXTS", "Nouns", "few", "nouns", "of_tokens", "told"]


def nouns(comparison: Comparison) -> Nouns:
    """What the page calls its examples, and their units."""
    return nouns_of(study.example for study in comparison.studies)


def told(comparison: Comparison) -> tuple[Finding, ...]:
    """The findings of a comparison, their sentences in its nouns."""
    said = nouns(comparison).said
    return tuple(
        replace(f, claim=said(f.claim), against=tuple(map(said, f.against)), causes=tuple(map(said, f.causes)))
        for f in findings(comparison)
    )
