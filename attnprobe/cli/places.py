"""Where a command's files go: checked before any work, written at its end."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attnprobe.cli.output import shown
from attnprobe.errors import InputError

PICTURES = (".png", ".svg", ".pdf")


def check_place(out: Path, endings: Sequence[str], *, what: str = "a picture") -> None:
    """`InputError` for a file of another kind, a folder, or a place where nothing can be written."""
    if out.suffix.lower() not in endings:
        raise InputError(f"{what} ends in {', '.join(endings)}, got '{out}'")
    if out.is_dir():
        raise InputError(f"{out} is a folder; give the name of a file, such as {out / f'planted{endings[0]}'}")
    there = next(parent for parent in out.absolute().parents if parent.exists())
    if not there.is_dir():
        raise InputError(f"{out} cannot be written: {there} is a file; choose another place")


def check_folder(out: Path) -> None:
    """`InputError` where a file is in the way of a folder."""
    if out.is_file():
        raise InputError(f"{out} is a file; give the name of a folder")
    there = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not there.is_dir():
        raise InputError(f"{out} cannot be made: {there} is a file; choose another place")


def written(out: Path, write: Callable[[], Any]) -> str:
    """The file written by `write`, folders made where they are missing; gives its name as a person would type it."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        raise InputError(f"{out} cannot be written ({error.strerror}); choose another place") from error
    return shown(out)
