"""Figures of heads: a profile in, a figure out; `figure.savefig(path)` saves one, a cell that ends with it shows it.

>>> from attnprobe import profile
>>> from attnprobe.head_figures import head_maps
>>> figure = head_maps(profile(model, texts), ["entropy", "previous_token"])     # doctest: +SKIP
>>> figure.savefig("heads.svg")                                                  # doctest: +SKIP

`head_maps`: any scores, layer by head. `top_heads`: the maps that the best heads of a score make of an example. Heads
that score alike are in `head_cluster_figure`.
"""

import math
import textwrap
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

from attnprobe.appearance import BAND, BAND_LINE, INK, MAP_FROM, MAP_TO, MUTED, PAPER
from attnprobe.capture import Capture, head_numbers
from attnprobe.colours import diverging, mixed, quiet_scale, sequential
from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.head_clusters import of_stack
from attnprobe.head_profile import HeadProfile, titled
from attnprobe.heads.spoken import NO_NUMBER, need, said
from attnprobe.heads.whole import whole

# A figure of heads may be this large, in inches; numbers and names go where they would be too small to read.
WIDEST = 12.0
MOST_NUMBERED = 100
MOST_TOKENS = 24
LONGEST_TOKEN = 12
SILENT = "no head has a number; "  # what a reason may begin with
SMALL, LARGE = 0.05, 1000.0  # the largest number of a map without a power of ten
CLOSE = 0.6  # a map whose lowest number is more than this share of the highest has a scale of its own beginning
TICKS = [0, 0.1, 0.25, 0.5, 1]  # of weights, whose colour grows with the square root


def head_maps(
    profile: HeadProfile,
    scores: str | Sequence[str] | None = None,
    *,
    stack: str | None = None,
    kind: str | None = None,
    columns: int = 4,
) -> Figure:
    """Mean of each score over examples, layer (down) by head (across), a small map each; grey where there is none.

    Scores without direction go from white, 0, to dark grey; those of effects from orange over white
    to blue. scores: None for all that differ between heads. Each map has a scale of its own, in the unit that its
    title says (with a factor where numbers are small); where heads hardly differ it begins at the lowest one, which the
    title says. Then the chance level, what even attention scores on the same texts, where there is one.
    """
    need(profile, HeadProfile, "attnprobe.profile(…)")
    frame = of_stack(profile, stack, kind)
    names = _named(profile, scores, frame)
    n_layers, n_heads = frame.layer.nunique(), frame["head"].nunique()
    if columns < 1:
        raise InputError(f"columns is at least 1, got {columns}")
    across = min(columns, len(names))
    down = math.ceil(len(names) / across)
    width, height = _panel(n_layers, n_heads, across)
    figure = Figure(figsize=(across * width, down * height + 0.3), layout="constrained")
    for index, name in enumerate(names):
        axes = figure.add_subplot(down, across, index + 1)
        _head_map(axes, profile, frame, name)
        axes.set(ylabel="layer" if index % across == 0 else "", xlabel="head" if index + across >= len(names) else "")
    where = f"{frame.iloc[0]['stack']} {frame.iloc[0]['kind']}-attention"
    figure.suptitle(f"{where}; {_measured(profile, frame, names)}", fontsize=9, color=MUTED, x=0.01, ha="left")
    return figure


def _measured(profile: HeadProfile, frame: pd.DataFrame, names: Sequence[str]) -> str:
    """On what the numbers are: examples, or a probe's own inputs."""
    if all(profile.facts[name].form == "probe" for name in names):
        return "probes of the model, on no example"
    n = int(frame.n.max())
    return f"mean of {n} example{'s' * (n != 1)}"


def _panel(n_layers: int, n_heads: int, across: int) -> tuple[float, float]:
    """Width and height of one map with its scale."""
    width = min(WIDEST / across, max(2.2, 1.1 + 0.3 * n_heads))
    return width, min(6.0, max(1.4, 0.75 + 0.26 * n_layers if n_layers <= 12 else 0.75 + 0.13 * n_layers))


def _head_map(axes: Axes, profile: HeadProfile, frame: pd.DataFrame, name: str) -> None:
    told, means = profile.facts[name], frame.pivot(index="layer", columns="head", values=name)
    power = _power(means)
    means = means / 10.0**power
    least, most = float(means.min().min()), float(means.max().max())
    close = least > CLOSE * most > 0 and least < most  # so alike that a scale from 0 would show one colour
    both = told.low != 0 and least < 0
    size = max(abs(least), abs(most)) or 1.0
    axes.set_facecolor(BAND)
    sns.heatmap(
        means,
        vmin=-size if both else least if close else min(0.0, least),
        vmax=size if both else most or 1.0,
        cmap=diverging(root=False) if both else _even(),
        annot=_numbers(means, both) if means.size <= MOST_NUMBERED and means.shape[1] <= 8 else None,
        fmt="",
        annot_kws={"fontsize": 6.5},
        linewidths=0.5 if means.size <= MOST_NUMBERED else 0,
        linecolor=PAPER,
        cbar_kws={"aspect": 25, "pad": 0.02},
        xticklabels=_steps(means.columns),
        yticklabels=_steps(means.index),
        ax=axes,
    )
    quiet_scale(axes, 4)
    mine = (profile.heads["stack"] == frame["stack"].iloc[0]) & (profile.heads["kind"] == frame["kind"].iloc[0])
    even = profile.chance_of(name)[mine.to_numpy()]
    notes = [f"chance {said([float(even.mean()) / 10.0**power])[0]}"] if np.isfinite(even).all() else []
    known = int((~np.isnan(profile.values[name][:, mine.to_numpy()])).any(1).sum())
    if told.form != "probe" and known < profile.n_examples:
        notes += [f"{known} of {profile.n_examples} examples"]
    notes += [f"scale from {said([least])[0]}, not 0"] * close
    factor = f", times 10{_raised(power)}" * bool(power)
    lines = [*textwrap.wrap(titled(profile, name) + factor, 30), *notes]
    axes.set_title("\n".join(lines), fontsize=9, color=INK, loc="left")


def _power(means: pd.DataFrame) -> int:
    """The power of ten that small or large numbers are told in; 0 where they are neither."""
    largest = float(means.abs().max().max())
    if not math.isfinite(largest) or largest == 0 or SMALL <= largest < LARGE:
        return 0
    return math.floor(math.log10(largest))


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _even() -> ListedColormap:
    """White to dark grey in even steps: small differences between heads are seen at both ends."""
    return ListedColormap(mixed(PAPER, INK, np.linspace(0, 0.75, 128).tolist()), name="attnprobe_even")


def _numbers(means: pd.DataFrame, both: bool) -> Any:
    """The numbers of a map, all with as many decimals; nothing where there is none."""
    flat = said(means.to_numpy().ravel().tolist(), signs=both, digits=2 if means.shape[1] > 4 else 3, small=False)
    return np.array(["" if text == NO_NUMBER else text for text in flat]).reshape(means.shape)


def _steps(labels: pd.Index) -> list[str]:
    """Every number of an axis where there are few, else every fourth."""
    step = 1 if len(labels) <= 12 else 4
    return [str(label) if at % step == 0 else "" for at, label in enumerate(labels)]


def _named(profile: HeadProfile, scores: str | Sequence[str] | None, frame: pd.DataFrame) -> list[str]:
    if scores is None:
        known = [name for name in profile.scores if frame[name].nunique() > 1]
        if not known:
            raise InputError("no score of this stack has numbers that differ between heads")
        return known
    names = [scores] if isinstance(scores, str) else list(scores)
    for name in names:
        if name not in profile.scores:
            raise InputError(f"the profile has no score '{name}'; {nearest(name, profile.scores)}")
    if not names:
        raise InputError("scores is empty; name at least one, or None for all")
    return names


# ---------------------------------------------------------------- top heads


def top_heads(
    profile: HeadProfile,
    score: str,
    captures: Capture | Sequence[Capture],
    *,
    k: int = 5,
    lowest: bool = False,
    tokens: Sequence[str] | None = None,
) -> Figure:
    """The k heads with the highest (lowest) mean of a score: a column a head, a row an example, its map in each.

    captures: of examples, with the weights of these heads. tokens: names along both sides, where they are not the
    example's. Colour grows with the square root of the weight; the bar says which is which. Heads of an effect are
    those with the largest one, whatever its direction.
    """
    need(profile, HeadProfile, "attnprobe.profile(…)")
    rows = profile.top(score, k, lowest=lowest)
    if rows.empty:
        raise InputError(f"no head has a number for '{score}': {profile.reason(score).removeprefix(SILENT)}")
    heads: list[dict[str, Any]] = [dict(zip(rows.columns, row, strict=True)) for row in rows.to_numpy(dtype=object)]
    given = [captures] if isinstance(captures, Capture | Example | str) else list(captures)
    for one in given:
        need(one, Capture, "model.capture(example)")
    if not given:
        raise InputError("captures is empty; give the capture of at least one example")
    few = max(capture.example.n_tokens for capture in given) <= MOST_TOKENS
    side = 2.5 if few else 2.0
    figure = Figure(
        figsize=(1.2 + side * len(rows) + (0.6 if few else 0), (side + 0.5) * len(given)), layout="constrained"
    )
    titles = _titles(profile, score, rows)
    for down, capture in enumerate(given):
        for across, head in enumerate(heads):
            axes = figure.add_subplot(len(given), len(rows), down * len(rows) + across + 1)
            _example_map(axes, capture, head, tokens, named=few, first=across == 0)
            if down == 0:
                axes.set_title(titles[across], fontsize=9, color=INK, loc="left")
    _weight_scale(figure)
    even = said([float(rows.chance.iloc[0])])[0]
    chance = "" if even == NO_NUMBER else f"; chance {even}"
    figure.suptitle(titled(profile, score) + chance + _drawn(profile, score, len(given)), fontsize=9, color=MUTED,
                    x=0.01, ha="left")  # fmt: skip
    return figure


def _drawn(profile: HeadProfile, score: str, n: int) -> str:
    """Of how many of the profile's examples the maps are, where mean and interval are of more."""
    told = n >= profile.n_examples or profile.facts[score].form == "probe"
    return "" if told else f"; maps of {n} of {profile.n_examples} texts, mean and interval over all"


def _titles(profile: HeadProfile, score: str, rows: pd.DataFrame) -> list[str]:
    """Address, mean and interval of each head that is drawn."""
    several = len(rows[["stack", "kind"]].drop_duplicates()) > 1
    numbers = said(rows[["mean", "low", "high"]].to_numpy(dtype=float).ravel().tolist(),
                   signs=profile.facts[score].low != 0)  # fmt: skip
    found = []
    for at, (stack, kind, layer, head) in enumerate(rows[["stack", "kind", "layer", "head"]].itertuples(index=False)):
        mean, low, high = numbers[3 * at : 3 * at + 3]
        ends = "" if NO_NUMBER in (low, high) else f" [{low}, {high}]"
        found.append(f"{stack}.{kind}." * several + f"{layer}.{head}   {mean}{ends}")
    return found


def _weight_scale(figure: Figure) -> None:
    """One colour bar for all maps of weights, from 0 to 1."""
    axes = list(figure.axes)
    bar = figure.colorbar(axes[0].collections[0], ax=axes, aspect=25, pad=0.01, shrink=0.8, ticks=TICKS)
    bar.set_label("attention weight", fontsize=8, color=MUTED)
    bar.ax.tick_params(labelsize=7, length=2)


def _example_map(
    axes: Axes, capture: Capture, head: dict[str, Any], tokens: Sequence[str] | None, *, named: bool, first: bool
) -> None:
    values = _weights(capture, head).clamp(min=0).numpy()
    names = list(tokens) if tokens is not None else list(capture.example.pieces)
    shown = [
        (name if len(name) <= LONGEST_TOKEN else name[: LONGEST_TOKEN - 1] + "…").replace("$", r"\$") for name in names
    ]
    labels = [shown if named and len(shown) == n else False for n in values.shape]
    sns.heatmap(
        values, vmin=0, vmax=1, cmap=sequential(MAP_TO, MAP_FROM), cbar=False, square=True,
        yticklabels=labels[0] if first else False, xticklabels=labels[1], ax=axes,
    )  # fmt: skip
    axes.tick_params(axis="both", labelsize=6.5, length=0)
    axes.tick_params(axis="y", rotation=0)
    axes.tick_params(axis="x", rotation=90)
    for spine in axes.spines.values():
        spine.set(visible=True, color=BAND_LINE, linewidth=0.6)


def _weights(capture: Capture, head: dict[str, Any]) -> Float[Tensor, "query key"]:
    """The weights of one head; `InputError` where the capture does not hold them."""
    mine = whole(capture.only(head["stack"], head["kind"]))
    for site in mine.sites:
        if site.place.layer == head["layer"] and head["head"] in head_numbers(site):
            return site.need("weights")[0, head_numbers(site).index(head["head"])].detach().float().cpu()
    where = f"{head['stack']} {head['kind']}-attention"
    raise InputError(f"the capture lacks layer {head['layer']}, head {head['head']} of {where}; keep its weights")
