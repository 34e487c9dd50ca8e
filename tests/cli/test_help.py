"""Help, version and the list of methods: quick, complete, and the same by both entries."""

import json
import subprocess
import sys

import pytest

from attnprobe import __version__
from attnprobe.cli.app import main
from attnprobe.methods import FAMILIES, methods
from tests.architecture.source import ROOT
from tests.architecture.test_imports import HEAVY

COMMANDS = (
    "demo",
    "report",
    "methods",
    "metrics",
    "attribute",
    "inspect",
    "heads",
    "head",
    "compare",
    "capture",
    "view",
    "swap",
    "mechanisms",
    "declaration",
    "benchmark",
)


ASKED = [[], *([command] for command in COMMANDS)]


@pytest.fixture(scope="module")
def helps() -> dict[str, list]:
    """Exit code, help, and what heavy modules are there behind it: of each command, by one process that shows them."""
    code = f"""
import contextlib, io, json, sys
from attnprobe.cli.app import main
found = {{}}
for words in {ASKED!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main([*words, "--help"])
    found[" ".join(words)] = code, out.getvalue(), [name for name in {HEAVY!r} if name in sys.modules]
print(json.dumps(found))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert answer.stderr == ""
    return json.loads(answer.stdout)


@pytest.mark.parametrize("words", ASKED, ids=lambda w: " ".join(w) or "attnprobe")
def test_help_is_shown_without_importing_anything_heavy(words: list[str], helps: dict[str, list]):
    code, shown, heavy = helps[" ".join(words)]
    assert shown.startswith(" ".join(["Usage: attnprobe", *words]))
    assert (code, heavy) == (0, [])


def test_python_m_attnprobe_is_the_same_command():
    answer = subprocess.run([sys.executable, "-m", "attnprobe", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert (answer.returncode, answer.stdout.strip(), answer.stderr) == (0, __version__, "")


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


def test_the_options_are_shown_from_reading_to_running(capsys: pytest.CaptureFixture[str]):
    main(["report", "--help"])
    shown = capsys.readouterr().out
    places = [shown.index(f"What to {what}") for what in ("read", "explain", "write")]
    assert places == sorted(places)
    options = {"text", "file", "column", "truncate", "target", "against", "position", "scale", "methods", "option"}
    options |= {"operator", "n-random", "seed", "out", "batch-rows", "device", "dtype", "config", "without", "format"}
    assert {name for name in options if f"--{name} " not in shown} == set()


def test_the_list_of_methods_for_programs_holds_every_method(capsys: pytest.CaptureFixture[str]):
    assert main(["methods", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == list(methods)
    for entry in listed:
        known = methods[entry["name"]]
        assert list(entry)[:4] == ["name", "family", "description", "source"]
        assert entry["family"] in FAMILIES
        assert (entry["description"], entry["source"]) == (known.description, known.source)
        assert entry["options"] == known.options
        assert {"formula", "cost", "signed"} <= set(entry)


def test_the_list_of_methods_for_people_holds_every_method_with_family_and_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].split() == ["name", "family", "what", "it", "says"]
    for name, entry in methods.items():
        assert [line for line in lines if line.startswith(name + " ") and f" {entry.family} " in line]
        assert entry.source[:40] in shown
    assert max(map(len, lines)) <= 120
