"""A file takes its place in one step: whoever stops the writing midway still has the old one."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnprobe.errors import InputError


def placed(path: Path, write: Callable[[Path], Any]) -> Path:
    """What `write` puts into the file it is given, moved to `path` when it is whole; folders are made where missing.

    Errors: `OSError` where nothing can be written there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside it, since a move between file systems is no single step.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".unfinished-", ignore_cleanup_errors=True) as folder:
        new = Path(folder) / path.name
        write(new)
        new.replace(path)
    return path


def placed_text(path: Path, text: str) -> Path:
    """A text as UTF-8; what is no character (half of a pair) becomes a question mark."""
    return placed(path, lambda new: new.write_text(text, encoding="utf-8", errors="replace", newline="\n"))


def made(folder: Path) -> Path:
    """The folder, made where it is missing; `InputError` where it cannot be, or takes no files."""
    check_takes_files(folder, folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def check_takes_files(folder: Path, path: Path) -> None:
    """`InputError`, said of `path`, where a folder takes no files, or is none; nothing is left behind.

    A folder that is missing is made later: the nearest one above it is asked.
    """
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise InputError(f"{path} cannot be written: {there} is a file; choose another place")
    try:  # a file without a name, since permissions alone do not tell (read-only file systems)
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {there} takes no files ({error.strerror}); choose another place"
        ) from error
