"""Pictures in the place of tokens: what the part on the chosen text needs where tokens are patches of a picture."""

from typing import Any

from attnprobe.comparison import Comparison
from attnprobe.viewer.sides import picture_of

# Patches of a picture beyond which panels would hold more cells than a page can bear.
MOST_PATCHES = 1024


def of_text(comparison: Comparison, methods: list[str]) -> dict[str, Any]:
    """The pictures of all texts (None: words); {} where there is none."""
    found = [picture_of(study.example) for study in comparison.studies]
    shown = [one if one and one["rows"] * one["columns"] <= MOST_PATCHES else None for one in found]
    if not any(shown):
        return {}
    return {"pictures": {"texts": shown}}
