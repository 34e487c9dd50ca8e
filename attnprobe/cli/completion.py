"""What a shell offers in an option's place: the names that registries hold, without importing what they hold.

A registry imports every file of its folder, and with them torch, which takes seconds, while somebody waits at the
tab key. So names are read from the text of those files, where each stands behind its decorator, and no list is kept.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.completion import CompletionContext
from cyclopts.completion.install import create_install_completion_command

PACKAGE = Path(__file__).resolve().parent.parent
# By kind: the folder or file, and the names of the registries in it.
WHERE = {
    "methods": ("methods", "methods"),
    "metrics": ("metrics", "agreement|faithfulness|robustness|plausibility"),
    "head scores": ("heads", "head_scores"),
    "probes": ("heads", "probe_scores"),
    "effects": ("heads", "head_effects"),
    "mechanisms": ("attention/mechanisms", "mechanisms"),
    "changes": ("attention_swap.py", "changes"),
}
# Names that no decorator stands before; a test compares them with the package's own.
WRITTEN = {
    "changes": ("hard", "sparsemax", "entmax15", "sigmoid", "softmax_plus_one"),
    "operators": (
        *("mask", "pad", "unk", "mean", "zero", "resample", "infill"),
        *("value_zero", "attention_mask", "pad_mask", "delete"),
    ),
    "formats": ("html", "pdf", "md", "json", "csv", "parquet"),
}
Offered = list[tuple[str, str]]
Completer = Callable[[CompletionContext], Offered]


@cache
def known(kind: str) -> Offered:
    """The names of a kind in the alphabet's order, each with what it is in a sentence; none where no text is there."""
    folder, registries = WHERE.get(kind, ("", ""))
    found = dict.fromkeys(WRITTEN.get(kind, ()), "")
    if folder:
        place = PACKAGE / folder
        for path in [place] if place.suffix else sorted(place.glob("*.py")):
            found.update(_defined(path, registries))
    return sorted(found.items())


def _defined(path: Path, registries: str) -> Iterable[tuple[str, str]]:
    """The functions behind a registry's decorator in a file, with the first line of what each says of itself."""
    try:
        text = path.read_text("utf-8")
    except OSError:  # a package without its sources
        return []
    pattern = rf'^@(?:{registries})\.add\(.*?^def (\w+)\(.*?"""(.*?)(?:\n|""")'
    return re.findall(pattern, text, re.MULTILINE | re.DOTALL)


def one(*kinds: str) -> Completer:
    """Offers the names of some kinds."""

    def offer(context: CompletionContext) -> Offered:
        return _all(kinds)

    return offer


def several(*kinds: str, also: Sequence[str] = ()) -> Completer:
    """Offers names behind what was typed with commas between, those left out that stand there already.

    also: words that stand alone, such as "all".
    """

    def offer(context: CompletionContext) -> Offered:
        before, comma, _ = context.incomplete.rpartition(",")
        taken = {word.strip() for word in before.split(",")}
        more = [] if comma else [(word, "") for word in also]
        return [(f"{before}{comma}{name}", said) for name, said in (*_all(kinds), *more) if name not in taken]

    return offer


def _all(kinds: Sequence[str]) -> Offered:
    return list({name: (name, said) for kind in kinds for name, said in known(kind)}.values())


# How a script for bash puts a candidate on the line, and how ours does. Quoted, a comma would get a backslash, and the
# name behind it could not be completed; no name of ours holds what needs quotes.
QUOTED, PLAIN = """printf -v _q '%q' "$_x";""", '_q="$_x";'


def register(app: App) -> None:
    """Add --install-completion to the command line."""

    def install(*, shell: Any, output: Path | None, add_to_startup: bool) -> Path:
        place = app.install_completion(shell=shell, output=output, add_to_startup=add_to_startup)
        place.write_text(place.read_text("utf-8").replace(QUOTED, PLAIN), "utf-8")
        return place

    app.command(
        create_install_completion_command(install, add_to_startup=True),
        name="--install-completion",
        help="Let bash, zsh or fish complete commands, options and the names that they take.",
    )


# What options are declared as.
MethodName = Annotated[str, Parameter(completer=one("methods"))]
MethodNames = Annotated[list[str] | None, Parameter(completer=several("methods", also=("all",)))]
SomeMethods = Annotated[list[str] | None, Parameter(completer=several("methods"))]
MethodNamesOrNone = Annotated[list[str] | None, Parameter(completer=several("methods", also=("none",)))]
MethodOrAll = Annotated[str | None, Parameter(completer=one("methods"))]
MetricOrAll = Annotated[str | None, Parameter(completer=one("metrics"))]
Operators = Annotated[list[str] | None, Parameter(completer=several("operators"))]
Formats = Annotated[list[str] | None, Parameter(completer=several("formats"))]
HeadScores = Annotated[list[str] | None, Parameter(completer=several("head scores"))]
Probes = Annotated[list[str] | None, Parameter(completer=several("probes"))]
Effects = Annotated[list[str] | None, Parameter(completer=several("effects", also=("none",)))]
Mechanisms = Annotated[list[str], Parameter(completer=several("mechanisms", "changes"))]
