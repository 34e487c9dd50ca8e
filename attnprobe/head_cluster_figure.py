"""Heads that score alike, side by side: a profile in, a figure out; `figure.savefig(path)` saves one.

>>> from attnprobe import profile
>>> from attnprobe.head_cluster_figure import cluster_map
>>> cluster_map(profile(model, texts)).savefig("kinds.svg")     # doctest: +SKIP
"""

import textwrap
from collections.abc import Sequence

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.cluster import hierarchy

from attnprobe.appearance import BAND_LINE, INK, MUTED
from attnprobe.colours import diverging
from attnprobe.head_clusters import Clusters, clusters
from attnprobe.head_profile import HeadProfile
from attnprobe.heads.spoken import need

WIDEST = 12.0  # inches
TALLEST = 11.0
MOST_NAMED = 80  # heads whose numbers are written beside their rows


def cluster_map(found: HeadProfile | Clusters) -> Figure:
    """Heads that score alike together, a row a head; a group is named by the score in which it stands out most, or
    "mixed" where it stands out in none.

    Blue: above the mean of all heads in that score, orange: below, in standard deviations. On the left the tree.
    found: a profile (of one stack), or `head_clusters.clusters(profile, …)` for a choice of scores and number.
    """
    need(found, HeadProfile | Clusters, "attnprobe.profile(…) or head_clusters.clusters(…)")
    groups = found if isinstance(found, Clusters) else clusters(found)
    n_heads, n_scores = groups.standardised.shape
    lines = _lines(groups)
    body = min(TALLEST, max(2.0, 0.16 * n_heads, sum(map(_height, lines)) + 0.2))
    below = 0.9 + 0.05 * max(map(len, groups.labels))  # names of scores, and the scale above
    figure = Figure(figsize=(min(WIDEST, 4.6 + 0.34 * n_scores), body + below), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=[0.8, 0.34 * n_scores + 0.6], wspace=0.01)
    tree, axes = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    _tree(tree, groups)
    named = n_heads <= MOST_NAMED
    size = max(2.0, float(np.quantile(np.abs(groups.standardised), 0.98)))
    sns.heatmap(
        groups.standardised,
        vmin=-size,
        vmax=size,
        cmap=diverging(root=False),
        xticklabels=groups.labels,
        yticklabels=[f"{row.layer}.{row.head}" for row in groups.table.itertuples()] if named else False,
        cbar_kws={"label": "standard deviations from the mean head", "location": "top", "aspect": 40, "shrink": 0.8,
                  "pad": 0.01},
        ax=axes,
    )  # fmt: skip
    axes.tick_params(axis="both", labelsize=7, length=0)
    axes.tick_params(axis="y", rotation=0)
    for label in axes.get_xticklabels():
        label.set(rotation=50, ha="right", rotation_mode="anchor", fontsize=8)
    _group_names(axes, groups, lines, n_heads / body)
    return figure


def _tree(axes: Axes, groups: Clusters) -> None:
    """The tree of the heads, its leaves beside the rows of the map; branches of other groups are all one colour."""
    hierarchy.dendrogram(groups.tree, orientation="left", no_labels=True, ax=axes, link_color_func=lambda _: BAND_LINE)
    axes.invert_yaxis()
    axes.set_axis_off()
    for line in axes.collections:
        line.set_linewidth(0.7)


def _lines(groups: Clusters) -> list[str]:
    """The names of the groups with their number of heads, on as many lines as they need."""
    sizes = groups.table.cluster.value_counts().sort_index().tolist()
    return ["\n".join(textwrap.wrap(f"{name} ({n})", 30)) for name, n in zip(groups.names, sizes, strict=True)]


def _height(text: str) -> float:
    """Inches that a name takes."""
    return 0.14 * (text.count("\n") + 1) + 0.06


def _group_names(axes: Axes, groups: Clusters, lines: Sequence[str], heads_an_inch: float) -> None:
    """Lines between groups, and their names on the right, moved apart where groups are thin."""
    n_scores, n_heads = groups.standardised.shape[1], len(groups.table)
    ends = groups.table.cluster.value_counts().sort_index().cumsum().tolist()
    middles = [(start + end) / 2 for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    at = _apart(middles, [_height(text) * heads_an_inch for text in lines], n_heads)
    for end, middle, place, text in zip(ends, middles, at, lines, strict=True):
        if end < n_heads:
            axes.axhline(end, color=INK, linewidth=0.8)
        right = n_scores + 0.1, n_scores + 0.5
        axes.plot(right, [middle, place], color=MUTED, linewidth=0.6, clip_on=False)
        axes.text(n_scores + 0.6, place, text, va="center", ha="left", fontsize=8, color=INK)
    axes.set(xlim=(0, n_scores), ylim=(n_heads, 0))


def _apart(wanted: Sequence[float | int], needed: Sequence[float | int], most: float | int) -> list[float]:
    """Places near the wanted ones that are far enough apart: each has a length of its own."""
    places = [float(place) for place in wanted]
    for at in range(1, len(places)):
        places[at] = max(places[at], places[at - 1] + (needed[at - 1] + needed[at]) / 2)
    limit = float(most)
    for at in reversed(range(len(places))):
        places[at] = min(places[at], limit - needed[at] / 2)
        limit = places[at] - needed[at] / 2
    return places
