"""What commands print for programs is one document and nothing else; for people it keeps to the terminal."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from attnprobe.cli.app import main
from attnprobe.cli.printing import as_csv, plain, show_table
from tests.architecture.source import ROOT

TEXT = ("--text", "a good film")
COMMANDS = {
    "methods": ["methods"],
    "metrics": ["metrics"],
    "mechanisms": ["mechanisms"],
    "inspect": ["inspect", "MODEL"],
    "attribute": ["attribute", "MODEL", *TEXT, "--method", "leave_one_out"],
    "compare": ["compare", "MODEL", *TEXT, "--methods", "raw_attention,leave_one_out", "--n-random", "2"],
    "capture": ["capture", "MODEL", *TEXT, "--keep", "weights,z"],
    "heads": ["heads", "MODEL", *TEXT, "--score", "entropy", "--effect", "none"],
    "head": ["head", "MODEL", "1.0", *TEXT, "--score", "entropy", "--effect", "none"],
    "swap": ["swap", "MODEL", *TEXT, "--mechanism", "hard", "--method", "none"],
    "benchmark planted": ["benchmark", "planted", "--only", "P1", "--method", "rollout,raw_attention"],
    "benchmark verdicts": ["benchmark", "verdicts", "--families", "P1,P2", "--variants", "1"],
}


def words(name: str, classifier: Path, *more: str) -> list[str]:
    return [str(classifier) if word == "MODEL" else word for word in COMMANDS[name]] + list(more)


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_one_document_and_nothing_else(name: str, classifier: Path, here: Path, capsys):
    assert main(words(name, classifier, "--format", "json")) == 0
    assert json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_csv_is_one_table_with_a_head(name: str, classifier: Path, here: Path, capsys):
    assert main(words(name, classifier, "--format", "csv")) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}
    assert len(set(rows[0])) == len(rows[0]) and all(rows[0])
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "inspect"])
def test_a_table_keeps_to_80_columns_and_holds_no_codes_in_a_pipe(name, classifier, here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(words(name, classifier)) == 0
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines()[1:])) <= 80  # a text of its own stands above a capture
    assert "\x1b" not in out and "nan" not in out.split() and all(line == line.rstrip() for line in out.splitlines())


def test_a_table_breaks_between_words_and_loses_nothing_where_it_is_narrow(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    show_table(["name", "value", "what"], [["integrated_gradients", "1.5", "a sentence of some words"]], left={0, 2})
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 30
    whole = "".join(out.split())
    assert all(c in whole for c in "integrated_gradients1.5") and "sentence" in out and "words" in out


def test_numbers_stand_to_the_right_words_to_the_left_and_empty_columns_are_left_out(capsys):
    show_table(["name", "none", "value"], [["a", "", "1.5"], ["abc", "", "10"]])
    assert capsys.readouterr().out == "name  value\na       1.5\nabc      10\n"


def test_what_a_token_holds_does_nothing_to_the_terminal(capsys):
    show_table(["token"], [["\x1b[2J[bold]x[/bold] :smile:"]])
    assert capsys.readouterr().out.splitlines()[1] == "\\x1b[2J[bold]x[/bold] :smile:"


def test_what_is_no_number_is_null_in_json_and_empty_in_csv():
    value = {"a": float("nan"), "b": [float("inf"), 1.0], 3: {"x"}}
    assert plain(value) == {"a": None, "b": [None, 1.0], "3": ["x"]}
    assert as_csv([{"a": float("nan"), "b": 1}]) == "a,b\n,1\n"


def test_help_says_the_three_formats_everywhere(capsys):
    for name, line in COMMANDS.items():
        command = line[:2] if name.startswith("benchmark") else line[:1]
        assert main([*command, "--help"]) == 0
        out = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "--format CHOICE" in out and "[choices: table, json, csv]" in out, name


@pytest.mark.parametrize("words", [["methods"], ["methods", "--format", "json"], ["report", "--help"]])
def test_a_terminal_without_unicode_gets_escapes(words: list[str]):
    plain_terminal = os.environ | {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "ascii",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-m", "attnprobe", *words], env=plain_terminal, capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    if "json" in words:
        with_letters = [row for row in json.loads(done.stdout.decode("ascii")) if not row["formula"].isascii()]
        assert with_letters and b"\\u" in done.stdout
