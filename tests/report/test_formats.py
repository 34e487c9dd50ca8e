"""A comparison in other formats says what its tables say; one format that fails loses nothing of the others."""

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

import attnprobe.report.formats as formats
from attnprobe.comparison import Comparison
from attnprobe.errors import InputError
from attnprobe.report.formats import pdf
from attnprobe.report.formats.digest import digest, shown
from attnprobe.report.formats.document import SCHEMA, document_text
from attnprobe.report.formats.markdown import escaped, markdown
from attnprobe.report.formats.tabular import every_table
from attnprobe.report.texts import title
from tests.browser import CHROMIUM

NASTY = [
    "a|b",
    "<script>alert(1)</script>",
    "*star*",
    "_under_",
    "`tick`",
    "&amp;",
    "[a](b)",
    "# head",
    "1. one",
    "$x$",
]


def parsed(text: str) -> list:
    return MarkdownIt("commonmark").enable("table").parse(text)


def cells_of(text: str) -> list[str]:
    """The text of every cell of every table, as a reader of Markdown shows it."""
    tokens = parsed(text)
    inside = [tokens[i + 1] for i, token in enumerate(tokens) if token.type in ("td_open", "th_open")]
    return ["".join(child.content for child in token.children) for token in inside]


def not_a_number(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


# ---------------------------------------------------------------- json


def test_json_holds_every_table_to_the_last_digit_and_what_it_was_made_with(many: Comparison):
    found = json.loads(document_text(many, command="attnprobe report x"), parse_constant=not_a_number)
    tables = every_table(many)
    assert (found["schema"], found["provenance"]["command"]) == (SCHEMA, "attnprobe report x")
    assert found["provenance"]["versions"] == dict(many.provenance)
    assert list(found["tables"]) == list(tables)
    for name, table in tables.items():
        read = pd.DataFrame(found["tables"][name], columns=found["columns"][name])
        assert list(read.columns) == [str(column) for column in table.columns] and len(read) == len(table)
        for column in table.select_dtypes("number").columns:
            pd.testing.assert_series_equal(
                read[column].astype("float64"), table[column].astype("float64").reset_index(drop=True),
                rtol=1e-12, check_names=False,
            )  # fmt: skip


def test_every_table_of_the_page_is_in_every_format(many: Comparison, tmp_path: Path):
    many.report(tmp_path / "page.html", format="html,json")
    beside = {path.stem for path in (tmp_path / "page").iterdir()}
    assert set(json.loads((tmp_path / "page.json").read_text("utf-8"))["tables"]) == beside == set(every_table(many))
    assert len(every_table(many)["best_orders"])
    assert formats.write_all(many, tmp_path / "less.md", without=["best_orders"]).failed == ()


def test_json_names_no_folder_of_this_machine(one: Comparison):
    told = replace(one, model={**one.model, "name": "/srv/secret/models/bert"})
    text = document_text(told, command="attnprobe report /srv/secret/models/bert --out page.json")
    assert "secret" not in text and json.loads(text)["model"]["name"].endswith("/bert")


def test_what_is_left_out_is_in_no_format(one: Comparison, tmp_path: Path):
    formats.write_all(one, tmp_path / "a.json", ["json", "csv"], without=["heads"])
    assert not (tmp_path / "a" / "heads.csv").exists() and (tmp_path / "a" / "texts.csv").is_file()
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert "heads" not in found["tables"] and found["left_out"] == ["heads"]
    made = formats.write_all(one, tmp_path / "b.json", without=["haeds"])
    assert "did you mean 'heads'" in made.failed[0].reason


# ---------------------------------------------------------------- csv and parquet


def test_csv_and_parquet_hold_the_same_rows(many: Comparison, tmp_path: Path):
    pytest.importorskip("pyarrow")
    many.report(tmp_path / "study.html", format="csv,parquet")
    for name, table in every_table(many).items():
        read = pd.read_csv(tmp_path / "study" / f"{name}.csv")
        typed = pd.read_parquet(tmp_path / "study" / f"{name}.parquet")
        assert list(read.columns) == list(typed.columns) == [str(column) for column in table.columns]
        assert len(read) == len(typed) == len(table)
        for column in table.select_dtypes("number").columns:
            pd.testing.assert_series_equal(
                typed[column].astype("float64"), table[column].astype("float64").reset_index(drop=True),
                rtol=1e-12, check_names=False,
            )  # fmt: skip


# ---------------------------------------------------------------- markdown


@pytest.mark.parametrize("text", NASTY)
def test_a_text_in_markdown_is_shown_as_itself(text: str):
    (line,) = [token for token in parsed(escaped(text)) if token.type == "inline"]
    assert "".join(child.content for child in line.children) == text
    assert {child.type for child in line.children} <= {"text", "text_special"}


def test_hostile_tokens_change_nothing_in_the_tables(hostile: Comparison):
    text = markdown(hostile)
    assert not [token for token in parsed(text) if token.type in ("html_block", "html_inline")]
    titles = [title(study) for study in hostile.studies]
    assert [cell for cell in cells_of(text) if cell in titles] == titles


def test_markdown_holds_claim_findings_and_the_tables_of_the_digest(many: Comparison):
    text, found = markdown(many, command="attnprobe report x --text 'a `b`'", summary=["Mine."]), digest(many)
    assert text.startswith(f"# {escaped(found.claim)}\n")
    assert all(f"- {escaped(claim)}" in text for claim in found.findings) and "\nMine.\n" in text
    cells = cells_of(text)
    for block in found.blocks:
        at = [i for i in range(len(cells)) if tuple(cells[i : i + len(block.headers)]) == block.headers]
        size = len(block.headers)
        rows = [[" ".join(cell.split()) for cell in row] for row in block.rows]
        assert any(
            [cells[i + size * (n + 1) : i + size * (n + 2)] for n in range(len(rows))] == rows for i in at
        ), block.title  # fmt: skip
    (command,) = [token.content for token in parsed(text) if token.type == "fence"]
    assert command.strip() == "attnprobe report x --text 'a `b`'"


def test_small_numbers_are_not_rounded_away():
    assert [shown(v) for v in (0.00012345, 0.0456, 1.0, 12.345, 1234.5, 0.0)] == [
        "1.2 × 10⁻⁴", "0.0456", "1.00", "12.3", "1234", "0",
    ]  # fmt: skip
    assert (shown(-0.5, sign=True), shown(0.5, sign=True), shown(float("nan"))) == ("−0.500", "+0.500", "–")


# ---------------------------------------------------------------- pdf


def inflated(path: Path) -> bytes:
    """The whole of a PDF with its streams unpacked."""
    raw, parts = path.read_bytes(), []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", raw, re.S):
        try:
            parts.append(zlib.decompress(stream))
        except zlib.error:
            parts.append(stream)
    return raw + b"".join(parts)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_pdf_is_the_printed_page_and_names_no_folder_of_this_machine(one: Comparison, tmp_path: Path):
    path = one.report(tmp_path / "new" / "page.pdf")
    assert path == tmp_path / "new" / "page.pdf" and path.read_bytes().startswith(b"%PDF")
    assert [one.name for one in path.parent.iterdir()] == ["page.pdf"]
    whole = inflated(path)
    assert len(re.findall(rb"/Type\s*/Page\b", whole)) >= 2
    assert b"file:" not in whole and b"/tmp/" not in whole


def test_where_no_chromium_is_installed_a_pdf_is_refused_before_any_work(
    one: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pdf.shutil, "which", lambda name: None)
    monkeypatch.setattr(pdf, "ELSEWHERE", ())
    with pytest.raises(InputError, match="printed by Chromium or Chrome, and none is installed here"):
        formats.check_formats(tmp_path / "page.html", "html,pdf")
    with pytest.raises(InputError, match="none is installed"):
        one.report(tmp_path / "page.pdf")
    assert list(tmp_path.iterdir()) == []


def test_a_browser_that_makes_nothing_is_told_with_what_it_said(tmp_path: Path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho 'no room for shared memory' >&2\nexit 3\n")
    broken.chmod(0o755)
    page = tmp_path / "page.html"
    page.write_text("<p>a</p>", "utf-8")
    with pytest.raises(InputError, match="chromium made no PDF of the page: no room for shared memory"):
        pdf.print_page(page, tmp_path / "page.pdf", str(broken))


# ---------------------------------------------------------------- which, and where


def test_one_format_that_fails_loses_nothing_of_the_others(
    one: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object, **__: object) -> str:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(formats, "markdown", broken)
    made = formats.write_all(one, tmp_path / "page.html", ["md", "json", "html"])
    assert set(made.paths) == {"json", "html"} and all(path.is_file() for path in made.paths.values())
    assert [(failed.format, failed.reason) for failed in made.failed] == [("md", "ZeroDivisionError: a fault")]
    with pytest.raises(InputError, match=r"md: ZeroDivisionError: a fault \(json, html are written\)"):
        made.require()


def test_a_name_with_a_point_in_it_can_be_written_again(one: Comparison, tmp_path: Path):
    for _ in range(2):
        made = formats.write_all(one, tmp_path / "model-v0.1.html", ["html", "csv", "md"])
        assert made.failed == () and made.paths["csv"].name == "model-v0.1"


@pytest.mark.parametrize("name", ["md", "json", "csv"])
def test_writing_that_breaks_off_leaves_the_old_file(one: Comparison, tmp_path: Path, monkeypatch, name: str):
    (tmp_path / "p").mkdir()
    old = tmp_path / "p" / "agreement.csv" if name == "csv" else tmp_path / f"p.{name}"
    old.write_text("old", "utf-8")

    def breaks(path: object, *_: object, **__: object) -> None:
        Path(str(path)).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", breaks)
    monkeypatch.setattr(pd.DataFrame, "to_csv", lambda table, path, **_: breaks(path))
    assert "No space left" in formats.write_all(one, tmp_path / f"p.{name}", [name]).failed[0].reason
    assert old.read_bytes() == b"old"
    assert not [path for path in tmp_path.rglob("*") if path not in (old, tmp_path / "p")]


@pytest.mark.parametrize(
    ("out", "format", "names"),
    [
        ("p.html", None, ["p", "p.html"]),
        ("p.md", None, ["p.md"]),
        ("p.json", "json", ["p.json"]),
        ("p.html", "md", ["p.md"]),
        ("p.v2", "md,json", ["p.v2.json", "p.v2.md"]),
        ("p", ["json", "md"], ["p.json", "p.md"]),
    ],
)
def test_each_format_takes_the_name_with_its_own_ending(one: Comparison, tmp_path: Path, out, format, names):
    path = one.report(tmp_path / out, format=format)
    assert path.exists() and sorted(p.name for p in tmp_path.iterdir()) == names


@pytest.mark.parametrize(
    ("out", "format", "message"),
    [
        ("p.html", "htlm", "did you mean 'html'"),
        ("p.html", ",", "no format is named; known: html, pdf"),
        ("p.txt", None, "ends in .html, .pdf, .md or .json"),
    ],
)
def test_a_format_that_is_not_there_is_refused(one: Comparison, tmp_path: Path, out, format, message):
    with pytest.raises(InputError, match=message):
        one.report(tmp_path / out, format=format)
    assert list(tmp_path.iterdir()) == []


def test_what_stands_in_brackets_is_said_of_random_orders_and_of_intervals(many: Comparison, one: Comparison):
    rows = many.main[(many.main.metric == "comprehensiveness") & (many.main.method == "raw_attention")]
    (position,) = [p for p in many.positions.to_dict("records") if p["example_index"] == 0
                   and (p["metric"], p["method"]) == ("comprehensiveness", "raw_attention")
                   and p["operator"] == many.settings.operator]  # fmt: skip
    judged = many.studies[0].under(many.settings.operator)
    assert judged is not None and not rows.empty
    assert position["random_low"] < position["random_high"]
    several, single = (next(b for b in digest(c).blocks if b.title == "Comprehensiveness").note for c in (many, one))
    random = "random orders: their mean and, in brackets, the middle 90 % of them"
    assert several.endswith(f"; interval: 95 % over texts; {random}")
    assert single.endswith(random) and "95 %" not in single


def test_two_texts_have_no_intervals_and_none_is_spoken_of(many: Comparison):
    two = replace(many, faithfulness=many.faithfulness.assign(low=float("nan"), high=float("nan")))
    assert not [block.note for block in digest(two).blocks if "over texts" in block.note]
