"""The rule by hand: its numbers, its calls, and every way in which it leaves a map undecided."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnprobe.judgement.effects import Effects
from attnprobe.judgement.rule import (
    EXPLAINS,
    Thresholds,
    _why,
    auc,
    decide,
    inversions,
    missed,
    quality_of,
    ranked,
    read,
)


def effects(*values: float, operator: str = "mean") -> Effects:
    given = torch.tensor(values, dtype=torch.float64)
    return Effects(operator, torch.arange(len(values)), given, torch.zeros_like(given), 1.0, 0.0, 16, 0)


def both(*values: float) -> list[Effects]:
    return [effects(*values), effects(*values, operator="resample")]


def scores(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


TWO_OF_SIX = (1.0, 0.6, 0.05, 0.02, 0.0, 0.01)


def test_the_numbers_are_those_computed_by_hand():
    found = read(scores(0.1, 0.5, 0.4, 0.0, 0.0, 0.0), effects(*TWO_OF_SIX))
    # First two by the map: 0.6 and 0.05; best two: 1.6. Of 8 pairs the map has 4 + 3 right. The first has 0.6 of 1.
    assert found.miss == pytest.approx(1 - 0.65 / 1.6)
    assert found.order == pytest.approx(7 / 8)
    assert found.top == pytest.approx(0.6)
    assert (found.n_effective, found.n_idle, found.call) == (2, 4, None)


@pytest.mark.parametrize(
    ("map_", "verdict"),
    [
        ((0.5, 0.3, 0.1, 0.1, 0.0, 0.0), "explains"),
        ((0.0, 0.0, 0.1, 0.1, 0.5, 0.3), "misleads"),
        ((0.5, 0.0, 0.3, 0.1, 0.1, 0.0), "undecided"),  # one of two
        ((0.3, 0.2, 0.5, 0.0, 0.0, 0.0), "undecided"),  # the first does nothing, but the next two act
        ((0.2, 0.2, 0.2, 0.2, 0.1, 0.1), "undecided"),  # ties with what does nothing
    ],
)
def test_clear_maps_are_called_and_the_others_are_not(map_: tuple[float, ...], verdict: str):
    assert decide(scores(*map_), both(*TWO_OF_SIX))[0] == verdict


def test_the_reason_says_that_a_map_ranks_some_but_not_all():
    verdict, reason, _ = decide(scores(0.5, 0.0, 0.3, 0.1, 0.1, 0.0), both(*TWO_OF_SIX))
    assert verdict == "undecided" and reason.startswith("it ranks some but not all")


def test_operators_that_disagree_leave_it_undecided_and_are_named():
    said = [effects(*TWO_OF_SIX), effects(0.0, 0.0, 0.0, 0.0, 1.0, 0.9, operator="resample")]
    verdict, reason, readings = decide(scores(0.5, 0.3, 0.1, 0.1, 0.0, 0.0), said)
    assert verdict == "undecided" and "disagree" in reason and "mean: explains" in reason
    assert [r.call for r in readings] == ["explains", "misleads"]


def test_a_pair_in_the_wrong_order_is_enough_not_to_explain():
    # As sets both orders name the acting units; a map that puts 0.45 above 1 does not explain.
    acting = (1.0, 0.45, 0.0, 0.0, 0.0)
    assert decide(scores(0.5, 0.4, 0.1, 0.0, 0.0), both(*acting))[0] == "explains"
    verdict, reason, _ = decide(scores(0.4, 0.5, 0.1, 0.0, 0.0), both(*acting))
    assert verdict == "undecided" and "1 pair of units in the wrong order" in reason
    nearly = (1.0, 0.8, 0.0, 0.0, 0.0)
    assert decide(scores(0.4, 0.5, 0.1, 0.0, 0.0), both(*nearly))[0] == "explains"


def test_units_between_acting_and_idle_are_not_held_against_a_map():
    between = (1.0, 0.2, 0.0, 0.0, 0.0, 0.0)
    assert decide(scores(0.5, 0.4, 0.1, 0.0, 0.0, 0.0), both(*between))[0] == "explains"
    assert decide(scores(0.5, 0.0, 0.4, 0.1, 0.0, 0.0), both(*between))[0] == "explains"


@pytest.mark.parametrize(
    ("map_", "given_effects", "reason"),
    [
        ((0.0,) * 6, TWO_OF_SIX, "the map is 0 everywhere"),
        ((0.2,) * 6, TWO_OF_SIX, "gives every unit the same"),
        ((1.0,), (1.0,), "one unit alone"),
        ((0.5, 0.3, 0.2), (0.0, 0.0, 0.0), "no unit has an effect"),
        ((0.5, 0.3, 0.2), (1.0, 0.9, 0.8), "every token acts"),
    ],
)
def test_what_cannot_be_told_is_undecided_with_its_reason(map_: tuple, given_effects: tuple, reason: str):
    verdict, said, _ = decide(scores(*map_), both(*given_effects))
    assert verdict == "undecided" and reason in said


def test_without_an_operator_nothing_is_decided():
    verdict, reason, readings = decide(scores(0.5, 0.3), [])
    assert (verdict, readings) == ("undecided", ()) and "none of the operators" in reason


def test_scores_that_differ_by_rounding_are_one_rank():
    assert ranked(scores(0.1, 0.1 + 1e-9, 0.3)).tolist() == [0, 0, 1]
    # float32 attention that is uniform ranks nothing
    assert decide(torch.full((6,), 1 / 6) + 1e-8 * torch.arange(6), both(*TWO_OF_SIX))[0] == "undecided"


def test_ties_across_the_border_count_as_their_mean():
    assert missed(torch.tensor([1, 1, 0]), scores(1.0, 0.0, 0.0), 1) == pytest.approx(0.5)
    quality, random = quality_of(scores(0.3, 0.3, 0.3, 0.3, 0.3, 0.3), effects(*TWO_OF_SIX))
    assert quality == pytest.approx(random) == pytest.approx(2 * sum(TWO_OF_SIX) / 6 / 1.6)


def test_a_pair_in_the_wrong_order_counts_only_where_every_operator_sees_it():
    ranks = torch.tensor([0, 1])
    assert inversions(ranks, [scores(1.0, 0.1), scores(1.0, 0.2)]) == 1
    assert inversions(ranks, [scores(1.0, 0.1), scores(1.0, 0.9)]) == 0


def test_other_thresholds_decide_otherwise():
    map_, found = scores(0.5, 0.3, 0.1, 0.1, 0.0, 0.0), both(1.0, 0.28, 0.0, 0.0, 0.0, 0.0)
    assert decide(map_, found)[2][0].n_effective == 1
    assert decide(map_, found, Thresholds(effective=0.25))[2][0].n_effective == 2


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=12), st.randoms())
def test_the_verdict_depends_on_no_order_of_the_tokens_and_on_no_scale(pairs: list, shuffle):
    map_, values = scores(*(a for a, _ in pairs)).round(decimals=3), [round(b, 3) for _, b in pairs]
    verdict = decide(map_, both(*values))[0]
    order = list(range(len(pairs)))
    shuffle.shuffle(order)
    assert decide(map_[order], both(*(values[i] for i in order)))[0] == verdict
    assert decide(2.0 * map_, both(*values))[0] == verdict


@given(st.lists(st.floats(0, 1), min_size=3, max_size=12))
def test_the_effects_themselves_never_mislead(values: list[float]):
    values = [round(value, 3) for value in values]
    assert decide(scores(*values), both(*values))[0] != "misleads"


def test_auc_without_a_pair_is_not_defined():
    everyone = torch.tensor([True, True])
    assert math.isnan(auc(torch.tensor([0, 1]), everyone, ~everyone))


def test_a_share_that_rounds_to_nothing_has_no_sign():
    assert "miss 0% of" in _why(EXPLAINS, -0.0004, 1.0, 1.0, Thresholds())
