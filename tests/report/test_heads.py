"""The heads on the page: the viewer with every text's own weights, the heading, what fills the page, long texts."""

import json
import re
import time
from dataclasses import replace

import pandas as pd
import pytest
import torch
import transformers

from attnprobe.heads import head_scores
from attnprobe.models import load
from attnprobe.report import page, write
from attnprobe.report.heads import scored
from attnprobe.viewer.packing import Scale
from tests.report.conftest import HOSTILE
from tests.viewer.reading import full_map

READY = "#attention[data-ready]"


def texts_of(html):
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(data.group(1))["texts"]


def test_a_head_that_looks_within_windows_has_the_mean_over_them():
    config = transformers.SwinConfig(
        image_size=16, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 4], window_size=2, num_labels=2
    )
    model = load(transformers.SwinForImageClassification(config).eval())
    capture = model.capture(model.example(torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))))
    table = scored([capture])
    assert list(zip(table.layer, table["head"], strict=True)) == [(0, 0), (0, 1), *((1, head) for head in range(4))]
    windows = torch.stack([site.weights[0] for site in capture.sites if site.layer == 0]).double()
    entropy = -(windows * windows.log()).sum(-1).mean((0, 2))
    name = next(name for name in head_scores if name.startswith("entropy"))
    assert table[table.layer == 0][name].tolist() == pytest.approx(entropy.tolist(), rel=1e-4)


def test_every_text_on_the_page_has_its_own_weights(many):
    for text, study in zip(texts_of(page(many)), many.studies, strict=True):
        found = text["stacks"]
        (stack,) = found["stacks"]
        scale = Scale(stack["scale"]["peak"], stack["scale"]["n"])
        for layer, exact in zip(stack["layers"], study.capture.weights(), strict=True):
            for at, head in enumerate(exact):
                drawn = full_map(found, stack, layer, at)
                bound = torch.tensor([[scale.error(w) for w in row] for row in head.tolist()])
                assert bool(((drawn - head).abs() <= bound * (1 + 1e-5)).all())


def test_texts_that_do_not_fit_say_so_and_the_others_stay(many):
    whole = texts_of(page(many))
    sizes = [len(t["stacks"]["bytes"]) * 3 // 4 for t in whole]
    some = texts_of(page(many, map_bytes=sizes[0] + sizes[1]))
    assert [bool(t["stacks"]) for t in some[:3]] == [True, True, False]
    assert "fill the page" in some[2]["no_maps"] and some[0]["no_maps"] == ""


def test_a_page_without_kept_weights_says_so(one):
    study = one.studies[0]
    html = page(replace(one, studies=(replace(study, capture=replace(study.capture, sites=())),)))
    assert "too large to be kept" in html and texts_of(html)[0]["stacks"] == {}


def test_the_table_of_head_scores_has_a_row_a_text_and_head(many):
    table = scored([s.capture for s in many.studies])
    assert len(table) == 7 * 2 * 2 and list(table.columns[:5]) == ["example_index", "stack", "kind", "layer", "head"]
    assert list(table.columns[5:]) == list(head_scores)
    bare = scored([replace(s.capture, sites=()) for s in many.studies])
    assert isinstance(bare, pd.DataFrame) and len(bare) == 0


def test_clicking_a_head_shows_it_and_choosing_a_text_changes_the_map(browser, many, tmp_path):
    view = browser.open(write(many, tmp_path / "page.html"), ready=READY)
    view.locator("#attention .ov button[data-l='0'][data-h='1']").click()
    assert view.locator("#attention .mapt").text_content() == "Layer 0, head 1"
    assert view.locator("#attention .hc dt").count() > 5
    names = view.locator("#attention .map text[data-q]").all_text_contents()
    assert names == list(many.studies[0].example.pieces)
    view.locator("#heads .pick select").select_option("2")
    view.wait_for_function(
        "n => document.querySelector('#attention').shadowRoot.querySelectorAll('.map text[data-q]').length === n",
        arg=many.studies[2].example.n_tokens,
    )
    names = view.locator("#attention .map text[data-q]").all_text_contents()
    assert names == list(many.studies[2].example.pieces)
    assert view.locator("#attention .mapt").text_content() == "Layer 0, head 1"


def test_any_head_score_colours_the_overview(browser, one, tmp_path):
    view = browser.open(write(one, tmp_path / "page.html"), ready=READY)
    chooser = view.locator("#attention select[data-set=show]")
    options = chooser.locator("option").all_text_contents()
    assert "Spread" in options and len(options) > 10
    chooser.select_option("spread")
    label = view.locator("#attention .ov button").first.get_attribute("aria-label")
    value = scored([one.studies[0].capture]).spread.iloc[0]
    assert label.startswith("Layer 0, head 0, spread ") and abs(float(label.split("spread ")[1]) - value) < 0.006


def test_the_heading_names_the_sharpest_and_the_most_even_head(browser, one, tmp_path):
    table = scored([one.studies[0].capture])
    sharp, even = table.loc[table.spread.idxmin()], table.loc[table.spread.idxmax()]
    said = browser.open(write(one, tmp_path / "page.html"), ready=READY).locator("#h-heads").text_content()
    if even.spread - sharp.spread < 0.05:
        assert "alike" in said
    else:
        assert (
            f"layer {sharp.layer}, head {sharp['head']}" in said and f"layer {even.layer}, head {even['head']}" in said
        )


def test_hostile_tokens_show_as_themselves_in_the_viewer(browser, hostile, tmp_path):
    view = browser.open(write(hostile, tmp_path / "page.html"), ready=READY)
    shown = view.locator("#attention .arc text").all_text_contents()
    assert shown[1].startswith(HOSTILE[0][:8]) and shown[2] == "a␣&␣b"


def test_the_theme_of_the_page_is_the_viewers(browser, one, tmp_path):
    view = browser.open(write(one, tmp_path / "page.html"), ready=READY)
    light = view.locator("#attention .map image").get_attribute("href")
    view.click("#theme")
    view.click("#theme")
    assert view.locator("html").get_attribute("data-theme") == "dark"
    view.wait_for_function(
        "h => document.querySelector('#attention').shadowRoot.querySelector('.map image').getAttribute('href') !== h",
        arg=light,
    )


def big(n_tokens):
    """Twelve layers of twelve heads over tokens drawn at random: attention as diffuse as it can be, nothing repeats."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=48, num_hidden_layers=12, num_attention_heads=12, intermediate_size=48, vocab_size=200,
        max_position_embeddings=512,
    )  # fmt: skip
    model = load(transformers.BertForSequenceClassification(config).eval())
    ids = torch.randint(5, 200, (n_tokens,), generator=torch.Generator().manual_seed(1)).tolist()
    return model, model.example(ids)


@pytest.mark.slow
@pytest.mark.parametrize(("n_tokens", "most_bytes", "seconds"), [(128, 2_000_000, 2.0), (512, 20_000_000, 5.0)])
def test_a_page_of_144_heads_is_small_and_opens_quickly(browser, one, tmp_path, n_tokens, most_bytes, seconds):
    model, example = big(n_tokens)
    study = replace(one.studies[0], capture=model.capture(example))
    path = write(replace(one, studies=(study,)), tmp_path / "page.html")
    assert path.stat().st_size <= most_bytes
    started = time.perf_counter()
    view = browser.open(path, ready=READY)
    assert time.perf_counter() - started <= 2 * seconds  # a test machine is shared
    view.locator("#attention .ov button[data-l='3'][data-h='5']").click()
    assert view.locator("#attention .mapt").text_content() == "Layer 3, head 5"
