"""Which formats there are, which are asked for, and where each goes. Nothing heavy is imported here."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from attnprobe.errors import InputError, nearest

FORMATS = ("html", "pdf", "md", "json", "csv", "parquet")
# These are folders of tables; the others are one file each.
FOLDERS = ("csv", "parquet")
ENDINGS = {".html": "html", ".htm": "html", ".pdf": "pdf", ".md": "md", ".markdown": "md", ".json": "json"}


def chosen_formats(given: str | Sequence[str] | None, out: Path) -> tuple[str, ...]:
    """Names of formats from words that may hold several with commas between; None: by the ending of `out`.

    >>> chosen_formats("html,md", Path("page.html")), chosen_formats(None, Path("page.pdf"))
    (('html', 'md'), ('pdf',))
    """
    if given is None:
        return (_of_ending(out),)
    words = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"a format is a name, one of {', '.join(FORMATS)}, got {given!r}")
    names = _distinct(word.strip().lower().removeprefix(".") for text in words for word in text.split(","))
    if not names:
        raise InputError(f"no format is named; known: {', '.join(FORMATS)}")
    for name in names:
        if name not in FORMATS:
            raise InputError(f"no format is named '{name}'; {nearest(name, FORMATS)}")
    return names


def places(out: Path, formats: Sequence[str]) -> dict[str, Path]:
    """Where each format goes: beside one another under the name of `out`.

    >>> {name: str(path) for name, path in places(Path("a/page.html"), ["html", "pdf", "csv"]).items()}
    {'html': 'a/page.html', 'pdf': 'a/page.pdf', 'csv': 'a/page'}
    """
    stem = out.with_suffix("") if out.suffix.lower() in ENDINGS or out.suffix.lower()[1:] in FORMATS else out
    return {name: _place(out, stem, name) for name in formats}


def _place(out: Path, stem: Path, name: str) -> Path:
    if name in FOLDERS:
        return stem
    return out if ENDINGS.get(out.suffix.lower()) == name else stem.with_name(f"{stem.name}.{name}")


def _of_ending(out: Path) -> str:
    ending = out.suffix.lower()
    if ending in ENDINGS:
        return ENDINGS[ending]
    if ending[1:] in FOLDERS:
        return ending[1:]
    raise InputError(
        f"a page needs a name that ends in .html, .pdf, .md or .json, got '{out}'; "
        "its tables go into the folder without that ending"
    )


def _distinct(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))
