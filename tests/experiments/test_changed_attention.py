"""Permuted, uniform and frozen attention: hand cases on planted models, plain loops on others."""

import numpy as np
import pytest
import torch

from attnprobe.errors import InputError
from attnprobe.experiments.frozen import frozen_attention
from attnprobe.experiments.permuted import permuted_attention
from attnprobe.experiments.uniform import uniform_attention
from attnprobe.intervals import over_texts
from attnprobe.intervention import permute, replace_weights
from attnprobe.models import load
from attnprobe.models.planted import planted
from tests import tiny

OTHERS = [[7, 6, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16], [20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]]


def test_uniform_attention_gives_the_mean_of_the_values():
    made = planted("P1")  # y = 0.1 · 10; uniform: 10 / 4
    found = uniform_attention(made.model, made.example)
    assert found.of("change", layer=0, head="all").iloc[0] == pytest.approx(1.5, abs=1e-12)
    assert found.of("change", layer=0, head=0).iloc[0] == pytest.approx(1.5, abs=1e-12)


@pytest.mark.parametrize("name", ["P6", "P7", "P8"])
def test_a_model_of_uniform_attention_stays_under_uniform_and_permuted_attention(name):
    made = planted(name)
    uniform = uniform_attention(made.model, made.example)
    assert uniform.values[uniform.values.measure == "total_variation"].value.max() < 1e-12
    permuted = permuted_attention(made.model, made.example, n_permutations=20)
    assert permuted.of("median_change").iloc[0] < 1e-12
    assert permuted.of("max_weight").iloc[0] == pytest.approx(1 / 3)


def test_permuting_one_head_gives_the_median_over_all_orders():
    made = planted("P13B")  # weights (.4, .6, 0, 0), values (0, 1, 2, 3), y = .6
    orders = [abs(0.4 * a + 0.6 * b - 0.6) for a in range(4) for b in range(4) if a != b]
    found = permuted_attention(made.model, made.example, n_permutations=201, seed=1)
    # The median of all orders lies between neighbours of the sorted list.
    near = sorted(orders)
    assert near[4] - 1e-9 <= found.of("median_change").iloc[0] <= near[7] + 1e-9
    assert found.of("max_weight").iloc[0] == pytest.approx(0.6)


def test_permutations_keep_the_rows_as_they_are_but_for_their_order():
    model = tiny.loaded("gpt2")
    edit = permute(seed=4, layers=[2], stack=model.stacks[0].name, kind="self")
    example = model.example(tiny.IDS)
    before, after = model.capture(example), model.capture(example, edits=[edit])
    assert torch.equal(after.weights()[2].sort(-1).values, before.weights()[2].sort(-1).values)
    assert float(after.weights()[2].triu(1).abs().max()) == 0


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_uniform_attention_is_what_replaced_weights_give(name):
    model = tiny.loaded(name)
    example = tiny.example(model, name)
    found = uniform_attention(model, example, layers="last")
    before = model.capture(example)
    site = before.sites[-1]  # of an encoder-decoder the cross-attention
    seen = (
        torch.ones_like(site.weights[0]) if site.visible is None else site.visible[0].expand_as(site.weights[0]).float()
    )
    even = seen / seen.sum(-1, keepdim=True)
    edit = replace_weights(site.place.layer, even, stack=site.place.stack, kind=site.place.kind)
    after = model.capture(example, edits=[edit])
    p, q = (c.logits[0].double().softmax(-1).reshape(-1, c.logits.shape[-1]) for c in (before, after))
    p, q = (p[-1:], q[-1:]) if name == "gpt2" else (p, q)
    expected = float((p - q).abs().sum(-1).max() / 2)
    assert found.of("total_variation", layer=2, head="all").iloc[0] == pytest.approx(expected, abs=1e-6)


def test_every_head_every_layer_and_all_of_them_are_there():
    model = tiny.loaded("bert")
    found = uniform_attention(model, [tiny.IDS, *OTHERS]).to_frame()
    places = found[found.measure == "kept"][["layer", "head"]].to_numpy().tolist()
    assert len(places) == 3 * 4 + 3 + 1
    assert ["all", "all"] in places
    assert set(found.n) == {3}


def test_frozen_attention_takes_the_weights_of_another_input():
    model = tiny.loaded("bert")
    examples = [model.example(ids) for ids in (tiny.IDS, OTHERS[0])]
    found = frozen_attention(model, examples)
    maps = model.capture(examples[1]).weights()
    edits = [replace_weights(layer, maps[layer]) for layer in range(3)]
    after = model.capture(examples[0], edits=edits).logits.double().softmax(-1)
    before = model.capture(examples[0]).logits.double().softmax(-1)
    assert found.of("total_variation")[0] == pytest.approx(float((after - before).abs().sum() / 2), abs=1e-6)


def test_frozen_attention_of_content_free_weights_moves_nothing():
    made = planted("P1")
    others = [made.model.example(["A", "S", "N", "[CLS]"])]
    found = frozen_attention(made.model, made.example, donors=others)
    assert found.of("total_variation").max() < 1e-12


def test_attention_is_not_stretched_and_who_has_no_donor_is_counted():
    model = tiny.loaded("bert")
    with pytest.raises(InputError, match="not stretched"):
        frozen_attention(model, [tiny.IDS, tiny.IDS[:7]])
    found = frozen_attention(model, [tiny.IDS, OTHERS[0], tiny.IDS[:7]])
    assert found.n == 2
    assert "1 of 3 examples" in found.notes[0]


def test_an_input_is_no_donor_to_itself():
    model = tiny.loaded("bert")
    with pytest.raises(InputError, match="no example has a donor"):
        frozen_attention(model, [tiny.IDS], donors=[tiny.IDS])


def test_an_outcome_says_what_it_was_made_with_and_what_it_cost():
    model = tiny.loaded("gpt2")
    found = permuted_attention(model, [tiny.IDS, *OTHERS] * 3, n_permutations=5, seed=7)
    table = found.to_frame()
    assert set(table.columns) >= {"mean", "low", "high", "n", "target", "options", "seed", "forward_passes", "seconds"}
    assert set(table.n) == {9}
    assert found.forward_passes >= 9 * 6
    row = table[table.measure == "median_total_variation"].iloc[0]
    values = found.of("median_total_variation").tolist()
    expected = over_texts(values, n_resamples=1000, seed=7)
    assert (row["mean"], row.low, row.high) == (expected.mean, expected.low, expected.high)


def test_outputs_that_do_not_exclude_one_another_are_compared_one_by_one():
    made = tiny.build("bert")
    made.config.problem_type = "multi_label_classification"
    model = load(made)
    found = uniform_attention(model, tiny.IDS, each_of=("layer",), layers="last")
    example = model.example(tiny.IDS)
    before = model.capture(example)
    even = torch.full_like(before.weights()[2], 1 / example.n_tokens)
    after = model.capture(example, edits=[replace_weights(2, even)])
    change = (before.logits.sigmoid() - after.logits.sigmoid()).abs().max()
    assert found.of("total_variation", layer=2).iloc[0] == pytest.approx(float(change), abs=1e-6)


@pytest.mark.parametrize(
    ("run", "options"),
    [
        (uniform_attention, {"each_of": ("row",)}),
        (permuted_attention, {"n_permutations": 0}),
        (frozen_attention, {"n_donors": 0}),
    ],
)
def test_what_cannot_be_asked_is_refused(run, options):
    made = planted("P1")
    with pytest.raises(InputError):
        run(made.model, made.example, **options)


def test_a_measure_or_a_place_that_is_not_there_is_refused():
    made = planted("P1")
    found = uniform_attention(made.model, made.example)
    with pytest.raises(InputError, match="no measure"):
        found.of("jsd")
    with pytest.raises(InputError, match="several values"):
        found.of("change")
    assert np.isnan(found.of("kept", layer="all").iloc[0])
