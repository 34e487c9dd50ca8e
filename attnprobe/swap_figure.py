"""Figures of swaps: a row a layer (the last: all at once), a column a mechanism; `axes.figure.savefig(path)` saves one.

>>> from attnprobe import swap
>>> from attnprobe.swap_figure import swap_panels
>>> found = [swap(model, name, texts) for name in ("hard", "uniform", "linear")]     # doctest: +SKIP
>>> swap_panels(found)[0].figure.savefig("swaps.svg")                                # doctest: +SKIP
"""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.appearance import BAND, INK, MUTED, look, number, signed
from attnprobe.colours import diverging, sequential
from attnprobe.errors import InputError, nearest
from attnprobe.swapping import ALL, Swap

# What each measure is called, at its scale and above the map; the scale's ends (None: as the numbers are).
MEASURES: dict[str, tuple[str, str, float | None, float | None]] = {
    "kept": ("kept", "share of predictions kept", 0, 1),
    "kl": ("KL, nats", "KL divergence of the prediction, nats", 0, None),
    "total_variation": ("total variation", "total variation of the prediction", 0, 1),
    "change": ("change", "change of the target", None, None),
    "kendall_tau": ("Kendall’s τ", "Kendall’s τ of the scores before and after", -1, 1),
}
SIGNED = ("change", "kendall_tau")
PANELS = (("kept", ""), ("kl", ""))  # and Kendall's tau of each method that is there
NOTHING = 1e-9  # what is less is rounding
LINE = 22  # letters of a mechanism's name on one line


def swap_heatmap(
    swaps: pd.DataFrame | Swap | Sequence[Swap],
    *,
    measure: str = "kept",
    method: str = "",
    ax: Axes | None = None,
) -> Axes:
    """The mean over texts of one measure, layer by mechanism; empty where there is none.

    swaps: what swap() found, several for several columns, or their frames put together. method: whose scores, for
    "kendall_tau" (default: the first there is).
    """
    rows = _rows(_frame(swaps), measure, method)
    # As they come, but all layers at once last: swaps of different layers may have come in any order.
    order = sorted(dict.fromkeys(rows.row), key=lambda name: name.startswith(ALL))
    means = rows.pivot(index="row", columns="mechanism", values="mean").loc[order, list(dict.fromkeys(rows.mechanism))]
    short, name, low, high = MEASURES[measure]
    # The more a prediction moved, the darker: what was kept is paper.
    colours = diverging(root=False) if measure in SIGNED else sequential()
    write = signed if measure in SIGNED else number
    size = float(means.abs().max().fillna(0).max())
    size = 1.0 if size < NOTHING else size
    names = [_wrapped(column) for column in means.columns]
    axes = ax or _axes(means.shape, 1, names)[0]
    sns.heatmap(
        means,
        vmin=-size if low is None else low,
        vmax=size if high is None else high,
        cmap=colours.reversed() if measure == "kept" else colours,
        annot=means.map(lambda x: "" if x != x else _cell(x, write)),
        fmt="",
        linewidths=1,
        linecolor=BAND,
        annot_kws={"color": INK, "fontsize": 8},
        cbar_kws={"label": short},
        xticklabels=names,
        ax=axes,
    )
    for i, j in zip(*means.isna().to_numpy().nonzero(), strict=True):
        axes.text(j + 0.5, i + 0.5, "–", ha="center", va="center", color=MUTED, fontsize=8)
    title = f"{look(method).label}: {name}" if (method := rows.method.iloc[0]) else name
    axes.set_title(f"{title}; mean of {int(rows.n.max())} texts", fontsize=9, color=MUTED, loc="left")
    axes.set(xlabel="", ylabel="")
    axes.tick_params(axis="y", rotation=0)
    for label in axes.get_xticklabels():
        label.set(rotation=45, ha="right", rotation_mode="anchor")
    return axes


def swap_panels(
    swaps: pd.DataFrame | Swap | Sequence[Swap], *, panels: Sequence[tuple[str, str]] | None = None
) -> list[Axes]:
    """Several heat maps side by side, each of a measure and a method ("": none); what has no number falls out.

    panels: default: what was kept, the KL divergence, and Kendall's tau of each method.
    """
    table = _frame(swaps)
    given = table[table["mean"].notna()]
    there = list(dict.fromkeys(zip(given.measure, given.method, strict=True)))
    wanted = [*PANELS, *(panel for panel in there if panel[0] == "kendall_tau")] if panels is None else panels
    shown = [panel for panel in wanted if panel in there]
    if not shown:
        raise InputError(f"the swaps have none of {', '.join(measure for measure, _ in wanted)}")
    shape = len(set(_labels(table))), table.mechanism.nunique()
    names = list(map(_wrapped, table.mechanism.unique()))
    return [
        swap_heatmap(table, measure=measure, method=method, ax=axes)
        for (measure, method), axes in zip(shown, _axes(shape, len(shown), names), strict=True)
    ]


def _rows(table: pd.DataFrame, measure: str, method: str) -> pd.DataFrame:
    """The rows of one measure and method, each with the name of its layer; `InputError` where there are none."""
    if measure not in MEASURES:
        raise InputError(f"no measure is named '{measure}'; {nearest(measure, MEASURES)}")
    rows = table[table.measure == measure]
    known = list(dict.fromkeys(rows.method))
    method = method or (known[0] if known else "")
    rows = rows[rows.method == method]
    if rows.empty:
        raise InputError(
            f"the swaps have no '{measure}'" + (f" of '{method}'; {nearest(method, known)}" if method else "")
        )
    rows = rows.assign(row=_labels(rows))
    if rows.duplicated(["row", "mechanism"]).any():
        raise InputError("the swaps have a mechanism twice; give each once, and of one model")
    return rows


def _frame(swaps: pd.DataFrame | Swap | Sequence[Swap]) -> pd.DataFrame:
    """One table of all swaps; `InputError` for a table without its columns."""
    if isinstance(swaps, pd.DataFrame):
        table = swaps
    else:
        given = [swaps] if isinstance(swaps, Swap) else list(swaps)
        table = pd.concat([pd.DataFrame(), *(one.to_frame() for one in given)], ignore_index=True)
    missing = [c for c in ("mechanism", "stack", "kind", "layer", "measure", "method", "mean", "n") if c not in table]
    if missing or table.empty:
        raise InputError(
            "a swap's figure takes what swap() gives; " + (f"missing: {missing}" if missing else "no rows")
        )
    return table


def _labels(table: pd.DataFrame) -> list[str]:
    """What a row is called: its layer, with the stack where there are several; "all layers" of the last one."""
    single = table[table.layer != ALL][["stack", "kind"]].drop_duplicates().shape[0] < 2
    return [
        f"{ALL} layers" if layer == ALL else f"layer {layer}" if single else f"{stack} {kind} {layer}"
        for stack, kind, layer in table[["stack", "kind", "layer"]].itertuples(index=False)
    ]


def _cell(x: float, write: Callable[[float, int], str]) -> str:
    """A number of two decimals; a small one that is not 0 by its size, as 3e-03."""
    if abs(x) < NOTHING or abs(x) >= 0.005:
        return write(0.0 if abs(x) < NOTHING else x, 2)
    return f"{x:.0e}".replace("e-0", "e-").replace("-", "−")


def _wrapped(name: str) -> str:
    """A mechanism's name on lines of some letters each, options under it."""
    first, *rest = name.split(" (", 1)
    return "\n".join([first, *textwrap.wrap(f"({rest[0]}", LINE)]) if rest else first


def _axes(shape: tuple[int, int], n_panels: int, names: Sequence[str]) -> list[Any]:
    """Axes of a figure of their own, two panels a row, without pyplot: nothing has to be closed."""
    columns = min(2, n_panels)
    lines = -(-n_panels // columns)
    longest = max(len(line) for name in names for line in name.split("\n"))
    width, height = max(5.6, 3.0 + 0.62 * shape[1]), 1.2 + 0.075 * longest + 0.32 * shape[0]
    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for spare in axes[n_panels:]:
        spare.remove()
    return axes[:n_panels]
