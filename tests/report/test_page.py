"""The page as text: self-contained, escaped, complete, and true to its tables."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
import torch

from attnprobe.comparison import compare
from attnprobe.errors import InputError
from attnprobe.report import check_writable, embedded, formula, page, write
from attnprobe.report.data import EXTRA
from attnprobe.report.making import without_paths
from attnprobe.report.tokens import visible
from tests.report.conftest import HOSTILE

VOID = {"meta", "br", "hr", "img", "input", "link", "path", "circle", "rect", "use"}


class Reader(HTMLParser):
    """Keeps tags, attributes and text; fails on a tag that is closed but not open."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.ids = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        while self.open[-1] != tag and self.open[-1] in ("li", "p", "option", "td", "th", "tr", "tbody"):
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def words(self):
        return " ".join(text for tag, text in self.texts if tag not in ("script", "style"))


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def viewer(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S).group(1))


def test_the_page_asks_for_nothing_from_outside(one, many):
    for comparison in (one, many):
        html = page(comparison, command="attnprobe demo")
        assert not re.search(r"https?://|//cdn|@import|url\(", html)
        for tag, attributes in read(html).tags:
            assert tag not in ("link", "iframe", "img", "object", "embed", "base")
            for name in ("src", "href"):
                target = attributes.get(name) or ""
                assert target == "" or target.startswith("#") or re.fullmatch(r"page/\w+\.csv", target)


def test_the_page_is_valid_html_with_each_id_once(one, many, hostile):
    for comparison in (one, many, hostile):
        ids = read(page(comparison)).ids
        assert len(ids) == len(set(ids))


def test_hostile_tokens_stay_text(hostile):
    html = page(hostile, command="x --text '</script><b>&'")
    assert "</script><b>" not in html
    assert html.count("</script>") == 3
    reader = read(html)
    assert viewer(html)["texts"][0]["tokens"][1:7] == [visible(t) for t in HOSTILE]
    assert "</script><b>" in reader.words and "a␣&␣b" in reader.words


def test_tokens_are_kept_apart_from_text_of_the_other_direction(hostile):
    assert "<bdi>\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET}</bdi>" in page(hostile)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" ", "␣"),
        ("\n", "⏎"),
        ("\t", "⇥"),
        ("\u200b", "⟨200B⟩"),
        ("\u202e", "⟨202E⟩"),
        ("\xa0", "⍽"),
        ("", "∅"),
        ("\ud800", "⟨D800⟩"),
    ],
)
def test_invisible_characters_are_shown(text, shown):
    assert visible(text) == shown


def test_embedded_data_cannot_end_its_tag():
    value = {"a": "</script><!--&\u2028\u2029", "b": [1.5, None]}
    text = str(embedded(value))
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_the_page_says_what_was_explained_and_how_it_was_made(one):
    html = page(one, command="attnprobe report model --seed 7")
    words = read(html).words
    label = one.studies[0].target.label_name
    for part in (
        "attnprobe report model --seed 7",
        f"logit of {label}",
        "for this text and this prediction only",
        "[MASK]",
        "Seed",
        "raw_attention",
    ):
        assert part in words
    for name, version in one.provenance.items():
        assert f"{name} {version}" in words
    assert f"{100 * one.studies[0].target.predicted_probability:.1f}" in words


def test_every_method_check_and_source_is_named(one):
    from attnprobe.methods import methods

    words = read(page(one)).words
    for name in one.methods:
        assert name in words and methods[name].source in words
    for check in one.checks.check:
        assert check.replace(" - ", " − ") in words


def test_no_words_of_cause(one, many):
    for comparison in (one, many):
        words = read(page(comparison)).words
        assert not re.search(r"\bbecause\b|the model thinks|\bproves?\b", words, re.I)


def test_the_tables_beside_the_page_equal_the_comparison(one, tmp_path):
    path = write(one, tmp_path / "new" / "page.html", command="c")
    assert path == tmp_path / "new" / "page.html" and path.read_text("utf-8") == page(one, command="c")
    assert sorted(p.name for p in path.parent.iterdir()) == ["page", "page.html"]
    assert sorted(p.stem for p in (tmp_path / "new" / "page").iterdir()) == sorted([*one.tables, *EXTRA])
    for name, table in one.tables.items():
        read_back = pd.read_csv(tmp_path / "new" / "page" / f"{name}.csv")
        assert list(read_back.columns) == list(table.columns) and len(read_back) == len(table)
        for column in table.columns:
            if pd.api.types.is_float_dtype(table[column]) and len(table):
                pd.testing.assert_series_equal(
                    read_back[column].astype(float),
                    table[column].astype(float).reset_index(drop=True),
                    check_names=False,
                    rtol=1e-6,
                )


def test_writing_twice_gives_the_same_page(one, tmp_path):
    first = write(one, tmp_path / "page.html").read_bytes()
    assert write(one, tmp_path / "page.html").read_bytes() == first


def test_scores_in_the_page_are_the_scores_of_the_table(one):
    text = viewer(page(one))["texts"][0]
    for attribution in one.studies[0].attributions:
        given = torch.tensor(text["methods"][attribution.method]["scores"])
        torch.testing.assert_close(given, attribution.scores, rtol=1e-4, atol=1e-9)


def test_several_texts_can_be_chosen_and_are_counted(many):
    html = page(many)
    words = read(html).words
    assert len(viewer(html)["texts"]) == 7
    assert html.count('<option value="6">') == 3
    for part in ("for these 7 texts", "of 7 texts", "7 of 7: good", "Text by text"):
        assert part in words


def test_intervals_that_are_not_known_are_left_out(one):
    agreement = one.agreement.assign(low=float("nan"), high=float("nan"))
    html = page(replace(one, agreement=agreement))
    assert "NaN" not in html.split("<script")[0] and ">nan" not in html and "[–" not in html
    assert "No intervals" in read(html).words
    json.loads(json.dumps(viewer(html), allow_nan=False))


def test_failures_are_shown_escaped(one):
    failures = pd.DataFrame(
        [(0, "rollout", "not defined for <this> model")], columns=["example_index", "method", "error"]
    )
    html = page(replace(one, failures=failures))
    assert "1 answer is missing" in read(html).words and "&lt;this&gt;" in html


def test_a_method_that_failed_on_one_text_is_left_out_there(many):
    first = many.studies[0]
    kept = tuple(a for a in first.attributions if a.method != "raw_attention")
    html = page(replace(many, studies=(replace(first, attributions=kept), *many.studies[1:])))
    texts = viewer(html)["texts"]
    assert "raw_attention" not in texts[0]["methods"] and "raw_attention" in texts[1]["methods"]


def test_one_method_without_a_name_of_its_own_look_makes_a_page(model):
    def my_own_method(model, example, target):
        """Length of each token."""
        return torch.tensor([float(len(t)) for t in example.tokens])

    words = read(page(compare(model, "good film", [my_own_method], n_random=3, n_resamples=20, progress=False))).words
    assert "My own method" in words


def test_a_method_that_warns_is_shown(one):
    study = one.studies[0]
    loud = replace(study.attributions[0], warnings=("the scores do not add up",))
    words = read(page(replace(one, studies=(replace(study, attributions=(loud, *study.attributions[1:])),)))).words
    assert "the scores do not add up" in words


def test_no_path_of_this_machine_is_shown(one, tmp_path):
    named = replace(one, model={**one.model, "name": f"{tmp_path}/models/bert"})
    html = page(named, command=f"attnprobe report {tmp_path}/models/bert --out page.html")
    assert str(tmp_path) not in html and "…/bert" in html
    assert without_paths("and/or 1/2 a / b") == "and/or 1/2 a / b"


@pytest.mark.parametrize("name", ["file.txt/page.html", "folder.html", "taken.html", "page"])
def test_a_place_that_cannot_be_written_is_told_and_nothing_is_left(one, tmp_path, name):
    (tmp_path / "file.txt").write_text("a file")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "taken").write_text("a file where the tables would go")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError):
        check_writable(tmp_path / name)
    with pytest.raises(InputError):
        write(one, tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_takes_no_files_is_told(one):
    with pytest.raises(InputError, match="choose another place"):
        write(one, "/proc/attnprobe/page.html")


def test_a_page_that_could_not_be_moved_leaves_nothing_half_written(one, tmp_path, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(InputError, match="No space left"):
        write(one, tmp_path / "page.html")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == []


def test_formulas_escape_what_is_not_a_script():
    assert str(formula("a_{<b>} & c^2")) == "a<sub>&lt;b&gt;</sub> &amp; c<sup>2</sup>"


def test_a_small_page_stays_small(one, many):
    assert len(page(one).encode()) < 220_000 and len(page(many).encode()) < 340_000
