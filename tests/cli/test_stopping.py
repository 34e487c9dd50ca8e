"""Work that breaks off says what it left on disk."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from attnprobe import running
from attnprobe.cli.app import main

WORDS = ("--text", "a good film", "--text", "a dull plot", "--methods", "raw_attention", "--n-random", "2")
N_OPERATORS = 3  # by default; each judges a text once


@pytest.fixture
def second_text_raises(monkeypatch: pytest.MonkeyPatch):
    """Sets what is raised when the second of the texts is studied."""
    judge = running.judge

    def arm(error: BaseException) -> None:
        calls: list[int] = []

        def judged(*arguments: Any) -> Any:
            calls.append(1)
            if len(calls) == 1 + N_OPERATORS:
                raise error
            return judge(*arguments)

        monkeypatch.setattr(running, "judge", judged)

    return arm


def test_a_stopped_report_keeps_what_is_finished_and_says_where(here, classifier, second_text_raises, capsys):
    second_text_raises(KeyboardInterrupt())
    assert main(["report", str(classifier), *WORDS, "--out", "pages/page.html"]) == 130
    message = capsys.readouterr().err.splitlines()[-1]
    kept = Path("pages/page.partial/attributions.csv")
    assert message == (
        f"attnprobe: stopped; no page was written; the scores of the texts that were finished are in {kept}; "
        "the same command goes on from there"
    )
    assert set(pd.read_csv(kept).example_index) == {0}


def test_a_report_that_is_stopped_early_says_that_nothing_was_written(here, classifier, monkeypatch, capsys):
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attnprobe.cli.making.load", stopped)
    assert main(["report", str(classifier), *WORDS, "--out", "page.html"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "attnprobe: stopped; nothing was written"
    assert list(here.iterdir()) == []


def test_a_crash_keeps_what_is_finished_and_notes_where(here: Path, classifier: Path, second_text_raises):
    second_text_raises(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError) as caught:
        main(["report", str(classifier), *WORDS, "--out", "page.html"])
    assert "page.partial/attributions.csv" in caught.value.__notes__[0]


def test_a_finished_report_leaves_nothing_but_page_and_tables(here: Path, classifier: Path, pages: list):
    partial = here / "page.partial"
    partial.mkdir()
    (partial / "mine.txt").write_text("of somebody else", "utf-8")
    assert main(["report", str(classifier), *WORDS, "--out", "page.html"]) == 0
    assert sorted(path.name for path in here.iterdir()) == ["page", "page.html", "page.partial"]
    assert [path.name for path in partial.iterdir()] == ["mine.txt"]
