"""Pictures beside the attention on their patches: pictures and weights in, axes out; nothing is computed.

A row a picture, a column a map (a layer, a head, a method), all on one scale from 0 (paper) to the largest weight.
A frame marks a patch that is known to matter. `panels[0][0].figure.savefig(path)` saves the figure.

>>> import torch
>>> panels = patch_gallery(torch.rand(2, 1, 8, 8), {"layer 0": torch.rand(2, 4, 4)}, names=["a", "b"])
>>> len(panels), len(panels[0])
(2, 2)
"""

from collections.abc import Mapping, Sequence

import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attnprobe.appearance import BAND, FOR, INK, MAP_FROM, MAP_TO, MUTED
from attnprobe.colours import sequential
from attnprobe.errors import InputError

PANEL = 1.5


def picture_panel(
    picture: Float[Tensor, "channel height width"], axes: Axes, *, grid: tuple[int, int], marked: int | None = None
) -> Axes:
    """A picture of 1 channel (0 paper, 1 ink) or 3 (colours, 0 to 1), its patches told apart by thin lines."""
    if picture.shape[0] not in (1, 3):
        raise InputError(f"a picture has 1 channel (ink) or 3 (colours), got {picture.shape[0]}")
    pixels = picture.detach().cpu().permute(1, 2, 0).numpy().clip(0, 1)
    extent = (0, grid[1], grid[0], 0)  # in patches, as the maps beside it
    axes.imshow(pixels[..., 0] if picture.shape[0] == 1 else pixels, cmap="Greys", vmin=0, vmax=1, extent=extent)
    for row in range(1, grid[0]):
        axes.axhline(row, color=BAND, linewidth=0.4)
    for column in range(1, grid[1]):
        axes.axvline(column, color=BAND, linewidth=0.4)
    axes.set(xticks=[], yticks=[])
    _frame(axes, grid, marked)
    return axes


def patch_panel(
    weights: Float[Tensor, "row column"],
    axes: Axes,
    *,
    highest: float,
    marked: int | None = None,
    bar: Axes | None = None,
) -> Axes:
    """The weights on the patches as a heatmap, 0 on paper, `highest` darkest; bar: axes for the scale."""
    sns.heatmap(
        weights.detach().cpu().numpy(),
        vmin=0,
        vmax=highest,
        cmap=sequential(MAP_TO, MAP_FROM),
        square=True,
        linewidths=0.4,
        linecolor=BAND,
        xticklabels=False,
        yticklabels=False,
        cbar=bar is not None,
        cbar_ax=bar,
        cbar_kws={"label": "weight on the patch"} if bar is not None else None,
        ax=axes,
    )
    _frame(axes, (weights.shape[0], weights.shape[1]), marked)
    return axes


def patch_gallery(
    pictures: Float[Tensor, "picture channel height width"],
    maps: Mapping[str, Tensor],
    *,
    names: Sequence[str],
    marked: Sequence[int] | None = None,
) -> list[list[Axes]]:
    """Each picture beside its maps, a row a picture; marked: number of a patch in each picture.

    maps: weights [picture row column] by name, one column each; names: of the rows.
    Errors: `InputError` where maps, names or marks do not fit the pictures.
    """
    n = len(pictures)
    grids = {tuple(weights.shape[1:]) for weights in maps.values()}
    if len(grids) != 1 or any(len(given) != n for given in (*maps.values(), names, marked or range(n))):
        raise InputError(
            f"{n} pictures need as many names, marks and maps [picture row column] of one grid, "
            f"got {len(names)} names and maps {[tuple(weights.shape) for weights in maps.values()]}"
        )
    ((n_rows, n_columns),) = grids
    highest = max(float(weights.max()) for weights in maps.values())
    figure = Figure(figsize=(PANEL * (len(maps) + 1) + 1.0, PANEL * n + 0.3), layout="constrained")
    widths = [1.0] * (len(maps) + 1)
    cells = figure.subplots(n, len(maps) + 2, squeeze=False, gridspec_kw={"width_ratios": [*widths, 0.08]})
    for index, (row, name) in enumerate(zip(cells, names, strict=True)):
        mark = None if marked is None else int(marked[index])
        picture_panel(pictures[index], row[0], grid=(n_rows, n_columns), marked=mark)
        row[0].set_ylabel(name, fontsize=8, color=INK, rotation=0, ha="right", va="center")
        for column, (title, weights) in enumerate(maps.items(), 1):
            bar = row[-1] if column == 1 else None
            patch_panel(weights[index], row[column], highest=highest, marked=mark, bar=bar)
            if index == 0:
                row[column].set_title(title, fontsize=8, color=MUTED)
    return [list(row[:-1]) for row in cells]


def _frame(axes: Axes, grid: tuple[int, int], marked: int | None) -> None:
    """A frame around a patch, numbered row by row."""
    if marked is not None:
        row, column = divmod(marked, grid[1])
        axes.add_patch(Rectangle((column, row), 1, 1, fill=False, edgecolor=FOR, linewidth=1.6, zorder=5))
