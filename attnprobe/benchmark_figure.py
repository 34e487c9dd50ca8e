"""Figure of a benchmark: how each method's order of the tokens agrees with the truth, model by model, and its cost.

>>> from attnprobe.benchmark import benchmark_planted
>>> figure = benchmark_picture(benchmark_planted(["P1", "P2"], ["raw_attention", "leave_one_out"]))
>>> figure.axes[0].get_xlabel()
'planted model'
"""

import textwrap
from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe.appearance import AGAINST, FOR, INK, MUTED, PAPER, WEIGHT, number
from attnprobe.benchmark import AS_PLANTED, Cell, by_method, to_frame
from attnprobe.colours import diverging
from attnprobe.errors import InputError

CAPTION = (
    "Kendall’s τ-b of scores and truth (1: the true order, −1: the reverse; methods without a sign against the size of "
    "the truth). Grey: the truth is the same for all tokens, so there is no order. –: refused. White line: models "
    "whose tokens act one by one (one truth) are left of it; right of it tokens act on one another, and the truth is "
    "the Shapley value against zero contents."
)
# What stands beside the map: title, columns of `by_method`, their names.
BESIDE = (
    ("means over models", ("top1", "idle"), ("first token is right", "share on idle tokens")),
    ("passes", ("forward", "backward"), ("forward", "backward")),
    ("seconds", ("seconds",), ("",)),
)


def benchmark_picture(cells: Sequence[Cell]) -> Figure:
    """A row a method, the best first; a column a model (the mean of its variants); beside it first token, idle share
    and cost."""
    if not cells:
        raise InputError("a picture of a benchmark needs at least one method on one model, got none")
    frame, table = to_frame(cells), by_method(cells)
    models = _models(frame)
    figure = Figure(figsize=(5.6 + 0.46 * len(models) + 6.6, 2.6 + 0.27 * len(table)), layout="constrained")
    ratios = [0.46 * len(models) + 1.2, 2.0, 2.0, 2.0]
    axes = figure.subplots(1, 4, gridspec_kw={"width_ratios": ratios})
    _map(axes[0], frame, list(table.method), models)
    for beside, (title, columns, names) in zip(axes[1:], BESIDE, strict=True):
        _bars(beside, table, title, columns, names)
    caption = "\n".join(textwrap.wrap(CAPTION, 120 + 5 * len(models)))
    figure.supxlabel(caption, fontsize=8, color=MUTED, x=0.01, ha="left")
    return figure


def _models(frame: pd.DataFrame) -> list[str]:
    """Models whose tokens act one by one first, each in the order of the plans."""
    plain = frame[frame.variant == AS_PLANTED].drop_duplicates("model")
    return [*plain[plain.additive].model, *plain[~plain.additive].model]


def _map(ax: Axes, frame: pd.DataFrame, methods: list[str], models: list[str]) -> None:
    means = frame.pivot_table(index="method", columns="model", values="agreement", aggfunc="mean", dropna=False)
    means = means.reindex(index=methods, columns=models)
    done = frame.assign(done=frame.scores.notna()).groupby(["method", "model"]).done.any().unstack()
    done = done.reindex(index=methods, columns=models)
    titles = frame.drop_duplicates("model").set_index("model").title
    ax.set_facecolor(WEIGHT)
    sns.heatmap(
        means,
        vmin=-1,
        vmax=1,
        cmap=diverging(root=False),
        annot=means.map(lambda tau: number(tau, 1)),
        fmt="",
        annot_kws={"fontsize": 7, "color": INK},
        linewidths=0.6,
        linecolor=PAPER,
        xticklabels=[f"{model}  {titles[model]}" for model in models],
        cbar_kws={"label": "agreement with the truth", "shrink": 0.5, "pad": 0.01, "aspect": 30},
        ax=ax,
    )
    for row, run in enumerate(done.to_numpy().tolist()):
        for column, there in enumerate(run):
            if not there:
                ax.text(column + 0.5, row + 0.5, "–", ha="center", va="center", fontsize=7, color=INK)
    additive = int(frame.drop_duplicates("model").set_index("model").additive.reindex(models).sum())
    ax.axvline(additive, color=PAPER, linewidth=5)
    ax.set(xlabel="planted model", ylabel="")
    ax.tick_params(axis="both", labelsize=8)
    for label in ax.get_xticklabels():
        label.set(rotation=50, ha="right", rotation_mode="anchor")


def _bars(ax: Axes, table: pd.DataFrame, title: str, columns: Sequence[str], names: Sequence[str]) -> None:
    long = table.melt(id_vars=["method"], value_vars=list(columns), var_name="what", value_name="value")
    long["what"] = long.what.map(dict(zip(columns, names, strict=True)))
    colours = (FOR, AGAINST)[: len(columns)]
    sns.barplot(
        long,
        x="value",
        y="method",
        hue="what",
        order=list(table.method),
        palette=list(colours),
        legend=len(columns) > 1,
        ax=ax,
    )
    if "seconds" in columns or "forward" in columns:
        ax.set_xscale("symlog", linthresh=0.01 if "seconds" in columns else 1)
    else:
        ax.set_xlim(0, 1)
    ax.set(xlabel=title, ylabel="")
    ax.tick_params(axis="x", labelsize=8)
    ax.set_yticks(ax.get_yticks(), [""] * len(table))
    if len(columns) > 1:
        ax.legend(title="", frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    sns.despine(ax=ax)
