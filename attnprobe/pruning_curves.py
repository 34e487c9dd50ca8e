"""PruningCurve: how right a model is with so many heads gone, by order, with intervals over examples."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.errors import InputError, nearest
from attnprobe.heads.addresses import Head
from attnprobe.intervals import LEVEL, over_columns


@dataclass(frozen=True, eq=False)
class PruningCurve:
    """A measure of a model against the number of heads that are silenced.

    removed: how many heads are gone at each step. values: by order, [draw step example]; a fixed order has one draw.
    orders: by name, the heads of each draw, first to go first. right: what counts as right: "label", "own answer" (what
    the whole model says), "text" (the next tokens) or "answer" (that was given); "" where a function measures.
    """

    model: str
    measure: str
    higher_is_better: bool
    removed: tuple[int, ...]
    values: Mapping[str, Float[np.ndarray, "draw step example"]] = field(repr=False)
    orders: Mapping[str, tuple[tuple[Head, ...], ...]] = field(repr=False)
    n_resamples: int = 1000
    seed: int = 0
    right: str = ""

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return int(next(iter(self.values.values())).shape[2])

    @property
    def n_heads(self) -> int:
        """Number of heads that are taken away in the end."""
        return self.removed[-1]

    def to_frame(self) -> pd.DataFrame:
        """A row an order and step: order, n_removed, measure, mean, low, high (over examples), n, and of several draws
        n_draws, draw_low, draw_high: between which the middle 95 % of the draws lie.
        """
        return pd.concat([self._rows(name) for name in self.values], ignore_index=True)

    def _rows(self, name: str) -> pd.DataFrame:
        values = self.values[name]
        found = over_columns(values.mean(0).T, n_resamples=self.n_resamples, seed=self.seed)
        frame = pd.DataFrame([vars(one) for one in found])
        several = len(values) > 1
        ends = np.quantile(values.mean(2), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0) if several else np.nan
        low, high = np.broadcast_to(ends, (2, len(self.removed)))
        frame.insert(0, "order", name)
        frame.insert(1, "n_removed", self.removed)
        frame.insert(2, "measure", self.measure)
        return frame.assign(n_draws=len(values), draw_low=low, draw_high=high)

    def removable(self, order: str, drop: float) -> int:
        """How many heads can go, in this order, before the mean is more than `drop` worse than that of the whole model.

        Looked at are the steps of the curve; of several draws the mean.
        """
        if order not in self.values:
            raise InputError(f"the curve has no order '{order}'; {nearest(order, self.values)}")
        means = self.values[order].mean((0, 2))
        worse = (means[0] - means) * (1 if self.higher_is_better else -1) > drop + 1e-12
        return self.removed[int(worse.argmax()) - 1] if worse.any() else self.n_heads
