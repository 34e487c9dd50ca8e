"""What the page says of verdicts is what the tables hold; sentences for its top; tables that are left out."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from markupsafe import escape

from attnprobe import verdict_tables
from attnprobe.errors import InputError
from attnprobe.report import page, write
from attnprobe.report.data import EXTRA
from attnprobe.report.sides import other_side
from attnprobe.report.verdicts import panel
from attnprobe.viewer.facts import NO_ROOM
from attnprobe.wording import PROPER, named

CAUSES = "sink: '[CLS]' has 60 % of the weight; look at value_norms"


def judged(comparison, verdicts):
    """The comparison with these verdicts of two maps, text by text."""
    rows = [
        {
            "example_index": index,
            "method": method,
            "verdict": verdict if method == "raw_attention" else "undecided",
            "reason": "its first units miss 3% of the effect",
            "against": "one <thing> | another",
            "causes": "" if verdict == "explains" else CAUSES,
            "operators": "mean, resample",
            "lacking": "",
            "quality": 0.8,
            "random": 0.5,
            "n_orders": 16,
            "seed": 0,
        }
        for index, verdict in enumerate(verdicts)
        for method in ("raw_attention", "rollout")
    ]
    table = pd.DataFrame(rows)
    return replace(comparison, verdicts=table, verdict_shares=verdict_tables.shares(table))


@pytest.fixture
def seven(many):
    return judged(many, ["explains"] * 2 + ["misleads"] + ["undecided"] * 4)


def test_a_page_without_verdicts_has_no_section_for_them(one):
    assert 'id="verdicts"' not in page(one) and "#verdicts" not in page(one)


def test_shares_on_the_page_are_those_of_the_table(seven):
    found = panel(seven, ["raw_attention", "rollout", "leave_one_out"])
    assert [row["method"] for row in found["rows"]] == ["raw_attention", "rollout"]
    assert [part["count"] for part in found["rows"][0]["parts"]] == [2, 1, 4]
    assert sum(part["width"] for part in found["rows"][0]["parts"]) == pytest.approx(100, abs=0.02)
    assert found["heading"].endswith("2 explain, 1 misleads, 11 undecided")
    assert found["rows"][0]["causes"][0]["name"] == "sink" and found["rows"][0]["causes"][0]["n"] == 5
    html = page(seven)
    assert html.count("vd-misleads") >= 2 and '<a href="#verdicts">' in html


def test_of_one_text_the_page_gives_reason_causes_and_what_speaks_against(one):
    html = page(judged(one, ["misleads"]))
    for part in ("Its first tokens miss 3\u202f% of the effect.", "One &lt;thing&gt;. Another.", "look at value_norms"):
        assert part in html


@pytest.mark.parametrize(
    ("verdicts", "side"),
    [(["explains"] * 7, "For:"), (["misleads"] * 7, "Against:"), (["undecided"] * 7, "Open:")],
)
def test_verdicts_stand_beside_the_claim_on_removal(many, verdicts, side):
    said = other_side(judged(many, verdicts), ())
    assert any(label == side and "map of what acts" in " ".join(lines) for label, lines in said["groups"])


def test_sentences_for_the_top_are_shown_and_escaped(one):
    html = page(one, summary=["First <b>.", "Second."])
    top = html[html.index('class="hero"') : html.rindex("</header>")]
    learned = top[top.index('class="learned"') :]
    assert re.findall(r"<li>(.*?)</li>", learned)[:2] == ["First &lt;b&gt;.", "Second."]
    assert "What was learned" not in page(one)


def test_a_table_that_is_left_out_is_neither_written_nor_linked(one, tmp_path):
    path = write(one, tmp_path / "page.html", without=["positions", "heads"])
    names = {file.stem for file in (tmp_path / "page").iterdir()}
    assert names == {*one.tables, *EXTRA} - {"positions", "heads"}
    html = path.read_text("utf-8")
    assert "positions.csv" not in html and "heads.csv" not in html and "positions, heads" in html
    with pytest.raises(InputError, match=r"no table is named 'position'.*positions"):
        write(one, tmp_path / "other.html", without=["position"])
    assert not (tmp_path / "other.html").exists()


def test_methods_are_written_as_people_write_them():
    assert named(["attcat", "attention_x_gradient"]) == "AttCAT and attention × gradient"
    assert all(label.strip() == label and label for label in PROPER.values())


def test_no_more_maps_than_asked_for_are_on_the_page(one):
    html = page(one, map_bytes=0)
    assert escape(NO_ROOM) in html and len(html) < len(page(one))
