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


def test_a_view_in_the_address_is_the_view_that_opens(browser, full, tmp_path):
    path = full.save(tmp_path / "view.html")
    said = "head=1.0&by=entropy&scale=effect&colour=head&special=shares&below=0.05&columns=two&large=yes"
    page = browser.open(path, at=said, ready="#viewer[data-ready=yes]")
    state = page.locator("#viewer").evaluate("element => element.attnprobe.state")
    wanted = {"show": "entropy", "measure": "effect", "full": "head", "special": "shares", "threshold": 0.05}
    assert {name: state[name] for name in wanted} == wanted and (state["columns"], state["large"]) == ("two", True)
    assert page.locator("#viewer .large").get_attribute("aria-pressed") == "true"
    page.locator("#viewer .ov button[data-l='0'][data-h='0']").click()
    assert page.evaluate("location.hash") == "#" + said.replace("head=1.0", "head=0.0")
    go(page, "head=1.0&by=maps&below=0")
    assert page.locator("#viewer").evaluate("element => element.attnprobe.state.show") == "maps"


@pytest.mark.parametrize(
    "broken",
    ["by=no_score", "scale=weights", "colour=contrast&scale=effect", "special=", "below=7", "below=0.0", "&&=&%"],
)
def test_what_an_address_says_that_does_not_exist_is_passed_over(browser, full, tmp_path, broken):
    path = full.save(tmp_path / "view.html")
    state = "element => element.attnprobe.state"
    plain = browser.open(path, at="head=1.0", ready="#viewer[data-ready=yes]").locator("#viewer").evaluate(state)
    page = browser.open(path, at=f"head=1.0&{broken}", ready="#viewer[data-ready=yes]")
    found = page.locator("#viewer").evaluate(state)
    assert {k: v for k, v in found.items() if k not in ("measure", "full")} == {
        k: v for k, v in plain.items() if k not in ("measure", "full")
    }
    # A signed scale has no contrast to open with.
    assert found["full"] == ("all" if found["measure"] == "effect" else plain["full"])
    assert found["measure"] in ("weight", "effect")


def test_a_scale_of_colours_that_signed_numbers_do_not_have_is_left_when_they_are_chosen(browser, full, tmp_path):
    path = full.save(tmp_path / "view.html")
    page = browser.open(path, at="head=1.0&colour=contrast", ready="#viewer[data-ready=yes]")
    state = "element => element.attnprobe.state"
    assert page.locator("#viewer").evaluate(state)["full"] == "contrast"
    page.locator("#viewer select[data-set=measure]").select_option("effect")
    assert page.locator("#viewer").evaluate(state)["full"] == "all"
    assert "colour=contrast" not in page.evaluate("location.hash")


@pytest.mark.parametrize("wrong", ["head=99.99", "head=1:0.1", "head=9999999:0.0&colour=contrast"])
def test_an_address_of_a_head_that_is_not_there_becomes_that_of_the_one_that_is_shown(browser, full, tmp_path, wrong):
    page = browser.open(full.save(tmp_path / "view.html"), at=wrong, ready="#viewer[data-ready=yes]")
    state = page.locator("#viewer").evaluate("element => element.attnprobe.state")
    assert page.evaluate("location.hash").startswith(f"#head={state['layer']}.{state['head']}")
