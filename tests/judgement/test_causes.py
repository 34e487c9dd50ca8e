"""Causes: numbers worked out by hand on planted models, and what was built in told apart from what was not."""

import math

import pytest
import torch

from attnprobe.attributing import attribute
from attnprobe.benchmark.cause_truth import built_in
from attnprobe.errors import InputError
from attnprobe.intervention import replace_weights
from attnprobe.judgement.causes import Causes, causes, find_causes, named
from attnprobe.judgement.causes.case import Case
from attnprobe.judgement.causes.freedom import furthest, heads_told_apart
from attnprobe.judgement.effects import effects_under, unit_effects
from attnprobe.methods import methods
from attnprobe.models.planted import planted
from attnprobe.models.planted.families import variant
from attnprobe.models.planted.plan import PlantedModel
from attnprobe.models.rows import Row
from attnprobe.registry import Entry
from attnprobe.target import as_target
from tests import tiny

NAMES = (
    "interaction",
    "mixing_across_layers",
    "non_identifiability",
    "redundancy",
    "residual_bypass",
    "saturation",
    "sink",
    "value_null_token",
)


def of(made: PlantedModel, only: tuple[str, ...] | None = None) -> Causes:
    """Causes of a plan as it stands, by taking contents to zero."""
    target = made.model.resolve(made.example, made.target)
    effects = [unit_effects(made.model, made.example, target, "zero")]
    raw = attribute(made.model, made.example, "raw_attention", made.target)
    return find_causes(made.model, made.example, target, raw, effects=effects, only=only)


def of_variant(family: str, number: int) -> tuple[Causes, dict[str, bool | None]]:
    """Causes of a random member of a family, and which it was built with."""
    found = variant(family, number)
    made = found.made
    target = made.model.resolve(made.example, made.target)
    asked = {"seed": number, "data": found.others}  # eight orders alone may never draw what turns an OR off
    effects, _ = effects_under(made.model, made.example, target, ("mean", "resample"), **asked)
    scores = torch.ones(made.example.n_tokens)
    return find_causes(made.model, made.example, target, scores, effects=effects, data=found.others), built_in(found)


def test_every_cause_is_registered_with_what_to_look_at_instead():
    assert sorted(causes) == sorted(NAMES)
    for name in causes:
        entry: Entry = causes[name]
        assert entry.facts["look_at"] in methods
        assert entry.description.endswith(".")


@pytest.mark.parametrize(
    ("name", "cause", "measure", "units"),
    [
        ("P1", "value_null_token", 0.0, {1}),  # S has 0.7 of the weight and no value
        ("P2", "residual_bypass", 1.0, {0}),  # [CLS] never leaves the residual stream
        ("P6", "redundancy", 0.0, {1, 2}),  # 1 − relu(1 − a − b): one alone changes nothing
        ("P20", "redundancy", 0.0, None),  # two of three votes are enough
        ("P10", "saturation", 0.0, {1}),  # 1 − relu(1 − 2a) at a = 1
        ("P6", "saturation", 0.0, {1, 2}),
        ("P7", "interaction", 1.0, {1, 2}),  # 1 − 0 − 0 + 0, of a change of 1
        ("P8", "interaction", 1.0, {1, 2}),  # −1 − 1 − 0 + 0 = −2, of a change of 2 ('not' alone)
        ("P6", "interaction", 1.0, {1, 2}),  # 1 − 1 − 1 + 0, of a change of 1
    ],
)
def test_a_planted_cause_is_found_with_the_measure_worked_out_by_hand(name, cause, measure, units):
    found = of(planted(name), (cause,))[cause]
    assert found.present
    assert found.measure == pytest.approx(measure, abs=1e-9)
    assert units is None or set(found.units) == units


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("P1", ("residual_bypass", "mixing_across_layers", "redundancy", "saturation", "interaction")),
        ("P2", ("mixing_across_layers", "redundancy", "saturation", "interaction", "sink")),
        ("P5", ("residual_bypass", "redundancy", "saturation", "interaction", "sink", "value_null_token")),
        ("P7", ("residual_bypass", "redundancy", "saturation", "mixing_across_layers")),
        ("P8", ("redundancy", "saturation")),
        ("P10", ("redundancy", "interaction", "residual_bypass")),
        ("P3A", ("interaction", "saturation", "residual_bypass", "value_null_token")),
    ],
)
def test_what_was_not_planted_is_not_named(name, absent):
    found = of(planted(name), absent)
    assert not found.lacking
    assert found.names == ()


def test_a_carrier_is_a_token_whose_values_matter_and_whose_content_does_not():
    # y = 0.9² + 2 · 0.05², of which 0.9² passes the place of T.
    found = of(planted("P5"), ("mixing_across_layers",))["mixing_across_layers"]
    assert found.present and found.units == (2,)
    assert found.measure == pytest.approx(0.81 / (0.81 + 2 * 0.05**2), rel=1e-9)
    assert "relation" in found.sentence


def test_a_gradient_that_sees_the_effect_is_no_saturation():
    found = of(planted("P7"), ("saturation",))["saturation"]
    assert not found.present
    assert found.measure >= 1  # each token's first-order effect is 1, over random orders it is 1/2


def test_effects_that_add_up_have_no_interaction():
    for name in ("P1", "P3A", "P13B"):
        assert of(planted(name), ("interaction",))["interaction"].measure < 1e-9


def test_a_sink_is_measured_against_even_attention():
    made = variant("P15", 4).made
    rows = [torch.tensor(layer.heads[0].probabilities, dtype=torch.float64) for layer in made.plan.layers]
    n = len(rows[0])
    even = sum(1 / (i + 1) for i in range(n)) / n
    mass = float(torch.stack([row.mean(0)[0] for row in rows]).mean())
    found, _ = of_variant("P15", 4)
    assert found["sink"].present and found["sink"].units == (0,)
    assert found["sink"].measure == pytest.approx((mass - even) / (1 - even), abs=1e-9)


def test_of_twins_neither_map_can_be_told_from_the_output():
    # Mean weights: (0.1, 0.525, 0.375) and (0.1, 0.375, 0.525); what moves one to the other is within reach.
    for name in ("P3A", "P3B"):
        found = of(planted(name), ("non_identifiability",))["non_identifiability"]
        assert found.present
        assert found.measure >= 0.15 - 1e-9


def test_other_weights_that_were_found_give_the_same_answer_on_other_inputs():
    made = planted("P3A")
    target = made.model.resolve(made.example, made.target)
    effects = (unit_effects(made.model, made.example, target, "zero"),)
    case = Case(made.model, made.example, target, torch.ones(3), effects)
    weights = case.attention(0)[:, 0]
    other = furthest(weights, heads_told_apart(case, 0), 0)
    assert other is not None and bool((other >= 0).all())
    assert torch.allclose(other.sum(-1), torch.ones(2, dtype=torch.float64))
    edit = replace_weights(0, other[:, None].expand(2, 3, 3))
    contents = torch.randn(5, *made.model.embed(made.example).shape, dtype=torch.float64)
    before = made.model.targets([Row(made.example, embeddings=one) for one in contents], target)
    after = made.model.targets([Row(made.example, embeddings=one, edits=(edit,)) for one in contents], target)
    assert torch.allclose(before, after, atol=1e-9)
    assert float((other - weights).mean(0).abs().sum() / 2) > 0.1


@pytest.mark.parametrize("name", ["P1", "P13A", "P13B", "P13C"])
def test_more_tokens_than_directions_of_value_alone_are_no_cause(name):
    found = of(planted(name), ("non_identifiability",))["non_identifiability"]
    assert not found.present
    assert "On this input alone 2 of 4 weights are free" in found.sentence


@pytest.mark.parametrize(
    "family",
    ["P1", "P1c", "P2", "P3", "P5", "P6", "P7", "P9", "P10", "P11", "P12", "P15", "P19", "P20", "copying", "retrieval"],
)
def test_random_variants_show_the_causes_that_they_were_built_with_and_no_others(family):
    found, truth = of_variant(family, 500)
    assert not found.lacking
    wrong = {name for name, there in truth.items() if there is not None and there != (name in found.names)}
    assert not wrong


def test_another_basis_of_the_residual_stream_changes_no_measure():
    for name in ("P5", "P6", "P3A"):
        plain, turned = of(planted(name)), of(planted(name, rotation=3))
        for cause in plain.found:
            assert turned[cause.name].measure == pytest.approx(cause.measure, abs=1e-6), cause.name


def test_a_map_is_told_where_it_ranks_the_tokens_in_question():
    found = of(planted("P1"), ("value_null_token",))  # raw attention has S first
    assert found["value_null_token"].place == 1
    other = found.seen_by(torch.tensor([0.1, 0.0, 0.8, 0.1]))
    assert other["value_null_token"].place == 4
    assert other["value_null_token"].measure == found["value_null_token"].measure


def test_the_table_has_a_row_a_cause_with_how_it_was_found():
    frame = of(planted("P1")).to_frame()
    assert set(frame.cause) == set(NAMES)
    assert {"method", "target", "operators", "options", "seed", "forward_passes", "look_at"} <= set(frame.columns)
    assert (frame.method == "raw_attention").all() and (frame.operators == "zero").all()


def test_what_cannot_be_measured_is_said_and_named_nowhere():
    made = planted("P1")
    target = made.model.resolve(made.example, made.target)
    renormalising = [unit_effects(made.model, made.example, target, "attention_mask")]
    with pytest.raises(InputError, match="content operator"):
        find_causes(made.model, made.example, target, torch.ones(4), effects=renormalising)
    with pytest.raises(InputError, match="did you mean 'sink'"):
        of(made, ("sinc",))

    @causes.add(family="effect", source="this test", look_at="leave_one_out")
    def never(case):
        """A cause that cannot be measured."""
        raise InputError("there is no such thing here")

    try:
        found = of(made, ("never",))
        assert found.names == () and found.lacking == {"never": "there is no such thing here"}
        assert math.isnan(found.to_frame().measure[0])
        with pytest.raises(InputError, match="no such thing"):
            found["never"]
    finally:
        del causes._entries["never"]


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_causes_of_a_transformers_model_are_measured_and_come_again(name):
    model = tiny.loaded(name)
    example = model.example([5, 6, 7, 8, 9])
    target = model.resolve(example, as_target(None))
    first, again = (
        find_causes(model, example, target, torch.arange(5.0), n_orders=4, seed=2).to_frame() for _ in range(2)
    )
    assert first.present.notna().sum() >= 7
    assert first.measure.equals(again.measure)


def test_names_are_joined_in_words():
    assert named([]) == "no token"
    assert named(["a", "b"]) == "'a' and 'b'"
