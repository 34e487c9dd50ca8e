"""attnprobe report --format: several at once, each told where it went; one that fails loses nothing."""

import json
from pathlib import Path

import pytest

import attnprobe.report.formats as formats
from attnprobe.cli.app import main
from attnprobe.report.formats import pdf

QUICK = ("--methods", "raw_attention,leave_one_out", "--n-random", "2", "--no-verdicts", "--no-oracle")


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("- ")]


def test_each_format_is_written_and_told(classifier: Path, here: Path, pages: list, capsys):
    words = ["report", str(classifier), "--text", "a good film", *QUICK, "--format", "html,md", "--format", "json"]
    assert main([*words, "--out", "new/page.html"]) == 0
    assert lines(capsys) == [
        "page:   new/page.html",
        "md:     new/page.md",
        "json:   new/page.json",
        "tables: new/page",
    ]
    assert sorted(path.name for path in (here / "new").iterdir()) == ["page", "page.html", "page.json", "page.md"]
    assert json.loads((here / "new" / "page.json").read_text("utf-8"))["provenance"]["command"].startswith("attnprobe")


def test_the_ending_of_out_is_the_format(classifier: Path, here: Path, capsys):
    assert main(["report", str(classifier), "--text", "a good film", *QUICK, "--out", "page.md"]) == 0
    assert lines(capsys) == ["md:     page.md"]
    assert [path.name for path in here.iterdir()] == ["page.md"]


def test_the_page_gets_sentences_and_leaves_out_tables(classifier: Path, here: Path):
    words = ["--summary", "My own sentence.", "--without", "heads,attributions", "--map-bytes", "0"]
    assert main(["report", str(classifier), "--text", "a good film", *QUICK, *words, "--out", "page.html"]) == 0
    assert "My own sentence." in (here / "page.html").read_text("utf-8")
    tables = {path.stem for path in (here / "page").iterdir()}
    assert "texts" in tables and not tables & {"heads", "attributions"}


def test_a_format_that_fails_is_told_and_the_work_is_kept(classifier: Path, here: Path, monkeypatch, capsys):
    def broken(*_: object, **__: object) -> str:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(formats, "markdown", broken)
    words = ["report", str(classifier), "--text", "a good film", *QUICK, "--format", "md,json", "--out", "page.html"]
    assert main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        "attnprobe: error: md could not be made: ZeroDivisionError: a fault. Written: json: page.json; "
        "the same command goes on from page.partial"
    )
    assert json.loads((here / "page.json").read_text("utf-8"))["tables"]
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.setattr("attnprobe.running.judge", broken)  # nothing is computed again
    assert main(words) == 0
    assert sorted(path.name for path in here.iterdir()) == ["page.json", "page.md"]


def test_a_format_that_cannot_be_had_is_refused_before_any_work(refused, monkeypatch: pytest.MonkeyPatch):
    words = ("report", "never-looked-for", "--text", "a", "--out", "page.html", "--format")
    monkeypatch.setattr(pdf, "BROWSERS", ())
    monkeypatch.setattr(pdf, "ELSEWHERE", ())
    assert "a PDF is printed by Chromium or Chrome, and none is installed here" in refused(*words, "html,pdf")
    assert "no format is named 'htlm'; did you mean 'html'?" in refused(*words, "htlm")
    monkeypatch.setattr("attnprobe.report.formats.tabular.importlib.util.find_spec", lambda name: None)
    assert "parquet needs pyarrow" in refused(*words, "parquet")
