"""Where a command's files go: checked before any work, written at its end."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from attnprobe.cli.output import shown
from attnprobe.errors import InputError
from attnprobe.placing import check_takes_files

PICTURES = (".png", ".svg", ".pdf")


def check_place(out: Path, endings: Sequence[str], *, what: str = "a picture") -> None:
    """`InputError` for a file of another kind, a folder, or a place where nothing can be written."""
    if out.suffix.lower() not in endings:
        raise InputError(f"{what} ends in {', '.join(endings)}, got '{out}'")
    if out.is_dir():
        raise InputError(f"{out} is a folder; give the name of a file, such as {out / f'planted{endings[0]}'}")
    check_takes_files(out.parent, out)


def check_folder(out: Path) -> None:
    """`InputError` where a file is in the way of a folder, or nothing can be written."""
    if out.is_file():
        raise InputError(f"{out} is a file; give the name of a folder")
    check_takes_files(out, out)


def check_kept(inputs: Iterable[Path | None], outputs: Iterable[Path], tables: Path | None = None) -> None:
    """`InputError` where a file that is read would be written over.

    tables: a folder into which tables of many names go; no file that is read may lie in it.
    """
    read = [path for path in inputs if path is not None]
    new = {path.resolve() for path in outputs}
    for path in read:
        if path.resolve() in new or (tables is not None and path.resolve().parent == tables.resolve()):
            raise InputError(f"{path} is read, and what is written would take its place; choose another --out")


def written(out: Path, write: Callable[[], Any]) -> str:
    """The file written by `write`, folders made where they are missing; gives its name as a person would type it."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        raise InputError(f"{out} cannot be written ({error.strerror}); choose another place") from error
    return shown(out)
