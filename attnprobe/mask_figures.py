"""Pictures of masks, and of how far layers of them see: masks in, axes out; `axes.figure.savefig(path)` saves one.

A row a query, a column a key; paper: hidden. The darker, the fewer layers it takes until a key is seen.

>>> from attnprobe.attention.patterns import local_mask, strided_mask
>>> axes = mask_picture(local_mask(16, 4, causal=True))
>>> pairs = mask_gallery({"window": local_mask(16, 4), "stride": strided_mask(16, 4)}, n_layers=3)
>>> len(pairs)
2
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attnprobe.appearance import BAND, MAP_FROM, MAP_TO, MUTED, NARROW_SPACE, literal, number
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.reach import reach
from attnprobe.colours import diverging, mixed, sequential
from attnprobe.errors import InputError
from attnprobe.figure_files import lettered

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


def map_gallery(
    names: Sequence[Any],
    query: Tensor,
    key: Tensor,
    *,
    visible: Tensor | None = None,
    tokens: Sequence[str] | None = None,
) -> list[Axes]:
    """The maps of several mechanisms on the same query and key [token d_head], side by side on one scale.

    names: of mechanisms, or `Mechanism`s with their options. visible: a mask [query key], causal=True where that is
    what a mechanism takes. Weights below 0 (nystrom, linformer) are of the other colour. Errors: `InputError` for a
    mechanism that cannot keep the mask.
    """
    chosen = [Mechanism.of(name) for name in names]
    if not chosen or query.ndim != 2:
        raise InputError(f"a gallery shows maps of mechanisms on one query [token d_head], got {tuple(query.shape)}")
    maps = []
    for mechanism in chosen:
        under, mask = mechanism.under(visible, query.shape[-2], key.shape[-2])
        keys = query if mechanism.entry.facts.get("shared") else key
        maps.append(under.weights(query, keys, mask).detach().double().cpu().numpy())
    lowest = min(float(one.min()) for one in maps)
    colours, low = (sequential(MAP_TO, MAP_FROM), 0.0) if lowest >= -1e-9 else (diverging(root=False), -1.0)
    panels = [ax for row in _panels(-(-len(maps) // 3), min(3, len(maps))) for ax in row]
    for spare in panels[len(maps) :]:
        spare.remove()
    for mechanism, weights, axes in zip(chosen, maps, panels, strict=False):
        _draw_map(weights, low, colours, tokens, axes)
        title = repr(mechanism).removeprefix("Mechanism.of(").removesuffix(")").replace("'", "")
        axes.set_title(title, fontsize=9, color=MUTED, loc="left")
    return panels[: len(maps)]


def _draw_map(weights: np.ndarray, low: float, colours: Any, tokens: Sequence[str] | None, axes: Axes) -> None:
    names = [list(map(literal, tokens)) if tokens is not None else _step(n) for n in weights.shape]
    with lettered(tokens or ()):
        sns.heatmap(
            weights,
            vmin=low,
            vmax=1,
            cmap=colours,
            square=True,
            linewidths=0.5 if max(weights.shape) <= FEW else 0,
            linecolor=BAND,
            yticklabels=names[0],
            xticklabels=names[1],
            cbar_kws={"label": "weight", "shrink": 0.7},
            ax=axes,
        )
    axes.set(xlabel="key", ylabel="query")
    axes.tick_params(axis="y", rotation=0)
    axes.tick_params(axis="x", rotation=45 if tokens is not None else 0)


def _step(n: int) -> int:
    """How many tokens lie between two names at an axis: 1, 2, 5, 10, … so that there are ten at most.

    >>> [_step(n) for n in (8, 16, 48, 100, 1000)]
    [1, 2, 5, 10, 100]
    """
    return next(step for size in (1, 10, 100, 1000, 10_000) for step in (size, 2 * size, 5 * size) if n <= 10 * step)


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
    with lettered(tokens or ()):
        sns.heatmap(
            first,
            cmap=ListedColormap(shades),
            norm=BoundaryNorm(np.arange(n_layers + 2) - 0.5, n_layers + 1),
            square=True,
            linewidths=0.5 if max(first.shape) <= FEW else 0,
            linecolor=BAND,
            xticklabels=list(map(literal, tokens)) if tokens is not None else _step(n_keys),
            yticklabels=list(map(literal, tokens)) if tokens is not None else _step(n_queries),
            cbar=n_layers > 1,
            cbar_kws={"label": "layers until seen (0: not)", "ticks": range(n_layers + 1), "shrink": 0.7},
            ax=axes,
        )
    if (bar := axes.collections[0].colorbar) is not None:
        bar.ax.minorticks_off()
        # 0 has the colour of the paper: without a frame its box would not be seen.
        bar.ax.add_patch(
            Rectangle((0, -0.5), 1, n_layers + 1, fill=False, edgecolor=MUTED, linewidth=0.8, clip_on=False)
        )
        bar.ax.axhline(0.5, color=MUTED, linewidth=0.8)
    axes.set(xlabel="key", ylabel="query")
    axes.tick_params(axis="y", rotation=0)
    return axes
