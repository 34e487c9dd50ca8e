"""A result at the end of a notebook's cell is a line and a small card, not a raw record."""

import re
from dataclasses import replace

import pytest

import attnprobe
from attnprobe.comparison import Comparison
from attnprobe.finding import findings
from attnprobe.report.claims import top
from attnprobe.theme import LIGHT

TEXT = "a dull <b>film</b> & more"


@pytest.fixture(scope="module")
def sentiment():
    return attnprobe.load("attnprobe/sentiment")


def test_an_attribution_is_one_line_with_its_largest_tokens(sentiment):
    found = attnprobe.attribute(sentiment, TEXT, "leave_one_out")
    largest = int(found.scores.abs().argmax())
    assert "\n" not in repr(found) and len(repr(found)) < 200
    assert f"leave_one_out of {found.target.description}: {found.example.pieces[largest]!r} " in repr(found)


def test_its_tokens_are_escaped_and_coloured_by_sign_and_size(sentiment):
    found = attnprobe.attribute(sentiment, TEXT, "leave_one_out")
    html = found._repr_html_()
    assert "<b>film" not in html and "&lt;" in html and "&amp;" in html and "<script" not in html
    cells = re.findall(r'title="([^"]*)" style="background:color-mix\(in oklab,#\w+,(#\w+) ([\d.]+)%', html)
    assert len(cells) == found.example.n_tokens
    whole = float(found.scores.abs().sum())
    for (said, pole, share), score in zip(cells, found.scores.tolist(), strict=True):
        assert float(said.replace("−", "-")) == pytest.approx(score, abs=5.1e-5)
        assert pole == LIGHT["neg" if score < 0 else "pos"]
        assert float(share) == pytest.approx(100 * min(1, (abs(score) / whole / 0.6) ** 0.5), abs=0.06)


def test_a_method_without_a_direction_has_one_colour(sentiment):
    html = attnprobe.attribute(sentiment, TEXT, "raw_attention")._repr_html_()
    assert LIGHT["wt"] in html and LIGHT["pos"] not in html and LIGHT["neg"] not in html


def test_a_comparison_is_its_claim_and_a_small_table(many: Comparison):
    assert repr(many).splitlines()[1] == f"{findings(many)[0].claim}>"
    assert len(repr(many).splitlines()) == 2 and f"on {len(many.studies)} texts" in repr(many)
    html = many._repr_html_()
    assert top(many)["headline"].rstrip(".").replace("'", "&#x27;") in html
    assert html.count("<tr>") == 1 + len(many.main[many.main.metric == "comprehensiveness"])


def test_equality_is_still_of_the_object_alone(many: Comparison):
    assert many == many and many != replace(many)
