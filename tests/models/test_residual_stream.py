"""The residual stream by watching: which norms lie on a direct way, what they do, and what is refused."""

import pytest
import torch
import transformers as t
from torch import nn

from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.transformer import TransformerClassifier, TransformerLanguageModel
from attnprobe.errors import InputError
from attnprobe.models import load
from attnprobe.models.edited import EditedModel
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.residual_stream import residual_stream
from attnprobe.models.ways import Step, Way
from tests import tiny
from tests.heads.made_norms import loaded, normed, with_norms

WORDS = Vocabulary(("[BOS]", *"abcdefg"), begin="[BOS]")


def own(network):
    return OwnModel(network, WORDS, labels=tuple("12345678"))


@pytest.mark.parametrize(
    ("name", "writer", "reader", "norms"),
    [
        ("gpt2", "transformer.h.0.attn.c_proj", "transformer.h.2.attn.c_attn", ["transformer.h.2.ln_1"]),
        ("gpt2", "transformer.h.0.attn.c_proj", "lm_head", ["transformer.ln_f"]),
        ("llama", "model.layers.1.mlp.down_proj", "lm_head", ["model.norm"]),
        (
            "bert",
            "bert.encoder.layer.0.attention.output.dense",
            "bert.encoder.layer.1.intermediate.dense",
            ["0.attention.output.LayerNorm", "0.output.LayerNorm", "1.attention.output.LayerNorm"],
        ),
        (
            "gemma2",
            "model.layers.0.self_attn.o_proj",
            "model.layers.1.self_attn.v_proj",
            ["model.layers.0.post_attention_layernorm", "model.layers.1.input_layernorm"],
        ),
        ("t5", "encoder.block.0.layer.1.DenseReluDense.wo", "decoder.block.1.layer.1.EncDecAttention.k",
         ["encoder.final_layer_norm"]),
        ("t5", "decoder.block.0.layer.1.EncDecAttention.o", "lm_head", ["decoder.final_layer_norm"]),
        ("vit", "vit.layers.0.attention.o_proj", "classifier", ["vit.layernorm"]),
    ],
)  # fmt: skip
def test_the_norms_between_two_maps_are_found_in_order(name, writer, reader, norms):
    found = residual_stream(loaded(name)).way(("written", writer, 0), (reader, 0))
    assert [path.removeprefix("bert.encoder.layer.") for path in found.norms] == norms


def test_what_does_not_lead_there_past_all_maps_is_no_way():
    stream = residual_stream(tiny.loaded("gpt2"))
    assert stream.way(("written", "transformer.h.2.attn.c_proj", 0), ("transformer.h.1.attn.c_attn", 0)) is None
    assert stream.way(("written", "transformer.h.1.attn.c_attn", 0), ("transformer.h.2.attn.c_attn", 0)) is None
    stream = residual_stream(tiny.loaded("bert"))
    assert stream.way(("written", "bert.encoder.layer.2.output.dense", 0), ("classifier", 0)) is None


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_a_way_does_to_a_vector_what_the_norms_do_but_for_their_shift(name):
    model = loaded(name)
    writer, reader = {
        "gpt2": ("transformer.h.0.attn.c_proj", "transformer.h.1.mlp.c_fc"),
        "llama": ("model.layers.0.self_attn.o_proj", "model.layers.1.mlp.up_proj"),
        "bert": ("bert.encoder.layer.0.attention.output.dense", "bert.encoder.layer.1.attention.self.query"),
    }[name]
    way = residual_stream(model).way(("written", writer, 0), (reader, 0))
    x = expected = torch.randn(5, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for norm in way.norms:
        expected = normed(expected, model.module.get_submodule(norm), name != "llama")
    torch.testing.assert_close(way.forward(x, scaled=True), expected, atol=1e-5, rtol=1e-5)
    weight = torch.randn(32, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(x @ way.folded(weight), way.forward(x) @ weight)


def test_runs_of_shared_layers_are_told_apart():
    stream = residual_stream(tiny.loaded("albert"))
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    way = stream.way(("written", f"{layer}.attention.dense", 0), (f"{layer}.attention.query", 2))
    assert [path.removeprefix(f"{layer}.") for path in way.norms] == [
        "attention.LayerNorm",
        "full_layer_layer_norm",
    ] * 2


def test_factors_on_the_stream_are_kept():
    """Granite multiplies what a part writes by a number before it adds it."""
    config = t.GraniteConfig(**{**tiny._DECODER, "residual_multiplier": 0.25, "embedding_multiplier": 3.0})
    model = loaded(lambda: t.GraniteForCausalLM(config))
    stream = residual_stream(model)
    way = stream.way(("written", "model.layers.0.self_attn.o_proj", 0), ("model.layers.1.self_attn.q_proj", 0))
    gain = model.module.model.layers[1].input_layernorm.weight.detach().double()
    torch.testing.assert_close(way.forward(torch.ones(32).double()), 0.25 * gain, atol=1e-5, rtol=1e-5)
    way = stream.way(("table", "model.embed_tokens", 0), ("model.layers.0.self_attn.q_proj", 0))
    gain = model.module.model.layers[0].input_layernorm.weight.detach().double()
    torch.testing.assert_close(way.forward(torch.ones(32).double()), 3 * gain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_our_own_networks_are_given_their_embeddings(norm):
    torch.manual_seed(0)
    model = OwnModel(TransformerLanguageModel(8, d_model=8, n_heads=2, n_layers=2, norm=norm), WORDS)
    stream = residual_stream(model)
    found = stream.way(("given", "", 0), ("blocks.1.attention.query", 0)).norms
    assert found == (
        ("blocks.1.attention_norm",) if norm == "pre" else ("blocks.0.attention_norm", "blocks.0.mlp_norm")
    )
    assert stream.own_norm(("blocks.1.attention.query", 0)).norms == (found if norm == "pre" else ())
    again = residual_stream(EditedModel(model, []))
    assert again.way(("given", "", 0), ("blocks.1.attention.query", 0)).norms == found


class Odd(nn.Module):
    """One attention, and between it and the answer whatever the test puts there."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.token_embedding = nn.Embedding(8, 8)
        self.attention, self.head = MultiHeadAttention(8, 2), nn.Linear(8, 8)
        self.one, self.two = nn.LayerNorm(8), nn.LayerNorm(8)
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.between = between

    def forward(self, x, visible=None):
        return self.head(self.between(self, x, self.attention(x)))


WRITTEN, ANSWER = ("written", "attention.output", 0), ("head", 0)


def test_a_number_for_each_entry_is_kept():
    model = own(Odd(lambda net, x, z: (x + z * net.scale).mean(1)))
    with pytest.raises(InputError, match="neither a sum, a factor nor a norm"):
        residual_stream(model).way(WRITTEN, ANSWER)  # the mean over positions is none either
    model = own(Odd(lambda net, x, z: (x + z * net.scale)[:, 0]))
    way = residual_stream(model).way(WRITTEN, ANSWER)
    torch.testing.assert_close(way.forward(torch.ones(8)), model.module.scale.detach())


@pytest.mark.parametrize(
    ("between", "message"),
    [
        (lambda net, x, z: (x + z.tanh())[:, 0], "neither a sum, a factor nor a norm"),
        (lambda net, x, z: (x + z.flip(-1))[:, 0], "neither a sum, a factor nor a norm"),
        (lambda net, x, z: (net.one(x + z) + net.two(x + z))[:, 0], "several ways lead"),
        (lambda net, x, z: (net.one(x + z) + z)[:, 0], "several ways lead"),
    ],
)
def test_what_is_no_chain_of_norms_is_refused(between, message):
    with pytest.raises(InputError, match=message):
        residual_stream(own(Odd(between))).way(WRITTEN, ANSWER)


def test_a_map_that_did_not_run_is_refused():
    stream = residual_stream(tiny.loaded("gpt2"))
    with pytest.raises(InputError, match=r"'nothing' did not run as a module of its own \(run 0 of it\)"):
        stream.way(("table", "transformer.wte", 0), ("nothing", 0))


def test_nothing_of_the_model_changes():
    module = with_norms("gpt2").train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    residual_stream(load(module))
    assert module.training and all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any("forward" in part.__dict__ for part in module.modules())


def test_a_classifier_of_ours_reads_its_answer_behind_the_last_norm():
    torch.manual_seed(0)
    network = TransformerClassifier(8, 8, d_model=8, n_heads=2, n_layers=1)
    found = residual_stream(own(network)).way(("written", "blocks.0.attention.output", 0), ("classifier", 0))
    assert found.norms == ("final_norm",)


def test_a_way_behind_another_leaves_its_beginning_out():
    steps = tuple(Step(torch.full((2,), float(n)), norm=str(n)) for n in range(3))
    assert Way(steps).behind(Way(steps[:1])).norms == ("1", "2")
    assert Way().forward(torch.ones(2)).tolist() == [1, 1]
