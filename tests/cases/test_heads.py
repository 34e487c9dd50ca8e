"""Cases 7 to 10: which head is which, and what silencing one does."""

from contextlib import contextmanager

import pytest
import torch
import transformers

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import EditError
from attnprobe.intervention import gate, silence_head
from attnprobe.models import Row, load
from attnprobe.models.evaluator import differentiable, logits
from tests import tiny


def grouped(implementation):
    """A Llama of 8 query heads on 2 key/value heads."""
    config = transformers.LlamaConfig(**{**tiny._DECODER, "num_attention_heads": 8, "head_dim": 4})
    torch.manual_seed(0)
    module = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        [parameter.mul_(4) for parameter in module.parameters() if parameter.ndim > 1]
    module.set_attn_implementation(implementation)
    return module


@contextmanager
def inputs_of(*parts):
    """What goes into the first argument of parts within the block, in order."""
    found = []
    handles = [part.register_forward_pre_hook(lambda _, given: found.append(given[0])) for part in parts]
    yield found
    [handle.remove() for handle in handles]


@contextmanager
def zeroed(part, columns):
    """Within the block some columns of the input of a part are zero."""

    def change(_, given):
        changed = given[0].clone()
        changed[..., columns] = 0
        return (changed, *given[1:])

    handle = part.register_forward_pre_hook(change)
    yield
    handle.remove()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("head", [0, 3, 4, 7])
def test_a_query_head_uses_the_key_and_value_head_of_its_group(head, implementation):
    """Case 7: heads 0 to 3 of 8 share key/value head 0, heads 4 to 7 share head 1."""
    module = grouped(implementation)
    model, outputs = load(module), []
    handle = module.model.layers[1].self_attn.v_proj.register_forward_hook(lambda *given: outputs.append(given[2]))
    example = model.example(tiny.IDS)
    outputs.clear()
    (site,) = model.capture(example, keep=Keep.of("key", "value", layers=1), check="off").sites
    handle.remove()
    values = outputs[0][0].unflatten(-1, (2, 4))  # [token key/value head, d_head]
    assert torch.equal(site.value[0, head], values[:, head // 4])
    assert torch.equal(site.key[0, head], site.key[0, 4 * (head // 4)])
    assert not torch.equal(site.key[0, 0], site.key[0, 4])


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_silencing_one_query_head_leaves_the_z_of_the_others_of_its_group_bit_for_bit(implementation):
    """Case 7: head 7 alone goes, not the key/value head that it shares."""
    module = grouped(implementation)
    model, part = load(module), module.model.layers[1].self_attn.o_proj
    example, keep = model.example(tiny.IDS), Keep.of("z")
    plain_edit = silence_head(2, 0)  # in a later layer: both passes take the same route through layer 1
    with inputs_of(part) as seen:
        model.capture(example, edits=[silence_head(1, 7), plain_edit], keep=keep, check="off")
        model.capture(example, edits=[_unchanged(), plain_edit], keep=keep, check="off")
    silenced, plain = (z[0].unflatten(-1, (8, 4)) for z in seen)
    assert bool((silenced[:, 7] == 0).all()) and bool((plain[:, 7] != 0).any())
    assert torch.equal(silenced[:, :7], plain[:, :7])


def _unchanged():
    """An edit of layer 1 that puts back what was there."""

    def same(site):
        return site.replace(weights=site.weights) if site.layer == 1 else site

    same.acts_at = lambda place: place.layer == 1
    return same


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_silencing_a_head_of_gpt2_zeroes_its_columns_of_the_projections_input(implementation):
    """Case 8: the module's output cannot be cut into heads, since c_proj has mixed them."""
    module = tiny.build("gpt2", implementation)
    model, attention = load(module), module.transformer.h[1].attn
    silenced = model.capture(model.example(tiny.IDS), edits=[silence_head(1, 2)], check="off").logits
    with torch.no_grad():
        plain = module(torch.tensor([tiny.IDS])).logits
        with zeroed(attention.c_proj, slice(16, 24)):
            expected = module(torch.tensor([tiny.IDS])).logits
        handle = attention.register_forward_hook(lambda _, __, out: (_without(out[0]), *out[1:]))
        wrong = module(torch.tensor([tiny.IDS])).logits
        handle.remove()
    torch.testing.assert_close(silenced, expected, atol=1e-6, rtol=0)
    assert float((silenced - plain).abs().max()) > 0.01 and float((silenced - wrong).abs().max()) > 0.01


def _without(output):
    return torch.cat([output[..., :16], torch.zeros_like(output[..., 16:24]), output[..., 24:]], dim=-1)


def test_transformers_itself_no_longer_masks_or_prunes_heads():
    """Case 9: what the next three tests stand in for."""
    module = tiny.build("bert")
    assert not hasattr(module, "prune_heads")
    assert "head_mask" not in transformers.BertModel.forward.__code__.co_varnames


def _projection(module, layer):
    return module.bert.encoder.layer[layer].attention.output.dense


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_ablating_every_head_in_one_pass_is_zeroing_each_in_a_pass_of_its_own(implementation):
    """Case 9, ablation: each batch row without another head."""
    module = tiny.build("bert", implementation)
    model = load(module)
    example = model.example(tiny.IDS)
    heads = [(layer, head) for layer in range(3) for head in range(4)]
    with torch.no_grad():
        found = logits(model, [Row(example, edits=(silence_head(*place),)) for place in heads])
        for (layer, head), row in zip(heads, found, strict=True):
            with zeroed(_projection(module, layer), slice(8 * head, 8 * head + 8)):
                torch.testing.assert_close(row, module(torch.tensor([tiny.IDS])).logits[0], atol=1e-5, rtol=0)


def test_the_importance_of_a_head_is_the_slope_of_its_gate():
    """Case 9, importance (Michel et al. 2019): the gradient of gates against a finite difference, in float64."""
    module = tiny.build("bert", "sdpa").double()
    model = load(module)
    example = model.example(tiny.IDS)
    gates = torch.ones(4, dtype=torch.float64, requires_grad=True)
    answer, _ = differentiable(model, [Row(example, edits=(gate(gates, 1),))])
    (slopes,) = torch.autograd.grad(answer[0, 1], gates)
    for head in range(4):
        step = torch.zeros(4, dtype=torch.float64)
        step[head] = 1e-5
        with torch.no_grad():
            up, down = logits(model, [Row(example, edits=(gate(1 + sign * step, 1),)) for sign in (1, -1)])[:, 1]
        assert float(slopes[head]) == pytest.approx(float(up - down) / 2e-5, abs=1e-7)


def test_pruning_heads_is_the_model_with_their_columns_of_the_projection_at_zero():
    """Case 9, pruning: half of the heads of every layer at once."""
    module, pruned = tiny.build("bert", "sdpa"), tiny.build("bert", "sdpa")
    with torch.no_grad():
        for layer in range(3):
            _projection(pruned, layer).weight[:, 8:24] = 0
    model = load(module)
    edits = [silence_head(layer, (1, 2)) for layer in range(3)]
    found = model.capture(model.example(tiny.IDS), edits=edits).logits
    with torch.no_grad():
        torch.testing.assert_close(found, pruned(torch.tensor([tiny.IDS])).logits, atol=1e-5, rtol=0)


def t5():
    module = tiny.build("t5", "eager")
    model = load(module)
    return module, model, model.example(tiny.IDS, answer=[4, 5, 6])


@pytest.mark.parametrize(("kind", "number", "part"), [("self", 0, "SelfAttention"), ("cross", 1, "EncDecAttention")])
def test_self_and_cross_heads_of_t5_are_addressed_apart(kind, number, part):
    """Case 10: head 2 of layer 1 of the decoder, of the one kind and of the other."""
    module, model, example = t5()
    attention = getattr(module.decoder.block[1].layer[number], part)
    found = model.capture(example, edits=[silence_head(1, 2, stack="decoder", kind=kind)])
    with torch.no_grad(), zeroed(attention.o, slice(16, 24)):
        expected = module(**example.inputs).logits
    torch.testing.assert_close(found.logits, expected, atol=1e-5, rtol=1e-5)
    other = "self" if kind == "cross" else "cross"
    assert bool((found.weights("decoder", kind)[1, 2] == 0).all())
    assert bool((found.weights("decoder", other)[1, 2] > 0).any())
    assert torch.equal(found.weights("encoder", "self"), model.capture(example).weights("encoder", "self"))


def test_a_kind_of_attention_that_a_stack_of_t5_lacks_is_an_error():
    """Case 10: the encoder looks at nothing but itself."""
    _, model, example = t5()
    with pytest.raises(EditError, match="never fired"):
        model.capture(example, edits=[silence_head(1, 2, stack="encoder", kind="cross")])


def test_the_pruning_curve_of_t5_cross_attention_is_that_of_the_model_with_fewer_heads():
    """Case 10: one pass whose rows lack 0, 1, … 12 of the cross heads."""
    module, model, example = t5()
    heads = [(layer, head) for layer in range(3) for head in range(4)]
    edits = [silence_head(layer, head, stack="decoder", kind="cross") for layer, head in heads]
    with torch.no_grad():
        curve = logits(model, [Row(example, edits=tuple(edits[:n])) for n in range(13)])
        for n, (layer, head) in enumerate(heads, start=1):
            module.decoder.block[layer].layer[1].EncDecAttention.o.weight[:, 8 * head : 8 * head + 8] = 0
            torch.testing.assert_close(curve[n], module(**example.inputs).logits[0], atol=1e-5, rtol=1e-4)
    assert not torch.equal(curve[0], curve[12])


def test_a_recording_of_t5_tells_every_site_by_stack_and_kind():
    """Case 10."""
    module, model, example = t5()
    tape = Tape(keep=Keep.of("weights"))
    with model.listening(tape), torch.no_grad():
        module(**example.inputs)
    places = [(site.place.stack, site.place.kind, site.layer) for site in tape.sites]
    decoder = [("decoder", kind, layer) for layer in range(3) for kind in ("self", "cross")]
    assert places == [("encoder", "self", layer) for layer in range(3)] + decoder
