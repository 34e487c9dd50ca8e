"""Figures of the one-head network: its weights, what other methods say in their place, and how runs differ.

`axes.figure.savefig(path)` saves one; none is pyplot's.

>>> from attnprobe.models.declaration import stored_head
>>> axes = declaration_picture(stored_head())
>>> axes.get_ylabel()
'query: the word that is put together'
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd
import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.appearance import BAND, BAND_LINE, FOR, INK, MAP_FROM, MAP_TO, MUTED, literal, look, number, scientific
from attnprobe.colours import diverging, sequential
from attnprobe.errors import InputError
from attnprobe.models.declaration.corpus import SENTENCES, words
from attnprobe.models.declaration.seeds import CLAIMS
from attnprobe.models.declaration.training import Trained

# Weights below this are not written into their cell.
WRITTEN = 0.05
LIMITS = (
    "Limits: one head of one run. Another seed gives other weights, and another rounding of the same start can. The "
    "diagonal is masked, yet a word’s query is made from the word itself: a weight says where the head fetches a "
    "word from, which need not be a kinship between the two words."
)


def declaration_picture(trained: Trained, *, ax: Axes | None = None) -> Axes:
    """The weights on the first sentence: a row a word that is put together, a column a word looked at; 0 to 1."""
    tokens = words(SENTENCES[0])
    if ax is None:
        figure = Figure(figsize=(8.2, 8.2))
        ax = figure.add_axes((0.12, 0.235, 0.84, 0.71))
        figure.text(0.03, 0.015, caption(trained), fontsize=8.5, color=MUTED, va="bottom", linespacing=1.35)
    values = trained.weights.cpu().numpy()
    written = np.array([[number(w, 2) if w >= WRITTEN else "" for w in row] for row in values.tolist()])
    sns.heatmap(
        values,
        vmin=0,
        vmax=1,
        cmap=sequential(MAP_TO, MAP_FROM),
        square=True,
        annot=written,
        fmt="",
        annot_kws={"fontsize": 8},
        linewidths=0.5,
        linecolor=BAND,
        xticklabels=list(tokens),
        yticklabels=list(tokens),
        cbar_kws={"label": "attention weight; each row sums to 1 (colour: square root)", "shrink": 0.8},
        ax=ax,
    )
    ax.set(xlabel="key: the word looked at", ylabel="query: the word that is put together")
    ax.set_title("One attention head, trained to put each word together from the others", loc="left", fontsize=11)
    ax.tick_params(axis="y", rotation=0)
    _turn(ax)
    return ax


def caption(trained: Trained, width: int = 108) -> str:
    """What the picture shows, how the head stands, and what cannot be read off it."""
    shows = (
        f"“{SENTENCES[0]}” under a head trained on 16 sentences of the Universal Declaration of Human Rights (1948); "
        f"a number is a weight of {WRITTEN} or more. Seed {trained.seed}{_start(trained)}, "
        f"gradient {trained.gradient.replace('_', '-')}: loss a word {scientific(trained.loss_per_token)} nats; of 206 "
        f"words it names {trained.n_right}."
    )
    return "\n".join(line for text in (shows, LIMITS) for line in textwrap.wrap(text, width))


def _start(trained: Trained) -> str:
    n = trained.roundings
    return f" (its start moved by {n} rounding{'s' if n > 1 else ''})" if n else ""


def attribution_panels(
    maps: Mapping[str, Float[Tensor, "query key"]], tokens: Sequence[str], signed: Mapping[str, bool]
) -> Figure:
    """One panel a method: a row a word that is put together, its scores in shares of the row's total size."""
    if not maps:
        raise InputError("attribution_panels draws at least one map, got none")
    columns = 3
    rows = -(-len(maps) // columns)
    figure = Figure(figsize=(4.6 * columns, 4.5 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, (name, values) in zip(panels, maps.items(), strict=False):
        shares = values / values.abs().sum(-1, keepdim=True).clamp(min=1e-30)
        sns.heatmap(
            shares.cpu().numpy(),
            vmin=-1 if signed[name] else 0,
            vmax=1,
            cmap=diverging() if signed[name] else sequential(MAP_TO, MAP_FROM),
            square=True,
            linewidths=0.5,
            linecolor=BAND,
            xticklabels=list(map(literal, tokens)),
            yticklabels=list(map(literal, tokens)),
            cbar_kws={"label": "share of the row", "shrink": 0.7},
            ax=panel,
        )
        panel.set_title(look(name).label, loc="left", fontsize=10)
        panel.set(xlabel="word that is credited", ylabel="word that is put together")
        _turn(panel)
    for panel in panels[len(maps) :]:
        panel.set_visible(False)
    return figure


def runs_picture(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """The three weights of every run: a dot a run, a column a weight, a row of dots a group of runs.

    table: rows of `over_seeds` and `over_roundings` with a column "runs" that names their group.
    """
    missing = [name for name in ("runs", *CLAIMS) if name not in table]
    if missing:
        raise InputError(f"runs_picture takes a table with runs, {', '.join(CLAIMS)}; missing: {', '.join(missing)}")
    long = table.melt(id_vars=["runs"], value_vars=list(CLAIMS), var_name="weight", value_name="value")
    axes = ax or Figure(figsize=(9.0, 4.2), layout="constrained").add_subplot()
    groups = list(dict.fromkeys(long.runs))
    colours = dict(zip(groups, [INK, FOR, BAND_LINE, MUTED], strict=False))
    with _same_draws():
        sns.stripplot(long, x="value", y="weight", hue="runs", dodge=True, jitter=0.12, palette=colours, ax=axes)
    axes.set(xlabel="attention weight, 0 to 1; a dot a run", ylabel="", xlim=(-0.03, 1.03))
    axes.legend(title="", frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    sns.despine(ax=axes)
    return axes


@contextmanager
def _same_draws() -> Iterator[None]:
    """Within, numpy's own random numbers, by which seaborn moves dots apart, are the same each time."""
    state = np.random.get_state()
    np.random.seed(0)
    try:
        yield
    finally:
        np.random.set_state(state)


def _turn(axes: Axes) -> None:
    for label in axes.get_xticklabels():
        label.set(rotation=60, ha="right", rotation_mode="anchor")
