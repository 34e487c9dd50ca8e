"""Figures of a comparison's tables, in the names, shapes and colours of the page: tables in, axes out.

To show one in a notebook, end a cell with `axes.figure`; `figure_files.save` writes one as PNG, SVG or PDF. `ax=` draws
into axes of your own. No figure is one of pyplot's, so there is nothing to close and `plt.show()` does not show it.

>>> from attnprobe import compare
>>> from attnprobe.figure_files import save
>>> axes = faithfulness_bars(compare(model, texts).faithfulness)     # doctest: +SKIP
>>> save(axes, "faithfulness.svg", "faithfulness.png")               # doctest: +SKIP
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.appearance import (
    BAND,
    BAND_LINE,
    FULL_SHARE,
    INK,
    MAP_FROM,
    MAP_TO,
    MUTED,
    PAPER,
    literal,
    look,
    main_six,
    number,
    signed,
)
from attnprobe.attribution import Attribution
from attnprobe.colours import diverging, sequential
from attnprobe.errors import InputError
from attnprobe.figure_files import lettered

RANDOM = "random orders"


def _new(width: float | int, height: float | int) -> Axes:
    """Axes of a figure of their own, without pyplot: nothing is shown and nothing has to be closed."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    sns.despine(ax=axes)
    return axes


def _turn(axes: Axes, angle: int) -> None:
    """Turns the names below the x axis around their ends, so that each ends at its tick."""
    for label in axes.get_xticklabels():
        label.set(rotation=angle, ha="right", rotation_mode="anchor")


def _note(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=9, color=MUTED, loc="left")


def _need(table: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    missing = [c for c in columns if c not in table.columns]
    if missing or table.empty:
        raise InputError(
            f"{what} takes a table with {', '.join(columns)}; "
            + (f"missing: {', '.join(missing)}" if missing else "it is empty")
        )


def agreement_heatmap(
    table: pd.DataFrame, *, metric: str = "kendall_tau", direction: str = "signed", ax: Axes | None = None
) -> Axes:
    """Agreement of each pair of methods, below the diagonal; brackets: the interval contains 0, or there is none."""
    _need(table, ("metric", "direction", "method_a", "method_b", "mean", "low", "high"), "agreement_heatmap")
    rows = table[(table.metric == metric) & (table.direction == direction)]
    if rows.empty:
        raise InputError(
            f"the table has no '{metric}' with direction '{direction}'; it has {', '.join(sorted(set(table.metric)))}"
        )
    names = list(dict.fromkeys([*rows.method_a, *rows.method_b]))
    values = pd.DataFrame(np.nan, index=names, columns=names)
    words = pd.DataFrame("", index=names, columns=names)
    for r in rows.to_dict("records"):
        a, b = sorted((r["method_a"], r["method_b"]), key=names.index)
        values.loc[b, a] = r["mean"]
        tau = signed(r["mean"], 2)
        words.loc[b, a] = tau if r["low"] > 0 or r["high"] < 0 else f"({tau})"
    labels = [look(n).label for n in names]
    axes = ax or _new(max(4.5, 1.6 + 0.75 * len(names)), max(3.0, 1.3 + 0.5 * len(names)))
    sns.heatmap(
        values,
        vmin=-1,
        vmax=1,
        cmap=diverging(root=False),
        annot=words,
        fmt="",
        linewidths=2,
        xticklabels=labels,
        yticklabels=labels,
        annot_kws={"color": INK, "fontsize": 9},
        cbar_kws={"label": metric.replace("_", " ")},
        ax=axes,
    )
    _note(axes, "In brackets: the interval contains 0, or there is none")
    axes.tick_params(axis="y", rotation=0)
    _turn(axes, 45)
    return axes


def _of_operator(rows: pd.DataFrame, operator: str | None) -> pd.DataFrame:
    """The rows of one operator, None for the first; all where the table does not tell operators apart."""
    if "operator" not in rows.columns:
        return rows
    known = list(dict.fromkeys(rows.operator))
    if operator is not None and operator not in known:
        raise InputError(f"the table has no operator '{operator}'; it has {', '.join(known)}")
    return rows[rows.operator == (known[0] if operator is None else operator)]


def faithfulness_bars(
    table: pd.DataFrame, *, metric: str = "comprehensiveness", operator: str | None = None, ax: Axes | None = None
) -> Axes:
    """Each method's mean with its interval, before the middle 90 % of random orders.

    operator: one of the table's, None for the first, which is the main one of a comparison.
    """
    _need(
        table, ("metric", "method", "mean", "low", "high", "random_low", "random_high", "better"), "faithfulness_bars"
    )
    rows = table[table.metric == metric]
    if rows.empty:
        raise InputError(f"the table has no metric '{metric}'; it has {', '.join(sorted(set(table.metric)))}")
    rows = _of_operator(rows, operator)
    axes = ax or _new(6.5, 1.3 + 0.32 * len(rows))
    for place, r in enumerate(rows.to_dict("records")):
        style = look(r["method"])
        width = r["random_high"] - r["random_low"]
        for band in axes.barh(place, width, left=r["random_low"], height=0.5, color=BAND, zorder=1):
            band.sticky_edges.x.clear()  # else the axes end where the band does
        if np.isfinite(r["low"]) and np.isfinite(r["high"]):
            axes.plot([r["low"], r["high"]], [place, place], color=style.light, linewidth=1.5, zorder=2)
        face = style.light if style.filled else PAPER
        axes.plot(
            [r["mean"]],
            [place],
            marker=style.marker,
            color=style.light,
            markerfacecolor=face,
            markersize=8,
            linestyle="none",
            label=style.label,
            zorder=3,
        )
    axes.axvline(0, color=BAND_LINE, linewidth=1, zorder=0)
    axes.set_yticks(range(len(rows)), [look(m).label for m in rows.method])
    axes.invert_yaxis()
    axes.set_xlabel(f"{metric} ({rows.better.iloc[0]} is better)")
    _note(axes, "Grey: random orders, middle 90 %")
    return axes


def removal_curves(
    table: pd.DataFrame, *, kind: str = "removed", methods: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """The answer as top tokens are taken away ("removed") or left ("alone"), over the band of random orders.

    The legend stands to the right of the axes, where it covers nothing.
    methods: at most six; None takes the usual six of those in the table.
    """
    _need(table, ("method", "kind", "share", "mean", "low", "high"), "removal_curves")
    rows = table[table.kind == kind]
    if rows.empty:
        raise InputError(f"the table has no curves of kind '{kind}'; it has {', '.join(sorted(set(table.kind)))}")
    present = [m for m in dict.fromkeys(rows.method) if m != RANDOM]
    chosen = list(methods) if methods is not None else main_six(present)
    unknown = [m for m in chosen if m not in present]
    if unknown:
        raise InputError(f"the table has no method '{unknown[0]}'; it has {', '.join(present)}")
    axes = ax or _new(8.0, 4.0)
    random = rows[rows.method == RANDOM].sort_values("share")
    if len(random):
        axes.fill_between(
            random.share, random.low, random.high, color=BAND, linewidth=0, label="random orders, middle 90 %"
        )
        axes.plot(random.share, random["mean"], color=BAND_LINE, linewidth=1)
    for name in chosen:
        line, style = rows[rows.method == name].sort_values("share"), look(name)
        face = style.light if style.filled else PAPER
        axes.plot(
            line.share,
            line["mean"],
            color=style.light,
            marker=style.marker,
            markersize=5,
            markerfacecolor=face,
            linewidth=2,
            label=style.label,
        )
    axes.set_xlabel("share of the tokens " + ("taken away" if kind == "removed" else "left"))
    axes.set_ylabel("probability of the explained answer")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
    return axes


def attention_map(
    weights: Float[Tensor, "query key"],
    tokens: Sequence[str],
    *,
    queries: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One head's weights: a row a token that looks, a column a token looked at. queries: the rows' names."""
    rows, columns = list(queries if queries is not None else tokens), list(tokens)
    if tuple(weights.shape) != (len(rows), len(columns)):
        raise InputError(
            f"{len(rows)} row names and {len(columns)} column names do not fit weights of shape {tuple(weights.shape)}"
        )
    values = weights.detach().float().cpu().numpy()
    with lettered([*rows, *columns]):
        room = 0.08 * max(map(len, [*rows, *columns]))
        axes = ax or _new(max(4.0, 1.2 + room + 0.28 * len(columns)), max(3.2, 0.8 + room + 0.26 * len(rows)))
        sns.heatmap(
            values,
            vmin=0,
            vmax=max(1.0, float(np.nanmax(values))),
            cmap=sequential(MAP_TO, MAP_FROM),
            square=True,
            xticklabels=list(map(literal, columns)),
            yticklabels=list(map(literal, rows)),
            cbar_kws={"label": "weight (colour: square root)"},
            ax=axes,
        )
    axes.set(xlabel="token looked at", ylabel="token that looks")
    axes.tick_params(axis="y", rotation=0)
    _turn(axes, 60)
    return axes


def _tidy(said: pd.DataFrame | Attribution | Sequence[Attribution], example_index: int) -> pd.DataFrame:
    """One text's scores: a row a method and token."""
    if not isinstance(said, pd.DataFrame):
        attributions = [said] if isinstance(said, Attribution) else list(said)
        if len({tuple(a.example.pieces) for a in attributions}) > 1:
            raise InputError("token_scores draws one text, and these attributions are of several")
        said = pd.concat([pd.DataFrame(), *(a.to_frame() for a in attributions)], ignore_index=True)
    _need(said, ("method", "signed", "token_index", "piece", "score"), "token_scores")
    rows = said[said.example_index == example_index] if "example_index" in said else said
    if rows.empty:
        raise InputError(f"there is no text {example_index} in the table")
    if rows.duplicated(["method", "token_index"]).any():
        raise InputError("token_scores takes each method and token once; this has some twice")
    return rows


def token_scores(
    said: pd.DataFrame | Attribution | Sequence[Attribution], *, example_index: int = 0, ax: Axes | None = None
) -> Axes:
    """The text under each method, a row a method: blue for, orange against, grey for methods that have no direction.

    said: an attribution, several of one text, or their frame: Attribution.to_frame(), or Comparison.to_frame() with the
    example_index of the text. Numbers: percent of the row's total size, with a sign where the method has a direction.
    """
    rows = _tidy(said, example_index)
    methods = list(dict.fromkeys(rows.method))
    table = rows.pivot(index="method", columns="token_index", values="score").loc[methods]
    shares = table.div(table.abs().sum(axis=1).replace(0, 1), axis=0)
    directed = rows.groupby("method").signed.any().loc[methods].to_numpy(dtype=bool)
    words = np.array(
        [
            [(signed if d else number)(100 * x, 0) for x in row]
            for d, row in zip(directed, shares.to_numpy(float).tolist(), strict=True)
        ]
    )
    tokens = rows.drop_duplicates("token_index").sort_values("token_index").piece
    below = max(1.2, 0.6 + 0.08 * max(map(len, tokens)))  # the names below, and the note above
    axes = ax or _new(max(6.8, 2 + 0.5 * len(tokens)), below + 0.4 * len(methods))
    options: dict[str, Any] = {"fmt": "", "linewidths": 2, "cbar": False, "annot": words, "ax": axes}
    with_direction = np.repeat(directed[:, None], len(tokens), axis=1)
    for mask, low, colours in ((~with_direction, -FULL_SHARE, diverging()), (with_direction, 0, sequential())):
        if not mask.all():
            sns.heatmap(
                shares,
                mask=mask,
                vmin=low,
                vmax=FULL_SHARE,
                cmap=colours,
                annot_kws={"color": INK, "fontsize": 8},
                **options,
            )
    with lettered(tokens):
        axes.set_xticks(np.arange(len(tokens)) + 0.5, list(map(literal, tokens)))
    axes.set_yticks(np.arange(len(methods)) + 0.5, [look(m).label for m in methods], rotation=0)
    axes.set(xlabel="", ylabel="")
    _turn(axes, 60)
    _note(axes, "Percent of the row’s total size; blue for, orange against, grey no direction")
    return axes
