"""The parts of the page, in their order: each a template of its name, shown where its facts are there.

A new part is a template, a function that gives its facts (None: the part is left out) and a line here. In the template
`part.facts` is what the function gave; a fact named "heading" is the heading, and stands in the contents.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from attnprobe.comparison import Comparison
from attnprobe.report.alignment import alignment
from attnprobe.report.counterfactual import counterfactual
from attnprobe.report.nouns import nouns
from attnprobe.report.pictures import of_text
from attnprobe.report.spread import spread
from attnprobe.report.verdicts import panel
from attnprobe.report.worst import worst

Facts = Callable[[Comparison, list[str]], Any]


@dataclass(frozen=True)
class Part:
    """name: of the section's id and its template; nav: in the bar; topic: above its heading."""

    name: str
    nav: str
    topic: str
    facts: Facts


def always(comparison: Comparison, methods: list[str]) -> bool:
    """A part of every page."""
    return True


def of_several_texts(comparison: Comparison, methods: list[str]) -> bool | None:
    """A part of data sets."""
    return True if len(comparison.studies) > 1 else None


def of_several_methods(comparison: Comparison, methods: list[str]) -> bool | None:
    """A part that compares methods with one another."""
    return True if len(methods) > 1 else None


def judged(comparison: Comparison, methods: list[str]) -> bool | None:
    """A part on removal."""
    return True if len(comparison.main) else None


PARTS = (
    Part("verdicts", "Verdicts", "Does attention explain the prediction?", panel),
    Part("spread", "All texts", "All texts at a glance", spread),
    Part("worst", "Worst", "Where attention misleads most", lambda comparison, methods: worst(comparison)),
    Part("texts", "List", "The texts", of_several_texts),
    Part("text", "Text", "The text under each method", of_text),
    Part("alignment", "Alignment", "Where the answer looks in the text", alignment),
    Part("removal", "Removal", "Faithfulness by removal", judged),
    Part("agreement", "Agreement", "Agreement", of_several_methods),
    Part("counterfactual", "Other attention", "Would another attention do as well?", counterfactual),
    Part("heads", "Heads", "Attention by layer and head", always),
    Part("methods", "Methods", "Methods, checks, provenance", always),
    Part("reading", "How to read", "How to read this report", always),
)


def parts(comparison: Comparison, methods: list[str], headings: Mapping[str, str]) -> list[dict[str, Any]]:
    """The parts that have facts, numbered. headings: by name, of those whose facts hold none."""
    said = nouns(comparison).said
    found = [(part, part.facts(comparison, methods)) for part in PARTS]
    there = [(part, facts) for part, facts in found if facts is not None]
    return [
        {
            "name": part.name,
            "nav": said(part.nav),
            "topic": said(part.topic),
            "number": number,
            "heading": said(_heading(part, facts, headings)),
            "facts": facts,
        }
        for number, (part, facts) in enumerate(there, 1)
    ]


def _heading(part: Part, facts: Any, headings: Mapping[str, str]) -> str:
    return str(facts["heading"] if isinstance(facts, Mapping) and "heading" in facts else headings[part.name])


def left_out(comparison: Comparison, methods: list[str]) -> list[str]:
    """What a reader may miss, and why it is not there."""
    said = []
    if of_several_methods(comparison, methods) is None:
        said.append("Agreement: there is one method only, and nothing to compare it with")
    if not len(comparison.main):
        said.append("Removal: nothing was judged by it")
    if not len(comparison.verdicts):
        said.append("Verdicts: no map of attention was judged")
    return said
