"""The tables of `attnprobe benchmark planted`, as wide as the terminal, coloured where it has colours."""

import math
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnprobe.benchmark import AS_PLANTED, Cell, by_method
from attnprobe.cli.output import WIDEST, printable

LEGEND = (
    "Numbers are Kendall's tau-b of scores and truth: 1 the true order, -1 the reverse, 0 none or one score for all. "
    "Methods without a sign are compared with the size of the truth. * is the order of another truth that holds as "
    "well, . where the truth is the same for all tokens, - refused, ! a fault.",
    "one by one, together: means over models whose tokens act one by one, so that there is one truth, and over models "
    "whose tokens act on one another, where the truth is the Shapley value against zero contents.",
    "first: the largest score is at a token of the largest truth. idle: share of the scores on tokens without effect. "
    "n/m: the true order on n of m models. F, B: forward and backward passes, of all models.",
)

Column = tuple[str, str]


def show(cells: Sequence[Cell]) -> None:
    """A row a method: its agreement on each model, in blocks that fit; what it comes to; why methods refused."""
    width = shutil.get_terminal_size((WIDEST, 24)).columns
    console = Console(width=width, highlight=False)
    summary = by_method(cells)
    for block in (*_matrix(cells, list(summary.method), width), _summary(summary.to_dict("records"))):
        console.print(block)
        console.print()
    paragraphs = [*LEGEND, *_variants(cells), *_refusals(cells)]
    for line in paragraphs:
        console.print("\n".join(textwrap.wrap(printable(line), width, subsequent_indent="  ")), markup=False)


def _matrix(cells: Sequence[Cell], rows: Sequence[str], width: int) -> Iterator[Table]:
    """Blocks of columns, a model (and variant) each."""
    at = {(cell.method, _column(cell)): cell for cell in cells}
    heads = _heads(cells)
    for block in _blocks(heads, width - max(map(len, ["method", *rows])) - 1):
        table = Table("method", box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for column in block:
            table.add_column(heads[column], justify="right", no_wrap=True, min_width=6)
        for row in rows:
            table.add_row(row, *(_entry(at[row, column]) for column in block))
        yield table


def _column(cell: Cell) -> Column:
    return cell.model, cell.variant


def _heads(cells: Sequence[Cell]) -> dict[Column, str]:
    """What stands above a column: a model, with the number of its variant, whose name is as long as a line."""
    columns = list(dict.fromkeys(_column(cell) for cell in cells))
    of_model: dict[str, list[Column]] = {}
    for column in columns:
        of_model.setdefault(column[0], []).append(column)
    return {c: c[0] if c[1] == AS_PLANTED else f"{c[0]}/{of_model[c[0]].index(c)}" for c in columns}


def _blocks(heads: dict[Column, str], room: int) -> list[list[Column]]:
    blocks: list[list[Column]] = []
    left = 0
    for column, head in heads.items():
        needed = max(len(head), 6) + 1
        if not blocks or needed > left:
            blocks.append([])
            left = room
        blocks[-1].append(column)
        left -= needed
    return blocks


def _entry(cell: Cell) -> Text:
    if cell.scores is None:
        return Text("! " if cell.fault else "- ", style="red" if cell.fault else "dim")
    if cell.agreement is None:
        return Text(". ", style="green" if cell.correct else "dim")
    star = "*" if cell.correct_otherwise and not cell.correct else " "
    style = "green" if cell.correct else "red" if cell.agreement < 0 else "yellow" if cell.agreement < 0.5 else ""
    return Text(_number(cell.agreement) + star, style=style)


def _summary(rows: Sequence[dict]) -> Table:
    table = Table("method", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for head in ("mean", "one by one", "together", "first", "idle", "n/m", "refused", "F", "B", "seconds"):
        table.add_column(head, justify="right")
    for row in rows:
        means = [_number(row[name]) for name in ("agreement", "additive", "interacting", "top1", "idle")]
        counts = [f"{row['n_correct']}/{row['n_models']}", str(row["n_refused"] or "")]
        costs = [str(row["forward"]), str(row["backward"]), f"{row['seconds']:.2f}"]
        table.add_row(str(row["method"]), *means, *counts, *costs)
    return table


def _number(value: float) -> str:
    """Two digits, nothing where it is not defined, no minus at zero."""
    return "" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def _variants(cells: Sequence[Cell]) -> Iterator[str]:
    """What the numbers behind a model's name stand for."""
    for column, head in _heads(cells).items():
        if column[1] != AS_PLANTED:
            yield f"{head}: {column[1]}"


def _refusals(cells: Sequence[Cell]) -> Iterator[str]:
    """Each reason once, with the models that it is given for."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        said = cell.refused or cell.fault
        if said:
            reason = said.removeprefix(f"{cell.model}: ").removeprefix(f"{cell.method}: ")
            found.setdefault((cell.method + (" (a fault)" if cell.fault else ""), reason), []).append(cell.model)
    for (method, reason), models in found.items():
        yield f"{method} on {', '.join(dict.fromkeys(models))}: {reason}"
