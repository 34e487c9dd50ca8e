"""W_Q and W_K found by watching, also where positions turn what the maps gave: against the model's own queries."""

import math
from functools import cache

import pytest
import torch
import transformers as t
from torch import nn

from attnprobe.attention.seam import Keep
from attnprobe.attention.transformer import TransformerLanguageModel
from attnprobe.errors import CaptureError, InputError
from attnprobe.models import load
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted import PLANS, planted
from attnprobe.models.projections import projections
from attnprobe.models.rotations import fitted_turn
from tests import tiny
from tests.huggingface.test_projections import DECODER, LATENT, calls_of, seeded

NORMED = ("qwen3",)  # queries and keys go through a norm of their own
TURNED = ("modernbert", "llama", "mistral", "gemma2", "gpt_oss")
OTHERS = {
    "neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**DECODER, rotary_pct=0.5)),
    "gptj": lambda: t.GPTJForCausalLM(
        t.GPTJConfig(n_embd=32, n_layer=2, n_head=4, rotary_dim=4, vocab_size=60, n_positions=64)
    ),
    "cohere": lambda: t.CohereForCausalLM(t.CohereConfig(**DECODER, num_key_value_heads=2)),
    "phi": lambda: t.PhiForCausalLM(t.PhiConfig(**DECODER, partial_rotary_factor=0.5)),
    "phi3": lambda: t.Phi3ForCausalLM(t.Phi3Config(**DECODER, num_key_value_heads=2)),
    "falcon": lambda: t.FalconForCausalLM(
        t.FalconConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=60, new_decoder_architecture=True,
            num_kv_heads=2, bos_token_id=1, eos_token_id=2,
        )
    ),
    "opt": lambda: t.OPTForCausalLM(t.OPTConfig(**DECODER, ffn_dim=48, word_embed_proj_dim=32)),
}  # fmt: skip
FOUND = (*(name for name in tiny.NAMES if name not in NORMED), *OTHERS)


@cache
def made(name):
    """A model, and of every layer: projection, site, what went into its query and key map."""
    model = load(seeded(OTHERS[name]) if name in OTHERS else tiny.build(name))
    found = projections(model)
    example = model.example(tiny.IDS) if name in OTHERS else tiny.example(model, name)
    paths = [path for one in found for path in (one.query_map, one.key_map)]
    with torch.no_grad(), calls_of(model.module, paths) as noted:
        capture = model.capture(example, keep=Keep.of("query", "key", "scores"), check="off")
    sites = {(s.place.stack, s.place.kind, s.place.layer): s for s in capture.sites}
    layers = []
    for one in found:
        site = sites[one.stack, one.kind, one.layer]
        inputs = [noted[path][site.place.call][0].view(-1, noted[path][site.place.call][0].shape[-1])
                  for path in (one.query_map, one.key_map)]  # fmt: skip
        layers.append((one, site, *inputs))
    return model, layers


@pytest.mark.parametrize("name", FOUND)
def test_queries_and_keys_are_their_maps_of_the_input_and_turned_by_position_where_there_is_rope(name):
    for one, site, x, y in made(name)[1]:
        queries = x @ one.need("W_Q") + one.need("b_Q")[:, None]
        keys = y @ one.need("W_K") + one.need("b_K")[:, None]
        assert one.rotary == (name in TURNED or (name in OTHERS and name != "opt"))
        if one.rotary:
            powers = [torch.linalg.matrix_power(one.turn, at).float() for at in range(len(x))]
            queries, keys = (
                torch.stack([part[:, at] @ power for at, power in enumerate(powers)], 1) for part in (queries, keys)
            )
        products = queries @ keys.mT * one.factor
        expected = site.query[0] @ site.key[0].mT
        torch.testing.assert_close(products, expected, atol=2e-4 * float(expected.abs().max()), rtol=0)


@pytest.mark.parametrize("name", FOUND)
def test_w_qk_is_the_product_by_head_at_every_offset(name):
    for one, _, _, _ in made(name)[1]:
        for head in range(len(one.groups)):
            by_hand = one.W_Q[head] @ one.key_weight[one.key_groups[head]].T
            torch.testing.assert_close(one.W_QK(head), by_hand, atol=1e-5, rtol=1e-5)
        far = one.W_QK(1, offset=3)
        if not one.rotary:
            torch.testing.assert_close(far, one.W_QK(1))
            continue
        power = torch.linalg.matrix_power(one.turn, 3).float()
        torch.testing.assert_close(far, one.W_Q[1] @ power @ one.W_K[1].T, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(far, one.W_QK(1), atol=1e-3)
        torch.testing.assert_close(one.W_QK(1, -2), one.W_Q[1] @ (one.turn.T @ one.turn.T).float() @ one.W_K[1].T)


def test_grouped_heads_share_a_key_matrix():
    for one, _, _, _ in made("llama")[1]:
        attention = made("llama")[0].module.get_submodule(one.path)
        assert one.key_groups == (0, 0, 1, 1) and one.key_weight.data_ptr() == attention.k_proj.weight.data_ptr()
        for head in range(4):
            assert torch.equal(one.W_Q[head], attention.q_proj.weight[8 * head : 8 * head + 8].T)
            assert torch.equal(one.W_K[head], attention.k_proj.weight[8 * (head // 2) : 8 * (head // 2) + 8].T)


def test_packed_queries_and_keys_are_taken_apart():
    for one, _, _, _ in made("gpt2")[1]:
        packed = made("gpt2")[0].module.get_submodule(one.query_map)
        for name, start in (("Q", 0), ("K", 32)):
            expected = packed.weight[:, start : start + 32].unflatten(1, (4, 8)).permute(1, 0, 2)
            assert torch.equal(one.need(f"W_{name}"), expected)
            assert torch.equal(one.need(f"b_{name}"), packed.bias[start : start + 32].view(4, 8))
    for one, _, _, _ in made("neox")[1]:
        packed = made("neox")[0].module.get_submodule(one.query_map).weight.view(4, 3, 8, 32)
        assert torch.equal(one.W_Q, packed[:, 0].transpose(1, 2)) and torch.equal(one.W_K, packed[:, 1].transpose(1, 2))
    for one, _, _, _ in made("falcon")[1]:
        packed = made("falcon")[0].module.get_submodule(one.query_map).weight.view(2, 4, 8, 32)
        assert torch.equal(one.W_Q, packed[:, :2].flatten(0, 1).transpose(1, 2))
        assert torch.equal(one.key_weight, packed[:, 2].transpose(1, 2))


def test_cross_attention_reads_keys_from_the_encoder():
    model, layers = made("t5")
    for one, _, _, _ in layers:
        if one.kind == "cross":
            attention = model.module.get_submodule(one.path)
            assert torch.equal(one.W_K, attention.k.weight.view(4, 8, 32).transpose(1, 2))
            assert one.factor == 1 and not one.rotary


def test_the_turn_is_that_of_the_models_own_angles():
    """Angle of pair i: base^(-2 i / d); Llama pairs an entry with the one half a head further, GPT-J with the next."""
    angles = 10000.0 ** (-torch.arange(4) / 4)
    turn = made("llama")[1][0][0].turn
    for i, angle in enumerate(angles.double()):
        torch.testing.assert_close(turn[i, i], angle.cos(), atol=1e-6, rtol=0)
        torch.testing.assert_close(turn[i, i + 4], angle.sin(), atol=1e-6, rtol=0)
        torch.testing.assert_close(turn[i + 4, i], -angle.sin(), atol=1e-6, rtol=0)
    turn = made("gptj")[1][0][0].turn
    for i, angle in enumerate((10000.0 ** (-torch.arange(2) / 2)).double()):
        torch.testing.assert_close(turn[2 * i, 2 * i + 1], angle.sin(), atol=1e-6, rtol=0)
    assert torch.equal(turn[4:, 4:], torch.eye(4).double())
    assert torch.allclose(turn @ turn.T, torch.eye(8).double())


def test_yarn_multiplies_queries_and_keys_and_that_is_said():
    for one, _, _, _ in made("gpt_oss")[1]:
        assert one.factor == pytest.approx((0.1 * math.log(32) + 1) ** 2, rel=1e-5)


def test_what_a_norm_stands_behind_is_not_found_and_the_reason_is_said():
    for one in projections(tiny.loaded("qwen3")):
        assert one.W_Q is None and one.W_K is None and one.reasons == () and len(one.score_reasons) == 2
        for name in ("W_Q", "b_Q", "W_K", "b_K"):
            with pytest.raises(CaptureError, match=f"{name} was not found: no linear map gave the .*norm"):
                one.need(name)
        with pytest.raises(CaptureError, match="W_QK was not found: W_Q: no linear map"):
            one.W_QK(0)
        assert one.need("W_V") is not None


def test_keys_of_two_maps_are_not_found():
    config = t.DeepseekV3Config(**DECODER, **LATENT, num_key_value_heads=4, first_k_dense_replace=1)
    for one in projections(load(seeded(lambda: t.DeepseekV3ForCausalLM(config)))):
        assert one.W_K is None and "W_K" in one.score_reasons[-1]


def test_in_half_precision_the_maps_are_found_and_the_turn_is_not_told():
    model = load(tiny.build("llama", scale=1.0).bfloat16())
    for one in projections(model):
        attention = model.module.get_submodule(one.path)
        assert one.rotary and torch.equal(one.W_Q[1], attention.q_proj.weight[8:16].T)
        torch.testing.assert_close(one.W_QK(1), one.W_Q[1] @ one.W_K[1].T)
        with pytest.raises(CaptureError, match="no W_QK at offset 2; ask for offset 0, or load in float32"):
            one.W_QK(1, 2)


def test_our_own_rotary_attention_is_told():
    torch.manual_seed(0)
    words = Vocabulary(("[BOS]", *"abcdefg"), begin="[BOS]")
    for positions, rotary in (("rotary", True), ("learned", False)):
        network = TransformerLanguageModel(8, d_model=16, n_heads=2, n_layers=2, positions=positions)
        for one in projections(OwnModel(network, words)):
            assert one.rotary == rotary and (one.turn is not None) == rotary
            weight = network.get_submodule(one.path).query.weight
            assert torch.equal(one.W_Q, weight.view(2, 8, 16).transpose(1, 2))


@pytest.mark.parametrize("name", ["P1c", "P12", "P19"])
def test_planted_scores_are_read_as_they_were_planted(name):
    dims = PLANS[name].dims
    for one, layer in zip(projections(planted(name).model), PLANS[name].layers, strict=True):
        for number, head in enumerate(layer.heads):
            matrix = one.W_QK(number)
            entries = {(dims[i], dims[j]): float(matrix[i, j]) for i, j in matrix.nonzero().tolist()}
            assert entries == dict(head.scores)


def test_a_head_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="heads 0 to 3, got head 4"):
        made("bert")[1][0][0].W_QK(4)


def test_a_change_that_is_no_turn_of_pairs_is_none():
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert fitted_turn(x, x.roll(1, 1)) is None
    assert fitted_turn(x[:2], x[:2]) is None
    assert torch.equal(fitted_turn(x, x), torch.eye(6).double())


def test_queries_that_are_multiplied_are_found_with_the_factor():
    module = tiny.build("bert")
    for layer in module.bert.encoder.layer:
        query = layer.attention.self.query
        layer.attention.self.query = nn.Sequential(query, _Times(0.25))
    for one in projections(load(module)):
        assert one.factor == pytest.approx(0.25) and one.query_map.endswith("query.0") and not one.rotary


class _Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor
