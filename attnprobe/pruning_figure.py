"""Pruning curves as figures: `axes.figure.savefig(path)` saves one.

>>> from attnprobe.pruning import pruning_curve
>>> from attnprobe.pruning_figure import pruning_lines
>>> curve = pruning_curve(model, texts, {"entropy": order, "random": "random"}, labels)     # doctest: +SKIP
>>> pruning_lines(curve).figure.savefig("pruning.svg")                                      # doctest: +SKIP
"""

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnprobe.appearance import AGAINST, BAND, FOR, INK, MUTED
from attnprobe.errors import InputError
from attnprobe.heads.spoken import need
from attnprobe.pruning_curves import PruningCurve
from attnprobe.sufficient import SufficientHeads

# Colour and shape of each order in turn; several draws are grey.
STYLES = (
    (FOR, "o"),
    (AGAINST, "s"),
    ("#633b97", "D"),
    ("#196a5f", "^"),
    ("#a87320", "v"),
    (INK, "P"),
    ("#c76181", "X"),
)
LABELS = {"accuracy": "accuracy", "loss": "loss, nats"}
# What the answers are compared with, where that is no label.
RIGHT = {
    "own answer": "of the whole model's own answers",
    "text": "of the text's next tokens",
    "answer": "of the answer's tokens",
}


def pruning_lines(curve: PruningCurve, *, level: float | None = None, ax: Axes | None = None) -> Axes:
    """The measure against the number of heads that are gone: a line an order with its interval over examples.

    Several draws of an order (random ones) are a grey band that holds 95 % of them, with their mean. level: what
    guessing reaches, a dotted line that the legend names.
    """
    need(curve, PruningCurve, "pruning.pruning_curve(…)")
    frame = curve.to_frame()
    axes = ax or _new(5.8, 3.6)
    colours = iter(STYLES)
    if (frame.n_draws == 1).groupby(frame["order"]).all().sum() > len(STYLES):
        raise InputError(f"the figure tells at most {len(STYLES)} orders apart; draw fewer of the curve's in one")
    for name, rows in frame.groupby("order", sort=False):
        if rows.n_draws.iloc[0] > 1:
            axes.fill_between(rows.n_removed, rows.draw_low, rows.draw_high, color=BAND, linewidth=0, zorder=0)
            axes.plot(rows.n_removed, rows["mean"], color=MUTED, linewidth=1.2, linestyle="--", zorder=1,
                      label=f"{name}, {rows.n_draws.iloc[0]} draws")  # fmt: skip
        else:
            colour, marker = next(colours)
            _line(axes, rows, str(name), colour, marker)
    if level is not None:
        axes.axhline(level, color=MUTED, linewidth=0.8, linestyle=":", label=f"guessing, {level:.3g}")
    axes.set(xlim=(-0.2, curve.n_heads + 0.2), xlabel=f"heads removed, of {curve.n_heads}",
             ylabel=_measured(curve))  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    n = f"{curve.n_examples} example" + ("" if curve.n_examples == 1 else "s")
    title = f"{curve.model}; {n}, 95 % intervals"
    if (curve.measure, curve.right) == ("accuracy", "own answer"):
        title += "\nwithout labels: 1 where no head is gone, by construction"
    axes.set_title(title, fontsize=9, color=MUTED, loc="left")
    return axes


def _measured(curve: PruningCurve) -> str:
    """The measure, and with what it compares the answers."""
    name, right = LABELS.get(curve.measure, curve.measure), RIGHT.get(curve.right, "")
    return "\n".join(part for part in (name, right) if part)


def sufficient_lines(found: SufficientHeads, *, ax: Axes | None = None) -> Axes:
    """The measure against the number of heads that stand, each step named by the head that came or went."""
    need(found, SufficientHeads, "sufficient.sufficient_heads(…)")
    frame = found.to_frame()
    axes = ax or _new(max(4.2, 1.6 + 0.34 * len(frame)), 3.4)
    _line(axes, frame.rename(columns={"n_kept": "n_removed"}), "", FOR, "o")
    several = len({(head.stack, head.kind) for head in found.steps}) > 1
    sign = "+" if found.start == "none" else "\N{MINUS SIGN}"
    names = ["none" if found.start == "none" else "all"]
    names += [sign + (str(head) if several else head.short) for head in found.steps]
    axes.set_xticks(frame.n_kept.tolist(), names, rotation=90 if several else 50, ha="center", fontsize=7)
    if found.start == "all":
        axes.invert_xaxis()
    axes.set(xlabel="heads brought back" if found.start == "none" else "heads let go",
             ylabel=LABELS.get(found.measure, found.measure))  # fmt: skip
    axes.set_title(f"{found.model}; {int(frame.n.max())} examples, 95 % intervals", fontsize=9, color=MUTED, loc="left")
    return axes


def _line(axes: Axes, rows: pd.DataFrame, label: str, colour: Any, marker: str) -> None:
    few = len(rows) <= 30
    axes.fill_between(rows.n_removed, rows.low, rows.high, color=colour, alpha=0.13, linewidth=0)
    axes.plot(rows.n_removed, rows["mean"], color=colour, marker=marker if few else None, markersize=4, linewidth=1.6,
              label=label)  # fmt: skip


def _new(width: float, height: float) -> Axes:
    """Axes of a figure of their own, without pyplot."""
    axes = Figure(figsize=(width, height), layout="constrained").add_subplot()
    sns.despine(ax=axes)
    return axes
