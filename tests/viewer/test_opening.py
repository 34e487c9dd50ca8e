"""What a viewer shows first, and what it says of it."""

import pytest

import attnprobe
from attnprobe.attention.seam import Keep
from attnprobe.models import load
from tests import tiny
from tests.viewer.test_browser import choose, opened


def seen_as(page):
    return page.evaluate("document.getElementById('viewer').attnprobe.state")


def test_it_opens_on_the_sharpest_head_of_all_layers(browser, full, tmp_path):
    page = opened(browser, full, tmp_path)
    weights = full.capture.weights().double()
    entropy = -(weights * weights.clamp(min=1e-300).log()).sum(-1).mean(-1)
    layer, head = divmod(int(entropy.argmin()), entropy.shape[1])
    assert page.locator(".mapt").text_content() == f"Layer {layer}, head {head}"


def test_a_causal_model_opens_on_the_row_where_it_answers(browser, tmp_path):
    model = load(tiny.build("gpt2"))
    capture = model.capture(tiny.example(model, "gpt2"))
    page = opened(browser, attnprobe.view(capture), tmp_path)
    n = capture.example.n_tokens
    assert seen_as(page)["q"] == n - 1
    assert f"of {n} keys that it sees" in page.locator(".cellbox").text_content()


@pytest.mark.parametrize("keep", [Keep.of("weights"), Keep.of("weights", "scores")])
def test_an_even_weight_is_one_over_the_keys_that_the_query_sees(browser, tmp_path, keep):
    model = load(tiny.build("gpt2"))
    capture = model.capture(tiny.example(model, "gpt2"), keep=keep)
    page = opened(browser, attnprobe.view(capture), tmp_path)
    page.locator(".map svg").focus()
    for _ in range(capture.example.n_tokens - 4):
        page.keyboard.press("ArrowUp")
    assert seen_as(page)["q"] == 3
    page.keyboard.press("ArrowRight")
    if seen_as(page)["k"] > 3:
        page.keyboard.press("ArrowLeft")
    assert (
        "of 4 keys that it sees; even would be 25.0\N{NARROW NO-BREAK SPACE}%"
        in page.locator(".cellbox").text_content()
    )
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert "a key that this query does not see" in page.locator(".cellbox").text_content()


def test_near_even_maps_open_with_contrast_and_say_so(browser, tmp_path):
    model = load(tiny.build("vit"))
    capture = model.capture(model.example(tiny.given("vit")))
    page = opened(browser, attnprobe.view(capture), tmp_path)
    weights = capture.weights()
    assert float(weights.max()) < 3 / weights.shape[-1]
    assert seen_as(page)["full"] == "contrast"
    assert "near even" in page.locator(".mapleg").text_content()
    choose(page, "full", "head")
    assert "near even" not in page.locator(".mapleg").text_content()


def test_what_a_capture_lacks_is_named_with_how_to_keep_it(browser, full, tmp_path):
    model = load(tiny.build("bert"))
    page = opened(browser, attnprobe.view(model.capture(model.example(tiny.IDS))), tmp_path)
    said = page.locator(".cellbox").text_content()
    assert "scores before the softmax; queries, keys and values; lengths of values" in said
    assert 'keep=Keep.of("weights", "scores", "query", "key", "value")' in said
    assert "Not kept" not in opened(browser, full, tmp_path).locator(".cellbox").text_content()


def test_every_score_of_the_card_is_explained(browser, full, tmp_path):
    page = opened(browser, full, tmp_path)
    page.locator(".means summary").click()
    names = page.locator(".hc dt[title]").all_text_contents()
    assert page.locator(".means dt").all_text_contents() == names
    assert all(len(said) > 10 for said in page.locator(".means dd").all_text_contents())


def test_a_legend_stays_on_one_line(browser, full, tmp_path):
    page = opened(browser, full, tmp_path, width=390)
    tops = page.locator(".mapleg .ramp span").evaluate_all("all => all.map(e => e.getBoundingClientRect().top)")
    assert len(set(tops)) == 1


def test_the_line_below_the_title_has_the_answer_too():
    model = load(tiny.build("t5"))
    capture = model.capture(tiny.example(model, "t5"))
    notes = capture.example.notes
    answer = notes.get("answer_tokens", notes.get("decoder_tokens"))
    assert f"→ {' '.join(map(str, answer))}</bdi>" in attnprobe.view(capture).html
