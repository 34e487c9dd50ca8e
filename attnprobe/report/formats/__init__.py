"""A comparison in the formats that others read: html, pdf, md, json, csv and parquet, several in one call.

>>> from attnprobe import compare
>>> compare(model, texts).report("study.html", format=["html", "pdf", "json"])     # doctest: +SKIP
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnprobe import report as pages
from attnprobe.comparison import Comparison
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.placing import placed_text
from attnprobe.report.formats.document import document_text
from attnprobe.report.formats.markdown import markdown
from attnprobe.report.formats.names import FOLDERS, FORMATS, chosen_formats, places
from attnprobe.report.formats.pdf import browser, printed
from attnprobe.report.formats.tabular import every_table, parquet_is_there, save_csv, save_parquet


@dataclass(frozen=True)
class Failed:
    """A format that could not be made, and why."""

    format: str
    reason: str


@dataclass(frozen=True)
class Written:
    """Where each format went, and which could not be made."""

    paths: Mapping[str, Path]
    failed: tuple[Failed, ...] = ()

    def require(self) -> None:
        """`InputError` with every reason where a format is missing."""
        if not self.failed:
            return
        reasons = "; ".join(f"{one.format}: {one.reason}" for one in self.failed)
        made = f" ({', '.join(self.paths)} {'is' if len(self.paths) == 1 else 'are'} written)" if self.paths else ""
        raise InputError(f"{reasons}{made}")


def check_formats(out: str | Path, given: str | Sequence[str] | None = None) -> tuple[str, ...]:
    """The formats that are asked for; `InputError` before any work for one that cannot be had or written here."""
    formats = chosen_formats(given, Path(out))
    for format, path in places(Path(out), formats).items():
        # The page's check also sees to the folder of its tables, which csv and parquet go into.
        pages.check_writable(path.with_name(f"{path.name}.html") if format in FOLDERS else path)
        if format == "pdf":
            browser()
        if format == "parquet":
            parquet_is_there()
    return formats


def write_all(
    comparison: Comparison,
    out: str | Path,
    format: str | Sequence[str] | None = None,
    *,
    command: str = "",
    summary: Sequence[str] = (),
    without: Sequence[str] = (),
    **page: Any,
) -> Written:
    """Write every format that is asked for; one that fails loses nothing of the others.

    out: a file whose ending is replaced by that of each format; tables go into the folder of its name. format: None
    takes the ending of `out`. command, summary, without and other options: as in `attnprobe.report.write`.
    """
    out = Path(out)
    formats = check_formats(out, format)
    told: dict[str, Any] = {"command": command, "summary": summary, "without": without}
    makers: dict[str, Callable[[Path], Any]] = {
        "html": lambda path: pages.write(comparison, path, **told, **page),
        "pdf": lambda path: printed(comparison, path, **told, **page),
        "md": lambda path: _text(path, markdown(comparison, **told)),
        "json": lambda path: _text(path, document_text(comparison, **told)),
        "csv": lambda path: save_csv(every_table(comparison, without), path),
        "parquet": lambda path: save_parquet(every_table(comparison, without), path),
    }
    paths: dict[str, Path] = {}
    failed: list[Failed] = []
    for name, path in places(out, formats).items():
        try:
            makers[name](path)
            paths[name] = path
        # What one format stumbles over is told; the hours of work behind the others are not thrown away.
        except Exception as error:
            failed.append(Failed(name, _reason(error)))
    return Written(paths, tuple(failed))


def report(comparison: Comparison, path: str | Path, *, format: str | Sequence[str] | None, **options: Any) -> Path:
    """`Comparison.report`: all formats, and the path of the first; `InputError` where one could not be made."""
    made = write_all(comparison, path, format, **options)
    made.require()
    return next(iter(made.paths.values()))


def _text(path: Path, text: str) -> None:
    try:
        placed_text(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}); choose another place") from error


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, AttnprobeError) else f"{type(error).__name__}: {error}"


__all__ = ["FORMATS", "Failed", "Written", "check_formats", "report", "write_all"]
