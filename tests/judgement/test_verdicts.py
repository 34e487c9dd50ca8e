"""judge() on planted models, and the verdicts of a set."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats

from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.judgement import RULE, judge, unit_effects, verdicts
from attnprobe.judgement.verdict_sets import paired, wilson
from attnprobe.models.planted import planted
from attnprobe.models.planted.families import variant
from attnprobe.target import Target


@pytest.fixture(scope="module")
def null():
    """Tokens whose values are next to null are in front: attention misleads, norms explain."""
    found = variant("P1", 11)
    assert _misleads(found)
    return found


def _misleads(found) -> bool:
    attention = attribute(found.made.model, found.made.example, "raw_attention", found.made.target).scores
    acting = torch.zeros(found.n_tokens, dtype=torch.bool)
    acting[list(found.causal)] = True
    return float(attention[acting].max()) < float(attention[~acting].min())


def asked(found, map_, **options):
    made = found.made
    return judge(made.model, made.example, made.target, map_, data=found.others, **options)


def test_attention_on_a_value_null_token_misleads_and_norms_explain(null):
    made = null.made
    said = {
        name: asked(null, attribute(made.model, made.example, name, made.target))
        for name in ("raw_attention", "value_norms")
    }
    assert {name: one.verdict for name, one in said.items()} == {
        "raw_attention": "misleads",
        "value_norms": "explains",
    }
    assert said["raw_attention"].map == "raw_attention" and said["raw_attention"].operators == ("mean", "resample")
    assert said["value_norms"].quality > 0.9 > said["value_norms"].random > said["raw_attention"].quality


def test_what_speaks_against_is_shown_with_the_verdict(null):
    made = null.made
    found = asked(null, attribute(made.model, made.example, "raw_attention", made.target))
    first = max(null.causal, key=lambda j: float(null.influence[j]))
    assert any(f"'{made.example.pieces[first]}' acts" in line and "has place" in line for line in found.against)


def test_evidence_is_shown_and_decides_nothing():
    made = planted("P2")
    map_ = torch.tensor([1.0, 0.0, 0.0])
    found = judge(made.model, made.example, made.target, map_, operators=("zero",), evidence=("value_zero",))
    assert found.verdict == "explains" and [r.operator for r in found.evidence] == ["value_zero"]
    assert any("value_zero, which does not decide" in line for line in found.against)
    assert any("zero decides alone" in line for line in found.against)
    frame = found.to_frame()
    assert frame.decides.tolist() == [True, False] and set(frame.kind) == {"content"}
    assert frame.verdict.unique().tolist() == ["explains"]


def test_an_operator_that_the_model_lacks_leaves_the_denominator_and_is_told():
    made = planted("P1", n_tokens=8)
    found = judge(made.model, made.example, made.target, made.truth, operators=("mean", "zero"))
    assert found.operators == ("zero",) and set(found.lacking) == {"mean"} and found.verdict == "explains"
    assert any(line.startswith("mean had no say") for line in found.against)
    none = judge(made.model, made.example, made.target, made.truth, operators=("mean",))
    assert none.verdict == "undecided" and none.operators == () and math.isnan(none.quality)


def test_a_sign_of_the_scores_does_not_matter(null):
    made = null.made
    map_ = attribute(made.model, made.example, "input_x_gradient", made.target).scores
    assert asked(null, map_).verdict == asked(null, -map_).verdict == "explains"


def test_effects_measured_before_are_used_and_cost_nothing(null):
    made = null.made
    target = made.model.resolve(made.example, made.target)
    known = [unit_effects(made.model, made.example, target, o, data=null.others) for o in ("mean", "resample")]
    map_ = torch.ones(null.n_tokens)
    map_[list(null.causal)] = 2.0
    again = judge(made.model, made.example, target, map_, effects=known)
    assert again.forward_passes == 0 and again.effects == tuple(known)
    assert again.verdict == asked(null, map_).verdict == "explains"


def test_the_same_seed_gives_the_same_verdict_with_the_same_numbers(null):
    map_ = torch.arange(null.n_tokens, dtype=torch.float32)
    first, again = asked(null, map_, seed=5), asked(null, map_, seed=5)
    assert first.to_frame().drop(columns="seconds").equals(again.to_frame().drop(columns="seconds"))


def test_twins_that_order_unequal_tokens_oppositely_are_not_both_said_to_explain():
    made = planted("P13B")  # values 0, 1, 2, 3 with weights 0.4, 0.6, 0, 0: one token acts
    at = {"operators": ("zero",)}
    one = judge(made.model, made.example, made.target, torch.tensor([0.0, 1.0, 0.5, 0.0]), **at)
    two = judge(made.model, made.example, made.target, torch.tensor([0.0, 0.5, 1.0, 0.0]), **at)
    assert one.verdict == "explains" and two.verdict != "explains"


@pytest.mark.parametrize(
    ("map_", "message"),
    [
        ([0.1, 0.2], "one score a token"),
        ([math.nan] * 4, "finite"),
        ([math.inf, 0.0, 0.0, 0.0], "finite"),
    ],
)
def test_a_map_that_is_none_is_refused(map_: list, message: str):
    made = planted("P1")
    with pytest.raises(InputError, match=message):
        judge(made.model, made.example, made.target, map_, operators=("zero",))


def test_an_all_zero_map_is_undecided():
    made = planted("P1")
    found = judge(made.model, made.example, made.target, [0.0] * 4, operators=("zero",))
    assert (found.verdict, found.reason) == ("undecided", "the map is 0 everywhere")


def test_only_units_are_judged():
    # Behind the explained token of a decoder nothing acts, whatever a map says there.
    made = planted("P12")
    target = made.model.resolve(made.example, made.target)
    map_ = torch.zeros(made.example.n_tokens)
    map_[list(made.plan.players)] = 1.0
    map_[-1] = 5.0
    found = judge(made.model, made.example, target, map_, operators=("zero",))
    assert found.verdict == "explains" and len(found.units()) == made.example.n_tokens - 1


def test_a_target_may_be_given_in_every_way():
    made = planted("P1")
    for target in (made.target, Target("y"), "y", None, made.model.resolve(made.example, "y")):
        assert judge(made.model, made.example, target, made.truth, operators=("zero",)).verdict == "explains"


def test_shares_of_a_set_add_up_and_have_wilsons_intervals(null):
    one = asked(null, torch.arange(null.n_tokens, dtype=torch.float32))
    found = verdicts([replace(one, verdict=v) for v in ["explains"] * 6 + ["misleads"] * 2])
    assert [s.count for s in found.shares] == [6, 2, 0] and sum(s.share for s in found.shares) == 1
    expected = stats.binomtest(6, 8).proportion_ci(0.95, "wilson")
    assert (found.share("explains").low, found.share("explains").high) == (expected.low, expected.high)
    assert found.n == 8 and set(found.to_frame().verdict) == {"explains", "misleads", "undecided"}
    with pytest.raises(InputError, match="all on one map"):
        verdicts([])
    with pytest.raises(InputError, match="all on one map"):
        verdicts([one, replace(one, map="another")])


def test_the_paired_test_is_wilcoxons_with_its_effect_size():
    pairs = [(0.9, 0.2), (0.5, 0.4), (0.1, 0.3), (0.8, 0.1), (0.7, 0.5), (0.6, 0.55), (0.9, 0.15)]
    found = paired(pairs)
    expected = stats.wilcoxon([0.7, 0.1, -0.2, 0.7, 0.2, 0.05, 0.75])
    assert found.p == pytest.approx(expected.pvalue) and found.n == 7
    # ranks of 0.7, 0.1, -0.2, 0.7, 0.2, 0.05, 0.75 by size: 5.5, 2, 3.5, 5.5, 3.5, 1, 7
    assert found.effect == pytest.approx((28 - 2 * 3.5) / 28)
    assert math.isnan(paired(pairs[:4]).p) and math.isnan(paired([(0.5, 0.5)] * 9).p)
    assert math.isnan(wilson(0, 0)[1])


def test_thresholds_are_those_of_the_page():
    assert vars(RULE) == {
        **{"effective": 0.3, "idle": 0.15, "miss": 0.1, "order": 0.95},
        **{"top": 0.3, "chance": 0.5, "half": 0.6},
    }
