"""The page in Chromium: its scripts run, its figures are filled, nothing is said, nothing is asked for."""

import pytest

from attnprobe.comparison import compare
from attnprobe.exchange import from_scores
from attnprobe.report import write

READY = "html[data-ready=yes]"


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of a comparison."""

    def opens(comparison, **how):
        return browser.open(write(comparison, tmp_path / "page.html", command="attnprobe demo"), ready=READY, **how)

    return opens


@pytest.mark.parametrize("which", ["one", "many", "hostile"])
def test_scripts_run_without_a_word_and_fill_every_figure(which, request, opened):
    comparison = request.getfixturevalue(which)
    page = opened(comparison)
    n, methods = comparison.studies[0].example.n_tokens, len(comparison.methods)
    assert page.locator("#rows td.c[data-i]").count() == n * methods
    assert page.locator("svg[tabindex='0'][data-m]").count() == methods
    assert page.locator("td.self").count() == methods


def test_bars_of_disagreement_are_as_high_as_the_number_above_them(one, opened):
    bars = opened(one).locator("#rows td.d:has(i)")
    numbers = [float(text) for text in bars.all_inner_texts()]
    heights = bars.evaluate_all("cells => cells.map(c => parseFloat(c.querySelector('i').style.height))")
    assert len(numbers) == one.studies[0].example.n_tokens - 2 and max(heights) == 28
    for value, height in zip(numbers, heights, strict=True):
        assert abs(height - (2 + 26 * value / max(numbers))) <= 1 + 26 * 0.05 / max(numbers) * 2


def test_hostile_tokens_stay_text_in_the_browser(hostile, opened):
    page = opened(hostile)
    assert page.locator("b:empty").count() == 0
    assert page.locator("#rows").get_by_text("</script><b>", exact=True).count() == len(hostile.methods)


def test_a_method_may_have_any_word_as_its_name(model, browser, tmp_path):
    """In the page's script a table of methods must hold no names but theirs."""
    text = "good film bad plot"
    words = [from_scores(name, {text: [0.1, 0.2, 0.3, 0.4]}) for name in ("__proto__", "constructor", "toString")]
    found = compare(model, text, ["raw_attention", *words], n_random=2, n_resamples=10, oracle=False, progress=False)
    page = browser.open(found.report(tmp_path / "page.html"), ready=READY)
    assert page.locator("#rows td.c[data-i]").count() == 6 * 4
