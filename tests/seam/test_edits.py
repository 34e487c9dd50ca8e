"""Edits: each does what its name says, at the place that was named, and nowhere else."""

import pytest
import torch

from attnprobe import intervention as edits
from attnprobe.attention.seam import Keep
from attnprobe.errors import EditError
from attnprobe.models import load
from attnprobe.models.evaluator import logits
from attnprobe.models.rows import Row
from tests import tiny

ALL = Keep.of("value", "scores", "weights", "z")


@pytest.fixture
def llama():
    """Grouped heads: 4 query heads on 2 key and value heads."""
    return tiny.loaded("llama", "sdpa")


@pytest.fixture
def example(llama):
    return llama.example(tiny.IDS)


def test_a_silenced_head_equals_zeroed_rows_of_the_projections_input():
    module = tiny.build("gpt2", "eager")
    model = load(module)
    silenced = model.capture(model.example(tiny.IDS), edits=[edits.silence_head(1, 2)]).logits
    with torch.no_grad():
        module.transformer.h[1].attn.c_proj.weight[2 * 8 : 3 * 8] = 0
        expected = module(torch.tensor([tiny.IDS])).logits
    torch.testing.assert_close(silenced, expected, atol=1e-5, rtol=1e-5)


def test_silencing_a_query_head_leaves_the_other_heads_of_its_layer_bitwise_alone(llama, example):
    plain = llama.capture(example, keep=ALL, edits=[edits.replace_weights(0, llama.capture(example).weights()[0])])
    edited = llama.capture(example, keep=ALL, edits=[edits.silence_head(0, 3)])
    before, after = plain.sites[0].z[0], edited.sites[0].z[0]
    assert torch.equal(after[:3], before[:3]) and bool((after[3] == 0).all())


def test_grouped_heads_use_the_value_head_of_their_group(llama, example):
    value = llama.capture(example, keep=ALL).sites[0].value[0]
    assert torch.equal(value[0], value[1]) and torch.equal(value[2], value[3]) and not torch.equal(value[1], value[2])


def test_a_zeroed_value_gives_what_the_weights_say_without_it(llama, example):
    plain = llama.capture(example, keep=ALL).sites[0]
    edited = llama.capture(example, keep=ALL, edits=[edits.zero_value(4, layers=0)]).sites[0]
    torch.testing.assert_close(edited.weights, plain.weights)
    expected = plain.weights @ plain.value - plain.weights[..., 4:5] * plain.value[:, :, 4:5]
    torch.testing.assert_close(edited.z, expected, atol=1e-6, rtol=1e-5)


def test_a_knocked_out_edge_is_zero_and_the_rest_of_its_row_sums_to_one(llama, example):
    plain = llama.capture(example).weights()
    edited = llama.capture(example, edits=[edits.knock_out(7, [2, 3], layers=[0, 1, 2])])
    weights = edited.weights()
    assert bool((weights[:, :, 7, 2:4] == 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)), atol=1e-5, rtol=0)
    expected = plain[0, :, 7].clone()
    expected[:, 2:4] = 0
    torch.testing.assert_close(weights[0, :, 7], expected / expected.sum(-1, keepdim=True), atol=1e-5, rtol=1e-4)


def test_knocking_out_what_is_masked_already_changes_nothing(llama, example):
    plain = tiny.loaded("llama")
    base = plain.capture(example).logits
    assert torch.equal(plain.capture(example, edits=[edits.knock_out(3, 9)]).logits, base)


def test_a_knock_out_equals_a_four_dimensional_mask():
    module = tiny.build("bert", "eager")
    model = load(module)
    mask = torch.zeros(12, 12)
    mask[5, 3] = torch.finfo(torch.float32).min
    with torch.no_grad():
        expected = module(torch.tensor([tiny.IDS]), attention_mask=mask[None, None]).logits
    found = model.capture(model.example(tiny.IDS), edits=[edits.knock_out(5, 3)]).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_knock_out_that_blinds_a_query_is_an_error(llama, example):
    with pytest.raises(EditError, match="nothing to look at"):
        llama.capture(example, edits=[edits.knock_out(0, 0)])


def test_uniform_weights_are_equal_on_visible_keys_and_zero_elsewhere(llama, example):
    weights = llama.capture(example, edits=[edits.uniform(layers=1)]).weights()[1]
    expected = torch.ones(12, 12).tril() / torch.arange(1, 13)[:, None]
    torch.testing.assert_close(weights, expected.expand(4, -1, -1), atol=1e-6, rtol=0)


def test_permuted_weights_are_the_same_numbers_on_visible_keys_in_another_order(llama, example):
    plain = llama.capture(example).weights()[0]
    weights = llama.capture(example, edits=[edits.permute(seed=3, layers=0)]).weights()[0]
    torch.testing.assert_close(weights.sort(-1).values, plain.sort(-1).values, atol=1e-6, rtol=0)
    assert bool((weights.triu(1) == 0).all()) and not torch.allclose(weights, plain)
    again = llama.capture(example, edits=[edits.permute(seed=3, layers=0)]).weights()[0]
    assert torch.equal(again, weights)


def test_mean_head_is_the_mean_over_the_given_examples(llama, example):
    others = [llama.capture(llama.example(ids), keep=Keep.of("z")) for ids in (tiny.IDS[::-1], [*tiny.IDS[2:], 3, 4])]
    edited = llama.capture(example, keep=Keep.of("z"), edits=[edits.mean_head(2, 1, others)])
    expected = torch.cat([c.tensor("z")[2][1] for c in others]).mean(0)
    torch.testing.assert_close(edited.sites[2].z[0, 1], expected.expand(12, -1), atol=1e-6, rtol=1e-5)


def test_patching_everything_from_another_input_gives_its_answer():
    model = tiny.loaded("bert")
    clean, corrupt = model.example(tiny.IDS), model.example([*tiny.IDS[:11], 40])
    donor = model.capture(clean, keep=Keep.of("z"))
    plain = model.capture(corrupt, keep=Keep.of("z"))
    patched = model.capture(corrupt, keep=Keep.of("z"), edits=[edits.patch(donor, "z", layers=2, heads=1)])
    assert torch.equal(patched.sites[2].z[:, 1], donor.sites[2].z[:, 1])
    torch.testing.assert_close(patched.sites[2].z[:, 0], plain.sites[2].z[:, 0])


def test_the_gates_gradient_is_the_sum_of_weight_times_gradient():
    """methods.md, identity 1: a head's output is linear in its weights."""
    model = tiny.loaded("bert")
    gates = torch.ones(4, requires_grad=True)
    capture = model.capture(
        model.example(tiny.IDS), edits=[edits.gate(gates, 1)], differentiable=True, check="off", keep=Keep.of("weights")
    )
    target = capture.logits[0, 1]
    (by_gate, by_weight) = torch.autograd.grad(target, [gates, capture.sites[1].weights])
    torch.testing.assert_close(by_gate, (capture.sites[1].weights * by_weight)[0].sum((1, 2)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda: edits.silence_head(7, 0), "never fired.*layers 0 to 2"),
        (lambda: edits.silence_head(0, 9), "has 4 heads .0 to 3., got head 9"),
        (lambda: edits.zero_value(99), "has 12 tokens"),
        (lambda: edits.silence_head(0, 0, kind="cross"), "never fired"),
        (lambda: edits.gate(torch.ones(3), 0), "4 heads, got .3,. gates"),
        (lambda: edits.replace_weights(0, torch.ones(4, 3, 3)), r"expected \(12, 12\)"),
    ],
)
def test_an_edit_that_fits_no_place_is_an_error_that_says_what_is_there(llama, example, edit, message):
    with pytest.raises(EditError, match=message):
        llama.capture(example, edits=[edit()])


@pytest.mark.parametrize("name", tiny.TEXT_NAMES)
def test_one_pass_with_another_edit_in_each_row_equals_separate_passes(name):
    model = tiny.loaded(name)
    example = tiny.example(model, name)
    rows = [Row(example), Row(example, edits=(edits.silence_head(0, 1, kind="self"),))]
    rows += [Row(example, edits=(edits.knock_out(6, 2, kind="self", stack=model.stacks[0].name),))]
    rows += [
        Row(
            example,
            edits=(edits.zero_value(1, layers=2, stack=model.stacks[0].name, kind="self"), edits.silence_head(1, 0)),
        )
    ]
    with torch.no_grad():
        together = logits(model, rows)
        apart = torch.cat([logits(model, [row]) for row in rows])
    torch.testing.assert_close(together, apart, atol=2e-5, rtol=1e-5)
    assert not torch.allclose(together[0], together[1])


@pytest.mark.parametrize("name", tiny.NAMES)
def test_zeroed_weights_and_zeroed_z_agree(name):
    model = tiny.loaded(name)
    example = tiny.example(model, name)

    def zero_z(site):
        z = site.z.clone()
        z[:, 1] = 0
        return site.replace(z=z) if site.place.layer == 0 else site

    by_weights = model.capture(example, edits=[edits.silence_head(0, 1)]).logits
    by_z = model.capture(example, edits=[zero_z], keep=Keep.of("z")).logits
    torch.testing.assert_close(by_weights, by_z, atol=1e-6, rtol=1e-6)


def test_replaced_z_takes_away_the_weights_that_no_longer_hold(llama, example):
    from attnprobe.errors import CaptureError

    capture = llama.capture(example, edits=[lambda site: site.replace(z=torch.zeros_like(site.z))])
    with pytest.raises(CaptureError, match="an edit replaced"):
        capture.weights()


class TestRowsOfOneBatch:
    """What a row gives does not depend on what else is in its batch."""

    @pytest.fixture
    def bert(self):
        return tiny.loaded("bert", "sdpa")

    def both(self, model, rows):
        with torch.no_grad():
            return logits(model, rows), torch.cat([logits(model, [row]) for row in rows])

    def test_an_edit_given_twice_acts_twice_on_its_row_and_on_no_other(self, bert):
        example, edit = bert.example(tiny.IDS), edits.permute(seed=1)
        together, apart = self.both(bert, [Row(example), Row(example, edits=(edit, edit)), Row(example, edits=(edit,))])
        torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(apart[1], apart[2])

    def test_each_row_keeps_the_order_of_its_edits(self, bert):
        example = bert.example(tiny.IDS)
        silence, given = edits.silence_head(2, 0), edits.replace_weights(2, torch.full((1, 12, 12), 1 / 12))
        rows = [Row(example, edits=(silence, given)), Row(example, edits=(given, silence))]
        together, apart = self.both(bert, rows)
        torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(apart[0], apart[1])

    def test_a_shuffle_is_the_same_in_every_row(self, bert):
        edit = edits.permute(seed=1)
        rows = [Row(bert.example(tiny.IDS), edits=(edit,)), Row(bert.example(tiny.IDS[::-1]), edits=(edit,))]
        together, apart = self.both(bert, rows)
        torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)

    def test_a_row_without_a_mask_does_not_take_it_from_another(self, bert):
        masked = bert.example(
            {"input_ids": torch.tensor([tiny.IDS]), "attention_mask": torch.tensor([[1] * 5 + [0] + [1] * 6])}
        )
        plain = bert.example({"input_ids": torch.tensor([tiny.IDS])})
        together, apart = self.both(bert, [Row(plain), Row(masked)])
        torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(apart[0], apart[1])


def test_a_question_asked_inside_an_edit_is_no_part_of_the_recording(llama, example):
    from attnprobe.models.evaluator import targets

    target = llama.resolve(example)
    plain = targets(llama, [Row(example)], target)
    asked = []

    def ask(site):
        if site.layer == 1:
            asked.append(targets(llama, [Row(example)], target))
        return site.replace(weights=torch.zeros_like(site.weights))

    capture = llama.capture(example, edits=[ask])
    assert torch.equal(asked[0], plain)
    assert [s.layer for s in capture.sites] == [0, 1, 2]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s.replace(z=s.z.double()), "float64, expected .* torch.float32"),
        (lambda s: s.z, "returned Tensor"),
    ],
)
def test_an_edit_that_the_model_could_not_go_on_with_is_an_error(llama, example, edit, message):
    with pytest.raises(EditError, match=message):
        llama.capture(example, edits=[edit])


def test_heads_and_layers_keep_their_numbers_when_only_some_are_kept(llama, example):
    whole = llama.capture(example, keep=Keep.of("z"))
    part = llama.capture(example, keep=Keep.of("z", layers=[1, 2], heads=[2, 3]))
    by_whole, by_part = (llama.capture(example, edits=[edits.mean_head(1, 2, [c])]).logits for c in (whole, part))
    assert torch.equal(by_whole, by_part)
    with pytest.raises(EditError, match="kept no 'z' of layer 0, head 2"):
        edits.mean_head(0, 2, [part])
    with pytest.raises(EditError, match="kept no 'z' of layer 1, head 0"):
        edits.mean_head(1, 0, [part])


def test_mean_head_of_several_stacks_asks_which():
    model = tiny.loaded("t5")
    capture = model.capture(tiny.example(model, "t5"), keep=Keep.of("z"))
    with pytest.raises(EditError, match="several stacks"):
        edits.mean_head(0, 0, [capture])


def test_frozen_parameters_leave_scores_to_edit(example):
    model = load(tiny.build("llama").requires_grad_(False))
    capture = model.capture(
        example, edits=[edits.knock_out(7, 2)], differentiable=True, check="off", keep=Keep.of("scores")
    )
    assert capture.sites[0].scores is not None and capture.logits.requires_grad


def test_a_plain_call_of_the_model_inside_an_edit_is_the_plain_model(llama, example):
    with torch.no_grad():
        plain = llama.module(**example.inputs).logits
    seen = []

    def ask(site):
        with torch.no_grad():
            seen.append(llama.module(**example.inputs).logits)
        return site.replace(weights=torch.zeros_like(site.weights))

    capture = llama.capture(example, edits=[ask])
    assert all(torch.equal(one, plain) for one in seen) and [s.layer for s in capture.sites] == [0, 1, 2]


def test_a_key_that_was_cut_stays_hidden_whatever_edit_comes_before_or_after(llama, example):
    cut = edits.knock_out([7, 8], [2], layers=0)
    for other in (edits.uniform(layers=0), edits.permute(seed=1, layers=0), edits.silence_head(0, 1)):
        for both in ([cut, other], [other, cut]):
            weights = llama.capture(example, edits=both).weights()[0]
            assert bool((weights[:, 7:9, 2] == 0).all())
            rows = weights.sum(-1)
            assert bool((torch.isclose(rows, torch.ones(()), atol=1e-5) | (rows == 0)).all())
