"""What a head does by its parameters: its matrices and what they do to words, cut out and written out by hand."""

import pytest
import torch
import transformers as t

from attnprobe.attention.seam import Keep
from attnprobe.errors import CaptureError, InputError
from attnprobe.heads.circuits import full_ov, full_qk, ov_circuit, ov_top_tokens, qk_circuit, qk_top_tokens
from attnprobe.models import load
from attnprobe.models.edited import EditedModel
from attnprobe.models.planted import planted
from tests import resumed_models, tiny
from tests.heads.made_norms import centred, folded, gpt2_parts, llama_parts, loaded, normed, with_norms

# ---------------------------------------------------------------- matrices


def test_circuits_of_a_gpt2_have_gain_and_centring_of_the_norm_before_them():
    model = loaded("gpt2")
    module = model.module
    q, k, v, o = gpt2_parts(module, 1, 2)
    norm = module.transformer.h[1].ln_1
    found = ov_circuit(model, "1.2")
    torch.testing.assert_close(found.matrix, folded(norm, v) @ o, atol=1e-5, rtol=1e-5)
    assert found.folded == ("transformer.h.1.ln_1",)
    found = qk_circuit(model, (1, 2))
    torch.testing.assert_close(found.matrix, folded(norm, q) @ folded(norm, k).T, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ov_circuit(model, "1.2", fold=False).matrix, v @ o)
    torch.testing.assert_close(qk_circuit(model, "1.2", fold=False).matrix, q @ k.T)


def test_circuits_of_a_llama_are_not_centred_and_turned_by_the_offset():
    model = loaded("llama")
    module = model.module
    q, k, v, o = llama_parts(module, 1, 3)
    norm = module.model.layers[1].input_layernorm
    torch.testing.assert_close(ov_circuit(model, "1.3").matrix, folded(norm, v, False) @ o, atol=1e-5, rtol=1e-5)
    plain = folded(norm, q, False) @ folded(norm, k, False).T
    torch.testing.assert_close(qk_circuit(model, "1.3").matrix, plain, atol=1e-5, rtol=1e-5)
    angles = 2 * 10000.0 ** (-torch.arange(4).double() / 4)
    turn = torch.zeros(8, 8).double()
    for i, angle in enumerate(angles):
        turn[i, i] = turn[i + 4, i + 4] = angle.cos()
        turn[i, i + 4], turn[i + 4, i] = angle.sin(), -angle.sin()
    plain = folded(norm, q, False) @ turn @ folded(norm, k, False).T
    found = qk_circuit(model, "1.3", offset=2)
    torch.testing.assert_close(found.matrix, plain, atol=1e-4, rtol=1e-4)
    assert found.offset == 2


def test_norms_behind_the_output_are_folded_in():
    """Gemma 2 puts a norm on what its heads write, with 1 + weight as its gain."""
    module = with_norms("gemma2")
    o = module.model.layers[0].self_attn.o_proj.weight.detach().double()[:, 8:16].T
    found = ov_circuit(load(module), "0.1")
    behind = module.model.layers[0].post_attention_layernorm
    expected = o @ torch.diag(1 + behind.weight.detach().double())
    torch.testing.assert_close(found.right, expected, atol=1e-5, rtol=1e-5)
    assert found.folded == ("model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm")


def test_where_norms_come_after_the_sum_nothing_of_its_own_stands_before_a_head():
    module = with_norms("bert")
    attention = module.bert.encoder.layer[1].attention
    found = ov_circuit(load(module), "1.1")
    v = attention.self.value.weight.detach().double()[8:16].T
    o = attention.output.dense.weight.detach().double()[:, 8:16].T
    torch.testing.assert_close(found.matrix, v @ o, atol=1e-6, rtol=1e-6)
    assert found.folded == ()


# ---------------------------------------------------------------- circuits of tokens


def test_scores_of_two_tokens_are_those_of_the_first_layer_of_the_model():
    """A Llama's first layer reads nothing but embeddings; keys 0 and 2 back are turned by so much."""
    model = loaded("llama")
    ids = [7, 30, 41]
    scores = model.capture(model.example(ids), keep=Keep.of("scores", layers=0)).sites[0].scores[0]
    for head in range(4):
        for key in range(3):
            found = full_qk(model, (0, head), ids[2], offset=2 - key).values[ids[key]]
            assert found.item() / 8**0.5 == pytest.approx(scores[head, 2, key].item(), rel=1e-3, abs=1e-3)
            back = full_qk(model, (0, head), ids[key], asks="query", offset=2 - key).values[ids[2]]
            assert back.item() == pytest.approx(found.item(), rel=1e-6)


def test_logits_of_a_token_are_written_out_with_loops():
    model = loaded("gpt2")
    module = model.module
    table, last = module.transformer.wte.weight.detach().double(), module.transformer.ln_f
    for layer in (0, 2):
        _, _, v, o = gpt2_parts(module, layer, 1)
        written = normed(table[9], module.transformer.h[layer].ln_1) @ v @ o
        expected = centred(written) * last.weight.detach().double() @ table.T
        found = full_ov(model, (layer, 1), 9)
        torch.testing.assert_close(found.values, expected, atol=1e-4, rtol=1e-4)
        assert found.folded == (f"transformer.h.{layer}.ln_1", "transformer.ln_f")


def test_post_norm_models_fold_every_norm_between_the_embedding_and_the_head():
    module = with_norms("bert")
    table, first = module.bert.embeddings.word_embeddings.weight.detach().double(), module.bert.encoder.layer[0]
    attention = module.bert.encoder.layer[1].attention
    x = normed(table[9], module.bert.embeddings.LayerNorm)
    x = normed(normed(x, first.attention.output.LayerNorm), first.output.LayerNorm)
    v = attention.self.value.weight.detach().double()[8:16].T
    o = attention.output.dense.weight.detach().double()[:, 8:16].T
    found = full_ov(load(module), "1.1", 9, words="embedding")
    torch.testing.assert_close(found.values, x @ v @ o @ table.T, atol=1e-4, rtol=1e-4)
    assert len(found.folded) == 3


def test_cross_attention_reads_words_of_the_encoder_and_asks_with_those_of_the_decoder():
    model = loaded("t5")
    module = model.module
    attention = module.decoder.block[1].layer[1].EncDecAttention
    table = module.shared.weight.detach().double()
    q, k = (part.weight.detach().double()[8:16].T for part in (attention.q, attention.k))
    keys = normed(table, module.encoder.final_layer_norm, False) @ k
    asks = normed(table[5], module.decoder.block[1].layer[1].layer_norm, False) @ q
    found = full_qk(model, "decoder.cross.1.1", 5)
    torch.testing.assert_close(found.values, keys @ asks, atol=1e-3, rtol=1e-4)


def test_tables_are_the_highest_words_in_order():
    model = planted("P12").model
    table = ov_top_tokens(model, "1.0", "2", 3)
    assert table.iloc[0].to_dict() == {"rank": 1, "token": "2", "id": 3, "logit": 1.0} and len(table) == 3
    model = loaded("gpt2")
    whole = full_ov(model, "0.0", 4)
    table = whole.to_frame()
    assert table.logit.is_monotonic_decreasing and sorted(table.id) == list(range(60))
    assert table.logit.tolist() == [float(whole.values[index]) for index in table.id]
    assert qk_top_tokens(model, "0.0", 4, 5).columns.tolist() == ["rank", "token", "id", "value"]


def test_the_model_under_edits_has_the_circuits_of_the_model():
    model = loaded("gpt2")
    torch.testing.assert_close(full_ov(EditedModel(model, []), "1.0", 5).values, full_ov(model, "1.0", 5).values)


# ---------------------------------------------------------------- what cannot be, and why


@pytest.mark.parametrize(
    ("name", "ask", "message"),
    [
        ("bert", lambda m: full_ov(m, "0.0", 5), "3 classes, not with words"),
        ("vit", lambda m: full_ov(m, "0.0", 5), "reads no words"),
        (
            "albert",
            lambda m: full_ov(m, "0.0", 5, words="embedding"),
            "no word embedding reaches .* a map lies between",
        ),
        ("t5", lambda m: full_ov(m, "encoder.self.0.0", 5), "reaches the unembedding directly"),
        ("gpt2", lambda m: full_ov(m, "0.0", 60), "tokens 0 to 59, got 60"),
        ("gpt2", lambda m: full_ov(m, "0.0", "word"), "has no tokenizer; give the token as a number"),
        ("gpt2", lambda m: full_ov(m, "0.0", 5, words="logits"), "words is one of 'unembedding', 'embedding'"),
        ("gpt2", lambda m: full_qk(m, "0.0", 5, asks="value"), "asks is one of 'query', 'key'"),
        ("gpt2", lambda m: ov_top_tokens(m, "0.0", 5, 0), "k is at least 1"),
        ("gpt2", lambda m: ov_circuit(m, "9.0"), "layers 0 to 2"),
        ("gpt2", lambda m: full_ov(m, "0.0", 1.5), "a text or a number"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_reason(name, ask, message):
    with pytest.raises(InputError, match=message):
        ask(tiny.loaded(name))


def test_queries_behind_a_norm_have_no_circuit_and_values_have():
    model = tiny.loaded("qwen3")
    with pytest.raises(CaptureError, match="W_Q was not found"):
        qk_circuit(model, "0.0")
    assert ov_circuit(model, "0.0").matrix.shape == (32, 32)


def test_a_masked_language_model_has_a_map_between_its_layers_and_its_words():
    model = load(t.BertForMaskedLM(t.BertConfig(**tiny._BERT)).eval())
    with pytest.raises(InputError, match=r"another map lies between .*words='embedding'"):
        full_ov(model, "0.0", 5)
    assert full_ov(model, "0.0", 5, words="embedding").values.shape == (60,)


def test_an_unknown_word_of_our_own_vocabulary_is_refused():
    with pytest.raises(InputError, match="the vocabulary has no 'house'"):
        full_ov(planted("P12").model, "1.0", "house")


@pytest.mark.parametrize("name", ["llama", "gptj", "gpt_neox"])
def test_turned_queries_are_told_in_float64_too(name):
    """Their sines are float32 all the same."""
    single, double = load(resumed_models.build(name)), load(resumed_models.build(name).double())
    for offset in (0, 3):
        expected = qk_circuit(single, "1.1", offset=offset).matrix
        found = qk_circuit(double, "1.1", offset=offset).matrix
        torch.testing.assert_close(found, expected, atol=1e-5 * float(expected.abs().max()), rtol=0)
