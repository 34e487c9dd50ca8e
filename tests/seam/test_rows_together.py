"""Rows whose values are multiplied go through one pass together, and each answers as it does alone."""

import pytest
import torch

from attnprobe import intervention as edits
from attnprobe.attention.scaling import factors_of, scaled
from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import EditError
from attnprobe.models.evaluator import logits
from attnprobe.models.rows import Row
from attnprobe.site import Place, Site
from tests import tiny

NAMES = ("bert", "gpt2", "llama", "t5", "vit")


def model_and_example(name: str, implementation: str):
    model = tiny.loaded(name, implementation)
    return model, tiny.example(model, name)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_rows_with_other_tokens_zeroed_answer_as_each_does_alone(name: str, implementation: str):
    model, example = model_and_example(name, implementation)
    stack = model.stacks[0]
    gone = [[1], [0, 2], [3], [1, 2]]
    each = [edits.zero_value(tokens, stack=stack.name, kind=stack.kind) for tokens in gone]
    alone = torch.cat([model.capture(example, edits=[edit]).logits for edit in each])
    together = logits(model, [Row(example, edits=(edit,)) for edit in each])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(alone[0], alone[2], atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_row_without_an_edit_answers_as_without_the_others_bit_for_bit(name: str):
    model, example = model_and_example(name, "sdpa")
    plain = logits(model, [Row(example), Row(example), Row(example)])
    rows = [Row(example), Row(example, edits=(edits.zero_value(1),)), Row(example)]
    found = logits(model, rows)
    assert torch.equal(found[0], plain[0]) and torch.equal(found[2], plain[2])
    assert not torch.allclose(found[1], plain[1], atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_values_zeroed_for_some_heads_alone_answer_as_each_row_does_alone(name: str):
    model, example = model_and_example(name, "sdpa")
    each = [edits.zero_value(1, heads=0, layers=0), edits.zero_value(2, heads=[1, 3], layers=0)]
    alone = torch.cat([model.capture(example, edits=[edit]).logits for edit in each])
    together = logits(model, [Row(example, edits=(edit,)) for edit in each])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_what_is_kept_of_rows_together_is_what_each_alone_keeps():
    model, example = model_and_example("llama", "sdpa")
    each = [edits.zero_value(1), edits.zero_value([2, 4])]
    keep = Keep.of("value", "weights", "z")
    tape = Tape(row_edits=[(edit,) for edit in each], n_rows=2, keep=keep, check=False)
    with torch.no_grad():
        model.forward([Row(example), Row(example)], tape)
    for number, edit in enumerate(each):
        alone = model.capture(example, keep=keep, edits=[edit]).sites
        for whole, one in zip(tape.sites, alone, strict=True):
            for tensor in ("value", "weights", "z"):
                mine, its = getattr(whole, tensor)[number], getattr(one, tensor)[0]
                torch.testing.assert_close(mine, its, atol=1e-5, rtol=1e-5)


def test_a_token_that_is_not_there_is_refused_by_name_among_rows_too():
    model, example = model_and_example("bert", "sdpa")
    rows = [Row(example, edits=(edits.zero_value(1),)), Row(example, edits=(edits.zero_value(99),))]
    with pytest.raises(EditError, match="token 99"):
        logits(model, rows)


def test_an_edit_of_rows_that_fits_no_place_never_fires_in_silence():
    model, example = model_and_example("bert", "sdpa")
    rows = [Row(example, edits=(edits.zero_value(1),)), Row(example, edits=(edits.zero_value(1, layers=7),))]
    with pytest.raises(EditError, match="never fired"):
        logits(model, rows)


def test_only_edits_that_multiply_values_go_together():
    place, value = Place("model", "self", 0, ""), torch.ones(2, 4, 3, 2)
    zero, silent = edits.zero_value(1), edits.silence_head(0, 1)
    assert factors_of([[zero], [silent]], place, 4, value) is None
    assert factors_of([[zero, zero], [zero]], place, 4, value) is None
    assert factors_of([[], []], place, 4, value) is None
    assert factors_of([[zero]], place, 4, value) is None  # windows of one input
    found = factors_of([[zero], []], place, 4, value)
    assert found.tolist() == [[[1, 0, 1]], [[1, 1, 1]]]


def test_a_row_without_an_edit_keeps_the_z_that_the_model_made_where_weights_and_values_give_another():
    place = Place("model", "self", 0, "")
    query = key = value = torch.randn(2, 1, 3, 4)
    weights, z = torch.full((2, 1, 3, 3), 1 / 3), torch.randn(2, 1, 3, 4)
    found = scaled(Site(place, query, key, value, None, weights, z, None), [[], [edits.zero_value(0)]])
    assert torch.equal(found.z[0], z[0])
    torch.testing.assert_close(found.z[1], value[1, :, 1:].sum(1, keepdim=True).expand(1, 3, 4) / 3)
