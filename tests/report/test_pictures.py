"""Pictures: compare, verdicts and the page run on patches; panels with edges stand where rows of words would."""

import base64
import io
import json
import re

import numpy as np
import pytest
import torch

from attnprobe.attention.vision import VisionTransformer
from attnprobe.comparison import compare
from attnprobe.models import load
from attnprobe.models.own import OwnModel
from attnprobe.report import page, write
from attnprobe.report.pictures import of_text
from attnprobe.report.tokens import shown
from tests import tiny

METHODS = ["raw_attention", "leave_one_out", "integrated_gradients"]
QUICK = {"n_random": 4, "n_resamples": 50, "oracle": False, "progress": False}
READY = "html[data-ready=yes]"


@pytest.fixture(scope="module")
def vit():
    """One picture of 3 x 3 patches, in colours."""
    model = load(tiny.build("vit"))
    return compare(model, tiny.given("vit"), METHODS, operators=["mask", "zero"], verdicts=False, **QUICK)


@pytest.fixture(scope="module")
def digits():
    """Two pictures of 4 x 4 patches in ink, with verdicts and another attention."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = VisionTransformer((8, 8), 2, 3, d_model=16, n_heads=2, n_layers=2).eval()
        pictures = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3.0 if parameter.ndim > 1 else 1.0)
    model = OwnModel(network, labels=("a", "b", "c"), pictures=pictures)
    return compare(model, list(pictures[:2]), METHODS, counterfactual=True, **QUICK)


def data(comparison):
    return json.loads(re.search(r'id="pictures-data">(.*?)</script>', page(comparison))[1])


def test_every_method_answers_for_each_patch_and_removal_judges_them(vit):
    assert (vit.failures.empty and vit.methods == tuple(sorted(METHODS))) or set(vit.methods) == set(METHODS)
    assert vit.faithfulness.operator.unique().tolist() == ["mask", "zero"]
    assert vit.main["mean"].notna().all()
    units = vit.studies[0].attributions[0].units.tolist()
    assert units == [False] + 9 * [True]


def test_a_patch_taken_away_is_a_patch_of_nothing_as_if_its_pixels_were_0(vit):
    study, model = vit.studies[0], load(tiny.build("vit"))
    picture = tiny.given("vit")
    left = study.attribution("leave_one_out").scores
    goal = study.target
    for row, column in ((0, 0), (2, 1)):
        blank = picture.clone()
        blank[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 0
        with torch.no_grad():
            before, after = (goal(model.module(pixel_values=p[None]).logits)[0] for p in (picture, blank))
        assert float(left[1 + 3 * row + column]) == pytest.approx(float(before - after), abs=1e-4)


def test_maps_of_pictures_are_judged_as_explanations(digits):
    assert set(digits.verdicts.verdict) <= {"explains", "misleads", "undecided"} and len(digits.verdicts) == 2
    assert len(digits.counterfactuals) == 2


def test_patches_are_named_by_row_and_column(vit):
    names = shown(vit.studies[0].example)
    assert names[:2] == ["[CLS]", "row 0, column 0"] and names[-1] == "row 2, column 2"
    assert "row 1, column 2" in page(vit) and "The model calls this picture" in page(vit)


def test_the_picture_on_the_page_is_the_one_that_the_model_got(vit):
    image = pytest.importorskip("PIL.Image")
    (one,) = data(vit)["texts"]
    assert (one["rows"], one["columns"], one["first"]) == (3, 3, 1)
    pixels = np.asarray(image.open(io.BytesIO(base64.b64decode(one["png"])))) / 255
    given = tiny.given("vit")
    given = (given - given.min()) / (given.max() - given.min())
    assert np.abs(pixels - given.permute(1, 2, 0).numpy()).max() < 0.5 / 255 + 1e-6


def test_words_have_no_pictures(one):
    assert of_text(one, list(one.methods)) == {}
    assert 'id="pictures-data"' not in page(one)


def test_panels_stand_for_rows_and_their_cells_say_what_the_method_says(vit, browser, tmp_path):
    opened = browser.open(write(vit, tmp_path / "page.html"), ready=READY)
    assert opened.locator("#rows table").count() == 0
    assert opened.locator("#rows .pan").count() == 1 + len(METHODS)
    assert opened.locator("#rows .pic.itself").evaluate("i => i.naturalWidth") == 12
    for m in METHODS:
        scores = vit.studies[0].attribution(m).scores.double()
        shares = (scores / scores.abs().sum())[1:]
        place = json.loads(opened.locator("#data").inner_text())["order"].index(m)
        cells = opened.locator(f"#rows .p[data-m='{place}']")
        said = [float(t.replace("−", "-")) for t in cells.all_inner_texts()]
        assert said == pytest.approx((100 * shares).tolist(), abs=0.51)
        against = cells.evaluate_all("all => all.map(c => c.classList.contains('m'))")
        signed = vit.studies[0].attribution(m).signed
        assert against == [bool(signed and share < 0) for share in shares]
    browser.accessible(opened, inside="#text")


def test_equal_shares_have_equal_colour_in_every_panel_of_the_common_scale(vit, browser, tmp_path):
    opened = browser.open(write(vit, tmp_path / "page.html"), ready=READY)
    strength = "all => all.map(c => +c.style.getPropertyValue('--v'))"
    colours = opened.locator("#rows .p").evaluate_all(strength)
    shares = torch.stack([a.scores.double() / a.scores.double().abs().sum() for a in order(vit, opened)])[:, 1:].abs()
    assert colours == pytest.approx((shares / shares.max()).sqrt().flatten().tolist(), abs=1e-3)
    opened.locator("[data-scale=row]").click()
    own = (shares / shares.amax(1, keepdim=True)).sqrt()
    assert opened.locator("#rows .p").evaluate_all(strength) == pytest.approx(own.flatten().tolist(), abs=1e-3)


def order(comparison, opened):
    """Attributions in the order of the panels."""
    names = json.loads(opened.locator("#data").inner_text())["order"]
    return [comparison.studies[0].attribution(name) for name in names]


def test_arrow_keys_go_through_the_picture_and_the_switch_lays_panels_over_it(digits, browser, tmp_path):
    opened = browser.open(write(digits, tmp_path / "page.html"), ready=READY, width=390)
    opened.locator("#rows .p").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowUp"):
        opened.keyboard.press(key)
    assert opened.evaluate("document.activeElement.dataset.i") == "2"  # behind [CLS]: row 0, column 1
    assert "row 0, column 1" in opened.locator("#now").inner_text()
    opened.locator("[data-over=over]").click()
    assert opened.locator("#rows .over .pic").count() == len(METHODS)
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_each_text_has_its_own_picture_and_the_other_attention_its_panels(digits, browser, tmp_path):
    opened = browser.open(write(digits, tmp_path / "page.html"), ready=READY, dark=True)
    first = opened.locator("#rows .itself").get_attribute("src")
    assert opened.locator("#cfstrip .pic").count() == 2
    opened.locator("#text [data-step='1']").click()
    assert opened.locator("#rows .itself").get_attribute("src") != first
    assert opened.locator("img.thumb").count() >= 2
    assert opened.locator("#strip .pan").count() == 3
    browser.accessible(opened, inside="#top")
