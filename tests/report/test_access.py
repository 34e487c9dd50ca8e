"""The page for everybody: axe finds nothing, the keyboard reaches all, little is lost without scripts or colours."""

import pytest

from attnprobe.report import write
from tests.report.test_verdicts import judged

READY = "html[data-ready=yes]"
FAULTS = ("moderate", "serious", "critical")


@pytest.fixture(scope="module")
def pages(one, many, hostile, tmp_path_factory):
    """Written once: a text, several with verdicts, hostile tokens."""
    folder = tmp_path_factory.mktemp("pages")
    several = judged(many, ["explains"] * 2 + ["misleads"] + ["undecided"] * 4)
    kinds = {"one": judged(one, ["misleads"]), "many": several, "hostile": hostile}
    return {name: write(found, folder / f"{name}.html") for name, found in kinds.items()}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["one", "many", "hostile"])
def test_axe_finds_no_fault(browser, pages, which, width, dark):
    page = browser.open(pages[which], width=width, dark=dark, ready=READY)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.faults(page, impacts=FAULTS) == []


def test_nothing_is_wider_than_a_phone(browser, pages):
    for which in pages:
        page = browser.open(pages[which], width=390, height=844, ready=READY)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_keyboard_reaches_every_control_and_one_stop_serves_the_words(browser, pages):
    page = browser.open(pages["many"], ready=READY)
    reached = page.evaluate("""() => {
      const all = [...document.querySelectorAll('a[href],button,select,input,summary,[tabindex]')]
        .filter(e => e.checkVisibility());
      return {stuck: all.filter(e => e.tabIndex < 0 && !e.matches('.c')).map(e => e.outerHTML.slice(0, 80)),
              words: document.querySelectorAll('#rows .c[tabindex="0"]').length};
    }""")
    assert reached == {"stuck": [], "words": 1}
    page.locator('#rows .c[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    at = page.evaluate("[document.activeElement.dataset.m, document.activeElement.dataset.i]")
    assert at == ["1", "1"] and "rollout" in page.inner_text("#now")
    assert page.locator("#tip").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


def test_small_targets_are_at_least_24_pixels(browser, pages):
    page = browser.open(pages["many"], ready=READY)
    small = page.evaluate("""() => [...document.querySelectorAll('button,select,summary,nav a')]
      .filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 23.5)
      .map(e => e.outerHTML.slice(0, 90))""")
    assert small == []


def test_without_scripts_claim_numbers_values_and_methods_remain(browser, pages):
    page = browser.open(pages["one"], java_script_enabled=False)
    words = page.inner_text("body")
    for part in ("Attention misleads on this prediction", "How to read", "Faithfulness by removal", "raw_attention"):
        assert part in words
    assert page.locator("#vals").count() == 1 and page.locator("#theme").is_hidden()


def test_a_page_whose_scripts_are_forbidden_says_so_and_its_tables_can_be_read(browser, pages, tmp_path):
    """As a front end does that shows reports under a strict policy."""
    strict = '<meta http-equiv="Content-Security-Policy" content="script-src &#39;self&#39;">'
    text = pages["many"].read_text("utf-8").replace("<head>", f"<head>{strict}", 1)
    (tmp_path / "strict.html").write_text(text, "utf-8")
    page = browser.open(tmp_path / "strict.html")
    browser.said.clear()  # the browser tells of each script that it did not run
    assert page.locator("#strip .still").is_visible() and "Scripts do not run here" in page.inner_text("#strip")
    for part in ("spread", "removal", "agreement", "text"):
        table = page.locator(f"#{part} details.vals table")
        assert table.is_hidden()
        page.locator(f"#{part} details.vals summary").click()
        assert table.is_visible() and table.locator("tbody tr").count() > 1
    assert page.locator("#heads .still").is_visible() and page.locator("#heads .still a").count() == 1


def test_no_sentence_for_readers_without_scripts_shows_where_they_run(browser, pages):
    page = browser.open(pages["many"], ready=READY)
    assert not [one for one in page.locator(".still").all() if one.is_visible()]


def test_reduced_motion_scrolls_at_once(browser, pages):
    for motion, how in (("reduce", "auto"), ("no-preference", "smooth")):
        page = browser.open(pages["one"], ready=READY, reduced_motion=motion)
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == how


def test_forced_colours_keep_cells_bars_and_what_is_chosen(browser, pages):
    page = browser.open(pages["many"], ready=READY, forced_colors="active")
    style = "(query, name) => getComputedStyle(document.querySelector(query))[name]"

    def styled(query, name):
        return page.evaluate(f"({style})('{query}', '{name}')")

    assert styled("#rows .c", "forcedColorAdjust") == "none"
    assert styled(".bar3 i", "forcedColorAdjust") == "none"
    assert styled("[data-scale=common]", "backgroundColor") != styled("[data-scale=row]", "backgroundColor")
