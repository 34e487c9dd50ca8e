"""Colour scales of the figures: mixed in OKLab, as the page mixes them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator

from attnprobe.appearance import AGAINST, FOR, PAPER, WEIGHT

_STEPS = 128


def mixed(start: str, end: str, shares: Sequence[float]) -> list[tuple[float, float, float]]:
    """Colours between two, mixed in OKLab, as the page does."""
    a, b = _oklab(start), _oklab(end)
    return [_srgb(a + (b - a) * share) for share in shares]


# Ottosson 2020, "A perceptual color space for image processing".
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def _oklab(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return _TO_LAB @ np.cbrt(_TO_CONES @ linear)


def _srgb(lab: np.ndarray) -> tuple[float, float, float]:
    linear = np.linalg.inv(_TO_CONES) @ (np.linalg.inv(_TO_LAB) @ lab) ** 3
    channels = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.clip(linear, 0, None) ** (1 / 2.4) - 0.055)
    red, green, blue = np.clip(channels, 0, 1).tolist()
    return red, green, blue


def quiet_scale(axes: Axes, n_ticks: int) -> None:
    """The ticks of a heat map small and few, on its colour bar as well; its rows are named upright."""
    if (scale := axes.collections[0].colorbar) is not None:
        scale.locator = MaxNLocator(n_ticks)
        scale.update_ticks()
        scale.ax.tick_params(labelsize=7, length=2)
    axes.tick_params(axis="both", labelsize=7, length=0)
    axes.tick_params(axis="y", rotation=0)


def diverging(root: bool = True) -> ListedColormap:
    """Orange (against) over paper to blue (for); colour grows with the square root of the share."""
    steps = np.linspace(0, 1, _STEPS)
    shares = (np.sqrt(steps) if root else steps).tolist()
    return ListedColormap(mixed(PAPER, AGAINST, shares)[::-1] + mixed(PAPER, FOR, shares)[1:], name="attnprobe_signed")


def sequential(end: str = WEIGHT, start: str = PAPER) -> ListedColormap:
    """Paper to grey, for what has no direction."""
    return ListedColormap(mixed(start, end, np.sqrt(np.linspace(0, 1, _STEPS)).tolist()), name="attnprobe_unsigned")
