"""Patching puts activations of one input into the run of the other, and tells how far the answer went."""

import numpy as np
import pytest
import torch

from attnprobe import intervention
from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.heads.measuring import head_effect
from attnprobe.heads.pairs import pair
from attnprobe.heads.patching import patch_heads, patch_states, patch_together
from attnprobe.target import Target
from tests import tiny
from tests.heads.made_pairs import gate, linear, planted_pair, tiny_pair

MODELS = ("bert", "gpt2", "llama", "t5", "vit")


def by_hooks(module, given, donor, layer, head, positions, answer):
    """GPT-2's own answer with z of one head from another input, at some positions: by hooks on its projection."""
    kept, width = {}, 8
    at = module.transformer.h[layer].attn.c_proj
    columns = slice(head * width, (head + 1) * width)

    def note(_, args):
        kept["z"] = args[0].detach().clone()

    def change(_, args):
        z = args[0].clone()
        z[:, positions, columns] = kept["z"][:, positions, columns]
        return (z,)

    with torch.no_grad():
        for hook, ids in ((note, donor), (change, given)):
            handle = at.register_forward_pre_hook(hook)
            found = answer(module(torch.tensor([ids])).logits)
            handle.remove()
    return float(found)


@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_a_patched_head_is_what_hooks_on_the_model_itself_make_of_it(direction):
    model, made = tiny_pair("gpt2", dtype=torch.float64)
    clean, corrupt = (one.inputs["input_ids"][0].tolist() for one in (made.clean, made.corrupt))
    given, donor = (corrupt, clean) if direction == "denoising" else (clean, corrupt)
    whole = patch_heads(model, made, direction)
    some = patch_heads(model, made, direction, positions=[3, -1])
    assert whole.answers.shape == (3, 4, 1) and some.positions == (3, 11)
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        for found, column, at in ((whole, 0, list(range(12))), (some, 0, [3]), (some, 1, [11])):
            expected = by_hooks(model.module, given, donor, layer, head, at, made.target)
            assert found.answers[layer, head, column].item() == pytest.approx(expected, abs=1e-10)
    start, end = (whole.baselines.clean, whole.baselines.corrupt)[:: 1 if direction == "noising" else -1]
    torch.testing.assert_close(whole.values, (whole.answers - start) / (end - start))


@pytest.mark.parametrize("name", MODELS)
def test_every_stack_is_patched_as_the_edit_of_one_head_does_it(name):
    model, made = tiny_pair(name, dtype=torch.float64)
    for stack in model.stacks:
        found = patch_heads(model, made, "noising", "each", stack=stack)
        whole = patch_heads(model, made, "noising", stack=f"{stack.name}.{stack.kind}")
        donor = model.capture(made.corrupt, keep=Keep.of("z"))
        where = {"stack": stack.name, "kind": stack.kind}
        for layer, head in ((0, 0), (stack.n_layers - 1, 2)):
            edit = intervention.patch(donor, layers=layer, heads=head, **where)
            answer = made.target(model.capture(made.clean, edits=[edit]).logits)
            assert whole.answers[layer, head, 0].item() == pytest.approx(answer.item(), abs=1e-9)
        assert torch.isfinite(found.answers).all() and found.answers.shape[:2] == whole.answers.shape[:2]
        frame = found.to_frame()
        assert len(frame) == found.answers.numel() and set(frame.position) == set(range(found.answers.shape[2]))


def test_answers_of_noising_are_indirect_effects():
    model, made = tiny_pair("llama")
    effect = head_effect(model, made.clean, "indirect_effect", made.target, corrupt=made.corrupt)
    found = patch_heads(model, made, "noising")
    torch.testing.assert_close(found.answers[..., 0] - found.baselines.clean, effect.values, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_all_states_patched_is_the_other_input_and_none_is_the_same(name):
    """The change comes in at the changed token alone; where nothing differs yet, patching does nothing."""
    model, made = tiny_pair(name, dtype=torch.float64)
    for direction in ("denoising", "noising"):
        whole = patch_states(model, made, direction, positions=None)
        assert whole.values[:, 0, 0].tolist() == pytest.approx([1.0] * 3, abs=1e-9)
        found = patch_states(model, made, direction)
        expected = [float(at in made.changed) for at in range(made.clean.n_tokens)]
        assert found.values[0, 0].tolist() == pytest.approx(expected, abs=1e-9)
        assert patch_together(model, made, [], direction) == pytest.approx(0, abs=1e-12)


def test_everything_that_reaches_the_answer_of_a_causal_model_is_in_the_end_at_its_position():
    model, made = tiny_pair("gpt2", dtype=torch.float64)
    found = patch_states(model, made)
    assert found.values[0, 0, -1].item() == pytest.approx(0) and found.answers.shape == (3, 1, 12)
    last = patch_heads(model, made, positions="each", stack=model.stacks[0]).values[-1]
    assert last[:, :-1].abs().max().item() == pytest.approx(0, abs=1e-9)  # nobody reads the others any more


@pytest.mark.parametrize("what", ["heads", "tokens"])
def test_noising_finds_both_sides_of_an_and_and_denoising_both_sides_of_an_or(what):
    for kind, direction, expected in (
        ("and", "noising", 1.0),
        ("and", "denoising", 0.0),
        ("or", "noising", 0.0),
        ("or", "denoising", 1.0),
    ):
        if what == "heads":
            model, made = gate(kind)
            found = patch_heads(model, made, direction).values.flatten()
            assert patch_together(model, made, ["0.0", "0.1"], direction) == pytest.approx(1)
        else:
            model, made = planted_pair("P7" if kind == "and" else "P6", ["[CLS]"] * 3)
            found = patch_states(model, made, direction).values[0, 0, 1:]
        assert found.tolist() == pytest.approx([expected, expected])


def test_in_a_linear_network_positions_add_up_and_both_directions_agree():
    model, made = linear()
    whole, each = patch_heads(model, made), patch_heads(model, made, positions="each")
    torch.testing.assert_close(each.values.sum(-1, keepdim=True), whole.values)
    torch.testing.assert_close(patch_heads(model, made, "noising").values, whole.values)
    states = patch_states(model, made)
    torch.testing.assert_close(states.values.sum(-1), torch.ones(3, 1, dtype=torch.float64))


def test_tables_name_places_and_tokens():
    model, made = tiny_pair("gpt2")
    found = patch_heads(model, made, positions=[3, 4])
    frame = found.to_frame()
    assert list(frame) == ["stack", "kind", "layer", "head", "position", "token", "answer", "share"]
    assert frame.token.iloc[0] == made.pieces[3] and len(frame) == 24
    best = found.top(3)
    assert best.share.abs().iloc[0] == found.values.abs().max().item() and len(best) == 3
    states = patch_states(model, made).to_frame()
    assert list(states) == ["stack", "kind", "layer", "position", "token", "answer", "share"]
    assert "position" not in patch_heads(model, made).to_frame()
    assert found.forward_passes >= 24 and found.seconds > 0


def test_positions_are_whole_numbers_of_any_kind_each_once():
    model, made = tiny_pair("gpt2")
    plain = patch_heads(model, made, positions=[1, 11])
    for positions in (np.array([1, 11]), (1, -1, 1), [torch.tensor([1])[0].item(), np.int64(11)]):
        found = patch_heads(model, made, positions=positions)
        assert found.positions == (1, 11) and torch.equal(found.values, plain.values)
    assert patch_heads(model, made, positions=1).positions == (1,)


def test_what_cannot_be_patched_is_refused():
    model, made = tiny_pair("gpt2")
    for positions in ([12], [], "all", [1.5], 12, np.array([12])):
        with pytest.raises(InputError, match="positions are"):
            patch_heads(model, made, positions=positions)
    with pytest.raises(InputError, match="direction is"):
        patch_states(model, made, "both")
    behind = pair(model, tiny.IDS, [*tiny.IDS[:-1], 40], 0)
    early = pair(model, behind.clean, behind.corrupt, model.resolve(behind.clean, Target(7, position=5)))
    with pytest.raises(InputError, match="no difference to explain"):
        patch_heads(model, early)  # the change stands behind the position that is read
