"""Results on stdout: tables for people by rich, json and csv for programs. With json or csv nothing else is there."""

import csv
import io
import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnprobe.cli.output import WIDEST, printable

if TYPE_CHECKING:
    import pandas as pd

Records = Sequence[Mapping[str, Any]]


def emit(
    format: str, found: Callable[[], Any], show: Callable[[], None], rows: Callable[[], Any] | None = None
) -> None:
    """Print a result in the format that was asked for.

    found: what json holds. show: prints the table. rows: records or a frame for csv, where they are not what json
    holds.
    """
    if format == "json":
        # Where the terminal is no Unicode, JSON has escapes of its own.
        ascii_only = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        print(json.dumps(plain(found()), indent=2, ensure_ascii=ascii_only, allow_nan=False))
    elif format == "csv":
        print(as_csv((rows or found)()), end="")
    else:
        show()


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """A frame as records: full precision, None where there is no number."""
    found: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return found


def plain(value: Any) -> Any:
    """A value as JSON knows it: no NaN and no infinity, keys and what is unknown as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def as_csv(rows: Any) -> str:
    """Records or a frame as CSV; what is a list or a table stands as JSON in its cell.

    >>> as_csv([{"name": "a", "options": {"k": 2}}, {"name": "b", "options": {}}])
    'name,options\\na,"{""k"": 2}"\\nb,{}\\n'
    """
    if hasattr(rows, "to_csv"):
        return str(rows.to_csv(index=False, lineterminator="\n"))
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    value = plain(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def show_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Container[int] = frozenset({0}),
    title: str = "",
    note: str = "",
    lift: bool = False,
) -> None:
    """A table as wide as the terminal: a title and a note above it, numbers to the right, words wrapped.

    left: columns of words. lift: those of them that say one thing in all rows stand above. On a terminal heads are
    bold; into a file or a pipe goes plain text.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    filled = [i for i in range(len(headers)) if not rows or any(row[i] for row in rows)]
    same = [i for i in filled if lift and i in left and len(rows) > 1 and len({row[i] for row in rows}) == 1]
    filled = [i for i in filled if i not in same]
    title = title or ", ".join(f"{headers[i]}: {rows[0][i]}" for i in same)
    console = Console(width=_width(), highlight=False, emoji=False, markup=False, file=sys.stdout)
    if title:
        _print(console, Text(terminal(title), style="bold"))
    if note:
        _print(console, Text(terminal(note), style="dim"))
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    lines = [[[terminal(line) for line in row[i].split("\n")] for i in filled] for row in [headers, *rows]]
    for number, width in enumerate(_widths(lines)):
        side: Any = "left" if filled[number] in left else "right"
        grid.add_column(Text(lines[0][number][0]), justify=side, overflow="fold", width=width)
    for cells in lines[1:]:
        grid.add_row(*(Text("\n".join(cell)) for cell in cells))
    _print(console, grid)


def show_note(text: str) -> None:
    """Sentences below a table, as wide as the terminal."""
    print("\n".join(textwrap.wrap(terminal(" ".join(text.split())), _width())))


def _widths(rows: Sequence[Sequence[Sequence[str]]]) -> list[int]:
    """How wide each column is: the widest give way first, none below its longest word while there is other room.

    rows: a list of lines a cell. rich would take room from words where a longer column could be wrapped.
    """
    from rich.cells import cell_len

    columns = [[line for cell in column for line in cell] for column in zip(*rows, strict=True)]
    widths = [max(1, *map(cell_len, lines)) for lines in columns]
    least = [max((cell_len(word) for line in lines for word in line.split()), default=1) for lines in columns]
    room = _width() - GAP * (len(widths) - 1)
    while sum(widths) > room:
        rank = [width if width > word else 0 for width, word in zip(widths, least, strict=True)]
        widest = rank.index(max(rank)) if any(rank) else widths.index(max(widths))
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths


GAP = 2  # between columns
NARROWEST = 4


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)


def terminal(text: str) -> str:
    """Nothing that does something to a terminal, and no space that terminals show as a box."""
    return printable(text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{NO-BREAK SPACE}", " "))


def _print(console: Any, what: Any) -> None:
    """Without the blanks that rich puts behind a line, where no colours need them."""
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as capture:
        console.print(what)
    print("\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n")))
