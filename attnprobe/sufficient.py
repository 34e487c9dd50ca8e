"""Which few heads suffice, all others silenced: greedily, one head after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from tqdm.auto import tqdm

from attnprobe.errors import InputError, nearest
from attnprobe.heads.addresses import Head, heads_named, heads_of_stack
from attnprobe.intervals import check_resampling, over_columns
from attnprobe.models import load
from attnprobe.models.model import Stack
from attnprobe.pruning import answers
from attnprobe.right_answers import Measure, better_high, name_of, questions

STARTS = ("none", "all")


@dataclass(frozen=True, eq=False)
class SufficientHeads:
    """Heads in the order in which they were brought back (start "none") or let go ("all").

    kept: the heads that stand at the end, first come first, or as the model has them. values: the measure at the
    beginning and behind each step [step example]. n_kept: how many heads stand there.
    """

    model: str
    measure: str
    start: str
    kept: tuple[Head, ...]
    steps: tuple[Head, ...]
    n_kept: tuple[int, ...]
    values: Float[np.ndarray, "step example"] = field(repr=False)
    n_resamples: int = 1000
    seed: int = 0

    def to_frame(self) -> pd.DataFrame:
        """A row a step: n_kept, head ("" at the beginning), measure, mean, low, high (over examples), n."""
        found = over_columns(self.values.T, n_resamples=self.n_resamples, seed=self.seed)
        frame = pd.DataFrame([vars(one) for one in found])
        frame.insert(0, "n_kept", self.n_kept)
        frame.insert(1, "head", ["", *map(str, self.steps)])
        frame.insert(2, "measure", self.measure)
        return frame


def sufficient_heads(
    model: Any,
    examples: Any,
    k: int | None = None,
    labels: Any = None,
    *,
    measure: Measure = "loss",
    start: str = "none",
    heads: Any = None,
    stack: Stack | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> SufficientHeads:
    """A set of k heads with which alone the model is as right as greedy search finds.

    start: "none", begin with all silenced and bring back, one by one, the head that helps most, until k stand; "all",
    begin with all and let go of the one that is missed least. k: None goes to the other end. heads: those that are
    looked at (None: of `stack`, or all); others always stand. labels, measure: as `right_answers.questions`; "loss"
    tells heads apart that "accuracy" does not. Costs n k (n² / 2 at most) forward passes an example for n heads.
    Errors: `InputError` for more heads than there are, and as `right_answers.questions`.
    """
    check_resampling(n_resamples, seed)
    model = load(model)
    if start not in STARTS:
        raise InputError(f"start is 'none' or 'all', got {start!r}; {nearest(start, STARTS)}")
    stacks = model.stacks if stack is None else [stack]
    pool = [head for one in stacks for head in heads_of_stack(one)] if heads is None else heads_named(model, heads)
    k = (len(pool) if start == "none" else 0) if k is None else k
    if not isinstance(k, Integral) or isinstance(k, bool) or not 0 <= k <= len(pool):
        raise InputError(f"k is a number of heads from 0 to {len(pool)}, got {k!r}")
    asked, sign = questions(model, examples, labels, measure), 1 if better_high(measure) else -1
    n_steps = k if start == "none" else len(pool) - k
    silent = frozenset(pool) if start == "none" else frozenset[Head]()
    values = [answers(model, asked, [silent])[0]]
    steps: list[Head] = []
    bar = tqdm(range(n_steps), desc="sufficient heads", delay=1.0, leave=False, disable=None if progress else True)
    for _ in bar:
        candidates = [head for head in pool if (head in silent) == (start == "none")]
        tried = [silent ^ {head} for head in candidates]
        found = answers(model, asked, tried)
        best = _best(sign * found.mean(1))
        silent, steps, values = tried[best], [*steps, candidates[best]], [*values, found[best]]
    kept = tuple(steps) if start == "none" else tuple(head for head in pool if head not in silent)
    before = 0 if start == "none" else len(pool)
    counts = tuple(before + (step if start == "none" else -step) for step in range(n_steps + 1))
    return SufficientHeads(
        model.name, name_of(measure), start, kept, tuple(steps), counts, np.stack(values), n_resamples, seed
    )


def _best(means: Sequence[float] | Float[np.ndarray, " candidate"]) -> int:
    """The first of the largest, where rounding does not count."""
    numbers = np.asarray(means)
    return int(np.flatnonzero(numbers >= numbers.max() - 1e-12)[0])
