"""Figures to files: PNG, SVG and PDF, the same bytes for the same figure.

>>> from attnprobe.figures import faithfulness_bars
>>> from attnprobe.figure_files import save
>>> save(faithfulness_bars(comparison.faithfulness), "bars.svg", "bars.pdf")     # doctest: +SKIP
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from attnprobe.errors import InputError, nearest
from attnprobe.placing import placed

DPI = 200
# What would differ from run to run, or with the version of matplotlib.
_METADATA: Mapping[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
# Text stays text, which can be searched and edited; the names of parts follow from the figure.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "attnprobe", "pdf.fonttype": 42}
# A layout is repeated until no part moves, in shares of the figure to so many digits, but not for ever.
_DIGITS, _MOST_LAYOUTS = 6, 6
# Fonts that are taken first where a letter is missing; fonts of coloured pictures cannot be drawn.
_FIRST, _NEVER = "Noto Sans", ("Color", "Last Resort")


def save(figure: Any, *paths: str | Path, dpi: int = DPI) -> list[Path]:
    """Write a figure to one or more files, by their suffix as PNG, SVG or PDF, cut to what is drawn; gives the paths.

    figure: what a figure function gave: a `Figure`, `Axes`, or a list of axes of one figure. Text of an SVG and a
    PDF is text; letters that matplotlib's own font lacks (Chinese, Arabic) come from an installed one that has
    them. The same figure, drawn anew, gives the same bytes. dpi: of PNG, and of pictures in the others. Errors:
    `InputError` for another suffix, axes of several figures, or a path that cannot be written.
    """
    drawn = figure_of(figure)
    if not paths:
        raise InputError("save needs at least one path, such as 'figure.svg'")
    places = [Path(path) for path in paths]
    for place in places:
        if place.suffix.lower()[1:] not in _METADATA:
            raise InputError(
                f"{place.name}: a figure is saved as .png, .svg or .pdf; {nearest(place.suffix[1:], _METADATA)}"
            )
    _find_fonts(drawn)
    with mpl.rc_context(_SETTINGS), _settled(drawn):  # type: ignore[arg-type]
        for place in places:
            _write(drawn, place, dpi)
    return places


def _write(figure: Figure, place: Path, dpi: int) -> None:
    kind = place.suffix.lower()[1:]
    try:
        more: dict[str, Any] = {"bbox_inches": "tight", "metadata": _METADATA[kind]}
        placed(place, lambda new: figure.savefig(new, format=kind, dpi=dpi, **more))
    except OSError as error:
        raise InputError(f"{place} cannot be written ({error.strerror}); choose another place") from error


@contextmanager
def _settled(figure: Figure) -> Iterator[None]:
    """Within, all parts stay where the layout puts them; each time it moves them a little, until they have a place."""
    engine = figure.get_layout_engine()
    before: list[float] = []
    for _ in range(_MOST_LAYOUTS if engine is not None else 0):
        figure.draw_without_rendering()
        now = [round(value, _DIGITS) for axes in figure.axes for value in axes.get_position().bounds]
        if now == before:
            break
        before = now
    figure.set_layout_engine("none")
    try:
        yield
    finally:
        figure.set_layout_engine(engine)


def figure_of(drawn: Any) -> Figure:
    """The figure behind axes, or behind all axes of a list; `InputError` where there is none, or several."""
    found = list(dict.fromkeys(_figures(drawn)))
    if len(found) != 1:
        raise InputError(
            f"expected a figure, or axes of one figure, got {type(drawn).__name__} of {len(found)} figures"
        )
    return found[0]


def _figures(drawn: Any) -> Iterator[Figure]:
    if isinstance(drawn, Figure):
        yield drawn
    elif isinstance(drawn, Axes):
        if isinstance(whole := drawn.get_figure(root=True), Figure):
            yield whole
    elif isinstance(drawn, list | tuple):
        for one in drawn:
            yield from _figures(one)


@contextmanager
def lettered(names: Iterable[str]) -> Iterator[None]:
    """Within, texts are made with further fonts for letters of the names that the usual one lacks, where there are."""
    more = _fonts_for("".join(names), "sans-serif")
    with mpl.rc_context({"font.family": [*mpl.rcParams["font.family"], *more]} if more else {}):
        yield


def _find_fonts(figure: Figure) -> None:
    """The same for texts that are there already."""
    for text in figure.findobj(Text):
        if more := _fonts_for(text.get_text(), *text.get_fontfamily()):
            text.set_fontfamily([*text.get_fontfamily(), *more])


def _fonts_for(text: str, *families: str) -> tuple[str, ...]:
    """Names of installed fonts that have what of a text the families have not."""
    letters = {letter for letter in text if not letter.isascii() and letter.isprintable()}
    for family in families if letters else ():
        known = _letters(font_manager.findfont(font_manager.FontProperties(family=[family])))
        letters = {letter for letter in letters if ord(letter) not in known}
    return _fonts_with(frozenset(letters)) if letters else ()


@cache
def _letters(path: str) -> frozenset[int]:
    """The letters that a font has."""
    return frozenset(font_manager.get_font(path).get_charmap())


@cache
def _fonts_with(letters: frozenset[str]) -> tuple[str, ...]:
    """Names of fonts that together have the letters, as far as installed ones do; few, and the usual ones first."""
    fonts = [font for font in font_manager.fontManager.ttflist if not any(word in font.name for word in _NEVER)]
    fonts.sort(
        key=lambda font: (not font.name.startswith(_FIRST), font.style != "normal", font.weight != 400, font.name)
    )
    wanted, found = set(letters), []
    for font in fonts:
        if not wanted:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                has = {letter for letter in wanted if ord(letter) in _letters(font.fname)}
        except (OSError, RuntimeError):  # a font that cannot be read is none
            continue
        if has:
            found.append(font.name)
            wanted -= has
    return tuple(found)
