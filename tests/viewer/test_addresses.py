"""The address of a page names the head that is shown."""

import pytest

SHOWN = "element => element.shadowRoot.querySelector('.mapt').textContent"
PRESS = "element => element.shadowRoot.querySelectorAll('.ov button')[1].click()"


def shown(page, host):
    return page.locator(host).evaluate(SHOWN)


def go(page, fragment):
    page.evaluate("fragment => { location.hash = fragment; }", fragment)
    page.wait_for_timeout(100)


@pytest.mark.parametrize("fragment", ["", "head=99.0", "head=7:0.0", "head=x"])
def test_an_address_that_names_no_head_there_changes_nothing(browser, full, tmp_path, fragment):
    page = browser.open(full.save(tmp_path / "view.html"), at="head=1.1", ready="#viewer[data-ready=yes]")
    assert shown(page, "#viewer") == "Layer 1, head 1"
    go(page, fragment)
    assert shown(page, "#viewer") == "Layer 1, head 1"


def test_a_page_opens_on_the_head_of_its_address_and_names_the_one_chosen(browser, full, tmp_path):
    page = browser.open(full.save(tmp_path / "view.html"), at="head=1.0", ready="#viewer[data-ready=yes]")
    assert shown(page, "#viewer") == "Layer 1, head 0"
    page.locator("#viewer").evaluate(PRESS)
    assert shown(page, "#viewer") == "Layer 0, head 1"
    assert page.evaluate("location.hash") == "#head=0.1"
    go(page, "head=1.0")
    assert shown(page, "#viewer") == "Layer 1, head 0"
