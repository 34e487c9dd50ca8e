"""Figures of benchmarks/found_blind.py: tables in, figures out."""

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnprobe.appearance import AGAINST, BAND_LINE, INK, MUTED, WEIGHT
from attnprobe.colours import sequential
from benchmarks.found.repeats import FRONT, Heads, rises

OF_LAYERS = {1: WEIGHT, 2: INK}
WORDS = {1: "one layer", 2: "two layers"}


def _titled(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9.5, color=INK, loc="left")


def smollm2(scores: pd.DataFrame, lost: pd.DataFrame, front: Heads) -> Figure:
    """Layer by head: both probes, the heads that are silenced framed; beside them what silencing costs."""
    figure = Figure(figsize=(11.5, 5.6), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(3.1, 1))
    panels = (
        ("induction", "weight behind the earlier copies (induction); framed: the five that are silenced"),
        ("previous_random", "weight on the token before"),
    )
    for row, (name, title) in enumerate(panels):
        axes = figure.add_subplot(grid[row, 0])
        wide = scores.pivot(index="head", columns="layer", values=name)
        sns.heatmap(wide, vmin=0, vmax=1, cmap=sequential(INK), cbar_kws={"pad": 0.01, "aspect": 18}, ax=axes)
        axes.tick_params(length=0, labelsize=7.5, rotation=0)
        axes.set(xlabel="layer" if row else "", ylabel="head")
        _titled(axes, title)
        if row == 0:
            for layer, head in front:
                axes.add_patch(Rectangle((layer, head), 1, 1, fill=False, edgecolor=AGAINST, linewidth=1.8))
    _costs(figure.add_subplot(grid[:, 1]), lost)
    return figure


def _costs(axes: Axes, lost: pd.DataFrame) -> None:
    """How far the loss rises on either copy: the five in front, and each draw of five others."""
    for x, (half, title) in enumerate((("first", "first copy"), ("second", "second copy"))):
        found = rises(lost, half)
        others = found.drop(index=FRONT).mean(axis=1)
        spread = [x + 0.1 * ((at % 7) / 3 - 1) for at in range(len(others))]
        axes.plot(spread, others, "o", color=MUTED, markersize=4, alpha=0.7, label="five others" if x else None)
        axes.plot(
            [x + 0.25] * found.shape[1], found.loc[FRONT], "_", color=AGAINST, markersize=9,
            label="the five in front, each text" if x else None,
        )  # fmt: skip
        axes.plot(x + 0.25, found.loc[FRONT].mean(), "D", color=AGAINST, label="the five in front, mean" if x else None)
        axes.text(x, -0.06, title, transform=axes.get_xaxis_transform(), ha="center", fontsize=9, color=INK)
    axes.axhline(0, color=BAND_LINE, linewidth=1)
    axes.set(xlim=(-0.4, 1.6), xticks=[])
    axes.set_ylabel("rise of the loss, nats", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="center left")
    _titled(axes, "what silencing costs")
    sns.despine(ax=axes, bottom=True)


def learning(table: pd.DataFrame, level: float) -> Figure:
    """Scores and loss over the steps of the training, a line a training."""
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    panels = (
        ("induction", "induction, the head that has most"),
        ("previous_random", "previous token, the head that has most"),
        ("loss", "loss where a copy tells, nats"),
    )
    for axes, (measure, title) in zip(figure.subplots(1, 3), panels, strict=True):
        mine = table[table.measure == measure]
        for layers in (1, 2):
            runs = mine[mine.layers == layers].pivot(index="step", columns="seed", values="value")
            axes.plot(runs.index, runs, color=OF_LAYERS[layers], linewidth=1.3)
            axes.plot([], [], color=OF_LAYERS[layers], label=WORDS[layers])
        axes.set(xlabel="step", xlim=(0, None), ylim=(0, 1.02) if measure != "loss" else (0, None))
        if measure == "induction":
            axes.axhline(level, color=BAND_LINE, linestyle="--", linewidth=1)
            axes.legend(frameon=False, fontsize=8.5, loc="center right")
        _titled(axes, title)
        sns.despine(ax=axes)
    return figure
