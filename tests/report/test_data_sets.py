"""Pages of several texts: the worst ones with their reasons, all texts at a glance, the list, the best orders."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnprobe.report import page, write
from attnprobe.report.best_orders import best_orders
from attnprobe.report.sides import other_side
from attnprobe.report.spread import spread
from attnprobe.report.worst import ranked, worst
from attnprobe.study import ORACLE, RANDOM_ORDER, SHARES
from tests.report.test_page import viewer
from tests.report.test_verdicts import judged

READY = "html[data-ready=yes]"


def behind(comparison, gaps):
    """The comparison where attention is behind random orders by so much on each text."""
    table = comparison.positions.copy()
    mine = (table.method == "raw_attention") & (table.metric == "comprehensiveness")
    by_text = table.example_index.map(dict(enumerate(gaps)))
    table.loc[mine, "value"] = (table.random_mean - by_text)[mine]
    return replace(comparison, positions=table)


def test_the_worst_texts_come_in_the_order_of_their_gap(many):
    found = worst(behind(many, [0.1, 0.4, -0.2, 0.3, 0.05, 0.0, 0.2]))
    assert [row["index"] for row in found["rows"]] == [1, 3, 6, 0, 4]
    assert "worse than random orders on 5 of 7 texts" in found["heading"]


def test_texts_that_attention_misleads_on_come_first_and_are_never_hidden(many):
    verdicts = ["undecided"] * 2 + ["misleads"] + ["undecided"] * 4
    found = worst(judged(behind(many, [0.1, 0.4, -0.2, 0.3, 0.05, 0.0, 0.2]), verdicts))
    assert [row["index"] for row in found["rows"]][:2] == [2, 1]
    assert found["rows"][0]["verdict"] == "misleads" and "misleads on 1 of 7" in found["heading"]


def test_texts_on_which_attention_serves_badly_speak_against_it_at_the_top(many):
    gaps = [0.1, 0.4, -0.2, 0.3, 0.05, 0.0, 0.2]
    made = judged(behind(many, gaps), ["undecided"] * 2 + ["misleads"] + ["undecided"] * 4)
    said = dict(other_side(made, (), "open")["groups"])["Against:"]
    assert "By the verdict it misleads on 1 of 7 texts." in said
    assert "On 5 of 7 texts its order does worse than random orders on average." in said
    fine = judged(behind(many, [-0.1] * 7), ["undecided"] * 7)
    assert not any(
        "misleads" in one or "worse" in one for _, them in other_side(fine, (), "open")["groups"] for one in them
    )


def test_no_more_than_ten_are_listed(many):
    twice = replace(many, studies=many.studies * 2, positions=ranked_twice(many))
    assert len(worst(behind(twice, [0.1] * 14))["rows"]) == 10


def ranked_twice(comparison):
    import pandas as pd

    second = comparison.positions.assign(example_index=comparison.positions.example_index + 7)
    return pd.concat([comparison.positions, second], ignore_index=True)


def test_the_reason_has_the_numbers_of_the_text(many):
    study = many.studies[0]
    attention, removal = study.attribution("raw_attention"), study.attribution("leave_one_out")
    tokens, units = study.example.pieces, [i for i, is_unit in enumerate(removal.units.tolist()) if is_unit]
    scores = torch.zeros(study.example.n_tokens)
    scores[units[0]], scores[units[1]] = 3.0, 1.0
    effects = torch.zeros(study.example.n_tokens)
    effects[units[0]], effects[units[1]] = 0.01, -2.0
    others = tuple(
        replace(a, scores=scores) if a is attention else replace(a, scores=effects) if a is removal else a
        for a in study.attributions
    )
    changed = replace(many, studies=(replace(study, attributions=others), *many.studies[1:]))
    why = worst(behind(changed, [0.9] + [-1.0] * 6))["rows"][0]["why"].replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert f"It puts “{tokens[units[0]]}” first (75 % of its weight), which by leave-one-out hardly matters" in why
    assert (
        f"“{tokens[units[1]]}”, which has the largest effect (against the answer), is number 2 of {len(units)}" in why
    )
    assert "Taking its top tokens away raises the answer by" in why


def test_few_texts_have_no_list_of_the_worst(one, many):
    assert worst(one) is None
    assert worst(replace(many, studies=many.studies[:3])) is None
    assert ranked(many).behind.is_monotonic_increasing


def test_dots_are_the_numbers_of_the_table(many):
    found = spread(many, list(many.methods))
    for metric in found["metrics"]:
        for method, values in metric["values"].items():
            table = many.positions
            mine = table[(table.operator == many.settings.operator) & (table.metric == metric["metric"])]
            exact = mine[mine.method == method].sort_values("example_index").value
            assert values == pytest.approx(list(exact), rel=1e-3, abs=1e-9)
            assert metric["medians"][method] == pytest.approx(float(np.median(exact)), rel=1e-3, abs=1e-9)
    assert {row["n"] for row in found["rows"]} == {7}


def test_a_dot_a_text_is_drawn_and_opens_its_text(browser, many, tmp_path):
    page = browser.open(write(many, tmp_path / "page.html"), ready=READY)
    dots = page.locator("#spreadbox path.dots").first.get_attribute("d")
    assert dots.count("M") == 7
    figure = page.locator("#spreadbox svg[tabindex]")
    figure.focus()
    figure.press("ArrowRight")
    said = page.inner_text("#spnow")
    figure.press("ArrowRight")
    assert page.inner_text("#spnow") != said
    number = page.inner_text("#spnow").split(":")[0].removeprefix("Text ")
    figure.press("Enter")
    assert page.url.endswith(f"#text-{number}")
    page.locator("[data-spread='1']").click()
    assert page.inner_text("#spsaid") == spread(many, list(many.methods))["metrics"][1]["said"]


def test_the_list_sorts_and_long_lists_are_short_at_first(browser, many, tmp_path):
    page = browser.open(write(many, tmp_path / "page.html"), ready=READY)
    heading = page.locator("#list thead th", has_text="Probability")
    for order, sign in (("descending", -1), ("ascending", 1)):
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == order
        shown = page.locator("#list tbody tr td:nth-child(5)").evaluate_all("cells => cells.map(c => +c.dataset.v)")
        assert shown == sorted(shown, key=lambda v: sign * v) and len(shown) == 7
    page.locator("#list tbody a").nth(2).click()
    page.wait_for_function("document.querySelector('#list tr.on a').hash === location.hash")


def test_a_list_of_many_texts_shows_twenty_until_asked(browser, many, tmp_path):
    long = replace(many, studies=many.studies * 4)
    page = browser.open(write(long, tmp_path / "page.html"), ready=READY)
    rows = page.locator("#list tbody tr:visible")
    assert rows.count() == 20
    page.locator("#more").click()
    assert rows.count() == 28 and not page.locator("#more").is_visible()


def test_the_curve_of_the_best_order_is_that_of_the_search_and_no_random_one_is_better(one):
    found = best_orders(one)
    judged_by = one.studies[0].judged[0]
    for kind, better in (("removed", min), ("alone", max)):
        mine = found[found.kind == kind].sort_values("share")["mean"].to_numpy()
        area = np.trapezoid(mine, SHARES)
        searched = [np.trapezoid(c, SHARES) for c in judged_by.curve(kind, ORACLE)]
        random = [np.trapezoid(c, SHARES) for c in judged_by.curve(kind, RANDOM_ORDER)]
        assert area == pytest.approx(better(searched), rel=1e-6)
        assert better(area, *random) == area
    assert len(found) == 2 * len(SHARES)


def test_curves_show_random_and_best_bands_with_their_legend(browser, many, one, tmp_path):
    for comparison in (many, one):
        page = browser.open(write(comparison, tmp_path / "page.html"), ready=READY)
        n = len(viewer((tmp_path / "page.html").read_text("utf-8"))["main"])
        assert page.locator("#multi svg path.ob").count() == page.locator("#multi svg path.rb").count() == n
        assert "random orders" in page.inner_text("#ckey") and "best order found" in page.inner_text("#ckey")


def test_without_a_search_there_is_no_best_curve(model):
    from attnprobe.comparison import compare

    found = compare(
        model, "bad plot", ["raw_attention"], n_random=2, n_resamples=9, oracle=False, verdicts=False, progress=False
    )
    html = page(found)
    assert best_orders(found).empty and viewer(html)["curves"]["kinds"]["removed"]["best"] is None
    assert '<i class="or"' not in html
