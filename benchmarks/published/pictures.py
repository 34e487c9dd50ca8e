"""The figures of benchmarks/TRENDS.md: tables in, figures out."""

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from attnprobe.appearance import BAND, BAND_LINE, INK, MINUS, MUTED, look
from attnprobe.experiment_figures import LN_2, ORDER_NAMES
from benchmarks.published.depth import PAPER
from benchmarks.published.readers import ENCODERS, TASKS
from benchmarks.published.summing import by_seed, over_seeds

COLOURS = {"recurrent": look("rollout").light, "average": look("leave_one_out").light}
MARKERS = {"recurrent": "o", "average": "s"}
ENCODER_NAMES = {"recurrent": "recurrent encoder", "average": "no context (average)"}
READERS = [(task, encoder) for task in TASKS for encoder in ENCODERS]


def _despined(axes: Axes, title: str) -> Axes:
    sns.despine(ax=axes)
    axes.set_title(title, fontsize=9.5, color=INK, loc="left")
    axes.tick_params(labelsize=8.5, colors=MUTED)
    axes.xaxis.label.set_size(9)
    axes.yaxis.label.set_size(9)
    return axes


def _true_minus(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.1f}".replace("-", MINUS)))


def depth_picture(depth: pd.DataFrame) -> Figure:
    """By layer: Spearman with blank-out, ours with the range of the seeds and the paper's; below, the same top word."""
    keys = ["against", "map", "layer"]
    found = over_seeds(by_seed(depth[depth.layer > 0], keys), keys)
    figure = Figure(figsize=(9.6, 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 3, sharex=True, sharey="row", height_ratios=(1.25, 1))
    titles = {"raw": "raw attention of the layer", "rollout": "rollout up to the layer", "flow": "flow up to the layer"}
    colour = look("rollout").light
    for column, (name, title) in enumerate(titles.items()):
        for axes, against in ((upper[column], "size"), (lower[column], "top word")):
            rows = found[(found["map"] == name) & (found.against == against)].sort_values("layer")
            axes.axhline(0, color=BAND_LINE, linewidth=0.8)
            axes.fill_between(rows.layer, rows.low, rows.high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(rows.layer, rows["mean"], color=colour, marker="o", label="trained here, 3 seeds and their range")
            _despined(axes, title if against == "size" else "")
        style = {"color": INK, "linestyle": "--", "marker": "D", "markerfacecolor": "white"}
        upper[column].plot(range(1, 7), PAPER[name], label="paper", **style)
        upper[column].set(xticks=range(1, 7), ylim=(-0.3, 1.0))
        lower[column].set(xlabel="layer", ylim=(-0.02, 1.05))
    upper[0].set_ylabel("Spearman with blank-out")
    lower[0].set_ylabel("share with the same top word")
    _true_minus(upper[0])
    upper[1].legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def attention_picture(attending: pd.DataFrame) -> Figure:
    """Permutation, agreement with gradient and removal, and how other attention may be; all seeds."""
    figure = Figure(figsize=(10.4, 6.4), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.05), hspace=0.03)
    panels = upper.subplots(1, 4, sharey=True)
    for axes, (task, encoder) in zip(panels, READERS, strict=True):
        _permuted(attending, task, encoder, axes)
    panels[0].set_ylabel("median change of p, permuted")
    left, right = lower.subplots(1, 2)
    _agreement(attending, left)
    _other(attending, right)
    return figure


def _permuted(attending: pd.DataFrame, task: str, encoder: str, axes: Axes) -> None:
    rows = attending[(attending.experiment == "permuted") & (attending.task == task) & (attending.encoder == encoder)]
    wide = rows.pivot_table(index=["seed", "example_index"], columns="measure", values="value")
    sns.scatterplot(
        wide, x="max_weight", y="median_change", color=COLOURS[encoder], alpha=0.45, s=18, edgecolor="none", ax=axes
    )
    axes.set(xlim=(0, 1.03), ylim=(-0.02, 1.0), xticks=(0, 0.5, 1), xlabel="largest weight", ylabel="")
    _despined(axes, f"{task}, {encoder}")


def _agreement(attending: pd.DataFrame, axes: Axes) -> None:
    rows = attending[attending.experiment == "agreement"]
    names = {"tau_gradient": "gradient", "tau_removal": "leave-one-out"}
    rows = rows.assign(place=rows.task + "\n" + rows.measure.map(names))
    order = [f"{task}\n{name}" for task in TASKS for name in names.values()]
    sns.boxplot(
        rows,
        x="place",
        y="value",
        hue="encoder",
        order=order,
        hue_order=ENCODERS,
        palette=[sns.light_palette(COLOURS[e], 5)[2] for e in ENCODERS],
        linewidth=1,
        fliersize=1.5,
        width=0.65,
        ax=axes,
    )
    axes.axhline(0, color=BAND_LINE, linewidth=0.8)
    axes.set(xlabel="", ylabel="Kendall's τ with attention", ylim=(-0.5, 1.03), yticks=(-0.5, 0, 0.5, 1))
    _true_minus(axes)
    handles = axes.get_legend_handles_labels()[0]
    axes.legend(handles, [ENCODER_NAMES[e] for e in ENCODERS], frameon=False, fontsize=8, loc="lower left")
    _despined(axes, "does attention rank tokens as the others do?")


def _other(attending: pd.DataFrame, axes: Axes) -> None:
    rows = attending[(attending.experiment == "counterfactual") & (attending.measure == "jsd")]
    for task, encoder in READERS:
        part = rows[(rows.task == task) & (rows.encoder == encoder)]
        sns.ecdfplot(
            part,
            x="value",
            complementary=True,
            color=COLOURS[encoder],
            linestyle="-" if task == "counting" else "--",
            label=f"{task}, {encoder}",
            ax=axes,
        )
    axes.axvline(LN_2, color=BAND_LINE, linestyle=":", linewidth=1)
    axes.text(LN_2 + 0.006, 0.5, "ln 2", fontsize=8, color=MUTED)
    axes.set(xlim=(0, 0.76), ylim=(0, 1.03), xlabel="JSD of the attention found", ylabel="share of texts at least")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    _despined(axes, "other attention, output within 0.01")


FLIPS = {"flips_both": "both", "flips_top": "only the top weight", "flips_random": "only a random one"}
NEITHER = "neither"
FLIP_COLOURS = ("#7a4b1e", "#c2611b", "#e3b778", BAND)


def flips_picture(attending: pd.DataFrame) -> Figure:
    """What flips the decision, and how much must go until it flips, by order."""
    figure = Figure(figsize=(9.8, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    names = [f"{task}, {encoder}" for task, encoder in READERS]
    rows = attending[attending.experiment == "top weight"].assign(reader=lambda t: t.task + ", " + t.encoder)
    start = pd.Series(0.0, index=names)
    for measure, colour in zip((*FLIPS, "flips_neither"), FLIP_COLOURS, strict=True):
        share = rows[rows.measure == measure].groupby("reader").value.mean()[names]
        left.barh(names, share, left=start, color=colour, height=0.62, label=FLIPS.get(measure, NEITHER))
        start += share
    left.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5), xlabel="share of texts whose decision flips without")
    left.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.06), columnspacing=1)
    _despined(left, "")
    _orders(rows[rows.measure == "removed"], names, right)
    return figure


def _orders(rows: pd.DataFrame, names: Sequence[str], axes: Axes) -> None:
    found = over_seeds(by_seed(rows, ["reader", "variant"]), ["reader", "variant"])
    styles = {
        "random": ("o", MUTED, "white"),
        "attention": ("D", look("rollout").light, None),
        "gradient": ("s", "#2d7d46", None),
        "gradient_x_attention": ("^", "#c2611b", None),
    }
    for at, (order, (marker, colour, fill)) in enumerate(styles.items()):
        part = found[found.variant == order].set_index("reader").loc[list(names)]
        places = [row + (at - 1.5) * 0.14 for row in range(len(names))]
        axes.hlines(places, part.low, part.high, color=colour, linewidth=1.2)
        axes.plot(
            part["mean"], places, marker, color=colour, markerfacecolor=fill or colour, label=ORDER_NAMES[order], ms=5.5
        )
    axes.set_yticks(range(len(names)), [""] * len(names))
    for row in range(len(names) - 1):
        axes.axhline(row + 0.5, color=BAND, linewidth=0.8)
    axes.set(
        xlim=(0, 1.02),
        ylim=(len(names) - 0.5, -0.5),
        xlabel="share of the keys out when the decision flips first (never: 1)",
    )
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.06), columnspacing=1)
    _despined(axes, "")


def training_picture(training: pd.DataFrame) -> Figure:
    """Uniform against learned attention, twins, and the diagnostic network."""
    figure = Figure(figsize=(10.6, 3.5), layout="constrained")
    panels = figure.subplots(1, 3, width_ratios=(1.05, 1.15, 0.9))
    _uniform(training, panels[0])
    _twins(training, panels[1])
    _diagnostic(training, panels[2])
    return figure


def _uniform(training: pd.DataFrame, axes: Axes) -> None:
    rows = training[training.experiment == "uniform"].assign(reader=lambda t: t.task + ", " + t.encoder)
    found = over_seeds(by_seed(rows, ["reader", "variant"]), ["reader", "variant"])
    names = [f"{task}, {encoder}" for task, encoder in READERS]
    for at, (looks, marker, fill) in enumerate((("learned", "o", None), ("uniform", "o", "white"))):
        part = found[found.variant == looks].set_index("reader").loc[names]
        places = [row + (at - 0.5) * 0.24 for row in range(len(names))]
        colours = [COLOURS[encoder] for _, encoder in READERS]
        axes.hlines(places, part.low, part.high, colors=colours, linewidth=1.2)
        for place, value, colour in zip(places, part["mean"], colours, strict=True):
            axes.plot(value, place, marker, color=colour, markerfacecolor=fill or colour)
        axes.plot([], [], marker, color=INK, markerfacecolor=fill or INK, label=f"{looks} attention")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlim=(0.5, 1.02), xlabel="share right")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    _despined(axes, "trained with learned or uniform attention")


def _twins(training: pd.DataFrame, axes: Axes) -> None:
    rows = training[(training.experiment == "twins") & training.measure.isin(["jsd", "total_variation"])]
    keys = ["encoder", "variant", "measure"]
    found = over_seeds(by_seed(rows, keys), keys)
    for encoder in ENCODERS:
        wide = found[found.encoder == encoder].pivot(index="variant", columns="measure", values=["mean", "low", "high"])
        other = wide.index == "another seed"
        curve = wide[~other].sort_index(key=lambda names: names.astype(float))
        x, y = curve["mean", "jsd"], curve["mean", "total_variation"]
        axes.plot(x, y, color=COLOURS[encoder], marker=MARKERS[encoder], ms=5, label=f"twins, {encoder}")
        axes.vlines(x, curve["low", "total_variation"], curve["high", "total_variation"], color=COLOURS[encoder], lw=1)
        axes.hlines(y, curve["low", "jsd"], curve["high", "jsd"], color=COLOURS[encoder], lw=1)
        alone = wide[other]["mean"]
        axes.plot(
            alone["jsd"], alone["total_variation"], "D", color=COLOURS[encoder], mfc="white", label="another seed"
        )
    axes.set(xlim=(0, 0.72), ylim=(-0.02, 0.75), xlabel="JSD of the attention", ylabel="total variation of the output")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    _despined(axes, "twins with λ from 0 to 1 (order)")


def _diagnostic(training: pd.DataFrame, axes: Axes) -> None:
    rows = training[(training.experiment == "diagnostic") & (training.measure == "right")]
    found = over_seeds(by_seed(rows, ["variant"]), ["variant"]).set_index("variant")
    names = {"uniform": "uniform", "trained": "trained", "learned": "its own", "adversarial": "a twin's"}
    found = found.loc[list(names)]
    axes.bar(list(names.values()), found["mean"], color=sns.light_palette(COLOURS["average"], 5)[2], width=0.6)
    axes.vlines(range(len(names)), found.low, found.high, color=INK, linewidth=1.2)
    axes.axhline(0.5, color=BAND_LINE, linestyle="--", linewidth=1)
    axes.set(ylim=(0, 1.02), ylabel="share right", xlabel="whose weights")
    _despined(axes, "diagnostic network (order)")


def bundled_picture(bundled: pd.DataFrame) -> Figure:
    """How other the attention of the bundled transformer may be, by layer; a box of all sentences."""
    figure = Figure(figsize=(8.4, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    shades = {0.01: sns.light_palette(COLOURS["recurrent"], 6)[4], 0.1: sns.light_palette(COLOURS["recurrent"], 6)[2]}
    rows = bundled.assign(place=bundled.place.str.replace(", ", ",\n"))
    order = list(dict.fromkeys(rows.place))
    shared = {"x": "place", "y": "value", "hue": "eps", "order": order, "palette": shades}
    sns.boxplot(rows[rows.measure == "jsd"], **shared, linewidth=1, fliersize=1.5, width=0.65, ax=left)
    left.axhline(LN_2, color=BAND_LINE, linestyle=":", linewidth=1)
    left.set(ylim=(0, 0.72), xlabel="layer whose weights are free", ylabel="JSD of the attention found")
    left.legend(title="output within", frameon=False, fontsize=8, title_fontsize=8, loc="lower right")
    sns.barplot(rows[rows.measure == "top_changed"], **shared, errorbar=None, width=0.65, legend=False, ax=right)
    right.set(ylim=(0, 1.02), xlabel="layer whose weights are free", ylabel="share with another top token")
    _despined(left, "the farthest attention with the same output")
    _despined(right, "does the map name another token?")
    return figure
