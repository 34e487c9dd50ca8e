"""Path patching: the direct path from one head to another, everything else held."""

from contextlib import ExitStack

import pytest
import torch

from attnprobe.errors import EditError, InputError
from attnprobe.heads.pair_sets import induction
from attnprobe.heads.patching import patch_heads
from attnprobe.heads.paths import path_patching
from attnprobe.models import load
from attnprobe.models.planted import planted
from tests import tiny
from tests.heads.made_pairs import gate, linear, tiny_pair

WIDTH = 8  # of a head of the tiny GPT-2


# Where the layers are, what takes the heads, and what the feed-forward part ends with.
PARTS = {
    "gpt2": ("transformer.h", "attn.c_proj", "mlp"),
    "bert": ("bert.encoder.layer", "attention.output.dense", "output.dense"),
    "gptj": ("transformer.h", "attn.out_proj", "mlp"),
    "gemma2": ("model.layers", "self_attn.o_proj", "mlp"),
    "gpt_oss": ("model.layers", "self_attn.o_proj", "mlp.experts"),
}


class Hooked:
    """A model on its own modules: two runs by hooks, as a slow second opinion. Query, key and value apart: GPT-2."""

    def __init__(self, name, module, target, own, other):
        layers, self.out, self.feed = PARTS[name]
        self.blocks, self.module, self.target = module.get_submodule(layers), module, target
        self.ids = [torch.tensor([ids]) for ids in (own, other)]
        self.z, self.mlp = ([self.kept(part, ids) for ids in self.ids] for part in (self.out, self.feed))

    def run(self, ids, hooks):
        with torch.no_grad(), ExitStack() as stack:
            for handle in hooks:
                stack.callback(handle.remove)
            return float(self.target(self.module(ids).logits))

    def kept(self, part, ids):
        """What goes into the projections of the heads, or comes out of the feed-forward parts."""
        seen = []

        def before(_, args):
            seen.append(args[0].clone())

        def behind(module, args, output):
            seen.append(output.clone())

        parts = [block.get_submodule(part) for block in self.blocks]
        hooks = [
            p.register_forward_hook(behind) if part == self.feed else p.register_forward_pre_hook(before) for p in parts
        ]
        self.run(ids, hooks)
        return seen

    def first(self, sender, receiver, freeze):
        """The answer of the held run, and what the receiver's layer was asked with: z, and query, key and value."""
        hooks, seen = [], {}

        def hold(layer):
            def change(_, args):
                if receiver is not None and layer == receiver[0]:
                    seen["z"] = args[0].clone()
                z = self.z[0][layer].clone()
                if layer == sender[0]:
                    at = slice(sender[1] * WIDTH, (sender[1] + 1) * WIDTH)
                    z[..., at] = self.z[1][layer][..., at]
                return (z,)

            return change

        for layer, block in enumerate(self.blocks):
            hooks.append(block.get_submodule(self.out).register_forward_pre_hook(hold(layer)))
            if freeze:
                feed = block.get_submodule(self.feed)
                hooks.append(feed.register_forward_hook(lambda *_, at=layer: self.mlp[0][at]))
        if receiver is not None and self.out == PARTS["gpt2"][1]:
            note = self.blocks[receiver[0]].attn.c_attn
            hooks.append(note.register_forward_hook(lambda *given: seen.update(qkv=given[2].clone())))
        return self.run(self.ids[0], hooks), seen

    def answer(self, sender, receiver, reads, freeze):
        """The answer of the second run; of the first where the receiver is the answer."""
        direct, seen = self.first(sender, receiver, freeze)
        if receiver is None:
            return direct
        layer, head = receiver
        block = self.blocks[layer]
        part = "qkv".index(reads) if reads else 0
        at = slice(32 * part + head * WIDTH, 32 * part + (head + 1) * WIDTH)

        def put(new, old):
            mixed = old.clone()
            mixed[..., at] = new[..., at]
            return mixed

        if reads:
            hook = block.attn.c_attn.register_forward_hook(lambda *given: put(seen["qkv"], given[2]))
        else:
            hook = block.get_submodule(self.out).register_forward_pre_hook(
                lambda *given: (put(seen["z"], given[1][0]),)
            )
        return self.run(self.ids[0], [hook])


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("direction", ["noising", "denoising"])
def test_paths_are_what_two_runs_of_the_model_by_hooks_give(direction, freeze):
    model, made = tiny_pair("gpt2", dtype=torch.float64)
    own, other = (one.inputs["input_ids"][0].tolist() for one in made.ends(direction))
    by_hooks = Hooked("gpt2", model.module, made.target, own, other)
    senders, receivers = [(0, 1), (1, 2)], ["1.0", "2.3.q", "2.3.k", "2.1.v", "answer"]
    found = path_patching(model, made, senders, receivers, direction, freeze_mlps=freeze)
    for row, sender in enumerate(senders):
        for column, node in enumerate(found.receivers):
            if sender == (1, 2) and column == 0:
                assert found.answers[row, column].isnan()
                continue
            receiver = None if node.part == "answer" else (node.layer, node.head)
            expected = by_hooks.answer(sender, receiver, node.reads, freeze)
            assert found.answers[row, column].item() == pytest.approx(expected, abs=1e-9)
    assert (found.answers[0, 1:] - found.answers[0, 1]).abs().max() > 1e-6  # the paths do differ


@pytest.mark.parametrize("name", ["bert", "gptj", "gemma2", "gpt_oss"])
def test_feed_forward_parts_are_held_wherever_they_stand(name):
    """Behind sums with norms, beside attention, between norms, and made of experts."""
    model, made = tiny_pair(name, dtype=None if name == "gpt_oss" else torch.float64)  # its experts take no float64
    clean, corrupt = (one.inputs["input_ids"][0].tolist() for one in (made.clean, made.corrupt))
    by_hooks = Hooked(name, model.module, made.target, clean, corrupt)
    senders = [(0, 1), (1, 2)]
    held, free = (
        path_patching(model, made, senders, ["2.1", "answer"], freeze_mlps=freeze) for freeze in (True, False)
    )
    for row, sender in enumerate(senders):
        for column, receiver in enumerate(((2, 1), None)):
            expected = by_hooks.answer(sender, receiver, "", freeze=True)
            assert held.answers[row, column].item() == pytest.approx(expected, abs=2e-6)
    assert (held.answers - free.answers).abs().max() > 1e-5


def test_a_number_that_all_scores_of_a_query_have_in_common_says_nothing():
    """gpt-oss takes the largest of scores and sink from all of them; its queries against hooks."""
    model, made = tiny_pair("gpt_oss")
    blocks, seen = model.module.model.layers, {}
    sender, receiver = (1, 2), (2, 1)
    clean, corrupt = (one.inputs["input_ids"][0].tolist() for one in (made.clean, made.corrupt))
    by_hooks = Hooked("gpt_oss", model.module, made.target, clean, corrupt)
    ask, at = blocks[receiver[0]].self_attn.q_proj, slice(receiver[1] * WIDTH, (receiver[1] + 1) * WIDTH)
    note = ask.register_forward_hook(lambda *given: seen.setdefault("q", given[2].clone()))
    by_hooks.first(sender, receiver, freeze=False)
    note.remove()

    def put(module, args, output):
        new = output.clone()
        new[..., at] = seen["q"][..., at]
        return new

    expected = by_hooks.run(by_hooks.ids[0], [ask.register_forward_hook(put)])
    found = path_patching(model, made, sender, ["2.1.q"]).answers.item()
    assert found == pytest.approx(expected, abs=2e-6)
    assert abs(expected - by_hooks.run(by_hooks.ids[0], [])) > 1e-5


def test_in_a_linear_network_all_direct_paths_add_up_to_the_whole_effect():
    model, made = linear()
    heads = [(layer, head) for layer in range(3) for head in range(2)]
    for direction in ("noising", "denoising"):
        found = path_patching(model, made, heads, [*heads, "answer"], direction)
        whole = patch_heads(model, made, direction).values.flatten()
        torch.testing.assert_close(found.values.nansum(1), whole)


def test_the_induction_head_finds_its_place_by_the_key_that_the_previous_token_head_writes():
    model = planted("P12").model
    (made,) = induction(model, 1, change="match")
    found = path_patching(model, made, "0.0", ["1.0", "1.0.q", "1.0.k", "1.0.v", "answer"])
    # Lost, the head looks everywhere alike; on the corrupt input one of the tokens there is another.
    assert found.values[0].tolist() == pytest.approx([1, 0, 1, 0, 0], abs=0.01)
    assert found.values[0, [1, 3, 4]].abs().max().item() == pytest.approx(0, abs=1e-9)
    (copied,) = induction(model, 1, change="answer")
    assert patch_heads(model, copied).values.flatten().tolist() == pytest.approx([0, 1], abs=1e-9)


def test_what_a_feed_forward_part_passes_on_is_lost_where_it_is_held():
    model, made = gate("and")
    free = path_patching(model, made, ["0.0", "0.1"])
    assert free.values.flatten().tolist() == pytest.approx([1, 1])
    held = path_patching(model, made, ["0.0", "0.1"], freeze_mlps=True)
    assert held.values.flatten().tolist() == pytest.approx([0, 0])


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit"])
def test_every_architecture_has_paths(name):
    model, made = tiny_pair(name)
    last = {"t5": ["decoder.cross.1.0.k", "decoder.cross.2.1", "decoder.cross.1.3.q"]}.get(
        name, ["2.0.k", "2.1", "1.3.q"]
    )
    senders = ["encoder.self.0.1", "decoder.self.0.2"] if name == "t5" else ["0.1", "1.2"]
    found = path_patching(model, made, senders, [*last, "answer"])
    there = ~found.answers.isnan()
    assert there.sum().item() == (8 if name == "t5" else 7) and torch.isfinite(found.values[there]).all()
    frame = found.to_frame()
    assert len(frame) == there.sum().item() and list(frame) == ["sender", "receiver", "answer", "share"]
    if name == "t5":  # what the encoder writes is looked at, and asks nothing
        assert set(frame.sender) == set(senders) and set(frame.receiver) == {*last, "answer"}
        assert found.values[0, 2].item() == pytest.approx(0, abs=1e-6)
        assert abs(found.values[0, 0].item()) > 1e-6


def test_a_cap_on_scores_keeps_query_and_key_from_being_told_apart():
    _, made = tiny_pair("gemma2")
    model = load(tiny.build("gemma2"))  # not the one for all tests: its parameters are changed
    attention = model.module.model.layers[1].self_attn
    with torch.no_grad():
        for part in (attention.q_proj, attention.k_proj):
            part.weight.mul_(6)  # so that scores come near the cap
    assert torch.isfinite(path_patching(model, made, "0.0", "1.1").values).all()
    with pytest.raises(EditError, match=r"more than a scaled product.*whole head: 1\.1"):
        path_patching(model, made, "0.0", "1.1.q")


def test_receivers_that_are_not_there_are_refused():
    model, made = tiny_pair("gpt2")
    with pytest.raises(InputError, match="layers 0 to 2"):
        path_patching(model, made, "0.0", "5.1.k")
    with pytest.raises(InputError, match="names no head"):
        path_patching(model, made, "0.0", "1.1.z")
    with pytest.raises(InputError, match="receivers is empty"):
        path_patching(model, made, "0.0", [])
    with pytest.raises(InputError, match="senders is empty"):
        path_patching(model, made, [])
    with pytest.raises(InputError, match="5 names no head"):
        path_patching(model, made, "0.0", 5)
