"""The address of a report names the text and the head that are shown, and how the heads are looked at."""

import pytest

from attnprobe.report import write

READY = "#attention[data-ready=yes]"
SHOWN = "element => element.shadowRoot.querySelector('.mapt').textContent"
PRESS = "element => element.shadowRoot.querySelectorAll('.ov button')[2].click()"
STATE = "element => element.attnprobe.state"
ROWS = "element => element.shadowRoot.querySelectorAll('.map text[data-q]').length"


def test_a_report_opens_on_the_head_of_its_address(browser, one, tmp_path):
    page = browser.open(write(one, tmp_path / "page.html"), at="head=0.1", ready=READY)
    assert page.locator("#attention").evaluate(SHOWN) == "Layer 0, head 1"
    assert page.locator("#heads").bounding_box()["y"] < 200
    page.locator("#attention").evaluate(PRESS)
    assert page.evaluate("location.hash") == "#head=1.0"


def test_the_contents_say_what_was_found_about_heads(browser, one, tmp_path):
    page = browser.open(write(one, tmp_path / "page.html"), ready=READY)
    assert page.locator("#toc-heads").text_content() == page.locator("#h-heads").text_content()


def rows(page, n):
    """Waits until the map has as many rows."""
    page.wait_for_function(
        "n => document.querySelector('#attention').shadowRoot.querySelectorAll('.map text[data-q]').length === n", arg=n
    )


@pytest.mark.parametrize("head", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_head_that_was_chosen_stays_when_the_text_is_changed(browser, many, tmp_path, head):
    page = browser.open(write(many, tmp_path / "page.html"), ready=READY)
    view, (layer, at) = page.locator("#attention"), head
    view.locator(f".ov button[data-l='{layer}'][data-h='{at}']").click()
    for index, how in ((1, "step"), (4, "list"), (0, "link")):
        if how == "step":
            page.locator("#heads [data-step='1']").click()
        elif how == "list":
            page.locator("#text .pick select").select_option(str(index))
        else:
            page.evaluate("location.hash = 'text-1'")
        rows(page, many.studies[index].example.n_tokens)
        assert view.evaluate(SHOWN) == f"Layer {layer}, head {at}"
        chosen = view.locator(".ov button[aria-selected=true]")
        assert chosen.evaluate_all("all => all.map(b => [+b.dataset.l, +b.dataset.h])") == [[layer, at]]
        assert page.evaluate("location.hash") == f"#text-{index + 1}&head={layer}.{at}"


def test_a_link_opens_the_text_the_head_and_the_view_that_were_shown(browser, many, tmp_path):
    path = write(many, tmp_path / "page.html")
    page = browser.open(path, ready=READY)
    view = page.locator("#attention")
    page.locator("#heads .pick select").select_option("2")
    rows(page, many.studies[2].example.n_tokens)
    view.locator(".ov button[data-l='0'][data-h='1']").click()
    view.locator("select[data-set=show]").select_option("spread")
    view.locator("select[data-set=special]").select_option("hidden")
    view.locator("[data-cut]").fill("4")
    view.locator(".cols").click()
    address = page.evaluate("location.hash")
    assert address == "#text-3&head=0.1&by=spread&special=hidden&below=0.02&columns=two"
    again = browser.open(path, at=address[1:], ready=READY)
    rows(again, many.studies[2].example.n_tokens - 2)
    keys = ("layer", "head", "show", "special", "threshold", "columns", "measure", "full", "large")
    first, second = (p.locator("#attention").evaluate(STATE) for p in (page, again))
    assert {k: first[k] for k in keys} == {k: second[k] for k in keys}
    assert again.locator("#heads .pick select").input_value() == "2"
    assert again.locator("#attention .cols").get_attribute("aria-pressed") == "true"
    assert again.locator("#attention output").text_content() == view.locator("output").text_content()


def test_a_text_chosen_after_a_reload_keeps_the_head_of_the_address(browser, many, tmp_path):
    page = browser.open(write(many, tmp_path / "page.html"), at="head=0.1&special=hidden", ready=READY)
    page.reload()
    page.wait_for_selector(READY, state="attached")
    page.locator("#text [data-step='1']").click()
    assert page.evaluate("location.hash") == "#text-2&head=0.1&special=hidden"


@pytest.mark.parametrize(
    "broken",
    ["text-99", "text-0&head=9.9", "text-x&by=nothing&scale=%E0%A4%A", "head=0.1&by=__proto__&below=0.3333&colour=red"],
)
def test_an_address_that_is_broken_opens_the_page_as_it_is(browser, many, tmp_path, broken):
    plain = browser.open(write(many, tmp_path / "page.html"), ready=READY).locator("#attention").evaluate(STATE)
    page = browser.open(tmp_path / "page.html", at=broken, ready=READY)
    state = page.locator("#attention").evaluate(STATE)
    for name in ("show", "measure", "full", "special", "threshold", "columns", "large", "stack"):
        assert state[name] == plain[name]
    assert page.locator("#heads .pick select").input_value() == "0"


def test_the_part_for_readers_says_that_the_address_keeps_what_is_shown(browser, one, tmp_path):
    page = browser.open(write(one, tmp_path / "page.html"), ready=READY)
    assert "The page’s address keeps the text and the head that you choose" in page.locator("#reading").inner_text()
