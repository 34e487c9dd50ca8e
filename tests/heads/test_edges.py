"""Edges: what each part of a network carries to each other part, to first order."""

import pytest
import torch
import transformers as t

from attnprobe.errors import InputError
from attnprobe.heads.edges import edge_attribution
from attnprobe.heads.measuring import head_effect
from attnprobe.heads.pairs import pair
from attnprobe.heads.patching import patch_heads
from attnprobe.heads.paths import path_patching
from attnprobe.heads.stream_nodes import Node, read
from attnprobe.models import load
from attnprobe.models.evaluator import batch_rows
from attnprobe.models.rows import Row
from tests import tiny
from tests.heads.made_pairs import gate, linear, planted_pair, tiny_pair

# Norms before the parts: causal, shared keys and values, norms of queries and keys, several stacks, patches, both ways.
BEFORE = ("gpt2", "llama", "qwen3", "gpt_oss", "t5", "vit", "modernbert")
BESIDE = ("gpt_neox", "gptj")  # attention and feed-forward part side by side, behind two norms or behind one
IN_STREAM = ("bert", "distilbert", "albert", "bart")  # norms behind the sums; layers that share their parameters
BEHIND_OUTPUTS = ("gemma2", "olmo2")  # with norms before the parts as well, or without
STREAMS = (*BEFORE, *BESIDE, *IN_STREAM, *BEHIND_OUTPUTS)


def of(flows, **facts):
    """The flow of the node with these facts."""
    return next(f for f in flows if all(getattr(f.node, name) == value for name, value in facts.items()))


@pytest.mark.parametrize("name", STREAMS)
def test_edges_out_of_a_head_add_up_to_attribution_patching_of_the_head(name):
    model, made = tiny_pair(name)
    found = edge_attribution(model, made)
    for stack in model.stacks:
        options = {"stack": stack, "corrupt": made.corrupt}
        expected = head_effect(model, made.clean, "attribution_patching", made.target, **options).values.detach()
        mine = torch.zeros_like(expected)
        for node, value in zip(found.writers, found.values.nansum(1), strict=True):
            if (node.part, node.stack, node.kind) == ("head", stack.name, stack.kind):
                mine[node.layer, node.head] = value
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()) + 1e-9)


@pytest.mark.parametrize("name", ["gpt2", "llama", *BESIDE])
def test_norms_before_parts_lie_on_no_edge(name):
    model, made = tiny_pair(name)
    frozen, moving = (edge_attribution(model, made, norms=norms).values for norms in ("frozen", "moving"))
    assert torch.equal(frozen.nan_to_num(), moving.nan_to_num())


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bert", "bart", "gpt_neox", "gptj", "gemma2"])
def test_edges_lead_from_earlier_to_later_parts(name):
    model, made = tiny_pair(name)
    found = edge_attribution(model, made)
    for row, writer in enumerate(found.writers):
        for column, reader in enumerate(found.readers):
            there = not bool(found.values[row, column].isnan())
            if writer.part == reader.part == "head" and (writer.stack, "self") == (reader.stack, reader.kind):
                assert there == (writer.layer < reader.layer)
            if (writer.part, reader.part) == ("head", "mlp") and writer.stack == reader.stack:
                assert there == (writer.layer < reader.layer + (name not in BESIDE))
            if reader.part == "answer":
                assert there == (writer.stack == model.stacks[-1].name)
            if (writer.stack, reader.kind) == ("encoder", "cross"):
                assert there == (reader.reads in ("k", "v"))
    assert sum(node.part == "head" for node in found.readers) == 3 * sum(node.part == "head" for node in found.writers)


def test_in_a_linear_network_edges_are_what_path_patching_finds():
    model, made = linear()
    found, heads = edge_attribution(model, made), [(layer, head) for layer in range(3) for head in range(2)]
    readers = [node for node in found.readers if node.reads in ("", "v") and node.part != "mlp"]
    paths = path_patching(model, made, heads, readers)
    rows = [found.writers.index(Node("head", "encoder", "self", *place)) for place in heads]
    columns = [found.readers.index(node) for node in readers]
    torch.testing.assert_close(found.shares[rows][:, columns], paths.values, equal_nan=True)
    whole = patch_heads(model, made, "noising").values.flatten()
    torch.testing.assert_close(found.shares[rows].nansum(1), whole)
    into_answer = found.shares[:, found.readers.index(Node("answer"))]
    assert into_answer.sum().item() == pytest.approx(1)  # y is the sum of all that is written
    asked = [column for column, node in enumerate(found.readers) if node.reads in ("q", "k")]
    assert found.values[:, asked].nan_to_num().abs().max().item() == 0  # weights do not depend on tokens


def test_a_saturated_part_has_no_gradient_and_the_integrated_form_finds_it():
    model, made = planted_pair("P10", ["[CLS]", "[CLS]", "none"])
    plain = edge_attribution(model, made)
    table = plain.to_frame().set_index(["writer", "reader"]).value
    assert table["mlp 0", "answer"] == pytest.approx(-1) and table.drop([("mlp 0", "answer")]).abs().max() == 0
    found = edge_attribution(model, made, n_steps=10)
    table = found.to_frame().set_index(["writer", "reader"]).value
    assert table["embedding", "0.0.v"] == pytest.approx(-1) and table["0.0", "mlp 0"] == pytest.approx(-1)
    assert table["mlp 0", "answer"] == pytest.approx(-1)
    assert table.drop([("embedding", "0.0.v"), ("0.0", "mlp 0"), ("mlp 0", "answer")]).abs().max() == 0
    # y = 1 − relu(1 − 2a): the slope is 2 at the corrupt input, a = 0, and 0 at the clean one, a = 1.
    left = edge_attribution(model, made, n_steps=1, points="left").to_frame().set_index(["writer", "reader"]).value
    assert left["0.0", "mlp 0"] == pytest.approx(-2)


def test_edges_of_a_gate_are_first_order_answers():
    for kind, expected in (("and", -1.0), ("or", 0.0)):
        table = edge_attribution(*gate(kind)).to_frame().set_index(["writer", "reader"]).value
        assert [table["0.0", "mlp 0"], table["0.1", "mlp 0"]] == pytest.approx([expected] * 2)


@pytest.mark.parametrize("reads", ["q", "k", "v"])
def test_what_a_head_reads_by_query_key_and_value_is_told_apart(reads):
    """Against small steps of the model itself: the stream is moved for one projection alone, behind its norm."""
    model, made = tiny_pair("llama", dtype=torch.float64)
    flows = read(model, [Row(made.clean)], made.target)
    block = model.module.model.layers[1]
    kept, step = {}, torch.randn(1, 12, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # Heads 2 and 3 share the second head of keys and values.
    heads, width = ([3], slice(24, 32)) if reads == "q" else ([2, 3], slice(8, 16))

    def note(_, args):
        kept["x"] = args[0]

    def answer(size):
        def change(map_, _, output):
            new = output.clone()
            handle.remove()
            new[..., width] = map_(block.input_layernorm(kept["x"] + size * step))[..., width]
            return new

        first = block.input_layernorm.register_forward_pre_hook(note)
        handle = getattr(block.self_attn, f"{reads}_proj").register_forward_hook(change)
        with torch.no_grad():
            found = made.target(model.module(made.clean.inputs["input_ids"]).logits)
        first.remove()
        return found.item()

    slope = (answer(3e-3) - answer(-3e-3)) / 6e-3
    mine = sum(of(flows, layer=1, head=head, reads=reads).states for head in heads)
    assert (mine * step[0]).sum().item() == pytest.approx(slope, rel=2e-3)


def test_names_leave_the_stack_out_where_there_is_one():
    found = edge_attribution(*tiny_pair("gpt2"))
    table = found.to_frame()
    assert list(table) == ["writer", "reader", "value", "share"]
    heads = {f"{layer}.{head}" for layer in range(3) for head in range(4)}
    assert set(table.writer) == {"embedding", "mlp 0", "mlp 1", "mlp 2"} | heads
    assert {"2.3.q", "0.0.k", "mlp 2", "answer"} <= set(table.reader)
    assert found.top(4).value.abs().is_monotonic_decreasing and len(found.nodes()) == 16
    several = edge_attribution(*tiny_pair("t5")).to_frame()
    assert {"encoder embedding", "encoder.self.0.1", "decoder mlp 2"} <= set(several.writer)
    assert {"decoder.cross.1.2.k", "answer"} <= set(several.reader)


def test_a_scale_behind_the_heads_is_refused():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = t.GraniteConfig(**sizes, num_key_value_heads=2, vocab_size=60, residual_multiplier=0.5, pad_token_id=0)
    model = load(t.GraniteForCausalLM(config).eval())
    with pytest.raises(InputError, match=r"is not what its heads write.*edges need layers"):
        edge_attribution(model, pair(model, tiny.IDS, [*tiny.IDS[:3], 30, *tiny.IDS[4:]]))


def test_rows_laid_end_to_end_are_told_apart():
    """OPT gives its feed-forward part the positions of all rows as one list."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_hidden_layers": 2, "vocab_size": 60}
    config = t.OPTConfig(**sizes, num_attention_heads=4, max_position_embeddings=64)
    model = load(t.OPTForCausalLM(config).eval())
    made = pair(model, tiny.IDS, [*tiny.IDS[:3], 30, *tiny.IDS[4:]])
    found = edge_attribution(model, made, n_steps=3)
    with batch_rows(1):
        one_by_one = edge_attribution(model, made, n_steps=3)
    torch.testing.assert_close(found.values, one_by_one.values, equal_nan=True, rtol=1e-4, atol=1e-8)
    assert found.shares.nan_to_num().abs().max() > 0.01


def test_a_fused_kernel_has_the_edges_of_plain_attention():
    plain, fused = (edge_attribution(*tiny_pair("llama", kernel)).values for kernel in ("eager", "sdpa"))
    torch.testing.assert_close(fused, plain, equal_nan=True, rtol=1e-3, atol=1e-6)


def test_options_that_do_not_exist_are_refused():
    model, made = gate("and")
    with pytest.raises(InputError, match="points is"):
        edge_attribution(model, made, n_steps=2, points="right")
    with pytest.raises(InputError, match="n_steps is at least 1"):
        edge_attribution(model, made, n_steps=0)
    with pytest.raises(InputError, match="norms is 'frozen' or 'moving', got 'live'"):
        edge_attribution(model, made, norms="live")
