"""Top-weight removal: a one-head case by hand, and the plain formula on other models."""

import dataclasses

import pytest
import torch
from scipy.spatial.distance import jensenshannon

from attnprobe.errors import InputError
from attnprobe.experiments.asking import asked
from attnprobe.experiments.top_weight import ORDERS, top_weight_removal, without_keys
from attnprobe.models.planted import PLANS, build, planted
from attnprobe.target import Target
from tests import tiny


def decided():
    """P1 with a decision: "yes" is y (0.1 · 10), "no" is 1.5 that [CLS] carries past the attention."""
    plan = dataclasses.replace(
        PLANS["P1"],
        dims=(*PLANS["P1"].dims, "const"),
        contents={**PLANS["P1"].contents, "[CLS]": {"const": 1.5}},
        readout={"yes": {"out": 1.0}, "no": {"const": 1.5 / 1.5}},
        label="yes",
    )
    return build(plan)


def test_the_top_key_of_one_head_flips_the_decision_and_no_other_does():
    # Weights (.1, .7, .1, .1). Without S 10 · .1/.3 > 1.5: yes. Without another: at most 10 · .1/.9 < 1.5: no.
    made = decided()
    found = top_weight_removal(made.model, made.example, "yes", seed=1)
    assert found.of("flips_top").iloc[0] == 1
    assert sum(found.of(f"flips_{name}").iloc[0] for name in ("both", "random", "neither")) == 0
    p, q = ((torch.tensor([y, 1.5]).softmax(0).double().numpy()) for y in (1.0, 10 / 3))
    assert found.of("js_top").iloc[0] == pytest.approx(jensenshannon(p, q) ** 2, abs=1e-6)
    assert found.of("weight_difference").iloc[0] == pytest.approx(0.6)


def test_each_order_of_one_head_needs_what_it_needs_by_hand():
    made = decided()
    found = top_weight_removal(made.model, made.example, "yes")
    # Attention takes S first, and the decision flips. The gradient takes A first, and nothing is left to say yes.
    assert found.of("removed", variant="attention").iloc[0] == 1 / 4
    for order in ("gradient", "gradient_x_attention"):
        assert found.of("removed", variant=order).iloc[0] == 1
        assert found.of("never", variant=order).iloc[0] == 1


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_what_is_left_of_a_row_takes_over_the_mass_of_the_keys_that_go(name):
    model = tiny.loaded(name)
    (one,) = asked(model, tiny.example(model, name))
    kind, read = one.stack.kind, one.read
    edited = model.capture(one.example, edits=[without_keys(one, 2, [0, 3])])
    old = model.capture(one.example).weights(kind=kind, stack=one.stack.name)[2][:, read]
    new = edited.weights(kind=kind, stack=one.stack.name)[2][:, read]
    expected = old.clone()
    expected[..., [0, 3]] = 0
    expected /= expected.sum(-1, keepdim=True)
    assert (new - expected).abs().max() < 1e-6


def test_the_share_removed_is_that_of_a_plain_loop():
    model = tiny.loaded("bert", scale=8.0)
    examples = [model.example(tiny.IDS), model.example(tiny.IDS[::-1]), model.example(tiny.IDS[2:8])]
    found = top_weight_removal(model, examples, orders=("attention",))
    for one in asked(model, examples):
        weights = model.capture(one.example).weights()[2][:, 0].mean(0)
        order = weights.argsort(descending=True).tolist()
        decided = model.capture(one.example).logits[0].argmax()
        n = len(order)
        for size in range(1, n):
            edit = without_keys(one, 2, order[:size])
            if model.capture(one.example, edits=[edit]).logits[0].argmax() != decided:
                n = size
                break
        assert found.of("removed", variant="attention")[one.index] == pytest.approx(n / len(order))


def test_the_four_outcomes_of_a_pair_add_up_to_one():
    model = tiny.loaded("gpt2")
    found = top_weight_removal(model, [tiny.IDS, tiny.IDS[:6]], orders=())
    total = sum(found.of(f"flips_{name}") for name in ("both", "top", "random", "neither"))
    assert total.tolist() == [1, 1]


def test_a_key_that_a_causal_row_cannot_see_is_no_candidate():
    model = tiny.loaded("gpt2")
    found = top_weight_removal(model, tiny.IDS, Target(position=3), orders=ORDERS)
    for order in ORDERS:
        assert found.of("removed", variant=order).iloc[0] in (0.25, 0.5, 0.75, 1.0)


def test_a_model_of_one_number_decides_nothing():
    made = planted("P1")
    with pytest.raises(InputError, match="decides nothing"):
        top_weight_removal(made.model, made.example)


def test_an_order_that_is_not_there_is_refused():
    made = decided()
    with pytest.raises(InputError, match="orders are of"):
        top_weight_removal(made.model, made.example, orders=("rollout",))
