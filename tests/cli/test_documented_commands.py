"""Every command that is shown, in the documents, in notebooks and in --help, runs, or names what is there."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError
from cyclopts.exceptions import MissingArgumentError

from attnprobe.cli.app import app, main
from tests.architecture.source import ROOT

DOCUMENTS = sorted(
    path
    for place in (".", "reports", "benchmarks", "attnprobe", "notebooks")
    for path in (ROOT.glob("*.md") if place == "." else (ROOT / place).rglob("*.md"))
)
FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^[!$% ]*(?:\.venv/bin/)?(?:python -m )?(attnprobe .*)$", re.MULTILINE)
SPAN = re.compile(r"`(?:\.venv/bin/)?(?:python -m )?(attnprobe [a-z-][^`]*)`")
STUDY = re.compile(r"^# (\S+\.toml)$", re.MULTILINE)
# Commands that take more than some seconds, and why.
LONG = {
    "benchmark verdicts --families P1,P6,retrieval": "draws sixty models",
    "benchmark planted --only P1,P2 --variants 3": "every method on eight models",
    "benchmark planted --only P2 --format json": "every method",
}


def fenced(path: Path) -> Iterator[str]:
    """Commands that stand in blocks, continued lines put together; of notebooks those in cells of code too."""
    for block in texts_of(path):
        for _, body in FENCE.findall(block):
            yield from LINE.findall(body.replace("\\\n", " "))


def texts_of(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return [text]
    cells = json.loads(text)["cells"]
    whole = ["".join(cell["source"]) for cell in cells]
    return [
        f"```\n{body}\n```\n" if cell["cell_type"] == "code" else body for cell, body in zip(cells, whole, strict=True)
    ]


def examples_of_help() -> Iterator[tuple[str, str]]:
    """The lines below "Example:" in the help of each command."""
    for name, command in commands():
        text = command.default_command.__doc__ or "" if command.default_command else ""
        found = re.search(r"Examples?:\n((?:\s+attnprobe .*\n)+)", text)
        yield from ((f"help of {name}", line.strip()) for line in (found.group(1).splitlines() if found else ()))


def commands() -> Iterator[tuple[str, object]]:
    for name in app:
        if not name.startswith("-"):
            yield name, app[name]
            yield from ((f"{name} {inner}", app[name][inner]) for inner in app[name] if not inner.startswith("-"))


def shown() -> list:
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    found = [(str(path.relative_to(ROOT)), one) for path in [*DOCUMENTS, *notebooks] for one in fenced(path)]
    found += examples_of_help()
    return [pytest.param(*one, marks=marks_of(one[1]), id=f"{one[0]}: {one[1][10:60]}") for one in dict.fromkeys(found)]


def marks_of(command: str) -> list:
    return [pytest.mark.slow for start in LONG if command.startswith(f"attnprobe {start}")]


@pytest.fixture
def desk(here: Path) -> Path:
    """An empty folder with what the documents speak of: texts, and the study files that they show."""
    (here / "texts.txt").write_text("a dull film\na warm and funny film\n", "utf-8")
    for path in DOCUMENTS:
        for kind, body in FENCE.findall(path.read_text("utf-8")):
            for name in STUDY.findall(body)[:1] if kind == "toml" else ():
                (here / name).write_text(body, "utf-8")
    return here


@pytest.mark.parametrize(("where", "command"), shown())
def test_a_command_that_is_shown_runs(where: str, command: str, desk: Path, capsys: pytest.CaptureFixture[str]):
    words = shlex.split(command)[1:]
    assert main(words) == 0, capsys.readouterr().err
    for flag in ("--out", "--save-config"):
        for place in (Path(words[i + 1]) for i, word in enumerate(words[:-1]) if word == flag):
            assert place.exists() or list(place.parent.glob(f"{place.stem}*"))


def spans() -> list[tuple[str, str]]:
    found = [
        (str(path.relative_to(ROOT)), one)
        for path in DOCUMENTS
        for text in texts_of(path)
        for one in SPAN.findall(text)
    ]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("where", "span"), spans(), ids=lambda value: value[:60])
def test_a_command_in_a_sentence_names_what_is_there(where: str, span: str):
    """Its command and options exist; what a sentence leaves open (…, MODEL) may be missing."""
    words = [word for word in shlex.split(span.replace("…", " "))[1:] if word not in ("...",)]
    try:
        command, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
    except MissingArgumentError:
        return
    except CycloptsError as error:
        raise AssertionError(f"{where}: {span}: {error}") from error
    assert command is not None


def test_every_command_has_an_example_or_needs_none():
    told = {name.removeprefix("help of ") for name, _ in examples_of_help()}
    needless = {"demo", "methods", "metrics", "mechanisms", "benchmark"}
    assert {name for name, _ in commands()} - told - needless == set()


def test_the_readme_shows_every_command():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [name for name, _ in commands() if f"attnprobe {name}" not in readme and f"make {name}" not in readme] == []
