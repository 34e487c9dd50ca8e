"""Figures of experiments: an outcome (or its table) in, axes out; `axes.figure.savefig(path)` saves one.

>>> from attnprobe.experiments.permuted import permuted_attention
>>> from attnprobe.experiment_figures import permuted_scatter
>>> axes = permuted_scatter(permuted_attention(model, texts))     # doctest: +SKIP
>>> axes.figure.savefig("permuted.svg")                           # doctest: +SKIP

Each takes an `Outcome` or a table: its `values` (a row an example) where points or distributions are drawn, its
`to_frame()` (means with intervals) where means are. Nothing is computed here but the layout.
"""

import math
from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.appearance import AGAINST, BAND_LINE, FOR, INK, MUTED, WEIGHT, look, number
from attnprobe.colours import sequential
from attnprobe.errors import InputError
from attnprobe.experiments.outcome import Outcome

Given = Outcome | pd.DataFrame
LN_2 = math.log(2)
ORDER_NAMES = {
    "attention": "attention",
    "gradient": "gradient",
    "gradient_x_attention": "gradient × attention",
    "random": "random",
}


def permuted_scatter(permuted: Given, *, ax: Axes | None = None) -> Axes:
    """Largest weight against the median change of the output under permutations, a point an example.

    Points low on the right: much weight on one key, and it did not matter where it lay (Jain & Wallace 2019, fig. 4).
    """
    table = _wide(permuted, ("median_change", "max_weight"), "permuted_scatter")
    axes = ax or _new(5.2, 3.8)
    sns.scatterplot(table, x="max_weight", y="median_change", color=FOR, edgecolor="none", alpha=0.7, ax=axes)
    axes.set(xlim=(0, 1.02), xlabel="largest weight", ylabel="median |Δ| of the output")
    return _noted(axes, f"permuted attention; {len(table)} examples")


def counterfactual_distribution(counterfactual: Given, *, measure: str = "jsd", ax: Axes | None = None) -> Axes:
    """How far attention could be moved while the output stayed, an example a step of the curve; dashed: the largest
    possible, ln 2."""
    table = _wide(counterfactual, (measure,), "counterfactual_distribution")
    axes = ax or _new(5.2, 3.6)
    sns.ecdfplot(table, x=measure, color=FOR, complementary=True, ax=axes)
    axes.axvline(LN_2, color=BAND_LINE, linestyle="--", linewidth=1)
    of = "mean map" if measure == "jsd_of_mean" else "heads"
    axes.set(
        xlim=(0, LN_2 * 1.03), xlabel=f"Jensen–Shannon divergence found, {of}", ylabel="share of examples at least"
    )
    return _noted(axes, f"counterfactual attention; {len(table)} examples")


def uniform_heatmap(uniform: Given, *, measure: str = "total_variation", ax: Axes | None = None) -> Axes:
    """What making one head look everywhere alike does, layer by head, beside the whole layer; means over examples."""
    table = _means(uniform, measure, "uniform_heatmap")
    table = table[table.layer != "all"]
    means = table.pivot(index="layer", columns="head", values="mean")
    means = means.loc[sorted(means.index, key=int), sorted(means.columns, key=_head_order)]
    axes = ax or _new(2.6 + 0.5 * means.shape[1], 1.8 + 0.32 * means.shape[0])
    names = {"total_variation": "total variation", "change": "change of the target", "kept": "share of decisions kept"}
    _heatmap(means, names.get(measure, measure), axes)
    axes.set(xlabel="head", ylabel="layer")
    return _noted(axes, f"uniform attention; mean of {int(table.n.max())} examples")


def removal_boxes(top_weight: Given, *, ax: Axes | None = None) -> Axes:
    """Share of the keys out when the decision flips first, by order of removal; a box of all examples."""
    table = _values(top_weight, "removed", "removal_boxes")
    axes = ax or _new(5.4, 0.9 + 0.6 * table.variant.nunique())
    table = table.assign(order=table.variant.map(lambda name: ORDER_NAMES.get(name, name)))
    sns.boxplot(table, x="value", y="order", color=WEIGHT, fliersize=2, linewidth=1, width=0.6, ax=axes)
    axes.set(xlim=(0, 1.02), xlabel="share of the keys out when the decision flips", ylabel="")
    return _noted(axes, f"top first; {table.example_index.nunique()} examples; never: 1")


def top_weight_scatter(top_weight: Given, *, ax: Axes | None = None) -> Axes:
    """How much more the top key matters than one at random, against how much more weight it has; a point an example."""
    table = _wide(top_weight, ("js_difference", "weight_difference"), "top_weight_scatter")
    axes = ax or _new(5.2, 3.8)
    axes.axhline(0, color=BAND_LINE, linewidth=1)
    sns.scatterplot(table, x="weight_difference", y="js_difference", color=FOR, edgecolor="none", alpha=0.7, ax=axes)
    axes.set(
        xlabel="weight of the top key − weight of the random one", ylabel="JS without top − JS without random, nats"
    )
    return _noted(axes, f"top-weight removal; {len(table)} examples")


def identifiability_heatmap(found: Given, *, measure: str = "free_keeping_sum", ax: Axes | None = None) -> Axes:
    """Dimensions of other attention with the same head output, layer by head; means over examples."""
    means = _means(found, measure, "identifiability_heatmap").pivot(index="layer", columns="head", values="mean")
    means = means.loc[sorted(means.index, key=int), sorted(means.columns, key=_head_order)]
    axes = ax or _new(2.6 + 0.5 * means.shape[1], 1.8 + 0.32 * means.shape[0])
    _heatmap(means, measure.replace("_", " "), axes)
    axes.set(xlabel="head", ylabel="layer")
    return _noted(axes, "identifiability of the row that the answer is read from")


def cascade_lines(randomised: Given, *, measure: str = "spearman", ax: Axes | None = None) -> Axes:
    """Rank correlation with the scores of the trained model as parameters become random, top to bottom; with intervals.

    A method whose line stays at 1 does not depend on what the model learned there.
    """
    table = _means(randomised, measure, "cascade_lines")
    steps = ["trained", *dict.fromkeys(table.layer)]
    axes = ax or _new(2.8 + 0.9 * len(steps), 3.8)
    axes.axhline(0, color=BAND_LINE, linewidth=1)
    for place, (method, rows) in enumerate(table.groupby("variant", sort=False)):
        style, rows = look(str(method)), rows.set_index("layer").reindex(steps[1:])
        x = [step + 0.04 * place for step in range(len(steps))]
        axes.plot(x, [1.0, *rows["mean"]], color=style.light, marker=style.marker, markersize=5, label=style.label)
        axes.vlines(x[1:], rows.low, rows.high, color=style.light, linewidth=1)
    axes.set_xticks(range(len(steps)), steps, rotation=30, ha="right")
    axes.set(ylim=(-1.05, 1.05), ylabel="rank correlation of scores", xlabel="random down to here")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _noted(axes, f"cascading randomisation; mean of {int(table.n.max())} examples, 95 % intervals")


def twins_curve(twins: Given, *, other: str = "another seed", ax: Axes | None = None) -> Axes:
    """Total variation of the predictions against the divergence of attention, a point a λ; means with intervals.

    A curve that stays low far to the right: the predictions do not need this attention. ◇: a model of another seed.
    """
    jsd = _means(twins, "jsd", "twins_curve").set_index("variant")
    variation = _means(twins, "total_variation", "twins_curve").set_index("variant")
    names = [name for name in jsd.index if name != other]
    axes = ax or _new(5.2, 3.8)
    axes.plot(jsd.loc[names, "mean"], variation.loc[names, "mean"], color=FOR, marker="o", label="twins, by λ")
    for name, shape in [*((name, "o") for name in names), *((name, "D") for name in jsd.index if name == other)]:
        x, y = jsd.loc[name], variation.loc[name]
        colour = AGAINST if name == other else FOR
        axes.hlines(y["mean"], x.low, x.high, color=colour, linewidth=1)
        axes.vlines(x["mean"], y.low, y.high, color=colour, linewidth=1)
        if name == other:
            axes.plot([x["mean"]], [y["mean"]], shape, color=colour, markerfacecolor="none", label=other)
        else:
            axes.annotate(
                f"λ={name}", (x["mean"], y["mean"]), (4, 5), textcoords="offset points", fontsize=8, color=MUTED
            )
    axes.set(
        xlim=(0, LN_2 * 1.05), ylim=(-0.02, 1.02), xlabel="JSD of the attention", ylabel="total variation of the output"
    )
    axes.legend(frameon=False, fontsize=8)
    return _noted(axes, f"trained twins; mean of {int(jsd.n.max())} texts, 95 % intervals")


def right_bars(trained: Given, *, measure: str = "right", ax: Axes | None = None) -> Axes:
    """Share of labels that are right, a bar a variant (how it looks, whose weights), with intervals."""
    table = _means(trained, measure, "right_bars")
    axes = ax or _new(5.4, 0.9 + 0.4 * len(table))
    sns.barplot(table, x="mean", y="variant", color=WEIGHT, ax=axes)
    axes.hlines(range(len(table)), table.low, table.high, color=INK, linewidth=1.4)
    axes.set(xlim=(0, 1), xlabel="share right", ylabel="")
    return _noted(axes, f"held-out texts: {int(table.n.max())}; 95 % intervals")


# ---------------------------------------------------------------- tables


def _table(given: Given, columns: Sequence[str], what: str, values: bool) -> pd.DataFrame:
    """The table that a figure draws; `InputError` where columns are missing or there is nothing in it."""
    table = given if isinstance(given, pd.DataFrame) else given.values if values else given.to_frame()
    missing = [column for column in columns if column not in table]
    if missing or table.empty:
        source = "an outcome's values" if values else "an outcome's to_frame()"
        raise InputError(f"{what} takes {source}; " + (f"missing: {', '.join(missing)}" if missing else "it is empty"))
    return table


def _values(given: Given, measure: str, what: str) -> pd.DataFrame:
    """The rows of one measure, an example each."""
    table = _table(given, ("example_index", "variant", "measure", "value"), what, True)
    return _only(table, measure, what)


def _means(given: Given, measure: str, what: str) -> pd.DataFrame:
    """The rows of one measure, a mean with its interval each."""
    table = _table(given, ("layer", "head", "variant", "measure", "mean", "low", "high", "n"), what, False)
    return _only(table, measure, what)


def _only(table: pd.DataFrame, measure: str, what: str) -> pd.DataFrame:
    rows = table[table.measure == measure]
    if rows.empty:
        raise InputError(
            f"{what} draws '{measure}', which is not there; there are {', '.join(sorted(set(table.measure)))}"
        )
    return rows


def _wide(given: Given, measures: Sequence[str], what: str) -> pd.DataFrame:
    """A row an example, a column a measure."""
    parts = [_values(given, measure, what).set_index("example_index").value.rename(measure) for measure in measures]
    return pd.concat(parts, axis=1)


# ---------------------------------------------------------------- drawing


def _new(width: float, height: float) -> Axes:
    """Axes of a figure of their own, without pyplot."""
    axes = Figure(figsize=(width, height), layout="constrained").add_subplot()
    sns.despine(ax=axes)
    return axes


def _noted(axes: Axes, text: str) -> Axes:
    axes.set_title(text, fontsize=9, color=MUTED, loc="left")
    return axes


def _head_order(head: str) -> tuple[int, int]:
    """Heads by number, the whole layer last."""
    return (0, int(head)) if head.isdigit() else (1, 0)


def _heatmap(means: pd.DataFrame, label: str, axes: Axes) -> None:
    """Means from white to grey, with their numbers."""
    sns.heatmap(
        means,
        vmin=min(0.0, float(means.min().min())),
        vmax=float(means.max().max()) or 1.0,
        cmap=sequential(),
        annot=means.map(lambda value: number(value, 2)) if means.size <= 120 else None,
        fmt="",
        annot_kws={"color": INK, "fontsize": 8},
        linewidths=0.6,
        cbar_kws={"label": label},
        ax=axes,
    )
    axes.tick_params(axis="y", rotation=0)
