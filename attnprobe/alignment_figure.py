"""Picture of an alignment: where a decoder looks in the input while it writes; `axes.figure.savefig(path)` saves it.

A row a written token, a column an input token; the darker, the more weight. Rows sum to 1.

>>> import torch
>>> axes = alignment_picture(torch.eye(3), list("abc"), list("xyz"))
>>> axes.get_xlabel(), axes.get_ylabel()
('input', 'output')
"""

from collections.abc import Mapping, Sequence

import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attnprobe.appearance import AGAINST, BAND, MAP_FROM, MAP_TO, MUTED, literal
from attnprobe.colours import sequential
from attnprobe.errors import InputError
from attnprobe.figure_files import lettered

CELL, LETTER = 0.26, 0.08  # inches
UPRIGHT = 3  # letters of a name that find room below a column; longer ones are turned


def alignment_picture(
    weights: Float[Tensor, "step position"],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    boxes: Mapping[tuple[int, int], tuple[int, int]] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """The alignment matrix as a heatmap, from 0 to 1.

    inputs, outputs: a name a column and a row (a space is drawn as ␣). boxes: frames around what should be dark:
    (first step, end) -> (first position, end).
    """
    if weights.shape != (len(outputs), len(inputs)):
        raise InputError(
            f"weights of {tuple(weights.shape)} do not fit {len(outputs)} outputs and {len(inputs)} inputs; "
            "of a batch or of heads choose one: weights[0, 0]"
        )
    longest = max(map(len, inputs))
    with lettered([*inputs, *outputs]):
        across = CELL * len(inputs) + 2.0 + LETTER * max(map(len, outputs))
        axes = ax or _new(across, CELL * len(outputs) + 1.2 + LETTER * max(0, longest - UPRIGHT))
        sns.heatmap(
            weights.detach().double().cpu().numpy(),
            vmin=0,
            vmax=1,
            cmap=sequential(MAP_TO, MAP_FROM),
            square=True,
            linewidths=0.5,
            linecolor=BAND,
            xticklabels=[_shown(token) for token in inputs],
            yticklabels=[_shown(token) for token in outputs],
            cbar_kws={"label": "weight", "shrink": 0.7},
            ax=axes,
        )
    for (top, bottom), (left, right) in (boxes or {}).items():
        frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=AGAINST, linewidth=1.5)
        frame.set_clip_on(False)
        axes.add_patch(frame)
    axes.set(xlabel="input", ylabel="output")
    axes.set_title(literal(title), fontsize=9, color=MUTED, loc="left")
    axes.tick_params(axis="both", rotation=0, length=0)
    for label in axes.get_xticklabels() if longest > UPRIGHT else ():
        label.set(rotation=60, ha="right", rotation_mode="anchor")
    return axes


def _new(width: float, height: float) -> Axes:
    """Axes of a figure of their own, without pyplot: nothing has to be closed."""
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def _shown(token: str) -> str:
    return "␣" if token == " " else literal(token)
