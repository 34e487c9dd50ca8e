"""Effects by removal in random orders: exact where the planted mechanism says what they are, and what is refused."""

from itertools import permutations

import pytest
import torch

from attnprobe.errors import InputError
from attnprobe.judgement.effects import effects_under, paired_orders, unit_effects
from attnprobe.judgement.resampling import source_of
from attnprobe.models.evaluator import Meter
from attnprobe.models.planted import planted
from attnprobe.models.planted.families import variant
from attnprobe.models.removal import units
from attnprobe.models.rows import Row
from tests import tiny


def resolved(made):
    return made.model.resolve(made.example, made.target)


@pytest.mark.parametrize("name", ["P1", "P3A", "P13B", "P4"])
def test_where_tokens_act_one_by_one_the_effect_is_the_size_of_the_truth(name: str):
    made = planted(name)
    found = unit_effects(made.model, made.example, resolved(made), "zero")
    assert torch.allclose(found.values, made.truth.abs(), atol=1e-9)
    assert float(found.standard_error.max()) < 1e-9 and found.n_orders == 16
    assert found.whole - found.nothing == pytest.approx(float(made.truth.sum()))


def test_an_or_gives_each_token_half_though_neither_is_missed_alone():
    made = planted("P6", n_tokens=12)
    found = unit_effects(made.model, made.example, resolved(made), "zero")
    # An order and its reverse: each of the two is the last of them once.
    assert torch.allclose(found.values, torch.tensor([0, 0.5, 0.5] + [0.0] * 9).double(), atol=1e-12)


def test_effects_are_what_a_plain_loop_over_the_same_orders_gives():
    made, target = planted("P8", n_tokens=6), None
    target = resolved(made)
    found = unit_effects(made.model, made.example, target, "zero", n_orders=6, seed=3, tolerance=None)
    expected = torch.zeros(6).double()
    for order in paired_orders(6, 6, torch.Generator().manual_seed(3)).tolist():
        kept = torch.ones(6, dtype=torch.bool)
        before = float(made.model.targets([Row(made.example)], target))
        for token in order:
            kept = kept.clone()
            kept[token] = False
            after = float(made.model.targets([Row(made.example, kept=kept, operator="zero")], target))
            expected[token] += abs(before - after) / 6
            before = after
    assert torch.allclose(found.values, expected, atol=1e-12)


def test_with_more_orders_effects_come_near_the_mean_over_all_orders():
    made = planted("P8")
    target = resolved(made)

    def y(gone: frozenset[int]) -> float:
        kept = torch.tensor([j not in gone for j in range(3)])
        return float(made.model.targets([Row(made.example, kept=kept, operator="zero")], target))

    expected = torch.zeros(3).double()
    for order in permutations(range(3)):
        for step, token in enumerate(order):
            before, after = frozenset(order[:step]), frozenset(order[: step + 1])
            expected[token] += abs(y(before) - y(after)) / 6
    found = unit_effects(made.model, made.example, target, "zero", n_orders=400, tolerance=None)
    assert torch.allclose(found.values, expected, atol=0.1)
    assert bool(((found.values - expected).abs() <= 4 * found.standard_error + 1e-9).all())


def test_orders_are_added_only_while_effects_are_uncertain():
    made = variant("P7", 0).made
    data = variant("P7", 0).others
    sure = unit_effects(made.model, made.example, resolved(made), "mean")
    open_ = unit_effects(made.model, made.example, resolved(made), "resample", data=data)
    plain = unit_effects(made.model, made.example, resolved(made), "resample", data=data, tolerance=None)
    assert plain.n_orders == 16 and 16 < open_.n_orders <= 64 and sure.n_orders <= 64


def test_equal_rows_are_run_once_and_the_passes_are_counted():
    made = planted("P1", n_tokens=10)
    target = resolved(made)
    with Meter() as meter:
        found = unit_effects(made.model, made.example, target, "zero")
    assert found.forward_passes == meter.forward
    # Every order begins with the whole and ends with nothing.
    assert meter.forward <= 16 * (10 - 1) + 2, meter.forward


def test_the_same_seed_gives_the_same_and_another_seed_other_effects():
    one = variant("P9", 2)
    made = one.made
    first, again, other = (
        unit_effects(made.model, made.example, resolved(made), "resample", seed=seed, data=one.others)
        for seed in (0, 0, 1)
    )
    assert torch.equal(first.values, again.values) and not torch.equal(first.values, other.values)


def test_resampling_takes_the_token_at_the_same_place():
    one = variant("P1", 2)
    made = one.made
    index = torch.arange(one.n_tokens)
    source = source_of(made.model, made.example, index, one.others)
    (drawn,) = source.draws(1, torch.Generator().manual_seed(0))
    there = torch.stack([made.model.embed(other) for other in one.others])
    for place, vector in enumerate(drawn.vectors):
        assert bool((there[:, place] == vector).all(-1).any())
    draws = source.draws(len(one.others), torch.Generator().manual_seed(0))
    assert all(len({int(draw.index[place]) for draw in draws}) == len(one.others) for place in range(one.n_tokens))


def test_without_texts_words_of_the_vocabulary_are_drawn():
    made = planted("P1", n_tokens=6)
    found = unit_effects(made.model, made.example, resolved(made), "resample")
    assert found.used == {"data": "5 words of the vocabulary"}  # [CLS] is special


def test_value_zeroing_sees_no_residual_bypass():
    made = planted("P2")
    effects = {o: unit_effects(made.model, made.example, resolved(made), o) for o in ("zero", "value_zero")}
    assert torch.allclose(effects["zero"].values, torch.tensor([2.0, 0, 0]).double())
    assert torch.allclose(effects["value_zero"].values, torch.zeros(3).double())


def test_a_renormalising_operator_moves_weight_to_other_tokens():
    made = planted("P1")
    found = unit_effects(made.model, made.example, resolved(made), "attention_mask")
    assert found.kind == "renormalising" and float(found.values[1]) > 1
    assert unit_effects(made.model, made.example, resolved(made), "zero").kind == "content"


def test_an_operator_that_the_model_lacks_is_left_out_and_named():
    made = planted("P1")
    found, lacking = effects_under(made.model, made.example, resolved(made), ("zero", "mask", "infill"))
    assert [one.operator for one in found] == ["zero"]
    assert set(lacking) == {"mask", "infill"} and "no 'mask' embedding" in lacking["mask"]


@pytest.mark.parametrize(
    ("operator", "options", "message"),
    [
        ("mean", {}, "no 'mean' embedding"),
        ("maen", {}, "did you mean 'mean'"),
        ("zero", {"n_orders": 1}, "n_orders is at least 2"),
        ("resample", {"data": []}, "a list of at least one text"),
        ("resample", {"data": "one text"}, "a list of at least one text"),
    ],
)
def test_what_cannot_be_measured_is_refused(operator: str, options: dict, message: str):
    made = planted("P1")
    with pytest.raises(InputError, match=message):
        unit_effects(made.model, made.example, resolved(made), operator, **options)


def test_an_operator_that_does_not_exist_is_no_lack_of_the_model():
    made = planted("P1")
    with pytest.raises(InputError, match="no removal operator is named"):
        effects_under(made.model, made.example, resolved(made), ("zero", "nonsense"))


def test_effects_as_a_table_and_of_a_set():
    made = planted("P13B")
    found = unit_effects(made.model, made.example, resolved(made), "zero")
    assert found.of([1, 2]) == pytest.approx(float(found.values[1] + found.values[2]))
    frame = found.to_frame()
    assert list(frame.columns) == [
        *("token_index", "operator", "kind", "effect", "standard_error", "relative", "n_orders", "seed")
    ]
    assert frame.relative.max() == 1


def test_orders_are_added_only_while_there_are_rows_for_them():
    model = tiny.loaded("bert", "sdpa")
    example = model.example(tiny.IDS)
    n_rows = 4 * (len(units(example, model.resolve(example))) + 1)
    # No standard error is 0, so what stops is the number of orders, or of rows.
    counts = [
        unit_effects(model, example, None, "mean", n_orders=4, tolerance=0.0, most_rows=rows).n_orders
        for rows in (1, n_rows, 2 * n_rows - 1, 2 * n_rows, 100 * n_rows)
    ]
    assert counts == [4, 4, 4, 8, 16]


def test_orders_that_are_left_out_for_their_rows_change_nothing_of_those_before():
    model = tiny.loaded("bert", "sdpa")
    example = model.example(tiny.IDS)
    few = unit_effects(model, example, None, "mean", n_orders=4, tolerance=0.0, most_rows=1)
    same = unit_effects(model, example, None, "mean", n_orders=4, tolerance=None)
    assert torch.equal(few.values, same.values)
