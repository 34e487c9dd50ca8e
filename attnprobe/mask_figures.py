"""Pictures of masks, and of how far layers of them see: masks in, axes out; `axes.figure.savefig(path)` saves one.

A row a query, a column a key; paper: hidden. The darker, the fewer layers it takes until a key is seen.

>>> from attnprobe.attention.patterns import local_mask, strided_mask
>>> axes = mask_picture(local_mask(16, 4, causal=True))
>>> pairs = mask_gallery({"window": local_mask(16, 4), "stride": strided_mask(16, 4)}, n_layers=3)
>>> len(pairs)
2
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.appearance import BAND, MAP_FROM, MAP_TO, MUTED, NARROW_SPACE, number
from attnprobe.attention.reach import reach
from attnprobe.colours import mixed
from attnprobe.errors import InputError

# With more tokens than this, lines between the cells and names at the axes hide more than they show.
FEW = 32
PANEL = 3.4


def mask_picture(mask: Tensor, *, tokens: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """One mask [query key]: dark where a query may look. tokens: names at both axes (default: numbers)."""
    _check(mask)
    axes = _draw(mask.int().cpu().numpy(), 1, tokens, ax or _panels(1, 1)[0][0])
    share = number(100 * mask.double().mean().item(), 0)
    axes.set_title(f"mask: {share}{NARROW_SPACE}% of pairs", fontsize=9, color=MUTED, loc="left")
    return axes


def reach_picture(
    masks: Tensor | Sequence[Tensor],
    *,
    n_layers: int | None = None,
    residual: bool = True,
    tokens: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The number of layers after which each query first depends on each key; paper: it does not.

    masks: one for all layers (then n_layers, default 2), or one a layer, first layer first.
    """
    layers = _layers(masks, n_layers)
    first = np.zeros(layers[0].shape, dtype=int)
    for depth in range(1, len(layers) + 1):
        first[(first == 0) & reach(layers[:depth], residual=residual).cpu().numpy()] = depth
    axes = _draw(first, len(layers), tokens, ax or _panels(1, 1)[0][0])
    share = number(100 * float(np.mean(first > 0)), 0)
    what = "1 layer" if len(layers) == 1 else f"{len(layers)} layers"
    axes.set_title(f"reach of {what}: {share}{NARROW_SPACE}% of pairs", fontsize=9, color=MUTED, loc="left")
    return axes


def mask_and_reach(
    mask: Tensor, *, n_layers: int = 2, residual: bool = True, tokens: Sequence[str] | None = None
) -> tuple[Axes, Axes]:
    """A mask, and beside it what n_layers of it reach."""
    ((left, right),) = _panels(1, 2)
    mask_picture(mask, tokens=tokens, ax=left)
    return left, reach_picture(mask, n_layers=n_layers, residual=residual, tokens=tokens, ax=right)


def mask_gallery(masks: Mapping[str, Tensor], *, n_layers: int = 2, residual: bool = True) -> list[tuple[Axes, Axes]]:
    """Several masks by name, a row each, in one figure: the mask, and beside it what n_layers of it reach."""
    if not masks:
        raise InputError("a gallery shows masks by their names, got none")
    rows = [(left, right) for left, right in _panels(len(masks), 2)]
    for (name, mask), (left, right) in zip(masks.items(), rows, strict=True):
        mask_picture(mask, ax=left)
        reach_picture(mask, n_layers=n_layers, residual=residual, ax=right)
        left.set_title(f"{name}, {left.get_title(loc='left')}", fontsize=9, color=MUTED, loc="left")
    return rows


def _panels(n_rows: int, n_columns: int) -> list[tuple[Axes, ...]]:
    """Axes of a figure of their own, without pyplot: nothing has to be closed."""
    figure = Figure(figsize=(PANEL * 1.25 * n_columns, PANEL * n_rows), layout="constrained")
    return [tuple(row) for row in figure.subplots(n_rows, n_columns, squeeze=False)]


def _check(mask: Tensor) -> None:
    if mask.dtype is not torch.bool or mask.ndim != 2 or not mask.numel():
        raise InputError(
            f"a picture shows one boolean mask [query key], got {mask.dtype} {tuple(mask.shape)}; "
            "of a batch or of heads choose one: mask[0, 0]"
        )


def _layers(masks: Tensor | Sequence[Tensor], n_layers: int | None) -> list[Tensor]:
    if isinstance(masks, Tensor):
        n_layers = 2 if n_layers is None else n_layers
        layers = [masks] * n_layers
    else:
        layers = list(masks)
        if n_layers not in (None, len(layers)):
            raise InputError(f"{len(layers)} masks, one a layer, are {len(layers)} layers, got n_layers={n_layers}")
    if not layers:
        raise InputError("a picture of reach needs at least one layer")
    for mask in layers:
        _check(mask)
    return layers


def _draw(first: np.ndarray, n_layers: int, tokens: Sequence[str] | None, axes: Axes) -> Axes:
    """A heatmap of small whole numbers, 0 on paper, 1 darkest; a colour bar where there are several."""
    n_queries, n_keys = first.shape
    if tokens is not None and (len(tokens) != n_keys or n_queries != n_keys):
        raise InputError(f"{len(tokens)} names do not fit a mask of {n_queries} queries and {n_keys} keys")
    shades = mixed(MAP_FROM, MAP_TO, [0.0, *np.linspace(1, 0.22, n_layers).tolist()])
    sns.heatmap(
        first,
        cmap=ListedColormap(shades),
        norm=BoundaryNorm(np.arange(n_layers + 2) - 0.5, n_layers + 1),
        square=True,
        linewidths=0.5 if max(first.shape) <= FEW else 0,
        linecolor=BAND,
        xticklabels=list(tokens) if tokens is not None else math.ceil(n_keys / 8),
        yticklabels=list(tokens) if tokens is not None else math.ceil(n_queries / 8),
        cbar=n_layers > 1,
        cbar_kws={"label": "layers until seen (0: not)", "ticks": range(n_layers + 1), "shrink": 0.7},
        ax=axes,
    )
    if (bar := axes.collections[0].colorbar) is not None:
        bar.ax.minorticks_off()
        bar.outline.set_visible(True)  # 0 has the colour of the paper
    axes.set(xlabel="key", ylabel="query")
    axes.tick_params(axis="y", rotation=0)
    return axes
