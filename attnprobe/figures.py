"""Figures of a comparison's tables, in the names, shapes and colours of the page: tables in, axes out.

>>> from attnprobe import compare
>>> from attnprobe.figures import faithfulness_bars
>>> axes = faithfulness_bars(compare(model, texts).faithfulness)     # doctest: +SKIP
>>> axes.figure.savefig("faithfulness.svg")                          # doctest: +SKIP
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.appearance import (
    AGAINST,
    BAND,
    BAND_LINE,
    FOR,
    FULL_SHARE,
    INK,
    MAP_FROM,
    MAP_TO,
    MUTED,
    PAPER,
    WEIGHT,
    look,
    main_six,
    signed,
)
from attnprobe.errors import InputError

RANDOM = "random orders"
_STEPS = 128


def _new(width: float | int, height: float | int) -> Axes:
    """Axes of a figure of their own, without pyplot: nothing is shown and nothing has to be closed."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    sns.despine(ax=axes)
    return axes


def mixed(start: str, end: str, shares: Sequence[float]) -> list[tuple[float, float, float]]:
    """Colours between two, mixed in OKLab, as the page does."""
    a, b = _oklab(start), _oklab(end)
    return [_srgb(a + (b - a) * share) for share in shares]


# Ottosson 2020, "A perceptual color space for image processing".
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def _oklab(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return _TO_LAB @ np.cbrt(_TO_CONES @ linear)


def _srgb(lab: np.ndarray) -> tuple[float, float, float]:
    linear = np.linalg.inv(_TO_CONES) @ (np.linalg.inv(_TO_LAB) @ lab) ** 3
    channels = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.clip(linear, 0, None) ** (1 / 2.4) - 0.055)
    red, green, blue = np.clip(channels, 0, 1).tolist()
    return red, green, blue


def diverging(root: bool = True) -> ListedColormap:
    """Orange (against) over paper to blue (for); colour grows with the square root of the share."""
    steps = np.linspace(0, 1, _STEPS)
    shares = (np.sqrt(steps) if root else steps).tolist()
    return ListedColormap(mixed(PAPER, AGAINST, shares)[::-1] + mixed(PAPER, FOR, shares)[1:], name="attnprobe_signed")


def sequential(end: str = WEIGHT, start: str = PAPER) -> ListedColormap:
    """Paper to grey, for what has no direction."""
    return ListedColormap(mixed(start, end, np.sqrt(np.linspace(0, 1, _STEPS)).tolist()), name="attnprobe_unsigned")


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
    """Agreement of each pair of methods, below the diagonal; a number in brackets has an interval that contains 0."""
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
        words.loc[b, a] = f"({tau})" if r["low"] <= 0 <= r["high"] else tau
    labels = [look(n).label for n in names]
    axes = ax or _new(1.6 + 0.75 * len(names), 1.3 + 0.5 * len(names))
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
    axes.set_title("In brackets: the interval contains 0", fontsize=9, color=MUTED, loc="left")
    axes.tick_params(axis="x", rotation=45)
    return axes


def faithfulness_bars(table: pd.DataFrame, *, metric: str = "comprehensiveness", ax: Axes | None = None) -> Axes:
    """Each method's mean with its interval, before the middle 90 % of random orders."""
    _need(
        table, ("metric", "method", "mean", "low", "high", "random_low", "random_high", "better"), "faithfulness_bars"
    )
    rows = table[table.metric == metric]
    if rows.empty:
        raise InputError(f"the table has no metric '{metric}'; it has {', '.join(sorted(set(table.metric)))}")
    axes = ax or _new(6.5, 1.1 + 0.32 * len(rows))
    for place, r in enumerate(rows.to_dict("records")):
        style = look(r["method"])
        axes.barh(place, r["random_high"] - r["random_low"], left=r["random_low"], height=0.5, color=BAND, zorder=1)
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
    axes.set_xlabel(f"{metric} ({rows.better.iloc[0]} is better); grey: random orders, middle 90 %")
    return axes


def removal_curves(
    table: pd.DataFrame, *, kind: str = "removed", methods: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """The answer as top tokens are taken away ("removed") or left ("alone"), over the band of random orders.

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
    axes = ax or _new(6.5, 4.0)
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
    axes.legend(frameon=False, fontsize=9)
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
    axes = ax or _new(1.5 + 0.28 * len(columns), 1.2 + 0.26 * len(rows))
    values = weights.detach().float().cpu().numpy()
    most = max(1.0, float(np.nanmax(values)))
    sns.heatmap(
        values,
        vmin=0,
        vmax=most,
        cmap=sequential(MAP_TO, MAP_FROM),
        square=True,
        xticklabels=columns,
        yticklabels=rows,
        cbar_kws={"label": "weight (colour: square root)"},
        ax=axes,
    )
    axes.set(xlabel="token looked at", ylabel="token that looks")
    axes.tick_params(axis="x", rotation=60)
    axes.tick_params(axis="y", rotation=0)
    return axes


def _has_no_direction(rows: pd.DataFrame) -> bool:
    if "signed" in rows:
        return not rows.signed.any()
    return bool((rows.family == "attention").all() and (rows.score >= 0).all())


def token_scores(frame: pd.DataFrame, *, example_index: int = 0, ax: Axes | None = None) -> Axes:
    """The text under each method, a row a method: blue for, orange against, grey for methods that have no direction.

    frame: Comparison.to_frame(). Which methods have a direction is its column `signed`; without that column, all but
    those of the attention family whose scores are nowhere below 0. Numbers: percent of the row's total size.
    """
    _need(frame, ("method", "family", "token_index", "piece", "score"), "token_scores")
    rows = frame[frame.example_index == example_index] if "example_index" in frame else frame
    if rows.empty:
        raise InputError(f"there is no text {example_index} in the table")
    methods = list(dict.fromkeys(rows.method))
    table = rows.pivot(index="method", columns="token_index", values="score").loc[methods]
    shares = table.div(table.abs().sum(axis=1).replace(0, 1), axis=0)
    unsigned = {str(name): _has_no_direction(group) for name, group in rows.groupby("method")}
    tokens = rows.drop_duplicates("token_index").sort_values("token_index").piece
    axes = ax or _new(2 + 0.5 * len(tokens), 1 + 0.4 * len(methods))
    options: dict[str, Any] = {"fmt": ".0f", "linewidths": 2, "cbar": False, "annot": 100 * shares, "ax": axes}
    grey = np.array([[unsigned[m]] * len(tokens) for m in methods])
    for mask, low, colours in ((grey, -FULL_SHARE, diverging()), (~grey, 0, sequential())):
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
    axes.set_xticks(np.arange(len(tokens)) + 0.5, list(tokens), rotation=60)
    axes.set_yticks(np.arange(len(methods)) + 0.5, [look(m).label for m in methods], rotation=0)
    axes.set(xlabel="", ylabel="")
    axes.set_title(
        "Percent of the row’s total size; blue for, orange against, grey no direction",
        fontsize=9,
        color=MUTED,
        loc="left",
    )
    return axes
