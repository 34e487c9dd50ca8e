"""What each head does, for the page: the facts of the viewer, and the table of head scores."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.heads import head_scores
from attnprobe.viewer.facts import facts, score_facts
from attnprobe.viewer.groups import groups, head_table
from attnprobe.viewer.measures import measures
from attnprobe.viewer.packing import BUDGET, Budget

__all__ = ["BUDGET", "Budget", "score_names", "scored", "stacks"]


def stacks(capture: Capture, budget: Budget) -> tuple[dict[str, Any], str]:
    """What the viewer shows of one text ({}: nothing), and why there is nothing where that is so."""
    return facts(capture, budget, beside=measures(capture))


def score_names() -> list[dict[str, str]]:
    """The registered head scores, for the page: name, label, unit, description."""
    return score_facts()


def scored(captures: Sequence[Capture]) -> pd.DataFrame:
    """A row a text, stack, layer and head, a column a head score; no row for a text whose maps were not kept.

    A head that looks within windows has the mean over them.
    """
    kept = [(i, c) for i, c in enumerate(captures) if any(s.weights is not None for s in c.sites)]
    columns = ["example_index", "stack", "kind", "layer", "head", *head_scores]
    parts = [_scored(capture).assign(example_index=index) for index, capture in kept]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _scored(capture: Capture) -> pd.DataFrame:
    try:
        return head_table(capture)
    except InputError:  # windows or pictures, which are no rows of one map
        parts = pd.concat([group.scores for group in groups(capture)], ignore_index=True)
        return parts.groupby(["stack", "kind", "layer", "head"], as_index=False, sort=False)[list(head_scores)].mean()
