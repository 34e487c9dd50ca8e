"""A file takes its place in one step: whoever stops the writing midway still has the old one."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


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
