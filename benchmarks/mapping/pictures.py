"""The figures of the study: tables in, figures out; computes nothing but the layout."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.appearance import AGAINST, BAND, BAND_LINE, FOR, INK, MUTED, WEIGHT
from attnprobe.colours import diverging, sequential
from benchmarks.mapping.naming import ANY, ELEMENT
from benchmarks.mapping.reading import Tokens

COLOUR_OF = {"explains": FOR, "misleads": AGAINST, "undecided": BAND}
MAPS_SHOWN = ("head (10, 5)", "mean of heads, layer 11", "rollout", "Chefer 2021b")


def _titled(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9.5, color=MUTED, loc="left")
    sns.despine(ax=axes)


def _rows(axes: Axes, names: Sequence[str]) -> np.ndarray:
    """A row a name, the first on top."""
    places = np.arange(len(names))[::-1]
    axes.set_yticks(places, names)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.tick_params(length=0)
    return places


def _points(axes: Axes, places: np.ndarray, table: pd.DataFrame, value: str, colour: str, **more: Any) -> None:
    axes.hlines(places, table.low, table.high, color=colour, linewidth=1.6)
    axes.plot(table[value], places, "o", color=colour, markersize=5, **more)


def heads(accuracy: pd.DataFrame, silenced: pd.DataFrame) -> Figure:
    """Every head twice: how often it names the source, and what the prediction loses without it."""
    figure = Figure(figsize=(10.4, 5.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    named = accuracy[accuracy.among == ELEMENT].pivot(index="layer", columns="head", values="share")
    sns.heatmap(named * 100, annot=True, fmt=".0f", cmap=sequential(INK), vmin=20, vmax=100, cbar=False, ax=left)
    left.set_title("sources named, % of product atoms", fontsize=9.5, color=MUTED, loc="left")
    falls = silenced.pivot(index="layer", columns="head", values="fall")
    most = float(falls.abs().max().max())
    style = {"cmap": diverging(), "vmin": -most, "vmax": most, "cbar": False, "annot_kws": {"fontsize": 8}}
    sns.heatmap(falls, annot=True, fmt=".2f", ax=right, **style)
    right.set_title("fall of the true token's log-probability, head silenced", fontsize=9.5, color=MUTED, loc="left")
    for axes in (left, right):
        axes.set_yticklabels(axes.get_yticklabels(), rotation=0)
        axes.tick_params(length=0)
    return figure


def claims(named: pd.DataFrame, chance: float, shares: pd.DataFrame, quality: pd.DataFrame) -> Figure:
    """Both claims of every map: sources named (among all reactant atoms), verdicts, and what its first units hold."""
    named = named[named.among == ANY]
    figure = Figure(figsize=(12.4, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1.1, 1))
    names = list(quality["map"])
    places = _rows(left, names)
    _points(left, places, named.set_index("map").loc[names], "share", INK)
    left.axvline(chance, color=BAND_LINE, linestyle="--", linewidth=1)
    left.set(xlim=(0, 1.02), xlabel="share of masked atoms; dashed: chance")
    _titled(left, "names the source")
    start = np.zeros(len(names))
    for verdict, colour in COLOUR_OF.items():
        width = shares[shares.verdict == verdict].set_index("map").loc[names].share.to_numpy()
        middle.barh(places, width, left=start, color=colour, height=0.62, label=verdict)
        start += width
    middle.set(xlim=(0, 1), xlabel="share of predictions")
    middle.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    _titled(middle, "explains the prediction: verdicts")
    _points(right, places, quality, "difference", INK)
    right.axvline(0, color=BAND_LINE, linewidth=1)
    right.set(xlabel="effect held by its first units − random orders")
    _titled(right, "better than random orders?")
    return figure


def parts(effects: pd.DataFrame, weights: pd.DataFrame, element: str) -> Figure:
    """Where the effect lies, by part of the input, for masked carbons or others; beside it where maps lie."""
    figure = Figure(figsize=(11.8, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    mine = effects[effects.element == element]
    names = [name for name in dict.fromkeys(mine.part) if name in set(weights.part)]
    places = _rows(left, names)
    for shift, (operator, colour) in enumerate((("mean", FOR), ("resample", INK), ("attention_mask", AGAINST))):
        table = mine[mine.operator == operator].set_index("part").loc[names]
        _points(left, places + 0.2 - 0.2 * shift, table, "mean", colour, label=operator)
    left.set(xlim=(0, 1), xlabel="mean effect of a token, share of the largest")
    left.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    _titled(left, "what removal says" if element == "all" else f"what removal says, masked atom: {element}")
    for shift, (name, colour) in enumerate(zip(MAPS_SHOWN, (INK, WEIGHT, AGAINST, FOR), strict=True)):
        table = weights[weights["map"] == name].set_index("part").loc[names]
        _points(right, places + 0.24 - 0.16 * shift, table, "mean", colour, label=name)
    right.set(xlim=(0, 1), xlabel="share of the map")
    right.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    _titled(right, "where maps lie")
    return figure


def erasure(table: pd.DataFrame) -> Figure:
    """Comprehensiveness, sufficiency and deletion area of every map, beside random orders and the best found."""
    metrics = list(dict.fromkeys(table.metric))
    figure = Figure(figsize=(12.4, 4.0), layout="constrained")
    for axes, metric in zip(figure.subplots(1, len(metrics), sharey=True), metrics, strict=True):
        mine = table[table.metric == metric]
        places = _rows(axes, list(mine["map"]))
        _points(axes, places, mine, "mean", INK)
        for value, style in ((mine.random.iloc[0], "--"), (mine.oracle.iloc[0], ":")):
            axes.axvline(value, color=BAND_LINE, linestyle=style, linewidth=1.2)
        better = "more" if metric == "comprehensiveness" else "less"
        axes.set(xlabel="dashed: random; dotted: best found")
        _titled(axes, f"{metric.replace('_', ' ')} ({better} is better)")
    return figure


def one_prediction(record: Mapping[str, Any], tokens: Tokens) -> Figure:
    """Maps and effects of one prediction, token by token; [ ]: masked, bold: a true source."""
    units = [at for at in range(1, len(tokens.tokens) - 1) if at != tokens.product[record["atom"]]]
    rows = {m["map"]: np.abs([m["scores"][at] for at in units]) for m in record["maps"] if m["map"] in MAPS_SHOWN}
    rows = {name: values / (values.max() or 1.0) for name, values in rows.items()}
    rows |= {f"effect, {e['operator']}": np.array(e["relative"]) for e in record["effects"][:3]}
    position = tokens.product[record["atom"]]
    shown = np.full((len(rows), len(tokens.tokens) - 2), np.nan)
    shown[:, [at - 1 for at in units]] = np.array(list(rows.values()))
    figure = Figure(figsize=(1.9 + 0.3 * shown.shape[1], 0.9 + 0.32 * len(rows)), layout="constrained")
    axes = figure.subplots()
    labels = [f"[{token}]" if at == position else token for at, token in enumerate(tokens.tokens)][1:-1]
    sns.heatmap(shown, cmap=sequential(INK), vmin=0, vmax=1, cbar=False, linewidths=0.5, ax=axes)
    axes.set_xticks(np.arange(len(labels)) + 0.5, labels, rotation=0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(rows), rotation=0)
    axes.tick_params(length=0)
    for source in tokens.sources(record["atom"]):
        axes.get_xticklabels()[source - 1].set(color="#b3541e", fontweight="bold")
    verdicts = {m["map"]: m["verdict"] for m in record["maps"]}
    title = f"p({record['token']}) = {record['probability']:.3f}; head (10, 5): {verdicts['head (10, 5)']}"
    axes.set_title(f"{title}; bold: true source", fontsize=9.5, color=MUTED, loc="left")
    return figure
