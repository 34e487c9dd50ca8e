"""Figures of patching: a result in, a figure out; `figure.savefig(path)` saves one.

>>> from attnprobe.heads.patching import patch_heads
>>> from attnprobe.patching_figures import patching_map
>>> figure = patching_map(patch_heads(model, pair))     # doctest: +SKIP
>>> figure.savefig("patching.svg")                      # doctest: +SKIP

`patching_map`: layer by head, or layer by position. `flow_curves`: where information passes, layer by layer.
`edge_matrix`: the edges of the parts that carry most.
"""

import math
import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnprobe.appearance import BAND, BAND_LINE, INK, MUTED, PAPER
from attnprobe.colours import diverging, quiet_scale
from attnprobe.errors import InputError, nearest
from attnprobe.heads.edges import Edges
from attnprobe.heads.information_flow import InformationFlow
from attnprobe.heads.patching import Patched
from attnprobe.heads.spoken import NO_NUMBER, need, said, target_unit

WIDEST = 12.0
MOST_NUMBERED = 150
LONGEST_TOKEN = 16
MOST_CURVES = 8
STEMS = {"denoising": "put clean into corrupt", "noising": "put corrupt into clean"}


def patching_map(patched: Patched, *, head: int | None = None) -> Figure:
    """The share of the way that each patch goes: layer (down) by head, or by position where positions were patched.

    Blue: towards the other input, orange: away from it. head: of heads patched by position, which one is drawn (None:
    the head that moved most in each layer). Errors: `InputError` for a head that is not there.
    """
    need(patched, Patched, "heads.patching.patch_heads(…) or patch_states(…)")
    by_position = patched.positions is not None
    values, note, rows = _drawn(patched, head)
    labels = _tokens(patched) if by_position else [str(number) for number in range(values.shape[1])]
    n_layers, across = values.shape
    width = min(WIDEST, max(3.4, 1.9 + (0.42 if across <= 16 else 0.3) * across))
    height = 1.1 + 0.28 * n_layers + (0.055 * max(map(len, labels)) if by_position else 0.2)
    figure = Figure(figsize=(width, max(2.0, min(9.0, height))), layout="constrained")
    axes = figure.add_subplot()
    _heatmap(axes, values, labels, "share of the way", numbered=values.size <= MOST_NUMBERED and across <= 28)
    axes.set_yticklabels(rows, rotation=0)
    axes.set(
        ylabel="layer, head" if rows[0] != "0" else "layer",
        xlabel="" if by_position or patched.what == "state" else "head",
    )
    if by_position:
        axes.tick_params(axis="x", rotation=90)
    what = {"head": "heads" if by_position else "each head", "state": "states that go into each layer"}[patched.what]
    title = textwrap.fill(f"{STEMS[patched.direction]}: {what}{note}", int(13 * width))
    axes.set_title(title, fontsize=9, color=INK, loc="left")
    ends, name = patched.baselines, patched.target.description.replace("$", r"\$")
    clean, corrupt = said([ends.clean, ends.corrupt], signs=True)
    words = f"{name}: clean {clean}, corrupt {corrupt} ({target_unit(patched.target)})"
    figure.suptitle(textwrap.fill(words, int(15 * width)), fontsize=8, color=MUTED, x=0.01, ha="left")
    return figure


def _drawn(patched: Patched, head: int | None) -> tuple[np.ndarray, str, list[str]]:
    """The numbers of the map [layer column], what the title says of them, and the names of the rows."""
    values, layers = patched.values, [str(layer) for layer in range(len(patched.values))]
    if patched.positions is None:
        if patched.what == "state":
            return values[:, :, 0].numpy(), ", all positions", layers
        return values[:, :, 0].numpy(), "", layers
    if patched.what == "state":
        return values[:, 0].numpy(), "", layers
    n_heads = values.shape[1]
    if head is not None:
        if not 0 <= head < n_heads:
            raise InputError(f"there are heads 0 to {n_heads - 1}, got head {head}")
        return values[:, head].numpy(), f", head {head}", layers
    largest = values.nan_to_num().abs().amax(2).argmax(1)
    rows = [f"{layer}.{number}" for layer, number in enumerate(largest.tolist())]
    return values[range(len(values)), largest].numpy(), ", in each layer the one that moved most at any position", rows


def _heatmap(axes: Axes, values: np.ndarray, labels: Sequence[str], scale: str, *, numbered: bool) -> None:
    known = np.abs(values[np.isfinite(values)])
    size = max(1e-9, float(known.max()) if known.size else 1.0)
    axes.set_facecolor(BAND)
    texts = [
        text if text != NO_NUMBER else "" for text in said(values.ravel().tolist(), signs=True, digits=2, small=False)
    ]
    notes = np.array(texts).reshape(values.shape)
    sns.heatmap(
        values,
        mask=np.isnan(values),
        vmin=-size,
        vmax=size,
        cmap=diverging(root=False),
        annot=notes if numbered else None,
        fmt="",
        annot_kws={"fontsize": 6, "color": INK},
        linewidths=0.5 if values.size <= MOST_NUMBERED else 0,
        linecolor=PAPER,
        xticklabels=list(labels),
        yticklabels=[str(number) for number in range(len(values))],
        cbar_kws={"aspect": 30, "pad": 0.02, "label": scale},
        ax=axes,
    )
    quiet_scale(axes, 5)
    if (bar := axes.collections[0].colorbar) is not None:
        bar.ax.yaxis.label.set(fontsize=8, color=MUTED)
    axes.xaxis.label.set_fontsize(8)
    axes.yaxis.label.set_fontsize(8)


def _tokens(patched: Patched) -> list[str]:
    """What stands at each position that was patched; its number where nothing is known of it."""
    numbers = patched.positions or ()
    if patched.tokens is None:
        return [str(number) for number in numbers]
    return [_short(patched.tokens[number].strip() or str(number)) for number in numbers]


def _short(name: str) -> str:
    """A name that fits, with nothing that matplotlib reads as a formula."""
    return (name if len(name) <= LONGEST_TOKEN else name[: LONGEST_TOKEN - 1] + "…").replace("$", r"\$")


# ---------------------------------------------------------------- information flow


def flow_curves(flow: InformationFlow, *, sources: Sequence[str] | None = None, relative: bool | None = None) -> Figure:
    """A curve a source: how much the answer changes when the edges to it are cut around each layer.

    sources: None for all, of many the eight that change the answer most. relative: the change of the label's
    probability (default where there is one), else that of the target.
    """
    need(flow, InformationFlow, "information_flow(…)")
    relative = math.isfinite(flow.probability) if relative is None else relative
    table = _curves(flow, sources, relative)
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.add_subplot()
    long = table.reset_index().melt("layer", var_name="source", value_name="change")
    sns.lineplot(
        long, x="layer", y="change", hue="source", style="source", markers=True, dashes=False, markersize=5,
        markeredgewidth=0, linewidth=1.4, palette=sns.color_palette("colorblind", table.shape[1]), ax=axes,
    )  # fmt: skip
    axes.axhline(0, color=BAND_LINE, linewidth=0.8, zorder=0)
    what = (
        f"P({flow.resolved.label_name}) when cut, relative\n(−0.5: half of it is lost)"
        if relative
        else f"change of the target when cut, {target_unit(flow.resolved)}\n(below 0: it falls)"
    )
    axes.set(xlabel="layer in the middle of the window", ylabel=what.replace("$", r"\$"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8.5)
    axes.yaxis.label.set_fontsize(8.5)
    axes.set_title(_cut(flow), fontsize=9, color=INK, loc="left")
    sns.despine(ax=axes)
    sns.move_legend(axes, "upper left", bbox_to_anchor=(1.01, 1), frameon=False, title=None, fontsize=8)
    return figure


def _curves(flow: InformationFlow, sources: Sequence[str] | None, relative: bool) -> pd.DataFrame:
    """A column a source that is drawn, a row a layer."""
    values = flow.relative if relative else flow.change
    named = [str(name).replace("$", r"\$") for name in flow.sources]
    table = pd.DataFrame(values.T.numpy(), columns=named).rename_axis("layer")
    if sources is None:
        strength = table.abs().max().sort_values(ascending=False, kind="stable").index[:MOST_CURVES]
        sources = [name for name in named if name in set(strength)]
    unknown = [name for name in sources if name not in named]
    if unknown or not sources:
        raise InputError(f"no source is named '{', '.join(unknown)}'; {nearest(', '.join(unknown), named)}")
    return table[list(sources)]


def _cut(flow: InformationFlow) -> str:
    """What was cut, in words."""
    size = max(len(window) for window in flow.windows)
    places = ", ".join(map(str, flow.to[:6])) + "…" * (len(flow.to) > 6)
    positions = f"position{'s' * (len(flow.to) > 1)} {places}"
    layers = "one layer" if size == 1 else f"{size} layers"
    return f"{flow.stack} {flow.kind}-attention: {positions} may not look at the source in {layers}"


# ---------------------------------------------------------------- edges


def edge_matrix(edges: Edges, *, n: int = 24) -> Figure:
    """The edges between the parts that carry most: what writes (down) by what reads (across), shares of the change.

    n: at most so many writers and readers, those whose edges are largest, in the order of the network. Grey: no edge.
    """
    need(edges, Edges, "heads.edges.edge_attribution(…)")
    if n < 1:
        raise InputError(f"n is at least 1, got {n}")
    shares = edges.shares.numpy()
    size = np.nan_to_num(np.abs(shares))
    rows, columns = (np.sort(np.argsort(-size.max(axis), kind="stable")[:n]) for axis in (1, 0))
    writers = [edges.name(edges.writers[index]) for index in rows]
    readers = [edges.name(edges.readers[index]) for index in columns]
    width = 1.8 + 0.3 * len(readers) + 0.06 * max(map(len, writers))
    height = 1.0 + 0.24 * len(writers) + 0.06 * max(map(len, readers))
    figure = Figure(figsize=(min(WIDEST, max(3.4, width)), min(9.0, max(2.4, height))), layout="constrained")
    axes = figure.add_subplot()
    _heatmap(axes, shares[np.ix_(rows, columns)], readers, "share of the change", numbered=False)
    axes.set_yticks(np.arange(len(writers)) + 0.5, writers, rotation=0)
    axes.tick_params(axis="x", rotation=90)
    axes.set(xlabel="reads", ylabel="writes")
    form = "at the clean input" if edges.n_steps is None else f"mean of {edges.n_steps} steps"
    ends = said([edges.baselines.clean, edges.baselines.corrupt], signs=True)
    name = edges.target.description.replace("$", r"\$")
    change = f"of {name}, clean {ends[0]} to corrupt {ends[1]} ({target_unit(edges.target)})"
    title = f"edges, shares of the change {change}; gradient {form}"
    axes.set_title(textwrap.fill(title, int(13 * figure.get_figwidth())), fontsize=9, color=INK, loc="left")
    return figure
