"""attnprobe benchmark: attribution methods, and verdicts on maps, on models whose truth is known."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from attnprobe.cli.choices import chosen_options
from attnprobe.cli.completion import SomeMethods
from attnprobe.cli.options import HOW, WRITE, AtLeastOne, Format, NotNegative
from attnprobe.cli.output import tell
from attnprobe.cli.places import PICTURES, check_place, written
from attnprobe.cli.printing import emit, plain
from attnprobe.errors import InputError, nearest

if TYPE_CHECKING:
    from attnprobe.benchmark import Cell

benchmark = App(name="benchmark", help="Measure methods and verdicts on models whose truth is known.")


@benchmark.command
def planted(
    *,
    only: Annotated[list[str] | None, Parameter(group=HOW)] = None,
    method: Annotated[SomeMethods, Parameter(group=HOW)] = None,
    option: Annotated[list[str] | None, Parameter(group=HOW)] = None,
    variants: Annotated[NotNegative, Parameter(name="--variants", group=HOW)] = 0,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Format = "table",
) -> None:
    """Compare every method with the truth on planted models, where it is known.

    A planted model is a small network built so that the effect of each token is known.
    Shown are the agreement of a method's order with the true one, whether its first token
    is right, what it gives to tokens without effect, and what it costs.

    Example:
      attnprobe benchmark planted --only P2,P8 --method rollout,integrated_gradients

    Parameters
    ----------
    only
        Names of planted models, separated by commas or said one by one. [default: all]
    method
        Names of methods, in the same way; `attnprobe methods` lists them. [default: all]
    option
        An option of a method, as method.name=value, such as rollout.identity=0. Say it again for more.
    variants
        So many variants of every model beside the plan: another basis, noise, more tokens, another order.
    out
        Where a picture goes (.png, .svg or .pdf). [default: none is drawn]
    """
    if out is not None:
        check_place(out, PICTURES)
    from attnprobe.cli.surroundings import quiet

    with quiet():
        cells = _measured(only, method, option or [], variants)
        emit(format, lambda: [facts(cell) for cell in cells], lambda: _show(cells))
        if out is not None:
            tell(_draw(cells, out))
    faults = sum(cell.fault is not None for cell in cells)
    if faults:
        tell(f"attnprobe: {faults} of {len(cells)} entries are missing by a fault of attnprobe's own; see '!' above")


@benchmark.command
def verdicts(
    *,
    families: Annotated[list[str] | None, Parameter(group=HOW)] = None,
    variants: Annotated[AtLeastOne, Parameter(name="--variants", group=HOW)] = 120,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Format = "table",
) -> None:
    """Measure how often the verdict on a map is wrong, on random models whose acting tokens are known.

    Every family of planted models is drawn many times, with 8 to 40 tokens. Five maps of each
    draw are judged, also with their tokens shuffled and those of another input. The numbers of
    the rule are set on one half of the families and tried on the other, both ways.

    Example:
      attnprobe benchmark verdicts --families P1,P6,retrieval --variants 20

    Parameters
    ----------
    families
        Names of families, separated by commas or said one by one. [default: all]
    variants
        Draws of each family; an eighth as many again near the boundary, judged apart.
    out
        Where the cases go, as json. [default: they are not written]
    """
    if out is not None:
        check_place(out, (".json",), what="a list of cases")
    from attnprobe.cli.surroundings import quiet

    with quiet():
        _verdicts(families, variants, out, format)


def _verdicts(families: Sequence[str] | None, n_variants: int, out: Path | None, format: str) -> None:
    from attnprobe.benchmark.verdicts import benchmark_verdicts
    from attnprobe.cli.verdicts_table import show
    from attnprobe.models.planted.families import FAMILIES

    names = _chosen(families, "--families", "family of planted models", FAMILIES)
    found = benchmark_verdicts(names, n_variants, workers=min(2, os.cpu_count() or 1))
    cases = [vars(case) for case in found.cases]
    if out is not None:
        entries = json.dumps(plain(cases), indent=1, ensure_ascii=False)
        tell(written(out, lambda: out.write_text(entries, "utf-8")))
    emit(format, lambda: cases, lambda: show(found))


def _measured(
    only: Sequence[str] | None, method: Sequence[str] | None, option: Sequence[str], n_variants: int
) -> "list[Cell]":
    """What was typed, checked before any work, and measured."""
    from attnprobe.benchmark import benchmark_planted
    from attnprobe.methods import methods as registry
    from attnprobe.models.planted import NAMES

    models = _chosen(only, "--only", "planted model", NAMES)
    names = _chosen(method, "--method", "attribution method", registry)
    return benchmark_planted(models, names, n_variants=n_variants, options=chosen_options(option, names))


def facts(cell: "Cell") -> dict[str, Any]:
    """A cell for programs; None where a number is not defined."""
    passes = {"forward": cell.forward, "backward": cell.backward}
    known = {name: getattr(cell, name) for name in type(cell).__dataclass_fields__ if name not in passes}
    options = {
        name: value if isinstance(value, str | int | float | None) else str(value)
        for name, value in cell.options.items()
    }
    return {**known, "options": options, "passes": passes}


def _chosen(given: Sequence[str] | None, flag: str, noun: str, known: Any) -> list[str]:
    """Names from words that may hold several with commas between; None means all."""
    if given is None:
        return list(known)
    names = [name.strip() for word in given for name in word.split(",") if name.strip()]
    if not names:
        raise InputError(f"{flag} names no {noun}; leave it out for all of them")
    for name in names:
        if name not in known:
            raise InputError(f"no {noun} is named '{name}'; {nearest(name, known)}")
    return list(dict.fromkeys(names))


def _show(cells: "Sequence[Cell]") -> None:
    from attnprobe.cli.benchmark_table import show

    show(cells)


def _draw(cells: "Sequence[Cell]", out: Path) -> str:
    from attnprobe.benchmark_figure import benchmark_picture
    from attnprobe.figure_files import save

    figure = benchmark_picture(cells)
    return written(out, lambda: save(figure, out))
