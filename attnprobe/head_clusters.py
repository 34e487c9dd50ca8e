"""Kinds of heads: heads of a profile that score alike, each kind named by the score in which it stands out most.

A name is a claim, so it takes two things: the mean of the kind lies well above that of all heads, and it is not near 0
as such (twice nothing is nothing). Kinds without such a score are "mixed".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.cluster import hierarchy

from attnprobe.errors import InputError, nearest
from attnprobe.head_profile import PLACE, HeadProfile
from attnprobe.heads.spoken import need

MOST = 12  # kinds that can still be told apart
STANDS_OUT = 0.75  # standard deviations by which the mean of a kind lies above that of all heads
NOT_NEAR_ZERO = 0.1  # share of the largest value that the score can have, or has, that the mean of a kind reaches
MIXED = "mixed"
MOST_TOLD = 24  # heads of a kind that its repr names


@dataclass(frozen=True, eq=False, repr=False)
class Clusters:
    """Heads by how alike they score.

    table: a row a head, in the order of the tree: stack, kind, layer, head, cluster (from 0), name. standardised: by
    head and score, in the orders of their trees, (value - mean of all heads) / standard deviation. tree: scipy's
    linkage of the heads in the order of the profile. names: of each cluster, by the score in which it lies furthest
    above all heads ("high: …"), or "mixed". labels: of each score, for people.
    left_out: scores without a difference between heads, or without a number for some of them.
    """

    table: pd.DataFrame
    standardised: Float[np.ndarray, "head score"]
    tree: Float[np.ndarray, "merge 4"]
    names: tuple[str, ...]
    scores: tuple[str, ...]
    labels: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """A row a head, in the order of the tree: stack, kind, layer, head, cluster, name."""
        return self.table.copy()

    def __repr__(self) -> str:
        """A line a kind: its name and its heads."""
        lines = [f"Clusters of {len(self.table)} heads by {', '.join(self.scores)}"]
        for number, name in enumerate(self.names):
            mine = self.table[self.table.cluster == number]
            heads = [f"{layer}.{head}" for layer, head in zip(mine.layer, mine["head"], strict=True)]
            lines.append(f"{name}: {', '.join(heads[:MOST_TOLD])}" + f" and {len(heads) - MOST_TOLD} more"
                         * (len(heads) > MOST_TOLD))  # fmt: skip
        return "\n".join(lines)


def clusters(
    profile: HeadProfile,
    *,
    n: int | None = None,
    scores: Sequence[str] | None = None,
    stack: str | None = None,
    kind: str | None = None,
) -> Clusters:
    """At most n kinds of heads of one stack, by Ward's hierarchy on the standardised means of the scores.

    n: None for √(heads / 2), 2 to 12 of them.

    scores: which ones (None: those of maps and probes, or of a profile without any its effects), of them all that have
    a number for every head, and differ. Two scores of one thing count twice.
    Errors: `InputError` for fewer than 3 heads or no score that differs, and for a score that is not there.
    """
    need(profile, HeadProfile, "attnprobe.profile(…)")
    if n is not None and n < 1:
        raise InputError(f"n is at least 1, got {n}")
    frame = of_stack(profile, stack, kind)
    names = _patterns(profile) if scores is None else list(scores)
    for name in names:
        if name not in profile.scores:
            raise InputError(f"the profile has no score '{name}'; {nearest(name, profile.scores)}")
    values = frame[names].to_numpy(dtype=float)
    spread = values.std(0)
    told = np.isfinite(spread) & (spread > 1e-9 * np.maximum(1.0, np.abs(values).max(0)))
    if len(frame) < 3 or not told.any():
        raise InputError(
            f"{len(frame)} heads with {int(told.sum())} scores that differ; 3 heads and 1 score are needed"
        )
    used = [name for name, use in zip(names, told, strict=True) if use]
    standardised = (values[:, told] - values[:, told].mean(0)) / spread[told]
    if sum(told) > 2:
        across = hierarchy.leaves_list(hierarchy.linkage(standardised.T, method="ward", optimal_ordering=True))
        used, standardised = [used[at] for at in across], standardised[:, across]
    tree = hierarchy.linkage(standardised, method="ward", optimal_ordering=True)
    order = hierarchy.leaves_list(tree)
    most = min(MOST, max(2, math.ceil(math.sqrt(len(frame) / 2)))) if n is None else n
    members = _in_order(hierarchy.fcluster(tree, most, criterion="maxclust")[order])
    labels = tuple(profile.facts[name].label for name in used)
    titles = _titles(standardised[order], _sizes(profile, frame, used)[order], members, labels)
    table = frame.iloc[order][list(PLACE)].reset_index(drop=True)
    table = table.assign(cluster=members, name=[titles[member] for member in members])
    left_out = tuple(name for name in names if name not in used)
    return Clusters(table, standardised[order], tree, titles, tuple(used), labels, left_out)


def _patterns(profile: HeadProfile) -> list[str]:
    """The scores that are no effects: what a head does, not how much it matters; effects where there are no others."""
    return [name for name in profile.scores if profile.facts[name].form != "effect"] or list(profile.scores)


def of_stack(profile: HeadProfile, stack: str | None, kind: str | None) -> pd.DataFrame:
    """The wide table of one stack and kind; `InputError` where several are meant, or none."""
    frame = profile.to_frame()
    chosen = frame[(frame["stack"] == (stack or frame["stack"])) & (frame["kind"] == (kind or frame["kind"]))]
    known = list(dict.fromkeys(zip(chosen["stack"], chosen["kind"], strict=True)))
    if len(known) != 1:
        there = list(dict.fromkeys(zip(frame["stack"], frame["kind"], strict=True)))
        words = ", ".join(f"{name} {kind}" for name, kind in known or there)
        raise InputError(f"one stack and kind at a time; say stack= and kind= ({words})")
    return chosen.reset_index(drop=True)


def _in_order(numbers: Int[np.ndarray, " head"]) -> Int[np.ndarray, " head"]:
    """Cluster numbers from 0 in the order in which they come."""
    known = {number: at for at, number in enumerate(dict.fromkeys(numbers.tolist()))}
    return np.array([known[number] for number in numbers.tolist()])


def _sizes(profile: HeadProfile, frame: pd.DataFrame, names: Sequence[str]) -> Float[np.ndarray, "head score"]:
    """Values as shares of the largest that a score can have, or where that has no end, of the largest that it has."""
    values = np.abs(frame[list(names)].to_numpy(dtype=float))
    ends = [profile.facts[name].high for name in names]
    return values / [float(end) if end else most for end, most in zip(ends, values.max(0), strict=True)]


def _titles(
    standardised: Float[np.ndarray, "head score"],
    sizes: Float[np.ndarray, "head score"],
    members: Int[np.ndarray, " head"],
    labels: Sequence[str],
) -> tuple[str, ...]:
    """The score in which each kind lies furthest above all heads; two of one name get a second one."""
    ranked = []
    for member in range(members.max() + 1):
        centre, size = standardised[members == member].mean(0), sizes[members == member].mean(0)
        order = np.argsort(-centre, kind="stable")
        ranked.append([f"high: {labels[at]}" for at in order if centre[at] >= STANDS_OUT and size[at] >= NOT_NEAR_ZERO])
    first = [names[0] if names else MIXED for names in ranked]
    titles = ["; ".join(names[: first.count(name)][:2]) or MIXED for names, name in zip(ranked, first, strict=True)]
    counted = [f"{title} ({titles[:at].count(title) + 1})" if titles.count(title) > 1 else title
               for at, title in enumerate(titles)]  # fmt: skip
    return tuple(counted)
