"""Verdicts of attention-derived maps: asked of the judgement, and their shares over a set of examples."""

from collections.abc import Sequence

import pandas as pd

from attnprobe.attribution import Attribution
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.significance import share
from attnprobe.study import Study

FAMILY = "attention"
KINDS = ("explains", "misleads", "undecided")
SHARES = ["method", "verdict", "share", "low", "high", "count", "n"]
# So many other texts, and what "resample" puts in a token's place comes from them.
ENOUGH = 8


def judged(model: Model, found: Sequence[Attribution], others: Sequence[Example], seed: int) -> pd.DataFrame:
    """A row a map that attention makes: its verdict on one example, with what it rests on."""
    return pd.DataFrame()


def verdicts(studies: Sequence[Study]) -> pd.DataFrame:
    """A row an example and map."""
    parts = [s.verdicts.assign(example_index=i) for i, s in enumerate(studies) if len(s.verdicts)]
    if not parts:
        return pd.DataFrame(columns=["example_index", "method", "verdict", "reason"])
    frame = pd.concat(parts, ignore_index=True)
    return frame[["example_index", *[c for c in frame.columns if c != "example_index"]]]


def shares(table: pd.DataFrame) -> pd.DataFrame:
    """A row a map and verdict: its share of the examples, with a 95 % Wilson interval."""
    rows = []
    for method, part in table.groupby("method", sort=False):
        for kind in KINDS:
            count, n = int((part.verdict == kind).sum()), len(part)
            rows.append((method, kind, *share(count, n), count, n))
    return pd.DataFrame(rows, columns=SHARES)
