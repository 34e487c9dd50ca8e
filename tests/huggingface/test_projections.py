"""Projections found by watching: what they give is what the model's own maps gave."""

import threading
from collections import defaultdict
from contextlib import contextmanager
from functools import cache

import pytest
import torch
import transformers as t
from torch import nn
from torch.nn import functional

from attnprobe.attention.multihead import MultiHeadAttention, merge_heads, split_heads
from attnprobe.attention.scores import scaled_dot_product_attention
from attnprobe.attention.seam import Keep, observe
from attnprobe.errors import CaptureError, InputError
from attnprobe.intervention import silence_head
from attnprobe.models import load
from attnprobe.models.evaluator import Meter
from attnprobe.models.linear_maps import watched
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted import NAMES as PLANTED
from attnprobe.models.planted import PLANS, planted
from attnprobe.models.projecting import where
from attnprobe.models.projections import projections
from attnprobe.site import Site
from tests import tiny

DECODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 60,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LATENT = {
    "q_lora_rank": 12,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 5,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
}


def seeded(build):
    torch.manual_seed(0)
    return build().eval()


@contextmanager
def calls_of(module, paths):
    """What went in and out of the named modules, in order, noted by the test's own hooks."""
    noted = defaultdict(list)
    handles = [
        module.get_submodule(path).register_forward_hook(
            lambda _, args, out, path=path: noted[path].append((args[0].detach(), out.detach()))
        )
        for path in {path for path in paths if path}
    ]
    try:
        yield noted
    finally:
        for handle in handles:
            handle.remove()


def captured(model, name, edits=()):
    """(projection, site, (x, y) of its value map, (x, y) of its output map) of every layer, on a plain capture."""
    found = projections(model)
    with torch.no_grad(), calls_of(model.module, [p for f in found for p in (f.value_map, f.output_map)]) as noted:
        capture = model.capture(
            tiny.example(model, name), keep=Keep.of("weights", "value", "z"), edits=edits, check="off"
        )
    sites = {(s.place.stack, s.place.kind, s.place.layer): s for s in capture.sites}
    for projection in found:
        site = sites[projection.stack, projection.kind, projection.layer]
        call = site.place.call
        yield projection, site, noted[projection.value_map][call], noted[projection.output_map][call]


@cache
def plain(name):
    """A model by name, and what `captured` gives of it; made once for the tests that only read it."""
    model = tiny.loaded(name)
    return model, list(captured(model, name))


# ---------------------------------------------------------------- what is found is what the model uses


@pytest.mark.parametrize("name", tiny.NAMES)
def test_every_layer_is_found_and_numbered_as_the_stacks_are(name):
    model, _ = plain(name)
    found = projections(model)
    assert all(p.reasons == () for p in found)
    for stack in model.stacks:
        here = projections(model, stack.name, stack.kind)
        assert tuple(p.path for p in here) == stack.paths
        assert tuple(len(p.need("W_V")) for p in here) == stack.n_heads
    assert len(found) == sum(stack.n_layers for stack in model.stacks)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_head_outputs_and_the_bias_add_up_to_the_output_of_the_models_own_projection(name):
    for projection, site, _, (_, output) in plain(name)[1]:
        total = projection.head_outputs(site.z).sum(1) + projection.need("b_O")
        torch.testing.assert_close(total, output, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_what_goes_into_the_value_map_times_w_v_is_the_value_of_each_head(name):
    for projection, site, (x, _), _ in plain(name)[1]:
        value = x.unsqueeze(1) @ projection.need("W_V") + projection.need("b_V").unsqueeze(1)
        torch.testing.assert_close(value, site.value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_silencing_a_head_takes_exactly_its_output_away(name):
    model, unedited = plain(name)
    stack, kind = unedited[-1][0].stack, unedited[-1][0].kind
    edited = list(captured(model, name, [silence_head(1, 2, stack=stack, kind=kind)]))
    for (projection, site, _, (_, before)), (_, _, _, (_, after)) in zip(unedited, edited, strict=True):
        if (projection.stack, projection.kind, projection.layer) == (stack, kind, 1):
            torch.testing.assert_close(after - before, -projection.head_outputs(site.z)[:, 2], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_transformed_values_weighted_and_summed_are_the_head_outputs(name):
    for projection, site, _, _ in plain(name)[1]:
        written = projection.transformed(site.value)
        torch.testing.assert_close(site.weights @ written, projection.head_outputs(site.z), atol=1e-5, rtol=1e-5)
        norms = projection.weighted_norms(site.weights, site.value)
        for head, query, key in ((0, 5, 2), (3, 11, 0)):
            one = site.weights[0, head, query, key] * (site.value[0, head, key] @ projection.W_O[head])
            torch.testing.assert_close(norms[0, head, query, key], one.norm(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_model_in_bfloat16_is_told_apart_as_well(implementation):
    model = load(tiny.build("llama", implementation, scale=1.0).bfloat16())
    for projection in projections(model):
        attention = model.module.get_submodule(projection.path)
        assert torch.equal(projection.W_V[2], attention.v_proj.weight[8:16].T)
        assert torch.equal(projection.W_O[2], attention.o_proj.weight[:, 16:24].T)


# ---------------------------------------------------------------- layouts, against the modules' own weights


def test_grouped_heads_share_a_value_matrix():
    model = tiny.loaded("llama")
    for projection in projections(model):
        weight = model.module.get_submodule(projection.path).v_proj.weight
        assert projection.groups == (0, 0, 1, 1) and projection.n_kv_heads == 2
        assert all(torch.equal(projection.W_V[h], weight[8 * (h // 2) : 8 * (h // 2) + 8].T) for h in range(4))
        assert projection.value_weight.data_ptr() == weight.data_ptr()
        torch.testing.assert_close(projection.W_OV(3), projection.W_V[3] @ projection.W_O[3])


def test_three_projections_packed_side_by_side_are_taken_apart():
    for projection in projections(tiny.loaded("gpt2")):
        weight, bias = (getattr(tiny.build("gpt2").get_submodule(projection.value_map), n) for n in ("weight", "bias"))
        assert torch.equal(projection.W_V, weight[:, 64:].unflatten(1, (4, 8)).permute(1, 0, 2))
        assert torch.equal(projection.b_V, bias[64:].view(4, 8))


def test_query_key_and_value_interleaved_by_head_are_taken_apart():
    module = seeded(lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**DECODER)))
    for projection in projections(load(module)):
        packed = module.get_submodule(projection.value_map)
        assert torch.equal(projection.W_V, packed.weight.view(4, 3, 8, 32)[:, 2].transpose(1, 2))
        assert torch.equal(projection.b_V, packed.bias.view(4, 3, 8)[:, 2])
        assert projection.value_weight.data_ptr() == packed.weight[16:].data_ptr()


def test_grouped_heads_in_a_packed_projection_are_taken_apart():
    module = seeded(lambda: t.Phi3ForCausalLM(t.Phi3Config(**DECODER, num_key_value_heads=2)))
    for projection in projections(load(module)):
        packed = module.get_submodule(projection.value_map).weight
        assert projection.groups == (0, 0, 1, 1)
        assert torch.equal(projection.value_weight, packed[48:64].view(2, 8, 32).transpose(1, 2))


def test_one_value_head_for_all_is_found_in_a_packed_projection():
    config = t.GPTBigCodeConfig(n_embd=32, n_layer=2, n_head=4, vocab_size=60, n_positions=64)
    module = seeded(lambda: t.GPTBigCodeForCausalLM(config))
    for projection in projections(load(module)):
        packed = module.get_submodule(projection.value_map).weight
        assert projection.n_kv_heads == 1
        assert all(torch.equal(matrix, packed[40:48].T) for matrix in projection.W_V)


def test_packed_heads_of_attention_by_hand_are_taken_apart():
    config = t.FalconConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=60,
        new_decoder_architecture=True,
        num_kv_heads=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    module = seeded(lambda: t.FalconForCausalLM(config))
    for projection in projections(load(module)):
        packed = module.get_submodule(projection.value_map).weight.view(2, 4, 8, 32)
        assert projection.groups == (0, 0, 1, 1)
        assert torch.equal(projection.value_weight, packed[:, 3].transpose(1, 2))


def test_padding_to_whole_windows_is_no_obstacle():
    special = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "sep_token_id": 2}
    sizes = {k: v for k, v in DECODER.items() if not k.endswith("_id")}
    module = seeded(lambda: t.LongformerModel(t.LongformerConfig(**sizes, **special, attention_window=[12, 12])))
    for projection in projections(load(module)):
        layer = module.get_submodule(projection.path.removesuffix(".self"))
        assert torch.equal(projection.W_V, layer.self.value.weight.view(4, 8, 32).transpose(1, 2))
        assert torch.equal(projection.W_O, layer.output.dense.weight.view(32, 4, 8).permute(1, 2, 0))


def test_values_that_one_map_makes_piece_by_piece_are_found():
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_global_tokens": 3, "block_size": 5}
    special = {"decoder_start_token_id": 0, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    words = {"d_model": 32, "vocab_size": 60, "max_position_embeddings": 64, "stagger_local_blocks": False}
    config = t.PegasusXConfig(**sizes, **heads, **special, **words)
    module = seeded(lambda: t.PegasusXForConditionalGeneration(config))
    for projection in projections(load(module), "encoder", "self"):
        attention = module.get_submodule(projection.path)
        assert torch.equal(projection.W_V, attention.v_proj.weight.view(4, 8, 32).transpose(1, 2))
        assert torch.equal(projection.W_O, attention.out_proj.weight.view(32, 4, 8).permute(1, 2, 0))


def test_latent_attention_reads_its_values_from_the_latent():
    config = t.DeepseekV3Config(**DECODER, **LATENT, num_key_value_heads=4, first_k_dense_replace=1)
    module = seeded(lambda: t.DeepseekV3ForCausalLM(config))
    for projection in projections(load(module)):
        second = module.get_submodule(projection.path).kv_b_proj.weight
        assert projection.value_map.endswith("kv_b_proj")
        assert torch.equal(projection.W_V, second.view(4, 11, 12)[:, 6:].transpose(1, 2))


def test_windows_of_a_picture_are_no_obstacle():
    config = t.SwinConfig(embed_dim=16, depths=[2], num_heads=[2], image_size=16, patch_size=2, window_size=4)
    module = seeded(lambda: t.SwinForImageClassification(config))
    for projection in projections(load(module)):
        attention = module.get_submodule(projection.path)
        assert torch.equal(projection.W_V, attention.v_proj.weight.view(2, 8, 16).transpose(1, 2))
        assert torch.equal(projection.W_O, attention.o_proj.weight.view(16, 2, 8).permute(1, 2, 0))


# ---------------------------------------------------------------- networks of our own


class Attending(nn.Module):
    """A network of one attention whose parts before and after it are the test's own."""

    def __init__(self, values, output, merge=merge_heads):
        super().__init__()
        torch.manual_seed(0)
        self.token_embedding = nn.Embedding(8, 8)
        self.mix = nn.Linear(8, 8)
        self.values, self.output, self.merge = values, output, merge

    def forward(self, x, visible=None):
        query, value = (split_heads(part, 2) for part in (self.mix(x), self.values(x)))

        def build(place):
            return Site(place, query, query, value, *scaled_dot_product_attention(query, query, value))

        return self.output(self.merge(observe(self, build)))


def own(values, output, *, n_labels=8, **options):
    labels = tuple("12345678"[:n_labels])
    return OwnModel(Attending(values, output, **options), Vocabulary(tuple("abcdefgh"), begin=None), labels=labels)


class Quantised(nn.Module):
    """Eight-bit weights with one scale."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randint(-99, 99, (8, 8), dtype=torch.int8), requires_grad=False)

    def forward(self, x):
        return x @ (self.weight.float() * 0.01).T


class Adapted(nn.Module):
    """A linear map and a small one beside it, as adapters are."""

    def __init__(self, size):
        super().__init__()
        self.main, self.down, self.up = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(2, 8)
        nn.init.constant_(self.up.weight, size)
        nn.init.zeros_(self.up.bias)

    @property
    def weight(self):
        return self.main.weight

    @property
    def bias(self):
        return self.main.bias

    def forward(self, x):
        return self.main(x) + self.up(self.down(x))


class Direct(nn.Module):
    """Uses parts of plain parameters by function: there is no module for the map."""

    def __init__(self):
        super().__init__()
        self.packed, self.bias = nn.Parameter(torch.randn(24, 8)), nn.Parameter(torch.randn(24))

    def forward(self, x):
        return functional.linear(x, self.packed[16:], self.bias[16:])


class Product(nn.Module):
    """z times a plain parameter [in out]."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(8, 5))

    def forward(self, z):
        return z @ self.matrix


class Both(nn.Module):
    """Two maps of the same z."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, z):
        return self.one(z) + self.two(z)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_matrices_are_read_as_they_were_planted(name):
    dims, plan = PLANS[name].dims, PLANS[name]
    found = projections(planted(name).model)
    assert len(found) == len(plan.layers)
    for projection, layer in zip(found, plan.layers, strict=True):
        assert projection.need("W_V").shape == (len(layer.heads), len(dims), len(dims))
        for head, matrix in zip(layer.heads, projection.need("W_V"), strict=True):
            entries = {(dims[i], dims[j]): float(matrix[i, j]) for i, j in matrix.nonzero().tolist()}
            assert entries == dict(head.value)
        assert all(torch.equal(matrix, torch.eye(len(dims)).double()) for matrix in projection.need("W_O"))
        assert not projection.need("b_V").any() and not projection.need("b_O").any()


def test_maps_full_of_zeros_are_told_apart():
    model = own(nn.Linear(8, 8), nn.Linear(8, 8))
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.zero_()
    (projection,) = projections(model)
    assert (projection.value_map, projection.output_map) == ("values", "output")


def test_our_own_attention_is_found_where_it_looks_at_something_else():
    class Crossed(nn.Module):
        def __init__(self):
            super().__init__()
            self.token_embedding = nn.Embedding(8, 8)
            self.attention = MultiHeadAttention(8, 2, d_value=3, d_context=6)

        def forward(self, x, visible=None):
            return self.attention(x, x[:, :2, :6])

    network = Crossed()
    (projection,) = projections(OwnModel(network, Vocabulary(tuple("abcdefgh"), begin=None), labels=tuple("12345678")))
    assert projection.kind == "cross"
    assert torch.equal(projection.W_V, network.attention.value.weight.view(2, 3, 6).transpose(1, 2))
    assert torch.equal(projection.W_O, network.attention.output.weight.view(8, 2, 3).permute(1, 2, 0))


@pytest.mark.parametrize(
    ("merge", "order"),
    [
        (merge_heads, "head d_value"),
        (lambda z: z.permute(0, 2, 3, 1).flatten(2), "d_value head"),
        (lambda z: merge_heads(z)[..., [3, 1, 0, 2, 7, 6, 5, 4]], "mixed"),
    ],
)
def test_heads_merged_in_another_order_keep_their_rows_of_the_output_map(merge, order):
    model = own(nn.Linear(8, 8), nn.Linear(8, 8), merge=merge)
    (projection,) = projections(model)
    assert projection.output_order == order
    z = torch.randn(1, 2, 5, 4)
    expected = model.module.output(merge(z))
    torch.testing.assert_close(projection.head_outputs(z).sum(1) + projection.b_O, expected)


def test_tokens_before_inputs_are_no_obstacle():
    class SequenceFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(8, 8)

        def forward(self, x):
            return self.map(x.transpose(0, 1)).transpose(0, 1)

    (projection,) = projections(own(SequenceFirst(), SequenceFirst()))
    assert (projection.value_map, projection.output_map) == ("values.map", "output.map")


def test_heads_that_look_at_another_token_than_the_others_have_no_value_matrix():
    class Uneven(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(8, 8)

        def forward(self, x):
            first, second = self.map(x).chunk(2, dim=-1)
            return torch.cat([first, second.roll(1, dims=1)], dim=-1)

    (projection,) = projections(own(Uneven(), nn.Linear(8, 8)))
    assert projection.W_V is None and projection.W_O is not None


def test_a_column_that_is_there_twice_is_not_guessed():
    pool = torch.randn(6, 4)
    assert where(pool[:, [2, 0]], pool).tolist() == [2, 0]
    assert where(pool[:, [2, 0]], torch.cat([pool, pool[:, :1]], 1)) is None


def test_parameters_that_a_function_uses_directly_are_found():
    model = own(Direct(), Product(), n_labels=5)
    (projection,) = projections(model)
    assert (projection.value_map, projection.output_map) == ("values.packed", "output.matrix")
    assert torch.equal(projection.W_V, model.module.values.packed[16:].view(2, 4, 8).transpose(1, 2))
    assert torch.equal(projection.b_V, model.module.values.bias[16:].view(2, 4))
    assert torch.equal(projection.W_O, model.module.output.matrix.view(2, 4, 5))
    assert not projection.b_O.any()


# ---------------------------------------------------------------- what is not found is said


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), r"they come out of 'values.1' \(LayerNorm\)"),
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.Unflatten(2, (2, 4)), nn.LayerNorm(4), nn.Flatten(2)), "'values.2'"),
        (lambda: type("Doubled", (nn.Linear,), {"forward": lambda s, x: 2 * nn.Linear.forward(s, x)})(8, 8), "off by"),
        (lambda: Adapted(0.5), "computes something else than x W .* an adapter can be merged"),
        (Quantised, "'values.weight' is a Parameter of int8, not a plain floating tensor"),
    ],
)
def test_values_that_no_linear_map_gave_are_not_found_and_the_reason_is_said(values, message):
    (projection,) = projections(own(values(), nn.Linear(8, 8)))
    assert projection.W_V is None and projection.value_map is None
    assert projection.W_O is not None
    for name in ("W_V", "b_V"):
        with pytest.raises(CaptureError, match=f"layer 0.*{name} was not found.*{message}"):
            projection.need(name)
    with pytest.raises(CaptureError, match=message):
        projection.W_OV(0)


def test_an_adapter_that_adds_nothing_is_no_obstacle():
    model = own(Adapted(0.0), nn.Linear(8, 8))
    (projection,) = projections(model)
    assert torch.equal(projection.W_V, model.module.values.main.weight.view(2, 4, 8).transpose(1, 2))


def test_a_bias_added_behind_the_map_is_not_taken_for_part_of_it():
    class Later(nn.Module):
        def __init__(self):
            super().__init__()
            self.map, self.shift = nn.Linear(8, 8), nn.Parameter(torch.ones(8))

        def forward(self, x):
            return self.map(x) + self.shift

    (projection,) = projections(own(Later(), nn.Linear(8, 8)))
    with pytest.raises(CaptureError, match=r"something else .* stands between"):
        projection.need("W_V")


def test_a_norm_or_a_gate_behind_z_is_said():
    (projection,) = projections(own(nn.Linear(8, 8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))))
    assert projection.W_V is not None
    with pytest.raises(CaptureError, match=r"W_O was not found.*it goes into 'output.0' \(LayerNorm\)"):
        projection.head_outputs(torch.randn(2, 3, 4))
    gate = {"forward": lambda self, z: nn.Linear.forward(self, z * 0.5)}
    (projection,) = projections(own(nn.Linear(8, 8), type("Gated", (nn.Linear,), gate)(8, 8)))
    with pytest.raises(CaptureError, match=r"b_O was not found: .* something else than x W"):
        projection.need("b_O")


def test_two_maps_of_the_same_z_are_ambiguous_unless_one_lies_in_the_attention():
    class Within(nn.Module):
        def __init__(self):
            super().__init__()
            self.token_embedding = nn.Embedding(8, 8)
            self.attention = Attending(nn.Linear(8, 8), nn.Identity())
            self.one, self.attention.two = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x, visible=None):
            z = self.attention(x)
            return self.one(z) + self.attention.two(z)

    words = Vocabulary(tuple("abcdefgh"), begin=None)
    (projection,) = projections(OwnModel(Within(), words, labels=tuple("12345678")))
    assert projection.output_map == "attention.two"

    class Beside(Within):
        def __init__(self):
            super().__init__()
            self.three = nn.Linear(8, 8)

        def forward(self, x, visible=None):
            z = self.attention(x)
            return self.one(z) + self.three(z)

    (projection,) = projections(OwnModel(Beside(), words, labels=tuple("12345678")))
    assert projection.W_O is None
    with pytest.raises(CaptureError, match=r"several maps fit .* one, three"):
        projection.need("W_O")


def test_a_pretrained_kind_with_a_norm_on_its_values_or_its_z_says_so():
    module = seeded(lambda: t.BitNetForCausalLM(t.BitNetConfig(**DECODER, num_key_value_heads=2)))
    for projection in projections(load(module)):
        assert projection.W_V is not None
        with pytest.raises(CaptureError, match="attn_sub_norm"):
            projection.need("W_O")
    small = {"vocab_size_per_layer_input": 60, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0}
    heads = {"num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 8}
    module = seeded(lambda: t.Gemma4ForCausalLM(t.Gemma4TextConfig(**DECODER, **small, **heads)))
    for projection in projections(load(module)):
        assert projection.W_O is not None
        with pytest.raises(CaptureError, match="v_norm"):
            projection.need("W_V")


def test_what_cannot_be_asked_for_is_refused_with_the_reason():
    model = tiny.loaded("bert")
    with pytest.raises(InputError, match="no cross stack 'encoder'; it has encoder self"):
        projections(model, "encoder", "cross")
    projection = projections(model)[0]
    with pytest.raises(InputError, match="no 'W_X'"):
        projection.need("W_X")
    with pytest.raises(InputError, match="heads 0 to 3, got head 4"):
        projection.W_OV(4)
    with pytest.raises(InputError, match=r"4 heads of 8, got \[1, 4, 3, 7\]"):
        projection.head_outputs(torch.randn(1, 4, 3, 7))


# ---------------------------------------------------------------- the model is left alone


def hooks_of(module):
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return [list(getattr(part, kind)) for part in module.modules() for kind in kinds]


def test_nothing_of_the_model_changes_and_no_hook_stays():
    module = tiny.build("gpt2", "sdpa").train()
    weights, hooks = {k: v.clone() for k, v in module.state_dict().items()}, hooks_of(module)
    random = torch.random.get_rng_state()
    projections(load(module))
    assert all(torch.equal(v, weights[k]) for k, v in module.state_dict().items())
    assert hooks_of(module) == hooks and module.training
    assert torch.equal(torch.random.get_rng_state(), random)
    assert torch._C._len_torch_function_stack() == 0


def test_no_hook_stays_after_an_error():
    model = load(tiny.build("bert"))
    hooks = hooks_of(model.module)

    def fail(*_):
        raise ValueError("broken")

    handle = model.module.bert.encoder.layer[1].output.dense.register_forward_hook(fail)
    with pytest.raises(ValueError, match="broken"):
        projections(model, example=model.example(tiny.IDS))
    handle.remove()
    assert hooks_of(model.module) == hooks
    assert torch._C._len_torch_function_stack() == 0
    assert all(p.reasons == () for p in projections(model))


def test_another_thread_sees_neither_noise_nor_is_it_seen():
    module = nn.Linear(4, 4)
    network = nn.Sequential(module)
    x, seen = torch.randn(2, 4), []
    with torch.no_grad(), watched(network) as calls:
        other = threading.Thread(target=lambda: seen.append(network(x)))
        other.start()
        other.join()
        assert calls == []
        noisy = network(x)
    assert torch.equal(seen[0], network(x)) and not torch.equal(noisy, seen[0])
    (call,) = calls
    assert call.path == "0" and torch.equal(call.before, seen[0]) and torch.equal(call.y, noisy)


def test_weights_are_read_anew_and_the_model_is_watched_once():
    model = load(tiny.build("llama"))
    projections(model)
    with torch.no_grad():
        model.module.model.layers[0].self_attn.v_proj.weight.fill_(3.0)
    with Meter() as meter:
        (first, *_) = projections(model)
    assert meter.forward == 0
    assert bool((first.W_V == 3).all())


def test_a_model_whose_parts_were_exchanged_is_watched_anew():
    model = own(nn.Linear(8, 8), nn.Linear(8, 8))
    assert projections(model)[0].value_map == "values"
    model.module.values = nn.Sequential(nn.Linear(8, 8))
    assert projections(model)[0].value_map == "values.0"
