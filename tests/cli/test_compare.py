"""attnprobe compare: what the report says, on the terminal and for programs."""

import json
from pathlib import Path

import pandas as pd
import pytest

from attnprobe import compare
from attnprobe.cli.app import main
from attnprobe.report.data import EXTRA
from attnprobe.report.formats.digest import digest

TEXTS = ["a good film", "the plot, very dull"]
WORDS = ["--text", TEXTS[0], "--text", TEXTS[1], "--methods", "raw_attention,leave_one_out", "--n-random", "4"]


@pytest.fixture(scope="module")
def found(classifier: Path):
    return compare(str(classifier), TEXTS, ["raw_attention", "leave_one_out"], n_random=4, progress=False)


def test_every_table_of_the_digest_is_printed_below_the_claim(classifier: Path, found, here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["compare", str(classifier), *WORDS]) == 0
    out, told = " ".join(capsys.readouterr().out.split()), digest(found)
    assert out.startswith("what was found " + " ".join(told.claim.split())[:60])
    for block in told.blocks:
        if block.title == "What it cost":
            continue  # seconds are other ones each time
        assert block.title in out
        for row in block.rows:
            for cell in row:
                assert all(word in out for word in cell.split()), (block.title, cell)
    assert list(here.iterdir()) == []


def test_json_is_the_document_of_the_report(classifier: Path, found, capsys):
    assert main(["compare", str(classifier), *WORDS, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["schema"] == "attnprobe.comparison/1"
    read = pd.DataFrame(printed["tables"]["attributions"])
    assert read.score.tolist() == pytest.approx(found.to_frame().score.tolist(), abs=1e-12)


@pytest.mark.parametrize("table", ["faithfulness", "attributions", "agreement"])
def test_csv_is_the_table_that_was_named(classifier: Path, found, capsys, table: str):
    import io

    assert main(["compare", str(classifier), *WORDS, "--format", "csv", "--table", table]) == 0
    read = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert list(read.columns) == list(found.tables[table].columns) and len(read) == len(found.tables[table])


def test_a_folder_gets_every_table(classifier: Path, found, here: Path, capsys):
    assert main(["compare", str(classifier), *WORDS, "--no-verdicts", "--no-oracle", "--out", "new/tables"]) == 0
    assert {path.stem for path in (here / "new" / "tables").iterdir()} == {*found.tables, *EXTRA}
    assert [path.name for path in here.iterdir()] == ["new"]
    faithfulness = pd.read_csv(here / "new" / "tables" / "faithfulness.csv")
    assert faithfulness.oracle.isna().all()
    assert len(pd.read_csv(here / "new" / "tables" / "verdict_shares.csv")) == 0


def test_what_cannot_be_is_one_message_before_any_work(refused, here: Path, classifier: Path):
    (here / "file").write_text("", "utf-8")
    assert "is a file" in refused("compare", "never-looked-for", "--text", "a", "--out", "file")
    assert "no table is named 'agrement'; did you mean 'agreement'?" in refused(
        "compare", "never-looked-for", "--text", "a", "--table", "agrement"
    )
    assert "there is no text" in refused("compare", classifier)
