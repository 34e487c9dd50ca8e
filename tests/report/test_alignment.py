"""Alignment on the page: an answer's cross-attention to its text, ranked, drawn, and read by keyboard."""

import itertools
import json
import re
from dataclasses import replace

import pytest
import torch

from attnprobe.answer_steps import units_of
from attnprobe.attention.encoder_decoder import EncoderDecoder
from attnprobe.comparison import compare
from attnprobe.models import load
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.tasks import dates
from attnprobe.report import page, write
from attnprobe.report.alignment import PARTS, alignment, alignments, steps
from attnprobe.report.alignment_agreement import BEST, agreement
from tests import tiny

QUICK = {"n_random": 4, "n_resamples": 50, "oracle": False, "verdicts": False, "progress": False, "operators": "mean"}
METHODS = ["raw_attention", "leave_one_out"]


def data(comparison):
    return json.loads(re.search(r'id="alignment-data">(.*?)</script>', page(comparison))[1])


def of_dates(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = dates.make(kind).eval()
    model = OwnModel(network, vocabulary=dates.INPUTS, target_vocabulary=dates.OUTPUTS, answer_length=10)
    return model, compare(model, ["3 mar 1987", "the first of May 1950"], METHODS, **QUICK)


@pytest.fixture(scope="module")
def recurrent():
    return of_dates("recurrent")


@pytest.fixture(scope="module")
def t5():
    model = load(tiny.build("t5"))
    return model, compare(model, [tiny.example(model, "t5")], METHODS, **QUICK)


def test_the_weights_are_the_models_own_cross_attention(t5):
    model, comparison = t5
    example = comparison.studies[0].example
    maps, _ = tiny.reference(model.module, dict(example.inputs))
    own = maps["decoder", "cross"]
    (text,) = data(comparison)["texts"]
    assert text["outputs"] == ["4", "5", "6"] and text["written"] == 1
    assert text["inputs"] == list(example.tokens)
    found = alignments(comparison.studies[0].capture)
    for drawn, one in zip(text["maps"], found, strict=True):
        expected = own[one.layer].mean(0) if one.head is None else own[one.layer, one.head]
        cells = torch.tensor(drawn["cells"]).reshape(expected.shape) / PARTS
        assert (cells - expected).abs().max() <= 0.5 / PARTS + 1e-5


def test_heads_stand_best_first_and_their_scores_are_those_of_a_plain_count(t5):
    found = [one for one in alignments(t5[1].studies[0].capture) if one.head is not None]
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        tops = one.weights.argmax(-1).tolist()
        forward = sum(b >= a for a, b in itertools.pairwise(tops)) / (len(tops) - 1)
        covered = (one.weights.mean(0) * one.weights.shape[1]).clamp(max=1).mean()
        assert one.monotonicity == pytest.approx(forward)
        assert one.coverage == pytest.approx(float(covered), abs=1e-6)


def test_a_recurrent_decoder_whose_steps_are_parts_has_one_map_of_all_of_them(recurrent):
    model, comparison = recurrent
    network, text = model.module, comparison.studies[0].example.text
    (one,) = alignments(comparison.studies[0].capture)
    found = dates.alignment(network, text)
    assert (one.weights - found.weights().double()).abs().max() < 1e-5
    assert steps(comparison.studies[0], 10) == (list(found.outputs), True)


def test_the_own_transformer_has_heads_and_layer_means(recurrent):
    network = EncoderDecoder(len(dates.INPUTS.tokens), len(dates.OUTPUTS.tokens), d_model=16, n_heads=2, n_layers=2)
    model = OwnModel(network.eval(), vocabulary=dates.INPUTS, target_vocabulary=dates.OUTPUTS, answer_length=4)
    names = [one.name for one in alignments(model.capture(model.example("3 mar")))]
    assert len(names) == 6 and names[-2:] == ["layer 0, mean of heads", "layer 1, mean of heads"]


def test_what_steps_owe_to_tokens_stands_beside_in_shares_of_the_row(t5):
    _, comparison = t5
    (text,), answer = data(comparison)["texts"], comparison.studies[0].answer
    assert [one["inline"] for one in text["owes"]] == ["leave-one-out", "input × gradient"]
    units = units_of(comparison.studies[0].example)
    for drawn, scores in zip(text["owes"], answer.maps.values(), strict=True):
        shares = torch.stack([row / row.abs().sum() for row in scores])
        assert (torch.tensor(drawn["cells"]).reshape(shares.shape) / PARTS - shares).abs().max() <= 0.5 / PARTS + 1e-5
        for row, at, depends in zip(scores, drawn["tops"], answer.dependent.tolist(), strict=True):
            assert at == (max(range(len(row)), key=lambda i: units[i] * abs(row[i])) if depends else -1)


def test_the_table_says_how_far_each_map_agrees_with_what_steps_owe(recurrent):
    _, comparison = recurrent
    studies = comparison.studies
    n = sum(int((s.answer.leave_one_out.abs().amax(-1) >= 0.01).sum()) for s in studies)
    right = [(s, [(BEST, s.answer.leave_one_out.abs())]) for s in studies]
    wrong = [(s, [(BEST, -s.answer.leave_one_out.abs())]) for s in studies]
    for maps, cell in ((right, (f"{n} of {n}", "+1.00")), (wrong, (f"0 of {n}", "−1.00"))):
        found = agreement(maps, comparison.settings)
        assert (found["rows"][0]["cells"][0]["top"], found["rows"][0]["cells"][0]["tau"]) == cell
    assert f"{sum(len(s.answer.ids) for s in studies) - n} of 20" in found["how"] and n > 0
    chance = sum(int((s.answer.dependent).sum()) / s.example.n_tokens for s in studies)
    assert found["rows"][0]["cells"][0]["chance"] == f"{chance:.1f}"
    rows = alignment(comparison, METHODS)["beside"]["rows"]
    assert [row["name"] for row in rows] == ["The best head of each text", "For comparison: input × gradient"]


def test_a_study_from_before_there_were_steps_has_its_map_alone(recurrent, browser, tmp_path):
    _, comparison = recurrent
    old = replace(comparison, studies=tuple(replace(study, answer=None) for study in comparison.studies))
    assert alignment(old, METHODS)["beside"] is None
    opened = browser.open(write(old, tmp_path / "page.html"), ready="html[data-ready=yes]")
    assert opened.locator("#albox svg").count() == 1
    assert not opened.locator("#alby").is_visible()


def test_there_is_no_such_part_without_cross_attention(one):
    assert alignment(one, list(one.methods)) is None
    assert 'id="alignment"' not in page(one)


def test_cells_are_drawn_by_their_weight_and_the_keyboard_reads_them(recurrent, browser, tmp_path):
    _, comparison = recurrent
    opened = browser.open(write(comparison, tmp_path / "page.html"), ready="html[data-ready=yes]")
    study = comparison.studies[0]
    (one,) = alignments(study.capture)
    cells = opened.locator("#albox .att rect[data-r]")
    assert cells.count() == one.weights.numel()
    shares = cells.evaluate_all("all => all.map(c => parseFloat(/([\\d.]+)%/.exec(c.getAttribute('style'))[1]))")
    assert shares == pytest.approx((100 * one.weights.flatten()).tolist(), abs=0.06)
    opened.locator("#albox svg.att").focus()
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("ArrowRight")
    said = opened.locator("#alnow").inner_text()
    assert f"{100 * float(one.weights[1, 1]):.1f}" in said and study.example.notes["answer_tokens"][1] in said
    owed = study.answer.leave_one_out[1] / study.answer.leave_one_out[1].abs().sum()
    assert f"it has {'+' if owed[1] > 0 else '−'}{abs(100 * float(owed[1])):.1f}" in said
    shown = opened.locator("#albox rect.ring").evaluate_all("all => all.map(r => r.getAttribute('x'))")
    assert len(shown) == 2 and shown[0] == shown[1]
    opened.locator("#alby").select_option("1")
    assert "input × gradient" in opened.locator("#alsaid").inner_text()
    browser.accessible(opened, inside="#alignment")
    opened.locator("#alignment [data-step='1']").click()
    assert cells.count() == 10 * comparison.studies[1].example.n_tokens


def test_another_text_an_own_vocabulary_and_hostile_tokens_show_as_themselves(browser, tmp_path):
    words = Vocabulary(("[UNK]", "<b>x</b>", "&amp;", "a"), begin=None, pattern=r"\S+")
    answers = Vocabulary(("[BOS]", "</script><b>", "y"), begin="[BOS]")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = EncoderDecoder(4, 3, d_model=16, n_heads=2, n_layers=1).eval()
    model = OwnModel(network, vocabulary=words, target_vocabulary=answers, answer_length=2)
    example = model.example("<b>x</b> &amp; a", answer=[1, 2])
    comparison = compare(model, [example], METHODS, **QUICK)
    opened = browser.open(write(comparison, tmp_path / "page.html"), ready="html[data-ready=yes]")
    names = opened.locator("#albox text.al").all_inner_texts() or []
    names = opened.locator("#albox text.al").evaluate_all("all => all.map(t => t.textContent)")
    assert {"</script><b>", "y", "<b>x</b>", "&amp;", "a"} <= set(names)


def test_where_cross_attention_is_in_parts_no_other_attention_is_looked_for(recurrent):
    model, _ = recurrent
    comparison = compare(model, "3 mar", METHODS, counterfactual=True, **QUICK)
    assert comparison.counterfactuals.empty
    assert "in one piece" in comparison.failures.error.iloc[0]
