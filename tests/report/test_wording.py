"""What the page says: the claim in the right direction, both tests, the rule, one sign, words for what was asked."""

import re
from dataclasses import replace

import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from attnprobe.appearance import number
from attnprobe.comparison import compare
from attnprobe.finding import findings
from attnprobe.models import load
from attnprobe.report import page, write
from attnprobe.report.answers import counted, named
from attnprobe.report.claims import top
from attnprobe.report.scores import areas, bins, unit_of
from attnprobe.report.sides import other_side, row
from attnprobe.target import Target
from tests.report.test_page import read, viewer


def with_row(comparison, metric, **values):
    """The comparison with other numbers in attention's row of a metric."""
    table = comparison.faithfulness.copy()
    at = (table.method == "raw_attention") & (table.metric == metric)
    for name, value in values.items():
        table.loc[at, name] = value
    return replace(comparison, faithfulness=table)


def with_taken_away(comparison, verdict, **values):
    """The same, with a verdict in the first test, and an open second one."""
    changed = with_row(comparison, "comprehensiveness", holds_up=verdict, **values)
    return with_row(changed, "sufficiency", holds_up="open")


RAISED = {"mean": -0.3, "random_mean": -0.09, "random_beaten": 0.02, "high": -0.1, "difference_high": -0.05}


@pytest.mark.parametrize("which", ["one", "many"])
def test_removal_that_raises_the_answer_is_told_as_the_other_way(which, request):
    found = with_taken_away(request.getfixturevalue(which), "no", **RAISED)
    claim = findings(found)[0].claim
    assert "finds words that argue the other way" in claim and "raises the explained answer" in claim
    assert "does not find" not in claim and top(found)["badge"] == "Attention points the other way here"


def test_removal_that_raises_the_answer_without_certainty_stays_open(one):
    found = with_taken_away(one, "open", **{**RAISED, "random_beaten": 0.12})
    claim = findings(found)[0].claim
    assert "seems to find words that argue the other way, but this stays open" in claim
    assert top(found)["verdict"] == "open" and top(found)["badge"].startswith("Open")


@pytest.mark.parametrize("which", ["one", "many"])
def test_removal_that_does_no_more_than_chance_is_told_as_a_fall(which, request):
    found = with_taken_away(
        request.getfixturevalue(which), "no", mean=0.01, random_mean=0.2, random_beaten=0.02, high=0.05
    )
    assert "lowers the explained answer no more than random orders do" in findings(found)[0].claim


def test_a_failed_second_test_is_in_the_claim_of_an_open_first_one(many):
    found = with_row(many, "comprehensiveness", holds_up="open", high=0.1)
    found = with_row(found, "sufficiency", holds_up="no")
    first = findings(found)[0]
    assert "sufficiency" in first.claim and "comprehensiveness" in first.claim and "open" in first.claim
    assert set(first.evidence.metric) == {"sufficiency", "comprehensiveness"}
    assert top(found)["badge"] == "One test open, one against attention"


@pytest.mark.parametrize(
    ("taken", "alone", "words"),
    [
        ("yes", "no", "left alone, its top tokens keep less"),
        ("no", "yes", "left alone, though, its top tokens keep more"),
        ("open", "yes", "left alone, though, its top tokens keep more"),
    ],
)
def test_two_tests_that_part_are_both_told(many, taken, alone, words):
    found = with_row(many, "comprehensiveness", holds_up=taken, mean=0.2, high=0.3)
    assert words in findings(with_row(found, "sufficiency", holds_up=alone))[0].claim


def test_an_open_verdict_shows_for_and_against_by_name(many):
    found = with_row(many, "comprehensiveness", holds_up="open", high=0.1)
    found = with_row(found, "sufficiency", holds_up="no")
    side = other_side(found, findings(found))
    assert [label for label, _ in side["groups"]][:2] == ["For:", "Against:"]
    assert any("Left alone" in s for label, said in side["groups"] if label == "Against:" for s in said)
    words = read(page(found)).words
    assert "For:" in words and "Against:" in words


def test_a_first_token_with_the_largest_effect_speaks_for_attention_whatever_its_sign(one):
    study = one.studies[0]
    first = study.attribution("raw_attention").ranking()[0]
    scores = torch.full((study.example.n_tokens,), 0.01)
    scores[first] = -3.0
    others = tuple(replace(a, scores=scores) if a.method == "leave_one_out" else a for a in study.attributions)
    found = with_taken_away(replace(one, studies=(replace(study, attributions=others),)), "no")
    side = other_side(found, findings(found))
    said = " ".join(s for _, sentences in side["groups"] for s in sentences)
    assert "no other token has so large an effect; it argues against" in said and "Nothing that was" not in said


def test_the_rule_of_the_verdict_stands_under_the_texts_and_in_how_to_read(many, one):
    for comparison, times in ((many, 2), (one, 1)):
        words = " ".join(read(page(comparison)).words.split())
        for part in ("at least 95 % of the random orders", "at most 5 %", "about 1 text in 20 is a ✓ and 1 in 20 a ✗"):
            assert words.replace("\N{NARROW NO-BREAK SPACE}", " ").count(part) == times


def test_more_answers_than_are_listed_are_counted():
    assert counted(list("aabcdef")) == "a (2), b (1), c (1), d (1) and 2 others"
    assert counted(list("abcde")).endswith("and 1 other") and "other" not in counted(list("abcd"))


def test_a_fall_has_one_sign_everywhere(many):
    unit, r = unit_of(many), row(many, "comprehensiveness")
    fall = unit.signed(r["mean"])
    card = next(n for n in top(many)["numbers"] if "lower the answer" in n["question"])
    assert card["text"].startswith(f"Taken away in its order: the answer {unit.falls(r['mean'])}; in random orders it ")
    assert unit.falls(r.random_mean) in card["text"] and bins() in card["text"]
    assert bins().replace("\N{NARROW NO-BREAK SPACE}", " ") == "1, 5, 10, 20 and 50 %"
    html = page(many)
    assert f'<span class="fv">{fall}</span>' in html and "A fall is positive, a rise negative" in html
    assert "with 20 tokens or fewer" in html


def test_the_mean_of_random_orders_is_drawn_and_named(one, many):
    for comparison in (one, many):
        html = page(comparison)
        assert html.count('<i class="rm"') == len(comparison.main) and "their mean" in html


def test_heights_of_curves_have_the_unit_of_their_axis_and_a_better_side(many):
    found = areas(many)
    assert all(value.endswith("%") for kind in found.values() for value in kind.values())
    assert 0 < float(found["removed"]["raw_attention"].split("\N{NARROW NO-BREAK SPACE}")[0]) <= 100
    html = page(many)
    assert "lower is better" in html and "higher is better" in html


@pytest.mark.parametrize(
    ("mean", "low", "high", "words", "printed"),
    [
        (-0.07, -0.15, -0.01, "run slightly against each other", "−0.07"),
        (-0.5, -0.7, -0.3, "run against each other", "−0.50"),
        (0.1, 0.02, 0.2, "agree slightly", "+0.10"),
        (0.4, 0.2, 0.6, "partly agree", "+0.40"),
        (-0.001, -0.2, 0.2, "cannot be told from unrelated", "τ 0.00"),
    ],
)
def test_a_weak_agreement_is_told_in_weak_words_and_zero_has_no_sign(many, mean, low, high, words, printed):
    found = replace(many, agreement=many.agreement.assign(mean=mean, low=low, high=high))
    claim = next(f.claim for f in findings(found) if f.topic == "agreement")
    assert words in claim and printed in claim
    assert "\N{MINUS SIGN}0.00" not in claim and number(-0.001, 2) == "0.00"


def test_passes_and_pairs_have_their_notes(many):
    words = read(page(many)).words
    n = len(many.methods)
    assert "Finding the position that the answer is read from costs a pass" in words
    assert "not counted again" in words
    pairs = f"There are {n * (n - 1) // 2} pairs of the {n - 1} methods and the control."
    assert f"{pairs} By chance alone about 1 in 20" in words


def test_the_verdict_is_the_second_column_so_that_narrow_screens_show_it(many):
    html = page(many)
    head = re.search(r'id="list"><thead><tr>(.*?)</tr>', html).group(1)
    assert re.findall(r'data-sort="\w">([^<]*)', head)[:3] == ["No.", "Holds up", "Text"]
    cells = re.search(r'<tr data-text="0">(.*?)</tr>', html, re.S).group(1)
    assert cells.index('class="tag') < cells.index("<th")
    assert re.search(r"\.seg\{[^}]*flex-wrap:wrap", html)


def test_head_scores_and_verdicts_of_texts_lie_beside_the_page(many, tmp_path):
    write(many, tmp_path / "page.html")
    heads = pd.read_csv(tmp_path / "page" / "heads.csv")
    stacks = len(many.studies) * 2 * 2  # two layers of two heads
    assert len(heads) == stacks and {"example_index", "layer", "head", "spread"} <= set(heads.columns)
    texts = pd.read_csv(tmp_path / "page" / "texts.csv")
    shown = viewer(page(many))["texts"]
    assert list(texts.text) == [s.example.text for s in many.studies]
    words = {"yes": "holds up", "no": "does not", "open": "open"}
    assert list(texts.attention) == [words[t["verdict"]] for t in shown]
    taus = [float("nan") if t["tau"] is None else t["tau"] for t in shown]
    assert list(texts.kendall_tau_leave_one_out) == pytest.approx(taus, abs=1e-4, nan_ok=True)
    html = page(many)
    assert 'href="page/heads.csv"' in html and 'href="page/texts.csv"' in html


def test_a_page_without_kept_weights_has_a_table_of_heads_without_rows(one, tmp_path):
    study = one.studies[0]
    write(replace(one, studies=(replace(study, capture=replace(study.capture, sites=())),)), tmp_path / "page.html")
    assert len(pd.read_csv(tmp_path / "page" / "heads.csv")) == 0


def test_the_share_on_the_first_token_says_whose_look_it_counts(one):
    label = next(s["label"] for s in viewer(page(one))["head_scores"] if s["name"] == "first_token")
    assert label.endswith("from later tokens")


@pytest.fixture(scope="module")
def language_model(model):
    torch.manual_seed(0)
    config = GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32, n_positions=32, bos_token_id=2, eos_token_id=3)
    return load((GPT2LMHeadModel(config).eval(), model.tokenizer))


def explained_by(model, texts, target=None):
    methods = ("raw_attention", "leave_one_out")
    return compare(model, texts, methods, target, n_random=3, n_resamples=20, progress=False)


def test_a_language_model_predicts_and_does_not_call(language_model):
    found = explained_by(language_model, "the film is")
    words = " ".join(read(page(found)).words.split())
    target = found.studies[0].target
    assert "After this text the model predicts" in words and "calls this text" not in words
    assert f"“{target.predicted_name}”" in words and f"position {target.position}" in words


def test_a_language_model_at_an_inner_position_says_which(language_model):
    words = " ".join(read(page(explained_by(language_model, "the film is good", Target(position=1)))).words.split())
    assert re.search(r"The model predicts “[^”]+” at position 1", words)


def test_several_texts_of_a_language_model_name_their_positions(language_model):
    found = explained_by(language_model, ["the film is", "the plot"])
    words = " ".join(read(page(found)).words.split())
    at = sorted(s.target.position for s in found.studies)
    assert f"the predicted next token of each text, positions {at[0]} to {at[1]}" in words


def test_classes_stay_bare_and_answers_that_begin_invisibly_are_in_quotes():
    assert named("positive", False) == "positive"
    assert named("Ġfilm", True) == "“␣film”" and named("\n", False) == "“⏎”"
