"""The theme of page, viewer and figures: colours for light and dark, as CSS variables. The one place that holds them.

A figure takes its colours from `appearance`, a page from `css()`, which is built from the same names.
"""

from collections.abc import Mapping
from functools import cache

from attnprobe.appearance import AGAINST, BAND, BAND_LINE, FOR, INK, MAP_FROM, MAP_TO, MUTED, PAPER, WEIGHT

# Contrast of ink on each: see the tests. Zero is the card; a share mixes it in OKLab with a pole or with the weight.
LIGHT: Mapping[str, str] = {
    **{"page": "#fbfaf7", "card": PAPER, "sunk": "#f3f1ec", "ink": INK, "mute": MUTED},
    **{"line": "#dcd9d2", "hair": "#ebe8e2", "accent": "#1c5d99", "focus": "#7a1fa2"},
    **{"warn": "#8f4300", "warn-bg": "#fdf0e2", "good": "#155a96", "good-bg": "#e9f2fb"},
    **{"und": "#50555f", "und-bg": "#eeedea"},
    **{"zero": PAPER, "pos": FOR, "neg": AGAINST, "wt": WEIGHT, "map0": MAP_FROM, "map1": MAP_TO},
    **{"band": BAND, "bandline": BAND_LINE},
}
DARK: Mapping[str, str] = {
    **{"page": "#12151a", "card": "#191d24", "sunk": "#1f242c", "ink": "#eef0f4", "mute": "#a8afbb"},
    **{"line": "#343a45", "hair": "#282e38", "accent": "#86bdf2", "focus": "#d9a2f5"},
    **{"warn": "#ffb070", "warn-bg": "#33241a", "good": "#8cc4f7", "good-bg": "#172635"},
    **{"und": "#c3c8d1", "und-bg": "#262b34"},
    **{"zero": "#191d24", "pos": "#1d6cb3", "neg": "#a9560f", "wt": "#5a616d", "map0": "#191d24", "map1": "#f3f1ea"},
    **{"band": "#2b313b", "bandline": "#7d8592"},
}
# Type and spacing are the same in both.
SHAPE: Mapping[str, str] = {
    "sans": 'system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Helvetica Neue",Arial,sans-serif',
    "serif": 'Charter,"Iowan Old Style","Source Serif 4","Noto Serif",Georgia,serif',
    "mono": 'ui-monospace,"SF Mono",Menlo,Consolas,"Noto Sans Mono","DejaVu Sans Mono",monospace',
    **{"s1": "4px", "s2": "8px", "s3": "12px", "s4": "16px", "s5": "24px", "s6": "40px", "s7": "72px"},
}


@cache
def css() -> str:
    """Variables of the document: light, dark by the system, dark by choice, and light again on paper."""
    return by_theme({**LIGHT, **SHAPE}, DARK, "color-scheme:light;", "color-scheme:dark;")


def by_theme(light: Mapping[str, str], dark: Mapping[str, str], with_light: str = "", with_dark: str = "") -> str:
    """Variables of two themes as rules of :root, whose data-theme is auto, light or dark; print is always light.

    >>> print(by_theme({"a": "red"}, {"a": "pink"}))
    :root{--a:red;}
    @media (prefers-color-scheme:dark){:root[data-theme=auto]{--a:pink;}}
    :root[data-theme=dark]{--a:pink;}
    @media print{:root,:root[data-theme]{--a:red;}}
    """
    bright, dim = _said(light) + with_light, _said(dark) + with_dark
    return (
        f":root{{{bright}}}\n"
        f"@media (prefers-color-scheme:dark){{:root[data-theme=auto]{{{dim}}}}}\n"
        f":root[data-theme=dark]{{{dim}}}\n"
        f"@media print{{:root,:root[data-theme]{{{bright}}}}}"
    )


def _said(variables: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in variables.items())
