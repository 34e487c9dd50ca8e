"""Another attention with the same answer: measured as it says, kept over an interruption, shown beside the own one."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon

from attnprobe import running
from attnprobe.comparison import compare
from attnprobe.counterfactuals import EPS, other_attention
from attnprobe.errors import InputError
from attnprobe.experiments.searching import Search
from attnprobe.models.planted import planted
from attnprobe.report import page, write
from attnprobe.report.counterfactual import heading
from attnprobe.report.sides import other_side
from attnprobe.target import as_target
from tests.report.conftest import HOSTILE, with_tokens

QUICK = Search(n_starts=2, n_steps=25, rate=0.2)
METHODS = ["raw_attention", "leave_one_out"]
TEXTS = ["the actors are wonderful but the plot is wasted", "a tired script", "very good actors"]


@pytest.fixture(scope="module", autouse=True)
def short():
    """A search of a few steps, wherever a comparison asks for one."""
    with pytest.MonkeyPatch.context() as patch:
        plain = other_attention
        patch.setattr(running, "other_attention", lambda *a, **k: plain(*a, **k, how=QUICK))
        yield


def ask(model, texts=tuple(TEXTS), **options):
    quick = {"operators": "mean", "n_random": 4, "n_resamples": 50, "oracle": False, "verdicts": False}
    return compare(model, list(texts), METHODS, progress=False, **{"counterfactual": True, **quick, **options})


@pytest.fixture(scope="module")
def several(model):
    return ask(model)


@pytest.fixture(scope="module")
def single(model):
    return ask(model, TEXTS[:1])


def test_the_own_row_is_what_raw_attention_says_and_both_are_distributions(several):
    for study in several.studies:
        raw = study.attribution("raw_attention").scores
        assert (raw - study.other.own).abs().max() < 1e-6
        assert float(study.other.other.min()) >= 0
        assert float(study.other.other.sum()) == pytest.approx(1, abs=1e-5)


def test_distances_are_those_of_numpy_and_scipy_and_the_answer_stays_within_eps(several):
    for row, study in zip(several.counterfactuals.itertuples(), several.studies, strict=True):
        p, q = study.other.own.double().numpy(), study.other.other.double().numpy()
        assert row.attention_total_variation == pytest.approx(np.abs(p - q).sum() / 2, abs=1e-6)
        assert row.attention_jsd == pytest.approx(jensenshannon(p, q) ** 2, abs=1e-5)
        assert row.answer_total_variation <= EPS + 1e-6
        assert abs(row.probability_after - row.probability) <= EPS + 1e-6
        assert row.probability == pytest.approx(study.target.label_probability, abs=1e-6)
        assert row.moved == pytest.approx(row.value_after - row.value)
        assert row.text == study.example.text and row.seed == 0 and row.n_steps == QUICK.n_steps


def test_of_a_twin_attention_moves_and_the_one_number_that_it_answers_stays():
    made = planted("P3A")
    target = made.model.resolve(made.example, as_target(None))
    found = other_attention(made.model, made.example, target, how=Search(n_starts=0), eps=0.0)
    assert found.value_after == pytest.approx(found.value, abs=1e-12)
    assert found.attention_total_variation > 0.3 and np.isnan(found.probability)


def test_nothing_is_looked_for_unless_it_is_asked_for(one):
    assert one.counterfactuals.empty and "attention_jsd" in one.counterfactuals
    assert 'id="counterfactual"' not in page(one)


def test_what_was_interrupted_goes_on_with_the_attention_that_was_found(model, several, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        plain = running.other_attention
        calls = []

        def twice(*given, **options):
            calls.append(1)
            if len(calls) > 2:
                raise KeyboardInterrupt
            return plain(*given, **options)

        patch.setattr(running, "other_attention", twice)
        ask(model, folder=tmp_path)
    assert len(list((tmp_path / "finished").iterdir())) == 2
    again = ask(model, folder=tmp_path)
    drop = ["seconds", "forward_passes", "backward_passes"]
    pd.testing.assert_frame_equal(
        again.counterfactuals.drop(columns=drop), several.counterfactuals.drop(columns=drop), rtol=1e-4, atol=1e-6
    )
    for a, b in zip(again.studies, several.studies, strict=True):
        assert (a.other.other - b.other.other).abs().max() < 1e-5
    with pytest.raises(InputError, match="counterfactual was True"):
        ask(model, folder=tmp_path, counterfactual=False)


def test_where_it_cannot_be_looked_for_the_rest_goes_on_and_the_reason_is_told(model, monkeypatch, browser, tmp_path):
    plain = running.other_attention

    def second_fails(model, example, target, **options):
        if example.text == TEXTS[1]:
            raise InputError("its rows are no distributions")
        return plain(model, example, target, **options)

    monkeypatch.setattr(running, "other_attention", second_fails)
    found = ask(model)
    assert found.counterfactuals.example_index.tolist() == [0, 2]
    assert found.failures.values.tolist() == [[1, "counterfactual attention", "its rows are no distributions"]]
    opened = browser.open(write(found, tmp_path / "page.html"), at="text-2", ready="html[data-ready=yes]")
    assert "reason is under Methods" in opened.locator("#cfstrip").inner_text()
    assert opened.locator("#cfnums").is_hidden() and opened.locator("#cfplot circle[data-i]").count() == 2


def test_the_heading_counts_texts_on_which_another_attention_does_as_well(several):
    (known,) = {one.other for one in several.studies[:1]}
    far, near = replace(known, attention_total_variation=0.8), replace(known, attention_total_variation=0.3)
    undone, own = replace(far, decision_kept=False), replace(known, attention_total_variation=0.01)
    assert heading([far, near, undone, far], 4) == "Another attention gives the same answer on 2 of 4 texts"
    assert heading([far], 1) == "Another attention gives the same answer here"
    assert "30" in heading([near], 1)
    assert heading([own], 1) == "No other attention with the same answer was found here"


def test_it_stands_on_neither_side_of_a_claim(single):
    for verdict in ("yes", "no", "open"):
        groups = other_side(single, (), verdict)["groups"]
        said = [(label, sentence) for label, found in groups for sentence in found if "that alone speaks" in sentence]
        assert [label for label, _ in said] == ["Open:"]


def test_the_page_carries_both_rows_of_every_text(several):
    whole = page(several)
    data = json.loads(re.search(r'id="counterfactual-data">(.*?)</script>', whole)[1])
    for text, study in zip(data["texts"], several.studies, strict=True):
        assert text["own"] == pytest.approx(study.other.own.tolist(), rel=1e-3, abs=1e-9)
        assert text["other"] == pytest.approx(study.other.other.tolist(), rel=1e-3, abs=1e-9)
    assert "never decides a verdict alone" in whole
    assert "counterfactuals.csv" in whole


def test_bars_share_one_scale_and_a_dot_opens_its_text(several, browser, tmp_path):
    opened = browser.open(write(several, tmp_path / "page.html"), ready="html[data-ready=yes]")
    bars = opened.locator("#cfstrip .k i")
    study = several.studies[0]
    heights = np.array(bars.evaluate_all("all => all.map(b => b.offsetHeight)")).reshape(-1, 2)
    weights = np.stack([study.other.own.numpy(), study.other.other.numpy()], 1)
    assert np.abs(heights - 54 * weights / weights.max()).max() < 1.1
    assert opened.locator("#cfplot circle[data-i]").count() == len(TEXTS)
    opened.locator("#cfplot circle[data-i='2']").click()
    assert opened.locator("#cfstrip .k").count() == several.studies[2].example.n_tokens
    assert opened.locator("#counterfactual select").input_value() == "2"
    browser.accessible(opened, inside="#counterfactual")


def test_tokens_that_try_to_get_out_show_as_themselves(single, browser, tmp_path):
    opened = browser.open(write(with_tokens(single, HOSTILE), tmp_path / "page.html"), ready="html[data-ready=yes]")
    words = opened.locator("#cfstrip .w").all_inner_texts()
    assert words[1:4] == ["</script><b>", "a␣&␣b", HOSTILE[2]]
    assert opened.locator("#counterfactual b b").count() == 0
