"""What commands print: results on stdout, messages on stderr."""

import io
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attnprobe.errors import AttnprobeError

WIDEST = 120


def tell(message: str) -> None:
    """A message to the person, apart from the results."""
    print(message, file=sys.stderr, flush=True)


def show_everything() -> None:
    """Letters that the terminal's encoding lacks (LANG=C) are written as escapes, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def shown(path: Path) -> str:
    """A path as a person would type it from here: relative where it lies below the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def printable(text: str) -> str:
    """The text with line breaks and control characters written out, so that they do nothing to a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class UnwrittenError(AttnprobeError):
    """What was computed could not all be written: the finished examples stay, so that the same command goes on."""


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
    except UnwrittenError as error:
        raise UnwrittenError(f"{error}; the same command goes on from {shown(folder)}") from None
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
