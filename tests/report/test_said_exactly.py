"""Words on the page say no more and no less than its numbers: given answers, places by size, numbers that part."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe.comparison import compare
from attnprobe.explaining import explanations
from attnprobe.finding import findings
from attnprobe.report import page
from attnprobe.report.answers import is_whole, other_steps
from attnprobe.report.claims import top
from attnprobe.report.data import build, what
from attnprobe.report.heads import Budget
from attnprobe.report.scores import Unit, unit_of
from attnprobe.report.sides import other_side
from attnprobe.report.texts import heading, text
from attnprobe.report.verdicts import panel
from attnprobe.target import Target
from attnprobe.wording import of_tokens
from tests import tiny
from tests.report.test_page import read
from tests.report.test_verdicts import judged


def words(comparison, **options):
    return " ".join(read(page(comparison, **options)).words.split())


@pytest.fixture(scope="module")
def t5():
    return tiny.loaded("t5")


def of_answer(model, answer, target=None):
    methods = ("raw_attention", "leave_one_out")
    example = model.example(tiny.IDS[:5], answer=answer)
    return compare(model, example, methods, target, n_random=4, n_resamples=20, verdicts=False, progress=False)


def own_answer(model):
    return list(model.example(tiny.IDS[:5]).notes["answer_ids"])[:3]


def test_an_answer_that_was_given_is_not_called_the_models_first_choice(t5):
    wanted = own_answer(t5)
    wanted[1] = (wanted[1] + 7) % 60
    found = of_answer(t5, wanted)
    study = found.studies[0]
    with torch.no_grad():
        logits = t5.module(**study.example.inputs).logits[0]
    assert other_steps(study) == int((logits.argmax(-1) != torch.tensor(wanted)).sum()) > 0
    said = {name: (value, small) for name, value, small in what(found, [build(found, "", "page")["first"]])}
    assert "Predicted" not in said and "the answer that was given" in said["Answer"][1]
    assert said["Explained"] == ("log-probability of the whole answer", "summed over its 3 tokens")
    shown = words(found)
    assert "the model’s first choice" in shown and "predicted: " not in shown
    assert f"“{found.studies[0].target.predicted_name}”" in page(found)
    assert "units of the function" not in shown and "the function log-probability" not in shown


def test_an_answer_that_the_model_writes_itself_is_predicted_also_where_it_was_given(t5):
    found = of_answer(t5, own_answer(t5))
    assert other_steps(found.studies[0]) == 0 and is_whole(found.studies[0])
    assert what(found, [build(found, "", "page")["first"]])[1][::2] == ("Predicted", "the model’s first choice")


def test_a_function_of_the_caller_is_no_answer(t5):
    found = of_answer(t5, own_answer(t5), Target(function=lambda logits: logits[:, 0, 5]))
    assert not is_whole(found.studies[0]) and other_steps(found.studies[0]) == 0


def test_the_list_of_texts_calls_answers_that_were_given_answers(t5):
    others = [(index + 7) % 60 for index in own_answer(t5)]
    examples = [t5.example(tiny.IDS[:n], answer=others) for n in (4, 5)]
    found = compare(t5, examples, ("raw_attention", "leave_one_out"), n_random=4, verdicts=False, progress=False)
    html = page(found)
    assert '<th scope="col" data-sort="s">Answer</th>' in html and 'data-sort="s">Predicted<' not in html
    facts = build(found, "", "page")["what"]
    assert ("Explained", "the whole answer of each text") in [(name, small) for name, _, small in facts]
    assert ("Answers", "all 2 texts: given") in [(name, small) for name, _, small in facts]


def test_log_probabilities_are_counted_in_nats(t5):
    assert unit_of(of_answer(t5, own_answer(t5))).word == "nats"


def with_effects(comparison, effects):
    """The comparison with these leave-one-out scores of what is ranked, the first of attention's order first."""
    study = comparison.studies[0]
    order, scores = study.attribution("raw_attention").ranking(), torch.zeros(study.example.n_tokens)
    scores[order] = torch.tensor((list(effects) + [effects[-1]] * len(order))[: len(order)])
    others = tuple(replace(a, scores=scores) if a.method == "leave_one_out" else a for a in study.attributions)
    return replace(comparison, studies=(replace(study, attributions=others),))


@pytest.mark.parametrize(
    ("effects", "said"),
    [((-0.1, -2.0), None), ((0.1, -2.0), None), ((-3.0, 1.0), "it argues against"), ((3.0, -1.0), "it argues for it")],
)
def test_the_first_token_speaks_for_attention_only_where_its_effect_is_the_largest(one, effects, said):
    found = other_side(with_effects(one, effects), (), "no")
    sentences = [s for _, group in found["groups"] for s in group if s.startswith("It puts")]
    assert len(sentences) == (said is not None) and all(said in s for s in sentences)


def scored(scores, signed):
    order = np.array(scores)
    places = {
        "ranks": [float(r) for r in pd.Series(order).rank(ascending=False)],
        "sizes": [float(r) for r in pd.Series(np.abs(order)).rank(ascending=False)],
    }
    return {"scores": scores, "signed": int(signed), **places}


def test_where_some_methods_have_no_direction_places_go_by_size():
    found = {
        "raw_attention": scored([0.05, 0.1, 0.15, 0.7], False),
        "leave_one_out": scored([0.5, 0.01, 0.02, -0.3], True),
    }
    by_sign = heading(list("abcd"), found, {m: s["ranks"] for m, s in found.items()}, list(found))
    by_size = heading(list("abcd"), found, {m: s["sizes"] for m, s in found.items()}, list(found))
    assert "“d”: 1st for" in by_sign and "last of 4" in by_sign
    assert "“a”: 1st by size for leave-one-out, last of 4 for raw attention" in by_size


def test_a_place_by_size_says_that_the_token_argues_against():
    found = {
        "raw_attention": scored([0.5, 0.3, 0.15, 0.05], False),
        "leave_one_out": scored([0.0, 0.3, 0.2, -0.9], True),
    }
    said = heading(list("abcd"), found, {m: s["sizes"] for m, s in found.items()}, list(found))
    assert "“d”: 1st by size, against the answer, for" in said


def test_disagreement_is_by_size_only_beside_methods_without_direction(one):
    def spread_of(methods):
        study = one.studies[0]
        kept = tuple(a for a in study.attributions if a.method in methods)
        shown = text(replace(one, studies=(replace(study, attributions=kept),)), 0, list(methods), Budget(0))
        scores = [a.scores for a in kept]
        return shown, scores, kept[0].units

    for methods, by_size in ((("raw_attention", "leave_one_out"), 1), (("input_x_gradient", "leave_one_out"), 0)):
        shown, scores, units = spread_of(methods)
        ranks = [pd.Series((s.abs() if by_size else s)[units].numpy()).rank(ascending=False).to_numpy() for s in scores]
        assert shown["by_size"] == by_size
        assert [s for s in shown["spread"] if s is not None] == list(np.abs(ranks[0] - ranks[1]))


def test_the_column_of_what_speaks_against_names_the_verdict(one):
    changed = judged(one, ["misleads"])
    changed = replace(changed, verdicts=changed.verdicts.assign(against=""))
    shown = words(changed)
    assert "What speaks against the verdict, by this rule" in shown and "nothing, by this rule" in shown
    assert "nothing that was measured" not in shown.split("Does attention explain the prediction?")[-1].split("2 ")[0]


def test_what_all_texts_share_is_not_said_of_most(many):
    assert top(judged(many, ["undecided"] * 7))["badge"] == "Undecided here"
    assert top(judged(many, ["explains"] * 7))["badge"] == "Attention explains all of these"
    assert top(judged(many, ["misleads"] * 7))["badge"] == "Attention misleads on all of these"
    few = top(judged(many, ["explains"] * 3))
    assert (few["badge"], few["verdict"]) == ("Attention explains all of these, but they are only 3", "open")


def test_the_claim_names_the_operators_that_its_share_is_over(one):
    assert "mean over the operators mean and resample" in top(judged(one, ["misleads"]))["lede"]
    alone = judged(one, ["misleads"])
    alone = replace(alone, verdicts=alone.verdicts.assign(operators="mean"))
    assert "mean over" not in top(alone)["lede"]


def test_units_of_the_rule_are_tokens_on_the_page_and_in_the_findings(one):
    found = judged(one, ["misleads"])
    assert "first tokens miss" in explanations(found)[0].claim
    assert of_tokens("under mean 'unit' stands above a unit") == "under mean 'unit' stands above a token"
    assert "first units" not in words(found)


def test_differences_of_two_percentages_are_points_and_p_has_its_note_only_where_it_stands(many):
    few = judged(many, ["undecided"] * 7)
    few = replace(few, verdict_shares=few.verdict_shares.assign(difference=0.26, p_holm=np.nan))
    first = panel(few, ["raw_attention"])["rows"][0]["maps"][0]
    assert first["beyond"] == "+26 points" and not panel(few, ["raw_attention"])["tested"]
    assert "Wilcoxon’s test, Holm-corrected" not in page(few).split('id="spread"')[0]
    tested = replace(few, verdict_shares=few.verdict_shares.assign(p_holm=0.03))
    assert "p by Wilcoxon’s test, Holm-corrected" in page(tested)


def test_maps_of_which_the_same_is_to_be_said_share_a_row(many):
    found = judged(many, ["undecided"] * 7)
    rows = panel(found, ["raw_attention", "rollout"])["rows"]
    assert [[one["method"] for one in row["maps"]] for row in rows] == [["raw_attention", "rollout"]]
    apart = judged(many, ["undecided"] * 6 + ["misleads"])
    assert [len(row["maps"]) for row in panel(apart, ["raw_attention", "rollout"])["rows"]] == [1, 1]


def test_two_numbers_that_are_compared_are_told_apart():
    unit = Unit(1.0, 2, "nats", "the explained number")
    assert unit.both_fall(-0.1841, -0.1792) == ("rises by 0.184 nats", "rises by 0.179 nats")
    assert unit.both_fall(0.25, -0.25) == ("falls by 0.25 nats", "rises by 0.25 nats")
    assert unit.both_fall(0.5, 0.5) == ("falls by 0.50 nats", "falls by 0.50 nats")


def test_the_control_is_not_counted_as_a_method(one):
    pair = {"operator_a": "mask", "kind_a": "content", "operator_b": "mean", "kind_b": "content"}
    row = {"ranked": "methods", "metric": "comprehensiveness", **pair, "kendall_tau": 0.5, "n": len(one.methods)}
    found = replace(one, stability=pd.DataFrame([row]))
    claim = next(f.claim for f in findings(found) if f.topic == "operators")
    assert f"{len(one.methods) - 1} methods and the control" in claim


def test_a_command_with_a_path_that_was_cut_says_so(one):
    assert "put your own in its place" in page(one, command="attnprobe report m --file /srv/x/t.csv")
    assert "put your own in its place" not in page(one, command="attnprobe report m --file t.csv")


def test_nothing_shines_through_the_bar(one):
    bar = page(one).split(".bar{", 1)[1].split("}")[0]
    assert "background:var(--page)" in bar and "transparent" not in bar
