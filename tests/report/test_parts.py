"""The parts of the page: there where their facts are, in the contents, reached by links; the two rules told apart."""

import re
from dataclasses import replace

import pytest

from attnprobe.comparison import compare
from attnprobe.report import page, write
from attnprobe.report.claims import top
from attnprobe.report.parts import PARTS
from tests.report.test_page import read
from tests.report.test_verdicts import judged

READY = "html[data-ready=yes]"


def names_of(html):
    return re.findall(r'<section id="([\w-]+)"', html)


def linked(html, label):
    """What a nav of that name leads to."""
    found = re.search(rf"<nav[^>]*{label}.*?</nav>", html, re.S).group(0)
    return re.findall(r'href="#([\w-]+)"', found)


@pytest.fixture(scope="module")
def single(model):
    return compare(model, "the plot is wasted", ["raw_attention"], n_random=8, n_resamples=20, progress=False)


@pytest.mark.parametrize("which", ["one", "many", "single"])
def test_bar_and_contents_lead_to_every_part_in_order(which, request):
    html = page(request.getfixturevalue(which))
    parts = names_of(html)
    assert linked(html, 'aria-label="Sections"') == parts == linked(html, 'class="toc"')
    assert [p.name for p in PARTS if p.name in parts] == parts


def test_parts_without_facts_are_left_out_and_the_page_says_why(one, many, single):
    assert not {"spread", "worst", "texts", "verdicts"} & set(names_of(page(one)))
    assert {"spread", "worst", "texts"} <= set(names_of(page(many)))
    html = page(single)
    assert "agreement" not in names_of(html) and "#agreement" not in html
    assert "there is one method only" in read(html).words


def test_sections_are_numbered_as_the_contents_are(many):
    html = page(many)
    assert re.findall(r'class="kick"><i>(\d+)</i>', html) == [str(n + 1) for n in range(len(names_of(html)))]


@pytest.mark.parametrize(
    ("verdict", "tint", "badge"),
    [("explains", "yes", "Attention explains here"), ("misleads", "no", "Attention misleads here"),
     ("undecided", "open", "Undecided here")],
)  # fmt: skip
def test_the_badge_has_the_colour_of_the_verdict_and_removal_has_its_own(one, verdict, tint, badge):
    said = top(judged(one, [verdict]))
    assert said["badge"] == badge and said["verdict"] == tint
    first, second = said["badges"]
    assert (first["text"], first["kind"]) == (badge, tint)
    assert second["asks"] == "by removal" and second["kind"] == top(one)["verdict"]
    html = page(judged(one, [verdict]))
    assert f'class="badge v-{tint}"' in html


def test_the_claim_has_the_numbers_of_the_verdict(one, many):
    said = top(judged(one, ["misleads"]))
    assert said["headline"] == "Attention misleads on this prediction"
    assert "80\N{NARROW NO-BREAK SPACE}% of the effect" in said["lede"]
    assert "at random, 50\N{NARROW NO-BREAK SPACE}%" in said["lede"]
    of_many = top(judged(many, ["explains"] * 2 + ["misleads"] + ["undecided"] * 4))
    assert of_many["headline"] == "Attention explains 2 of 7 predictions and misleads on 1"
    assert of_many["badge"] == "Mostly undecided here" and "4 stay undecided" in of_many["lede"]


def test_few_texts_that_attention_explains_are_no_claim_about_most(many):
    assert top(judged(many, ["explains"] * 4 + ["misleads"] * 3))["badge"] == "Mixed verdicts here"
    assert top(judged(many, ["explains"] * 7))["badge"] == "Attention explains all of these"


def test_the_page_tells_verdict_and_holds_up_apart_in_one_sentence(one):
    words = " ".join(read(page(judged(one, ["undecided"]))).words.split())
    assert "Two rules, two questions: explains or misleads asks of one prediction" in words
    assert "holds up asks only whether its order of the tokens beats random orders" in words
    assert "Two rules" not in read(page(one)).words


def test_causes_of_one_text_stand_once(one):
    html = page(judged(one, ["misleads"]))
    assert html.count("look at value_norms") == 1


def test_a_link_opens_its_text_and_the_text_outlives_a_reload(browser, many, tmp_path):
    path = write(many, tmp_path / "page.html")
    page = browser.open(path, at="text-3", ready=READY)
    chosen = "document.querySelector('.pick select').value"
    assert page.evaluate(chosen) == "2"
    assert page.evaluate("document.getElementById('text').getBoundingClientRect().top < 200")
    page.locator(".pick [data-step='1']").first.click()
    assert page.evaluate(chosen) == "3" and page.url.endswith("#text-4")
    page.locator("[data-scale=row]").click()
    page.locator("#theme").click()
    page.locator("[data-kind=alone]").click()
    page.reload()
    page.wait_for_selector(READY, state="attached")
    assert page.evaluate(chosen) == "3"
    assert page.get_attribute("[data-scale=row]", "aria-pressed") == "true"
    assert page.get_attribute("[data-kind=alone]", "aria-pressed") == "true"
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_a_link_to_a_text_that_is_not_there_opens_the_first(browser, many, tmp_path):
    page = browser.open(write(many, tmp_path / "page.html"), at="text-99", ready=READY)
    assert page.evaluate("document.querySelector('.pick select').value") == "0"


def test_the_bar_marks_what_is_being_read(browser, one, tmp_path):
    page = browser.open(write(one, tmp_path / "page.html"), at="removal", ready=READY)
    page.wait_for_selector('#nav a[href="#removal"][aria-current]')
    page.locator("#methods").scroll_into_view_if_needed()
    page.evaluate("document.getElementById('methods').scrollIntoView()")
    page.wait_for_selector('#nav a[href="#methods"][aria-current]')
    assert page.locator("#nav a[aria-current]").count() == 1


def test_classes_with_numbers_in_their_names_are_told_from_counts(many):
    studies = tuple(
        replace(s, target=replace(s.target, predicted_name="class 19", label_name="class 19")) for s in many.studies
    )
    words = " ".join(read(page(replace(many, studies=studies))).words.split())
    assert words.count("class 19 (7)") == 2
