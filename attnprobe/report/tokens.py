"""Tokens as they can be seen; page and viewer show them alike, but for patches, which the page names in words."""

import re

from attnprobe.example import Example
from attnprobe.viewer import tokens
from attnprobe.viewer.tokens import LONGEST, exact, label, visible

__all__ = ["LONGEST", "exact", "label", "shown", "visible"]


def shown(example: Example) -> list[str]:
    """Each token as the page shows it: the characters it covers, shortened where it is very long; a patch as its place.

    Rows and columns are numbered from 0, as layers and heads are.
    """
    names = tokens.shown(example)
    return (
        [re.sub(r"^(\d+),(\d+)$", r"row \1, column \2", name) for name in names] if example.axis == "patches" else names
    )
