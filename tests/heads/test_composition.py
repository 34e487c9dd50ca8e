"""Composition of heads: exact on the planted circuit, whole matrices by hand elsewhere."""

import pytest
import torch

from attnprobe.errors import InputError
from attnprobe.heads import head_pairs
from attnprobe.heads.pair_scores import head_pairs_of
from attnprobe.models import load
from attnprobe.models.planted import planted
from tests import resumed_models, tiny
from tests.heads.made_norms import folded, gpt2_parts, llama_parts, loaded, with_norms

SIDES = ("q_composition", "k_composition", "v_composition")


def ratio(a, b):
    """‖A B‖ / (‖A‖ ‖B‖) of whole matrices."""
    return float((a @ b).norm() / (a.norm() * b.norm()))


def plain(model, name, **options):
    return head_pairs_of(model, name, baseline="none", **options).values


def readings(q, k, v, o):
    """What the three compositions multiply W_OV by."""
    return dict(zip(SIDES, (q @ k.T, k @ q.T, v @ o), strict=True))


def test_the_planted_induction_circuit_is_made_by_k_composition_alone():
    """P12, 6 words: the head that looks back writes 6 of the entries that the other's keys read: 1 / √6."""
    for rotation in (None, 5):
        model = planted("P12", rotation=rotation).model
        found = {name: plain(model, name)[0, 0, 1, 0].item() for name in SIDES}
        assert found["k_composition"] == pytest.approx(6**-0.5, abs=1e-9)
        assert found["q_composition"] == pytest.approx(0, abs=1e-9)
        assert found["v_composition"] == pytest.approx(0, abs=1e-9)
    top = head_pairs_of(planted("P12").model, "k_composition").top(1)
    assert top[["writer", "reader"]].values.tolist() == [["0.0", "1.0"]] and top.value[0] > 0.2


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_every_pair_is_the_product_of_whole_matrices(name):
    """Gain of the norms before both heads, centring of a LayerNorm, heads that share keys and values."""
    module = with_norms(name)
    model, parts = load(module), gpt2_parts if name == "gpt2" else llama_parts
    blocks = module.transformer.h if name == "gpt2" else module.model.layers
    norms = [block.ln_1 if name == "gpt2" else block.input_layernorm for block in blocks]

    def whole(layer, head):
        q, k, v, o = parts(module, layer, head)
        return *(folded(norms[layer], part, name == "gpt2") for part in (q, k, v)), o

    for side in SIDES:
        found = plain(model, side)
        for layer, later in ((0, 1), (0, 2), (1, 2)):
            for head in range(4):
                _, _, v, o = whole(layer, head)
                for reader in (0, 3):
                    expected = ratio(v @ o, readings(*whole(later, reader))[side])
                    assert found[layer, head, later, reader].item() == pytest.approx(expected, abs=1e-6)


def test_a_network_that_adds_in_place_is_followed():
    """Falcon adds what its attention writes into the tensor that its feed-forward part gave."""
    module = resumed_models.build("falcon")
    model, blocks = load(module), module.transformer.h
    with torch.no_grad():
        for number, block in enumerate(blocks):
            block.input_layernorm.weight.copy_(torch.linspace(0.5, 1.5, 32).roll(5 * number))

    def parts(layer, head):
        attention = blocks[layer].self_attention
        q, k, v = attention.query_key_value.weight.detach().double().view(4, 3, 8, 32)[head].mT
        o = attention.dense.weight.detach().double()[:, 8 * head : 8 * head + 8].T
        return *(folded(blocks[layer].input_layernorm, part, True) for part in (q, k, v)), o

    for side in SIDES:
        found = plain(model, side)
        for layer, later in ((0, 1), (0, 2), (1, 2)):
            _, _, v, o = parts(layer, 1)
            expected = ratio(v @ o, readings(*parts(later, 2))[side])
            assert found[layer, 1, later, 2].item() == pytest.approx(expected, abs=1e-6)


def test_norms_on_the_stream_between_two_heads_are_folded_in():
    """BERT: the norms behind both sums of the writer's layer lie on the way; the reader's other side has none."""
    module = with_norms("bert")
    first, second = module.bert.encoder.layer[:2]

    def parts(layer, head):
        inner, at = layer.attention.self, slice(8 * head, 8 * head + 8)
        q, k, v = (part.weight.detach().double()[at].T for part in (inner.query, inner.key, inner.value))
        return q, k, v, layer.attention.output.dense.weight.detach().double()[:, at].T

    def between(weight):
        return folded(first.attention.output.LayerNorm, folded(first.output.LayerNorm, weight))

    _, _, v, o = parts(first, 1)
    q2, k2, v2, o2 = parts(second, 2)
    expected = {
        "q_composition": ratio(v @ o, between(q2) @ k2.T),
        "k_composition": ratio(v @ o, between(k2) @ q2.T),
        "v_composition": ratio(v @ o, between(v2) @ o2),
    }
    for side in SIDES:
        assert plain(load(module), side)[0, 1, 1, 2].item() == pytest.approx(expected[side], abs=1e-6)


def test_a_norm_on_what_a_head_writes_belongs_to_the_writer():
    module = with_norms("gemma2")
    first, second = module.model.layers[:2]
    _, _, v, o = llama_parts(module, 0, 1)
    _, _, v2, o2 = llama_parts(module, 1, 2)
    gains = [
        torch.diag(1 + norm.weight.detach().double())
        for norm in (first.input_layernorm, first.post_attention_layernorm, second.input_layernorm)
    ]
    own = torch.diag(1 + second.post_attention_layernorm.weight.detach().double())
    expected = ratio(gains[0] @ v @ o @ gains[1], gains[2] @ v2 @ o2 @ own)
    assert plain(load(module), "v_composition")[0, 1, 1, 2].item() == pytest.approx(expected, abs=1e-6)


def test_the_offset_turns_queries_against_keys():
    """The length of W_QK stays; the part that the writer reaches does not."""
    model = loaded("llama")
    module = model.module
    here, far = plain(model, "q_composition"), plain(model, "q_composition", offset=3)
    assert not torch.allclose(here.nan_to_num(), far.nan_to_num(), atol=1e-4)
    angles = 3 * 10000.0 ** (-torch.arange(4).double() / 4)
    turn = torch.zeros(8, 8).double()
    for i, angle in enumerate(angles):
        turn[i, i] = turn[i + 4, i + 4] = angle.cos()
        turn[i, i + 4], turn[i + 4, i] = angle.sin(), -angle.sin()
    norms = [layer.input_layernorm for layer in module.model.layers]
    _, _, v, o = llama_parts(module, 0, 2)
    q, k, _, _ = llama_parts(module, 2, 1)
    q, k = folded(norms[2], q, False) @ turn, folded(norms[2], k, False)
    expected = {"q_composition": q @ k.T, "k_composition": k @ q.T}
    for side, reads in expected.items():
        found = plain(model, side, offset=3)[0, 2, 2, 1].item()
        assert found == pytest.approx(ratio(folded(norms[0], v, False) @ o, reads), abs=1e-5)


def test_what_is_subtracted_is_the_mean_over_random_matrices_of_the_same_shapes():
    """Their mean ratio is close to (and, by Jensen, not above) the root of 1 / d_model, which is exact for squares."""
    model = tiny.loaded("gpt2")
    for side in SIDES:
        gap = plain(model, side) - head_pairs_of(model, side, n_draws=400, seed=3).values
        gap = gap[~gap.isnan()]
        assert gap.max() - gap.min() < 1e-12
        generator = torch.Generator().manual_seed(8)
        draws = []
        for _ in range(400):
            a, b = (torch.randn(32, 8, generator=generator) @ torch.randn(8, 32, generator=generator) for _ in range(2))
            draws.append(ratio(a, b))
        assert gap[0].item() == pytest.approx(sum(draws) / 400, abs=0.003)
        assert 0.95 * 32**-0.5 < gap[0].item() < 32**-0.5


def test_a_seed_draws_the_same_and_another_seed_others():
    model = tiny.loaded("llama")
    one, two, other = (head_pairs_of(model, "v_composition", n_draws=3, seed=seed).values for seed in (1, 1, 2))
    assert one.nan_to_num().equal(two.nan_to_num()) and not one.nan_to_num().equal(other.nan_to_num())


def test_no_key_or_value_of_cross_attention_reads_what_cross_attention_writes():
    model = tiny.loaded("t5")
    stack = next(stack for stack in model.stacks if stack.kind == "cross")
    assert plain(model, "q_composition", stack=stack)[0, :, 1].isfinite().all()
    for side in ("k_composition", "v_composition"):
        assert plain(model, side, stack=stack).isnan().all()


def test_options_are_checked():
    model = tiny.loaded("gpt2")
    stack = model.stacks[0]
    with pytest.raises(InputError, match="n_draws is at least 1"):
        head_pairs["q_composition"].function(model, stack, n_draws=0)
    with pytest.raises(InputError, match="option baseline of q_composition is 'random' or 'none', got 'mean'"):
        head_pairs_of(model, "q_composition", baseline="mean")
