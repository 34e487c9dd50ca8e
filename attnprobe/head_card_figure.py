"""The picture of one head's card: its map on the text, and where it stands among all heads of its stack.

>>> from attnprobe.card import head_card
>>> from attnprobe.head_card_figure import card_figure
>>> card_figure(head_card(model, "5.1", text)).savefig("head.svg")     # doctest: +SKIP
"""

import math

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.appearance import BAND_LINE, FOR, INK, MAP_FROM, MAP_TO, MUTED, number
from attnprobe.card import HeadCard
from attnprobe.colours import sequential
from attnprobe.errors import InputError

MOST_TOKENS = 40  # beyond, tokens have no names
LONGEST_TOKEN = 12
MOST_SCORES = 30


def card_figure(card: HeadCard) -> Figure:
    """The map (from each token, down, to each, across; colour grows with the square root of the weight), and each score
    of the head (blue) among those of the other heads (grey), from the lowest to the highest; scores in which all heads
    are alike are left out.
    """
    rows = _told(card)
    n_queries, n_keys = card.weights.shape
    side = min(5.2, max(2.6, 0.22 * max(n_queries, n_keys)))
    height = max(side + 0.9, 0.26 * len(rows) + 1.0)
    figure = Figure(figsize=(side + 1.2 + 5.4, height), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=[side + 0.9, 5.2])
    _map(figure.add_subplot(grid[0]), card)
    _strips(figure.add_subplot(grid[1]), card, rows)
    figure.suptitle(f"head {card.head} of {card.model}", fontsize=10, color=INK, x=0.01, ha="left")
    return figure


def _told(card: HeadCard) -> pd.DataFrame:
    """The scores and effects in which heads differ, effects last."""
    if card.profile is None:
        raise InputError("this card has lost the numbers of the other heads; draw the one that head_card() gave")
    rows = card.scores[card.scores.differs]
    effects = rows[rows.form == "effect"]
    return pd.concat([rows[rows.form != "effect"].head(MOST_SCORES - len(effects)), effects])


def _map(axes: Axes, card: HeadCard) -> None:
    names = [_labels(given) if len(given) <= MOST_TOKENS else False for given in (card.queries, card.keys)]
    sns.heatmap(
        card.weights.clamp(min=0).numpy(),
        vmin=0,
        vmax=1,
        cmap=sequential(MAP_TO, MAP_FROM),
        cbar=False,
        square=True,
        yticklabels=names[0],
        xticklabels=names[1],
        ax=axes,
    )
    axes.tick_params(axis="both", labelsize=7.5, length=0)
    axes.tick_params(axis="y", rotation=0)
    axes.tick_params(axis="x", rotation=90)
    axes.set(xlabel="to", ylabel="from", anchor="N")
    axes.xaxis.label.set(fontsize=8, color=MUTED)
    axes.yaxis.label.set(fontsize=8, color=MUTED)
    for spine in axes.spines.values():
        spine.set(visible=True, color=BAND_LINE, linewidth=0.6)


def _labels(tokens: tuple[str, ...]) -> list[str]:
    short = [t if len(t) <= LONGEST_TOKEN else t[: LONGEST_TOKEN - 1] + "…" for t in tokens]
    return [t.replace("$", r"\$") for t in short]


def _strips(axes: Axes, card: HeadCard, rows: pd.DataFrame) -> None:
    """A line a score: grey dots are the other heads, the blue one this head, with its number and its place."""
    if card.profile is None:
        return
    frame = card.profile.to_frame()
    told = zip(rows.score, rows.value.astype(float), rows["rank"], rows.n_heads, strict=True)
    for at, (name, value, rank, n_heads) in enumerate(told):
        values = frame[name].dropna().to_numpy(dtype=float)
        low, high = values.min(), values.max()
        axes.hlines(at, 0, 1, color=BAND_LINE, linewidth=0.5, zorder=0)
        axes.plot(
            (values - low) / (high - low), np.full(len(values), at), "o", color=BAND_LINE, markersize=4, alpha=0.55
        )
        axes.plot([(value - low) / (high - low)], [at], "o", color=FOR, markeredgecolor=INK, markersize=7)
        axes.text(1.05, at, _number(value), fontsize=8, color=INK, va="center", ha="left")
        axes.text(1.26, at, f"{rank} of {n_heads}", fontsize=8, color=MUTED, va="center", ha="left")
    n_scores = int((rows.form != "effect").sum())
    if 0 < n_scores < len(rows):
        axes.axhline(n_scores - 0.5, color=INK, linewidth=0.6)
    axes.set_yticks(range(len(rows)), rows.label.tolist(), fontsize=8)
    axes.set(xlim=(-0.03, 1.5), ylim=(len(rows) - 0.5, -0.5), xticks=[])
    axes.tick_params(length=0)
    sns.despine(ax=axes, left=True, bottom=True)
    axes.set_title(
        "lowest head … highest head; this one, and its rank (of effects by size)", fontsize=8, color=MUTED, loc="left"
    )


def _number(value: float) -> str:
    size = abs(value)
    digits = 2 if size >= 0.1 or size == 0 else min(6, 1 - math.floor(math.log10(size)))
    return number(value, 0 if size >= 1000 else digits)
