"""Edges where norms lie between what is written and what reads it, beside edges patched one by one."""

import pytest
import torch

from attnprobe.heads.edges import edge_attribution
from attnprobe.heads.pairs import pair
from attnprobe.heads.stream_nodes import Node
from attnprobe.models import load
from tests import tiny
from tests.heads.made_norms import with_norms
from tests.heads.made_pairs import tiny_pair
from tests.heads.slow_bert import SlowBert


def bert(step):
    """A tiny BERT in float64 with random norms, and inputs that differ by a step in one word vector."""
    module = with_norms("bert").double()
    with torch.no_grad():
        table = module.bert.embeddings.word_embeddings.weight
        table[30] = table[8] + step * table[30]
    corrupt = [*tiny.IDS[:3], 30, *tiny.IDS[4:]]
    model = load(module)
    made = pair(model, tiny.IDS, corrupt)
    return model, made, SlowBert(module, made.target, tiny.IDS, corrupt)


def compared(found, slow, norms):
    """Edges as they were found, and as patching one by one says, each [edge]."""
    places = [tuple(place) for place in (~found.values.isnan()).nonzero().tolist()]
    patched = [slow.patched(found.writers[row], found.readers[column], norms) for row, column in places]
    return found.values[tuple(zip(*places, strict=True))], torch.tensor(patched, dtype=torch.float64)


@pytest.mark.parametrize("norms", ["frozen", "moving"])
def test_small_changes_of_single_edges_are_told_exactly(norms):
    model, made, slow = bert(step=1e-5)
    assert made.target.label is not None and slow.clean == pytest.approx(slow.corrupt, abs=1e-4)
    mine, patched = compared(edge_attribution(model, made, norms=norms), slow, norms)
    torch.testing.assert_close(mine, patched, rtol=1e-2, atol=1e-4 * float(patched.abs().max()))
    other, _ = compared(edge_attribution(model, made, norms="moving" if norms == "frozen" else "frozen"), slow, norms)
    assert (other - patched).abs().max() > 1e-2 * patched.abs().max()


@pytest.mark.parametrize("norms", ["frozen", "moving"])
def test_large_changes_of_single_edges_are_told_nearly(norms):
    model, made, slow = bert(step=1.0)
    found = edge_attribution(model, made, norms=norms)
    mine, patched = compared(found, slow, norms)
    assert torch.corrcoef(torch.stack([mine, patched]))[0, 1] > 0.9
    assert (mine.sign() == patched.sign()).double().mean() > 0.95
    assert (found.baselines.clean, found.baselines.corrupt) == pytest.approx((slow.clean, slow.corrupt), abs=1e-9)


def kept(module, path, ids):
    """What goes into a module in a pass."""
    seen = []
    hook = module.get_submodule(path).register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits = module(torch.tensor([ids])).logits
    hook.remove()
    return seen[0], logits


def test_a_norm_behind_the_output_is_part_of_the_way():
    """The edges from heads of the last layer into the answer of a Gemma 2, written out."""
    model, made = tiny_pair("gemma2", dtype=torch.float64)
    module, layer = model.module, "model.layers.2"
    clean, corrupt = (one.inputs["input_ids"][0].tolist() for one in (made.clean, made.corrupt))
    z, written, new = (
        kept(module, path, ids)[0][0].detach()
        for path, ids in (
            (f"{layer}.self_attn.o_proj", clean),
            (f"{layer}.post_attention_layernorm", clean),
            (f"{layer}.self_attn.o_proj", corrupt),
        )
    )
    end, logits = kept(module, "model.norm", clean)
    (gradient,) = torch.autograd.grad(made.target(logits).sum(), end)
    norm, out = (
        module.get_submodule(f"{layer}.post_attention_layernorm"),
        module.get_submodule(f"{layer}.self_attn.o_proj"),
    )
    size = (written.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    found = edge_attribution(model, made, norms="frozen")
    for head in range(4):
        at = slice(8 * head, 8 * head + 8)
        move = (new - z)[:, at] @ out.weight[:, at].T * (1 + norm.weight) / size
        row = found.writers.index(Node("head", "decoder", "self", 2, head))
        mine = found.values[row, found.readers.index(Node("answer"))].item()
        assert mine == pytest.approx((move * gradient[0]).sum().item(), rel=1e-4, abs=1e-9)
