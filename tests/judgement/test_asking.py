"""What the judgement may be asked with, what it refuses, and that what is rounding is no effect."""

import math
from dataclasses import replace

import pytest
import torch

from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.judgement import effects_under, judge, unit_effects
from attnprobe.judgement.causes import find_causes
from attnprobe.judgement.causes.case import Case
from attnprobe.models.rows import Row
from attnprobe.planning import plan_of
from attnprobe.target import Target
from tests import tiny

FEW = {"n_orders": 2, "tolerance": None}


@pytest.fixture(scope="module")
def model():
    return tiny.loaded("bert", "sdpa", scale=2.0)


@pytest.fixture(scope="module")
def example(model):
    return model.example(tiny.IDS[:5])


def test_effects_and_causes_take_an_input_and_a_target_in_any_form(model, example):
    target = model.resolve(example, None)
    expected = unit_effects(model, example, target, "mean", **FEW)
    assert torch.equal(unit_effects(model, tiny.IDS[:5], None, "mean", **FEW).values, expected.values)
    scores = torch.arange(5.0)
    wanted = find_causes(model, example, target, scores, n_orders=2, only=["redundancy", "interaction"])
    for given in (scores.tolist(), scores.int(), scores.bfloat16(), scores.requires_grad_()):
        found = find_causes(model, tiny.IDS[:5], None, given, n_orders=2, only=["redundancy", "interaction"])
        assert found.found == wanted.found and found.seen_by(given).found == wanted.found


def test_a_single_operator_may_be_named_as_it_is(model, example):
    found = judge(model, example, None, [0.1] * 5, operators="mean", evidence="value_zero", **FEW)
    assert found.operators == ("mean",) and [one.operator for one in found.evidence] == ["value_zero"]
    (effects,), lacking = effects_under(model, example, None, "mean", **FEW)
    assert effects.operator == "mean" and not lacking


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_orders": 1}, "n_orders is at least 2"),
        ({"tolerance": -0.1}, "tolerance is a share"),
        ({"tolerance": math.nan}, "tolerance is a share"),
        ({"data": "a text"}, "data is a list of at least one text"),
        ({"data": []}, "data is a list of at least one text"),
        ({"operators": "meen"}, "no removal operator is named 'meen'; did you mean 'mean'"),
    ],
)
def test_settings_that_cannot_be_are_refused_and_not_taken_for_operators_that_are_lacking(
    model, example, options, message
):
    with pytest.raises(InputError, match=message):
        judge(model, example, None, [0.1] * 5, **options)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0, 2.0], r"one score a token \(5,\), got \(2,\)"),
        ([math.nan] * 5, "finite scores"),
        (torch.ones(5) + 1j, "real scores"),
    ],
)
def test_a_map_has_one_finite_real_score_a_token(model, example, scores, message):
    for ask in (judge, find_causes):
        with pytest.raises(InputError, match=message):
            ask(model, example, None, scores)


def test_effects_of_other_tokens_are_refused(model, example):
    effects = [unit_effects(model, tiny.IDS[:3], None, name, **FEW) for name in ("mean", "resample")]
    for ask in (judge, find_causes):
        with pytest.raises(InputError, match=r"of the tokens \[0, 1, 2\], those of this prediction are"):
            ask(model, example, None, [0.1] * 5, effects=effects)


def test_specials_alone_have_no_causes_and_the_error_says_why(model, example):
    with pytest.raises(InputError, match="only special tokens"):
        find_causes(model, replace(example, is_special=(True,) * 5), None, [0.1] * 5)


def test_what_is_rounding_has_no_share_and_no_cause(model, example):
    """Of effects of a billionth one is the largest too."""
    real = unit_effects(model, example, None, "mean", **FEW)
    noise = replace(real, values=torch.tensor([1e-8, 3e-8, 0.0, 2e-8, 1e-8]).double(), whole=1.0)
    assert noise.relative.tolist() == [0.0] * 5 and float(real.relative.max()) == 1.0
    found = judge(model, example, None, torch.arange(5.0), effects=[noise], operators="mean")
    assert found.reason == "mean: no unit has an effect beyond rounding (1e-06)" and not found.units()["mean"].any()
    causes = find_causes(model, example, None, torch.arange(5.0), effects=[noise])
    assert not {"redundancy", "interaction", "saturation", "residual_bypass", "mixing_across_layers"} & {*causes.names}


def test_of_an_encoder_decoder_the_values_of_the_input_are_zeroed_and_every_cause_is_measured():
    model = tiny.loaded("t5", scale=2.0)
    example = tiny.example(model, "t5")
    target = model.resolve(example, None)
    found = find_causes(model, example, target, attribute(model, example, "raw_attention"), n_orders=2)
    assert not found.lacking
    effects = tuple(unit_effects(model, example, target, name, **FEW) for name in ("mean", "value_zero"))
    case = Case(model, example, target, torch.ones(example.n_tokens), effects)
    kept = torch.ones(2, example.n_tokens, dtype=torch.bool)
    kept[1, 2] = False
    before, after = model.targets([Row(example, kept=one, operator="value_zero") for one in kept], target).tolist()
    alone = max(abs(after - before), float(effects[1].values[2]))
    assert float(case.value_effects[2]) == pytest.approx(alone / float(effects[0].values.max()), rel=1e-3)


def test_tokens_are_not_drawn_from_copies_of_the_text_itself(model):
    """A token that stands in for itself changes nothing, and seems to do nothing."""
    texts = [model.example(tiny.IDS[:5]), *[model.example(tiny.IDS[n : n + 5]) for n in (1, 1, 0, 3)]]
    plan = plan_of(model, texts, ["raw_attention"], Target(), {}, "mean")
    assert [[plan.examples.index(one) for one in plan.others(n)] for n in (0, 1, 3)] == [[1, 4], [0, 4], [1, 4]]
