"""What commands print: results on stdout, messages on stderr."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attnprobe.errors import AttnprobeError

WIDEST = 120


def tell(message: str) -> None:
    """A message to the person, apart from the results."""
    print(message, file=sys.stderr, flush=True)


def shown(path: Path) -> str:
    """A path as a person would type it from here: relative where it lies below the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def printable(text: str) -> str:
    """The text with line breaks and control characters written out, so that they do nothing to a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns with two spaces between them; the last is wrapped to the width of the terminal.

    >>> print(table(["name", "score"], [["good", "1.5"], ["a", "0"]]))
    name  score
    good  1.5
    a     0
    """
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers) - 1)]
    indent = sum(widths) + 2 * len(widths)
    room = max(30, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns) - indent)
    return "\n".join(line for row in [headers, *rows] for line in _lines(row, widths, indent, room))


def _lines(row: Sequence[str], widths: Sequence[int], indent: int, room: int) -> Iterator[str]:
    start = "".join(cell.ljust(width + 2) for cell, width in zip(row, widths, strict=False))
    wrapped = [line for part in row[-1].split("\n") for line in textwrap.wrap(part, room)] or [""]
    yield (start + wrapped[0]).rstrip()
    yield from (" " * indent + line for line in wrapped[1:])


@contextmanager
def unfinished(page: Path) -> Iterator[Path]:
    """A folder beside the page for what is finished while the work goes on; kept only where the work broke off.

    What an earlier run left there is kept where this one is refused.
    """
    folder = page.with_suffix(".partial")
    earlier = (folder / "settings.json").is_file()
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        yield folder
    except AttnprobeError:
        if not earlier:
            _clear(folder, *made)
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(folder, made)) from None
    except Exception as error:
        error.add_note(f"attnprobe: {_kept(folder, made)}")
        raise
    _clear(folder)


def _clear(folder: Path, *parents: Path) -> None:
    """Take away what compare() put there, and folders that are empty then; nothing else."""
    for name in ("attributions.csv", "settings.json"):
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir():
        shutil.rmtree(folder / "finished", ignore_errors=True)
    with suppress(OSError):
        for empty in (folder, *parents):
            empty.rmdir()


def _kept(folder: Path, made: Sequence[Path]) -> str:
    file = folder / "attributions.csv"
    if not file.is_file():
        _clear(folder, *made)
        return "nothing was written"
    return (
        f"no page was written; the scores of the texts that were finished are in {shown(file)}; "
        "the same command goes on from there"
    )
