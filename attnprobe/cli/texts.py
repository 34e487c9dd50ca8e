"""The texts that a command is given, on the command line or in a file."""

from difflib import get_close_matches
from pathlib import Path

from attnprobe.cli.options import TextOptions
from attnprobe.errors import InputError, nearest

SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_texts(options: TextOptions) -> list[str]:
    """All texts, each with something in it; `InputError` names the option, or the file and row, that has none."""
    if options.text and options.file:
        raise InputError("both --text and --file are given; give one of them")
    if not options.text and options.file is None:
        raise InputError("there is no text; give --text 'a text', or --file with texts")
    if options.file is None:
        if options.column is not None:
            raise InputError("--column names a column of --file, and no --file is given")
        return _texts_of_line(options.text or [])
    _check_file(options.file)
    try:
        if options.file.suffix.lower() in SEPARATORS:
            return _texts_of_table(options.file, options.column or "text")
        return _texts_of_lines(options.file, options.column)
    except UnicodeDecodeError as error:
        raise InputError(
            f"the file {options.file} is not text in UTF-8 ({error.reason} at byte {error.start})"
        ) from error
    except OSError as error:
        raise InputError(f"the file {options.file} cannot be read: {error.strerror or error}") from error


def _check_file(file: Path) -> None:
    if file.is_dir():
        raise InputError(f"--file {file} is a folder; give a file")
    if not file.exists():
        here = [p.name for p in file.parent.iterdir() if p.is_file()] if file.parent.is_dir() else []
        close = get_close_matches(file.name, here, n=1)
        # The folder stays as it was typed.
        hint = f"; did you mean '{file.with_name(close[0])}'?" if close else ""
        raise InputError(f"there is no file {file}{hint}")


def _texts_of_line(texts: list[str]) -> list[str]:
    for number, text in enumerate(texts, start=1):
        which = f"text {number} of {len(texts)}" if len(texts) > 1 else "the text"
        if not text.strip():
            raise InputError(f"{which} is empty; give at least one word with --text")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError(f"{which} is not text in UTF-8; give it in UTF-8, or in a file with --file")
    return texts


def _texts_of_lines(file: Path, column: str | None) -> list[str]:
    if column is not None:
        raise InputError(f"--column names a column of a table (.csv or .tsv), and {file} is read as one text a line")
    lines = [line.strip() for line in file.read_text("utf-8-sig").splitlines()]
    texts = [line for line in lines if line]
    if not texts:
        raise InputError(f"the file {file} has no text in it; write one text a line")
    return texts


def _texts_of_table(file: Path, column: str) -> list[str]:
    import pandas as pd

    try:
        frame = pd.read_csv(
            file, sep=SEPARATORS[file.suffix.lower()], dtype=str, keep_default_na=False, encoding="utf-8-sig"
        )
    except pd.errors.EmptyDataError as error:
        raise InputError(f"the table {file} is empty; it needs a header with a column '{column}', and rows") from error
    except pd.errors.ParserError as error:
        raise InputError(f"the table {file} cannot be read: {str(error).strip()}") from error
    columns = [str(name) for name in frame.columns]
    if column not in columns:
        hint = nearest(column, columns)
        hint = hint if hint.startswith("did you mean") else "say which with --column"
        raise InputError(f"{file} has no column '{column}'; {hint} (its columns: {', '.join(columns)})")
    if frame.empty:
        raise InputError(f"the table {file} has a header and no rows; there is no text to explain")
    texts = frame[column].astype(str).tolist()
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise InputError(f"row {number} of {file} (the header not counted) has no text in column '{column}'")
    return texts
