"""The viewer in a real browser with the network off: clicks, keys, numbers, hostile tokens, frames, colours."""

import nbformat
import pytest
import torch

import attnprobe
from tests import tiny
from tests.viewer.conftest import HOSTILE

READY = "[data-ready]"


def opened(browser, view, tmp_path, **settings):
    return browser.open(view.save(tmp_path / "view.html"), ready=READY, **settings)


def choose(page, name, value):
    page.locator(f"select[data-set={name}]").select_option(value)


def test_weights_in_the_browser_are_those_of_the_capture_within_the_rounding(browser, full, tmp_path):
    page = opened(browser, full, tmp_path)
    exact = full.capture.weights()
    for layer in range(3):
        for head in range(4):
            drawn = torch.tensor(
                page.evaluate(
                    f"Array.from(document.getElementById('viewer').attnprobe.weights(0,{layer},{head}).values)"
                )
            ).reshape(exact.shape[2:])
            bound = (exact[layer, head] * exact.max()).sqrt() / 255 + exact.max() / 255**2
            assert bool(((drawn - exact[layer, head]).abs() <= bound + 1e-6).all())


def test_clicking_a_head_shows_its_map_arcs_and_card(browser, full, tmp_path):
    page = opened(browser, full, tmp_path)
    page.locator(".ov button[data-l='0'][data-h='2']").click()
    assert page.locator(".mapt").text_content() == "Layer 0, head 2"
    assert page.locator(".ov [aria-selected=true]").get_attribute("aria-label") == "Layer 0, head 2"
    assert "layer 0, head 2" in page.locator(".hc").text_content()
    assert page.locator(".arc path").count() > 0
    head = full.capture.weights()[0, 2]
    key = int(head[0].argmax())
    names = full.capture.example.pieces
    assert (
        page.locator(".mnow")
        .text_content()
        .startswith(f"{names[0]} looks at {names[key]} with {100 * head[0, key]:.1f}"[:-2])
    )


def test_one_tab_stop_and_arrow_keys_reach_every_head_and_cell(browser, full, tmp_path):
    page = opened(browser, full, tmp_path)
    assert page.locator(".ov button[tabindex='0']").count() == 1
    page.locator(".ov [aria-selected=true]").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    state = page.evaluate("document.getElementById('viewer').attnprobe.state")
    assert page.locator(".mapt").text_content() == f"Layer {state['layer']}, head {state['head']}"
    assert (
        page.evaluate("document.getElementById('viewer').shadowRoot.activeElement.getAttribute('aria-selected')")
        == "true"
    )
    page.locator(".map svg").focus()
    before = (state["q"], state["k"])
    page.keyboard.press("ArrowDown")
    after = page.evaluate("document.getElementById('viewer').attnprobe.state")
    assert (after["q"], after["k"]) == (before[0] + 1, before[1])
    page.locator(".arc svg").focus()
    page.keyboard.press("ArrowDown")
    assert "looks at" in page.locator(".anow").text_content()


def test_the_cell_that_is_read_has_the_models_numbers(browser, full, tmp_path):
    page = opened(browser, full, tmp_path)
    page.locator(".ov button[data-l='1'][data-h='3']").click()
    state = page.evaluate("document.getElementById('viewer').attnprobe.state")
    q, k = state["q"], state["k"]
    site = full.capture.sites[1]
    facts = page.locator(".cellbox").text_content()
    low, high = site.scores[0, 3].aminmax()
    score = float(site.scores[0, 3, q, k])
    said = float(facts.split("softmax")[1].split("scale")[0].replace("\N{MINUS SIGN}", "-"))
    assert abs(said - score) <= float(high - low) / 508 + 0.006
    length = float(site.value[0, 3, k].norm())
    assert f"length of the value{length:.2f}" in facts
    product = site.query[0, 3, q] @ site.key[0, 3, k]
    said = float(facts.split("sum about ")[1].split("8 dim")[0].replace("\N{MINUS SIGN}", "-"))
    assert abs(said - float(product)) < 0.05 * float(
        site.query[0, 3].norm(dim=-1).max() * site.key[0, 3].norm(dim=-1).max()
    )


def test_every_measure_and_filter_draws(browser, full, tmp_path):
    page = opened(browser, full, tmp_path)
    pictures = set()
    for measure in ("weight", "written", "effect"):
        choose(page, "measure", measure)
        pictures.add(page.locator(".map image").get_attribute("href"))
    assert len(pictures) == 3
    choose(page, "full", "head")
    choose(page, "show", "spread")
    assert page.locator(".ov canvas").count() == 0 and page.locator(".ov button").count() == 12
    page.locator("[data-cut]").fill("7")
    page.locator(".cols").click()
    assert page.locator(".arc text[data-k]").count() == full.capture.example.n_tokens


def test_special_tokens_are_left_out_and_rows_can_be_stretched(browser, tmp_path):
    model = attnprobe.load("attnprobe/sentiment")
    view = attnprobe.view(model.capture(model.example("a dull and pointless film .")))
    page = opened(browser, view, tmp_path)
    state = page.evaluate("document.getElementById('viewer').attnprobe.state")
    weights = view.capture.weights()[state["layer"], state["head"]]
    choose(page, "special", "shares")
    inner = weights[1:-1, 1:-1] * (weights[1:-1].sum(-1) / weights[1:-1, 1:-1].sum(-1))[:, None]
    key = int(inner[0].argmax())
    names = view.capture.example.pieces[1:-1]
    assert page.locator(".map text[data-q]").all_text_contents() == list(names)
    said = page.locator(".mnow").text_content()
    assert said.startswith(f"{names[0]} looks at {names[key]} with ")
    assert abs(float(said.split("with ")[1].split("\N{NARROW NO-BREAK SPACE}")[0]) - 100 * float(inner[0, key])) < 0.6


def test_hostile_tokens_show_as_themselves(browser, hostile, tmp_path):
    page = opened(browser, hostile, tmp_path)
    shown = page.locator(".arc text").all_text_contents()
    assert shown[0].startswith("<script>ale") and shown[1:6] == list(HOSTILE[1:6])
    assert page.locator(".map text[data-q]").all_text_contents()[1:6] == list(HOSTILE[1:6])
    for row in range(len(HOSTILE)):
        page.evaluate(f"document.getElementById('viewer').attnprobe.state.q = {row}")
        page.locator(".ov button").nth(row).click()
    assert page.locator(".mnow b").first.text_content() in (*HOSTILE, "␣a⏎")
    assert page.locator("script").count() == 3 and "alert(1)" not in page.title()


def test_two_viewers_on_one_page_do_not_mix(browser, full, hostile, tmp_path):
    both = tmp_path / "both.html"
    frames = [view._repr_html_() for view in (full, hostile)]
    both.write_text(f"<!doctype html><html lang=en><title>two</title><body>{frames[0]}{frames[1]}", encoding="utf-8")
    page = browser.open(both)
    first, second = (page.frame_locator("iframe").nth(i) for i in range(2))
    page.locator("iframe").nth(1).scroll_into_view_if_needed()
    first.locator(".ov button[data-l='0'][data-h='1']").click()
    assert first.locator(".mapt").text_content() == "Layer 0, head 1"
    second.locator(".ov button[data-l='1'][data-h='0']").click()
    assert (first.locator(".mapt").text_content(), second.locator(".mapt").text_content()) == (
        "Layer 0, head 1",
        "Layer 1, head 0",
    )


def test_two_mounted_in_one_document_do_not_mix(browser, full, tmp_path):
    html = full.html.replace('<div id="viewer">', '<div id="other"></div><div id="viewer">').replace(
        "</body>",
        '<script>attnprobe_viewer.mount(document.getElementById("other"), '
        'JSON.parse(document.getElementById("data").textContent))</script></body>',
    )
    path = tmp_path / "page.html"
    path.write_text(html, encoding="utf-8")
    page = browser.open(path, ready="#other[data-ready]")
    page.locator("#other .ov button[data-l='0'][data-h='1']").click()
    assert page.locator("#other .mapt").text_content() == "Layer 0, head 1"
    assert page.locator("#viewer .mapt").text_content() != "Layer 0, head 1"


def test_a_notebook_made_into_a_page_shows_the_viewer(browser, full, hostile, tmp_path):
    outputs = [
        nbformat.v4.new_output("display_data", data={"text/html": view._repr_html_(), "text/plain": repr(view)})
        for view in (full, hostile)
    ]
    cell = nbformat.v4.new_code_cell("view", outputs=outputs, execution_count=1)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.write(notebook, tmp_path / "some.ipynb")
    nbconvert = pytest.importorskip("nbconvert")
    body, _ = nbconvert.HTMLExporter(template_name="basic").from_filename(str(tmp_path / "some.ipynb"))
    (tmp_path / "some.html").write_text(f"<!doctype html><html lang=en><title>n</title><body>{body}", encoding="utf-8")
    page = browser.open(tmp_path / "some.html")
    page.locator("iframe").nth(1).scroll_into_view_if_needed()
    for at in range(2):
        inside = page.frame_locator("iframe").nth(at)
        inside.locator(".ov button[data-l='2'][data-h='1']").click()
        assert inside.locator(".mapt").text_content() == "Layer 2, head 1"


def test_cross_attention_and_pictures_have_their_views(browser, tmp_path):
    model = attnprobe.load(tiny.build("t5"))
    capture = model.capture(tiny.example(model, "t5"))
    page = opened(browser, attnprobe.view(capture), tmp_path)
    choose(page, "stack", "2")
    assert page.locator(".arc text[data-q]").count() == 3 and page.locator(".arc text[data-k]").count() == 12
    assert page.locator(".cols").is_hidden()
    model = attnprobe.load(tiny.build("vit"))
    capture = model.capture(model.example(tiny.given("vit")))
    page = opened(browser, attnprobe.view(capture), tmp_path)
    assert page.locator(".picbox").is_visible()
    page.locator(".pic svg").click(position={"x": 5, "y": 5})
    assert page.locator(".pict").text_content() == "Where 0,0 looks"
    page.locator(".pic svg").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".pict").text_content() == "Where 0,1 looks"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_accessible_and_fits_the_window(browser, full, tmp_path, dark, width):
    page = opened(browser, full, tmp_path, dark=dark, width=width)
    choose(page, "measure", "effect")
    browser.accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_cell_has_the_colour_that_the_figures_give_its_weight(browser, full, tmp_path):
    from attnprobe.appearance import AGAINST, FOR, MAP_FROM, MAP_TO, PAPER
    from attnprobe.colours import mixed

    page = opened(browser, full, tmp_path)
    got = page.evaluate(
        "document.getElementById('viewer').attnprobe.colours([0, 0.01, 0.1, 0.5, 1], 'weight', 1)"
        ".concat(document.getElementById('viewer').attnprobe.colours([-1, -0.3, 0.3, 1], 'effect', 1))"
    )
    expected = mixed(MAP_FROM, MAP_TO, [w**0.5 for w in (0, 0.01, 0.1, 0.5, 1)])
    expected += mixed(PAPER, AGAINST, [1.0, 0.3**0.5]) + mixed(PAPER, FOR, [0.3**0.5, 1.0])
    for mine, other in zip(got, expected, strict=True):
        assert max(abs(m - 255 * o) for m, o in zip(mine, other, strict=True)) <= 1.5


def test_paper_is_light_whatever_the_theme(browser, full, tmp_path):
    light = opened(browser, full, tmp_path).locator(".map image").get_attribute("href")
    page = opened(browser, full, tmp_path, dark=True)
    dark = page.locator(".map image").get_attribute("href")
    page.emulate_media(media="print")
    page.wait_for_function(
        "h => document.getElementById('viewer').shadowRoot.querySelector('.map image').getAttribute('href') !== h",
        arg=dark,
    )
    assert page.locator(".map image").get_attribute("href") == light != dark


def test_a_long_text_says_what_is_kept_and_shows_it(browser, long_text, tmp_path):
    _, capture = long_text
    view = attnprobe.view(capture, heads=[(1, 2)])
    page = opened(browser, view, tmp_path)
    assert page.locator(".mapt").text_content() == "Layer 1, head 2"
    assert "64 × 64" not in page.locator(".maps").text_content()
    assert "heads, the highest by each score, are kept in full" in page.locator(".foot").text_content()
    page.locator(".ov button:not(.full)").first.click()
    assert "400 × 400 tokens in 64 × 64 squares" in page.locator(".maps").text_content()
    assert page.locator(".cellbox tbody tr").count() == 7
    assert page.locator(".arc path").count() > 100
