"""From values by text to numbers by seed: a mean over texts first, then mean, lowest and highest over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from attnprobe.appearance import number

THERE, PARTLY, ABSENT = "yes", "partly", "**no**"


def by_seed(values: pd.DataFrame, keys: Sequence[str], how: str = "mean") -> pd.DataFrame:
    """The mean (or median) over texts: the keys, seed, value; texts without a value are left out."""
    return values.groupby([*keys, "seed"], sort=False).value.agg(how).reset_index()


def over_seeds(found: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Mean, lowest and highest of the seeds: the keys, mean, low, high, n_seeds."""
    seeds = found.groupby(list(keys), sort=False).value
    return seeds.agg(mean="mean", low="min", high="max", n_seeds="count").reset_index()


def said(values: Sequence[float], digits: int = 2) -> str:
    """The mean of the seeds with the lowest and highest; one number where they are the same in print.

    >>> said([0.25, 0.5, 0.75]), said([1.0, 1.0])
    ('0.50 (0.25 to 0.75)', '1.00')
    """
    low, high = number(min(values), digits), number(max(values), digits)
    middle = number(sum(values) / len(values), digits)
    return middle if low == high else f"{middle} ({low} to {high})"


@dataclass(frozen=True)
class Claim:
    """A published trend: who, what, what is seen here, and in how many of the seeds it holds."""

    source: str
    trend: str
    seen: str
    holds: tuple[bool, ...]

    @property
    def there(self) -> str:
        """Whether it is there: in all seeds, in some, in none.

        >>> Claim("", "", "", (True, False)).there
        'partly'
        """
        return THERE if all(self.holds) else PARTLY if any(self.holds) else ABSENT


def one_by_one(found: pd.DataFrame, test: Callable[[pd.DataFrame], bool]) -> tuple[bool, ...]:
    """Whether a test holds, seed by seed."""
    return tuple(bool(test(part)) for _, part in found.groupby("seed"))


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table."""
    head = "| " + " | ".join(map(str, frame.columns)) + " |\n|" + " --- |" * len(frame.columns)
    return "\n".join([head, *("| " + " | ".join(map(str, row)) + " |" for row in frame.to_numpy().tolist())])
