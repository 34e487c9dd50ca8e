"""Outcome: what an experiment found, example by example, with what it was made with and what it cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from attnprobe.errors import InputError, nearest
from attnprobe.intervals import over_texts
from attnprobe.models.evaluator import Meter

# Where something was changed or measured; layer and head are numbers, or "all" or "mean". variant: of an experiment
# with several (an order, a method, a weight of the loss), else "".
PLACE = ("stack", "kind", "layer", "head", "variant")
KEYS = [*PLACE, "measure"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an experiment found.

    targets: what was explained, a description an example. values: a row an example, place and measure: example_index,
    stack, kind, layer, head, variant, measure, value. measures: each measure in words, with its range. seed: None where
    nothing was drawn. notes: what else the reader must know, in sentences.
    """

    experiment: str
    model: str
    targets: tuple[str, ...] = field(repr=False)
    values: pd.DataFrame = field(repr=False)
    measures: Mapping[str, str] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    forward_passes: int = 0
    backward_passes: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    n_resamples: int = field(default=1000, repr=False)

    @property
    def n(self) -> int:
        """Number of examples that something was measured on."""
        return int(self.values.example_index.nunique())

    def to_frame(self) -> pd.DataFrame:
        """A row a place and measure: mean over examples, low and high (95 % bootstrap interval), n, and the facts."""
        rows = []
        for key, group in self.values.groupby(KEYS, sort=False):
            found = over_texts(group.value.tolist(), n_resamples=self.n_resamples, seed=self.seed or 0)
            rows.append((*key, found.mean, found.low, found.high, found.n))
        frame = pd.DataFrame(rows, columns=[*KEYS, "mean", "low", "high", "n"])
        return frame.assign(
            experiment=self.experiment,
            model=self.model,
            target="; ".join(dict.fromkeys(self.targets)),
            options=", ".join(f"{name}={value}" for name, value in self.options.items()),
            seed=self.seed,
            forward_passes=self.forward_passes,
            backward_passes=self.backward_passes,
            seconds=self.seconds,
        )

    def of(self, measure: str, **place: Any) -> pd.Series:
        """The values of one measure by example, at one place where there are several (layer=, head=, variant=, …).

        Errors: `InputError` for a measure that was not taken, or several values an example.
        """
        if measure not in self.measures:
            raise InputError(f"{self.experiment} has no measure '{measure}'; {nearest(measure, self.measures)}")
        rows = self.values[self.values.measure == measure]
        for name, wanted in place.items():
            if name not in PLACE:
                raise InputError(f"a place has no '{name}'; {nearest(name, PLACE)}")
            rows = rows[rows[name] == str(wanted)]
        if rows.example_index.duplicated().any():
            several = [name for name in PLACE if rows[name].nunique() > 1]
            raise InputError(f"'{measure}' has several values an example; say which {' and '.join(several)}")
        return rows.set_index("example_index").value


def values_frame(rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    """The table of values from rows (example_index, stack, kind, layer, head, variant, measure, value)."""
    return pd.DataFrame(list(rows), columns=["example_index", *KEYS, "value"])


def cost_of(meter: Meter) -> dict[str, Any]:
    """The cost of an experiment, under the names that `Outcome` has for it."""
    return {"forward_passes": meter.forward, "backward_passes": meter.backward, "seconds": meter.seconds}
