"""The picture of one head's card: its map on the text, and where it stands among all heads of its stack.

>>> from attnprobe.card import head_card
>>> from attnprobe.head_card_figure import card_figure
>>> card_figure(head_card(model, "5.1", text)).savefig("head.svg")     # doctest: +SKIP
"""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.appearance import BAND_LINE, FOR, INK, MAP_FROM, MAP_TO, MUTED
from attnprobe.card import HeadCard
from attnprobe.colours import sequential
from attnprobe.errors import InputError
from attnprobe.heads.spoken import need, said

MOST_TOKENS = 40  # beyond, tokens have no names
LONGEST_TOKEN = 12
MOST_SCORES = 30
WIDTH = 0.037  # of a character of a number, where 1 is the way from the lowest head to the highest


def card_figure(card: HeadCard) -> Figure:
    """The map (from each token, down, to each, across; colour grows with the square root of the weight), and each score
    of the head (blue) among those of the other heads (grey), from the lowest to the highest; effects by their size, so
    that place and rank are one. A line marks what even attention scores. Left out: scores in which all heads are alike.
    """
    need(card, HeadCard, "head_card(…)")
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
    scale = axes.inset_axes((1.03, 0, 0.03, 1))
    sns.heatmap(
        card.weights.clamp(min=0).numpy(),
        vmin=0,
        vmax=1,
        cmap=sequential(MAP_TO, MAP_FROM),
        cbar_ax=scale,
        cbar_kws={"ticks": [0, 0.1, 0.25, 0.5, 1], "label": "weight"},
        square=True,
        yticklabels=names[0],
        xticklabels=names[1],
        ax=axes,
    )
    axes.tick_params(axis="both", labelsize=7.5, length=0)
    axes.tick_params(axis="y", rotation=0)
    axes.tick_params(axis="x", rotation=90)
    axes.set(xlabel="to", ylabel="from", anchor="N")
    scale.tick_params(labelsize=7, length=2)
    scale.yaxis.label.set(fontsize=8, color=MUTED)
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
    told = rows[["score", "form", "value", "rank", "n_heads", "chance"]].itertuples(index=False)
    texts = [said([value], signs=signed)[0] for value, signed in zip(rows.value, rows.signed, strict=True)]
    beside = 1.1 + WIDTH * max(map(len, texts), default=0)  # where the places begin, behind the longest number
    for at, (name, form, value, rank, n_heads, chance) in enumerate(told):
        size = abs if form == "effect" else float
        values = np.array([size(v) for v in frame[name].dropna()])
        low, spread = values.min(), values.max() - values.min()
        axes.hlines(at, 0, 1, color=BAND_LINE, linewidth=0.5, zorder=0)
        axes.plot((values - low) / spread, np.full(len(values), at), "o", color=BAND_LINE, markersize=4, alpha=0.55)
        axes.plot([(size(value) - low) / spread], [at], "o", color=FOR, markeredgecolor=INK, markersize=7)
        if 0 <= (chance - low) / spread <= 1:
            axes.vlines((chance - low) / spread, at - 0.32, at + 0.32, color=INK, linewidth=0.9)
        axes.text(1.05, at, texts[at], fontsize=8, color=INK, va="center", ha="left")
        axes.text(beside, at, f"{rank} of {n_heads}", fontsize=8, color=MUTED, va="center", ha="left")
    n_scores = int((rows.form != "effect").sum())
    if 0 < n_scores < len(rows):
        axes.axhline(n_scores - 0.5, color=INK, linewidth=0.6)
    labels = [
        label + (f", {unit}\n{sign}".rstrip() if form == "effect" else "")
        for label, unit, sign, form in rows[["label", "unit", "sign", "form"]].itertuples(index=False)
    ]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set(xlim=(-0.03, beside + WIDTH * 9), ylim=(len(rows) - 0.5, -0.5), xticks=[])
    axes.tick_params(length=0)
    sns.despine(ax=axes, left=True, bottom=True)
    axes.set_title("\n".join(_key(rows)), fontsize=8, color=MUTED, loc="left", x=-0.25)


def _key(rows: pd.DataFrame) -> list[str]:
    """What places and numbers mean, for what is drawn."""
    found = ["from the lowest head to the highest; number and rank of this one"]
    if (rows.form == "effect").any():
        found.append("effects: place and rank by size, whatever the direction")
    if rows.chance.notna().any():
        found.append("upright line: chance, what even attention scores")
    return found
