"""The address of a report names the head that is shown."""

from attnprobe.report import write

SHOWN = "element => element.shadowRoot.querySelector('.mapt').textContent"
PRESS = "element => element.shadowRoot.querySelectorAll('.ov button')[2].click()"


def test_a_report_opens_on_the_head_of_its_address(browser, one, tmp_path):
    page = browser.open(write(one, tmp_path / "page.html"), at="head=0.1", ready="#attention[data-ready=yes]")
    assert page.locator("#attention").evaluate(SHOWN) == "Layer 0, head 1"
    assert page.locator("#heads").bounding_box()["y"] < 200
    page.locator("#attention").evaluate(PRESS)
    assert page.evaluate("location.hash") == "#head=1.0"


def test_the_contents_say_what_was_found_about_heads(browser, one, tmp_path):
    page = browser.open(write(one, tmp_path / "page.html"), ready="#attention[data-ready=yes]")
    assert page.locator("#toc-heads").text_content() == page.locator("#h-heads").text_content()
