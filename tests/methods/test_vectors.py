"""Methods that follow vectors: planted values, slow versions from the formulas, the model's own states."""

from functools import cache

import pytest
import torch
import transformers as t
from torch import nn

from attnprobe.attention.seam import Keep
from attnprobe.attributing import attribute
from attnprobe.errors import InputError, NumericsError
from attnprobe.intervention import Intervention, uniform
from attnprobe.methods.alti import nearness
from attnprobe.methods.globenc import multiplied
from attnprobe.methods.value_norms import written
from attnprobe.models import load
from attnprobe.models.anatomy import norm_of, replacing, slope
from attnprobe.models.edited import EditedModel
from attnprobe.models.evaluator import differentiable
from attnprobe.models.layers import layer_calls
from attnprobe.models.planted import planted
from attnprobe.models.projections import projections
from attnprobe.models.rows import Row
from attnprobe.models.vectors import parts as parts_module
from attnprobe.models.vectors.layers import mixing_ratios, through_layers
from attnprobe.models.vectors.parts import share_out
from attnprobe.models.vectors.whole import decompose
from attnprobe.target import Target
from tests import tiny

_SMALL = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_MORE = {
    "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**_SMALL, intermediate_size=48, **_IDS)),
    "falcon": lambda: t.FalconForCausalLM(t.FalconConfig(**_SMALL, new_decoder_architecture=False, **_IDS)),
    "gptj": lambda: t.GPTJForCausalLM(
        t.GPTJConfig(vocab_size=60, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, **_IDS)
    ),
    "olmo2": lambda: t.Olmo2ForCausalLM(t.Olmo2Config(**_SMALL, intermediate_size=48, **_IDS)),
    "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(vocab_size=60, hidden_size=32, n_layer=2, n_head=4, **_IDS)),
    "deberta": lambda: t.DebertaV2ForSequenceClassification(
        t.DebertaV2Config(**_SMALL, intermediate_size=48, relative_attention=True, pos_att_type=["c2p", "p2c"])
    ),
    "mixtral": lambda: t.MixtralForCausalLM(
        t.MixtralConfig(**_SMALL, intermediate_size=48, num_key_value_heads=2, num_local_experts=3, **_IDS)
    ),
    "xlnet": lambda: t.XLNetForSequenceClassification(
        t.XLNetConfig(vocab_size=60, d_model=32, n_layer=2, n_head=4, d_inner=48)
    ),
}
POST_LN = ("bert", "albert")
PRE_LN = ("gpt2", "llama", "modernbert", "gpt_neox", "falcon", "gptj", "mixtral", "vit")
# The norm of Llama and its kind works in float32 whatever the model is in.
IN_FLOAT32 = ("llama", "gemma2", "olmo2", "mixtral")
ONLY_FLOAT32 = ("mixtral",)  # a kernel of its experts
NAMES = (*POST_LN, *PRE_LN, "gemma2", "olmo2", "bloom", "deberta")


def network(name, implementation="eager", *, double=True, scale=2.0):
    """A tiny model whose biases and norms are not those of a fresh one, which would hide mistakes."""
    if name in _MORE:
        torch.manual_seed(0)
        module = _MORE[name]().eval()
        module.set_attn_implementation(implementation)
    else:
        module = tiny.build(name, implementation, scale=scale)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module.double() if double and name not in ONLY_FLOAT32 else module


@cache
def loaded(name, implementation="eager"):
    """That network, loaded: one for all tests, which leave it as it is."""
    return tiny.shared(load(network(name, implementation)))


def read(model, name, n=6):
    return model.example(tiny.given(name).to(next(model.module.parameters())) if name == "vit" else tiny.IDS[:n])


PLANTED = [
    ("P1", "value_norms", {}, [0, 0, 1, 0]),
    ("P1", "value_norms_residual", {}, [0, 0, 1, 0]),
    ("P1", "globenc", {}, [0, 0, 1, 0]),
    ("P1", "alti", {}, [0, 0, 1, 0]),
    ("P1", "decompx", {}, [0, 0, 1, 0]),
    ("P2", "value_norms", {}, [0, 4.5, 0.05]),
    ("P2", "value_norms_residual", {}, [2, 4.5, 0.05]),
    ("P2", "globenc", {}, [2 / 6.55, 4.5 / 6.55, 0.05 / 6.55]),
    ("P2", "alti", {}, [2 / 6.55, 4.5 / 6.55, 0.05 / 6.55]),
    ("P2", "decompx", {}, [2, 0, 0]),
    ("P3A", "value_norms", {}, [0, 1.3, 1.4]),
    ("P3B", "value_norms", {}, [0, 1.3, 1.4]),
    ("P3A", "value_norms", {"heads": "apart"}, [0, 0.8 + 2 * 0.25, 0.1 + 2 * 0.65]),
    ("P3B", "decompx", {}, [0, 1.3, 1.4]),
    ("P5", "value_norms", {}, [0.0025, 0.0025, 0.81]),
    ("P5", "decompx", {}, [0, 0.815, 0]),
    ("P5", "globenc", {}, [0, 1, 0]),
    ("P7", "decompx", {}, [0, 0.5, 0.5]),  # relu(1 + 1 − 1): the bias goes half and half
    ("P8", "decompx", {}, [0, 0, -1]),  # g: 1 − 2 · 0.5; n: −2 · 0.5
    ("P9", "decompx", {}, [0, 0.5, 0.5]),  # 1 + 1 − 1
    ("P10", "decompx", {}, [0, 1, 0]),
]


@pytest.mark.parametrize(("name", "method", "options", "expected"), PLANTED)
def test_a_vector_method_gives_the_exact_value_on_a_planted_model(name, method, options, expected):
    made = planted(name)
    found = attribute(made.model, made.example, method, **options)
    torch.testing.assert_close(found.scores, torch.tensor(expected, dtype=torch.float32), atol=1e-6, rtol=0)
    if method == "decompx":
        assert float(found.scores.sum()) == pytest.approx(made.answer, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_decompx_adds_up_to_the_logit(name):
    model = loaded(name)
    example = read(model, name)
    found = decompose(model, example, model.resolve(example))
    gap = float(found.values.double().sum()) - found.total
    assert abs(gap) < (1e-6 if name in IN_FLOAT32 else 1e-9) * max(1.0, float(found.values.abs().sum()))
    assert found.constant == 0.0
    assert bool((found.values != 0).any())


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_decompx_adds_up_in_float32_and_bfloat16(name):
    module = network(name, double=False)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.05)):
        model = load(module.to(dtype))
        found = attribute(model, read(model, name), "decompx")
        assert abs(found.residual) < tolerance * max(1.0, float(found.scores.abs().sum()))


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_vectors_are_the_same_on_either_kernel(name):
    found = []
    for implementation in ("eager", "sdpa"):
        model = load(network(name, implementation, scale=0.2))  # weights so small that a softmax looks linear
        example = read(model, name)
        target = model.resolve(example, 3) if name != "bert" else model.resolve(example, 1)
        layers = through_layers(model, example, lambda layer: layer.attended)
        found.append((decompose(model, example, target).values, *layers))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def absdot(parts, bias):
    """The bias [d] (or one a position) shared over the parts [query source d] by |bias · part|."""
    bias = bias.expand(len(parts), -1)
    out = parts.clone()
    for i in range(len(parts)):
        weights = torch.stack([(bias[i] @ parts[i, k]).abs() for k in range(parts.shape[1])])
        for k in range(parts.shape[1]):
            out[i, k] += weights[k] / weights.sum() * bias[i]
    return out


def normed(parts, norm, whole):
    sigma = (whole.var(-1, correction=0) + norm.eps).sqrt()
    out = (parts - parts.mean(-1, keepdim=True)) / sigma[:, None, None] * norm.weight
    return absdot(out, norm.bias)


def decompx_of_bert(module, ids, attentions):
    """Logit vectors of each token [source class], from the formulas, in the order of the authors' biases."""
    body = module.bert
    x = body.embeddings(input_ids=torch.tensor([ids]))[0]
    n, d = x.shape
    parts = torch.zeros(n, n, d, dtype=x.dtype)
    parts[torch.arange(n), torch.arange(n)] = x
    for number, layer in enumerate(body.encoder.layer):
        own, out, heads = layer.attention.self, layer.attention.output, attentions[number].shape[0]
        value = parts @ own.value.weight.T
        accumulated = out.dense.weight @ own.value.bias + out.dense.bias
        if number == 0:  # there the values are those of single tokens, and take their bias with them
            value[torch.arange(n), torch.arange(n)] += own.value.bias
            accumulated = out.dense.bias
        value = value.view(n, n, heads, -1)
        mixed = torch.einsum("hij,jkhv->ikhv", attentions[number], value).flatten(2) @ out.dense.weight.T
        parts = absdot(mixed + parts, accumulated)
        parts = normed(parts, out.LayerNorm, parts.sum(1))
        inner = absdot(parts @ layer.intermediate.dense.weight.T, layer.intermediate.dense.bias)
        whole = inner.sum(1)
        inner = inner * (nn.functional.gelu(whole) / whole)[:, None]
        after = absdot(inner @ layer.output.dense.weight.T, layer.output.dense.bias) + parts
        parts = normed(after, layer.output.LayerNorm, after.sum(1))
    pooled = absdot(parts[:1] @ body.pooler.dense.weight.T, body.pooler.dense.bias)
    pooled = pooled * (pooled.sum(1).tanh() / pooled.sum(1))[:, None]
    return (pooled @ module.classifier.weight.T)[0], module.classifier.bias


@torch.no_grad()
def test_decompx_is_the_published_one_on_a_bert():
    module = network("bert")
    model = load(module)
    example = read(model, "bert")
    attentions = model.capture(example).weights()
    parts, bias = decompx_of_bert(module, tiny.IDS[:6], attentions)
    jointly, by_class = absdot(parts[None], bias)[0], parts.clone()
    by_class += parts.abs() / parts.abs().sum(0) * bias
    for label in range(3):
        found = attribute(model, example, "decompx", label)
        torch.testing.assert_close(found.scores.double(), jointly[:, label], atol=1e-7, rtol=1e-5)
        found = attribute(model, example, "decompx", label, head_bias="by class")
        torch.testing.assert_close(found.scores.double(), by_class[:, label], atol=1e-7, rtol=1e-5)
    assert float((jointly - by_class).abs().max()) > 1e-3


def held_fast(forward, x):
    """A norm or an activation as the linear function that it is with σ or slope held fast."""
    norm = norm_of(forward, x.detach())
    return norm(x) + norm.shift if norm is not None else x * slope(forward, x.detach())


def half_and_half(forward, x):
    part = forward.__self__
    gate, up = part.act_fn(part.gate_proj(x)), part.up_proj(x)
    return part.down_proj((gate * up.detach() + gate.detach() * up) / 2)


def freeze(site):
    return site.replace(weights=site.need("weights").detach())


def test_decompx_of_a_network_without_biases_is_input_times_gradient_with_all_factors_held_fast():
    module = network("llama", double=False).float()
    model = load(module)
    example = read(model, "llama")
    target = model.resolve(example)
    rules = {part: half_and_half for part in module.modules() if hasattr(part, "gate_proj")}
    bent = [part for part in module.modules() if "Norm" in type(part).__name__ or "Activation" in type(part).__name__]
    rules |= dict.fromkeys(bent, held_fast)
    embeddings = model.embed(example).clone().requires_grad_()
    with replacing(rules):
        edit = Intervention("weights held fast", freeze)
        logits, _ = differentiable(model, [Row(example, embeddings=embeddings, edits=(edit,))], Keep.of("z"))
        (gradient,) = torch.autograd.grad(target(logits).sum(), embeddings)
    expected = (embeddings * gradient).sum(-1).detach()
    torch.testing.assert_close(attribute(model, example, "decompx").scores, expected, atol=1e-6, rtol=1e-4)


def vectors_of(model, example):
    """Σ_h A^h_ij f^h(x_j) + [i=j] x_i of each layer, from the captured weights and values, and b_O."""
    stack = model.stacks[0]
    capture = model.capture(example, keep=Keep.of("weights", "value"))
    given = zip(capture.tensor("weights"), capture.tensor("value"), projections(model), strict=True)
    for call, (weights, value, projection) in zip(layer_calls(model, example, stack.name), given, strict=True):
        x = next(tensor for tensor in (*call.args, *call.kwargs.values()) if torch.is_tensor(tensor))[0]
        yield written(weights, projection.transformed(value)) + torch.diag_embed(x.T).permute(1, 2, 0), projection, call


@torch.no_grad()
@pytest.mark.parametrize("name", PRE_LN)
def test_vectors_behind_a_pre_norm_attention_are_those_of_the_formula_and_add_up_to_the_states(name):
    model = loaded(name)
    example = read(model, name)
    layers = through_layers(model, example, lambda layer: layer)
    tolerance = 1e-5 if name in IN_FLOAT32 else 1e-10
    for layer, (u, projection, call) in zip(layers, vectors_of(model, example), strict=True):
        assert not layer.normed
        torch.testing.assert_close(layer.attended, u, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(layer.passed_on, u, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(layer.output, call.output[0], atol=1e-12, rtol=0)
        # Also in parallel blocks, whose MLP is added to the attention before the residual is.
        torch.testing.assert_close(layer.result, u.sum(1) + projection.need("b_O"), atol=tolerance, rtol=tolerance)


ORDERS = [
    lambda past, attended, mlp: (past + attended) + mlp,
    lambda past, attended, mlp: (attended + mlp) + past,
    lambda past, attended, mlp: (past + mlp) + attended,
]


@torch.no_grad()
@pytest.mark.parametrize("order", ORDERS)
def test_alti_of_a_parallel_block_is_the_same_in_whatever_order_it_adds(order, monkeypatch):
    def forward(block, hidden_states, **kwargs):
        normed = block.ln_1(hidden_states)
        attended, _ = block.attn(hidden_states=normed, **kwargs)
        return order(hidden_states, attended, block.mlp(normed))

    model = load(network("gptj"))
    example = read(model, "gptj")
    plain = attribute(model, example, "alti").scores
    block = type(model.module.transformer.h[0])
    before = model.module(torch.tensor([tiny.IDS[:6]])).logits
    monkeypatch.setattr(block, "forward", forward)
    torch.testing.assert_close(model.module(torch.tensor([tiny.IDS[:6]])).logits, before)
    torch.testing.assert_close(attribute(model, example, "alti").scores, plain, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_kobayashi_globenc_and_alti_are_the_published_ones_on_a_bert():
    module = network("bert")
    model = load(module)
    example = read(model, "bert")
    n = example.n_tokens
    globenc, alti, last = torch.eye(n).double(), torch.eye(n).double(), None
    for (u, projection, call), layer in zip(vectors_of(model, example), module.bert.encoder.layer, strict=True):
        first, second = layer.attention.output.LayerNorm, layer.output.LayerNorm
        z = u.sum(1) + projection.need("b_O")
        sigma = (z.var(-1, correction=0) + first.eps).sqrt()[:, None]
        g = (u - u.mean(-1, keepdim=True)) / sigma[:, None] * first.weight
        b = projection.need("b_O")
        behind = first(z)  # identity 3: the norm of the sum is the sum of the vectors, of the bias and β
        rest = (b - b.mean()) / sigma * first.weight + first.bias
        torch.testing.assert_close(behind, g.sum(1) + rest, atol=1e-12, rtol=0)
        torch.testing.assert_close(second(behind + (call.output[0] * 0) + feed_forward(layer, behind)), call.output[0])
        whole = behind + feed_forward(layer, behind)
        tau = (whole.var(-1, correction=0) + second.eps).sqrt()[:, None, None]
        passed = (g - g.mean(-1, keepdim=True)) / tau * second.weight
        globenc = passed.norm(dim=-1) @ globenc
        nearer = behind.abs().sum(-1, keepdim=True) - (behind[:, None] - g).abs().sum(-1)
        alti = nearer.clamp(min=0) / nearer.clamp(min=0).sum(-1, keepdim=True) @ alti
        last = g
    found = {name: attribute(model, example, name) for name in ("globenc", "alti", "value_norms_residual")}
    globenc = globenc / globenc.sum(-1, keepdim=True)
    torch.testing.assert_close(found["globenc"].map.double(), globenc, atol=1e-6, rtol=0)
    torch.testing.assert_close(found["alti"].map.double(), alti, atol=1e-6, rtol=0)
    torch.testing.assert_close(found["value_norms_residual"].map.double(), last.norm(dim=-1), atol=1e-6, rtol=1e-6)
    others = (last.sum(1) - last[range(n), range(n)]).norm(dim=-1)
    ratio = others / (others + last[range(n), range(n)].norm(dim=-1))
    torch.testing.assert_close(mixing_ratios(model, example)[-1], ratio, atol=1e-9, rtol=0)
    assert found["value_norms_residual"].used["norm"] == "included"


def feed_forward(layer, x):
    return layer.output.dense(layer.intermediate(x))


@torch.no_grad()
@pytest.mark.parametrize("name", ["gemma2", "olmo2"])
def test_a_norm_between_attention_and_residual_acts_on_the_vectors_of_the_attention(name):
    module = network(name)
    model = load(module)
    example = read(model, name)
    layers = through_layers(model, example, lambda layer: layer)
    for layer, (u, projection, call), block in zip(
        layers, vectors_of(model, example), module.model.layers, strict=True
    ):
        x = next(tensor for tensor in (*call.args, *call.kwargs.values()) if torch.is_tensor(tensor))[0]
        own = torch.diag_embed(x.T).permute(1, 2, 0)
        whole = (u - own).sum(1) + projection.need("b_O")
        norm = norm_of(block.post_attention_layernorm.forward, whole)
        expected = (u - own) * norm.coefficient[:, None] + own
        torch.testing.assert_close(layer.attended, expected, atol=1e-5, rtol=1e-5)
        assert not norm.centred and not layer.normed


@torch.no_grad()
def test_another_classifier_changes_decompx_and_nothing_that_ends_with_the_layers():
    module = network("bert")
    model = load(module)
    example = read(model, "bert")
    names = ("decompx", "globenc", "alti")
    before = {name: attribute(model, example, name, 1).scores for name in names}
    module.classifier.weight.copy_(module.classifier.weight.flip(1))
    after = {name: attribute(model, example, name, 1).scores for name in names}
    assert not torch.allclose(before["decompx"], after["decompx"], rtol=1e-2)
    assert all(torch.equal(before[name], after[name]) for name in names if name != "decompx")


@torch.no_grad()
def test_value_norms_do_not_change_with_the_basis_of_the_values_and_are_zero_for_no_value():
    module = network("bert")
    model = load(module)
    example = read(model, "bert")
    before = attribute(model, example, "value_norms").scores
    own, out = module.bert.encoder.layer[-1].attention.self, module.bert.encoder.layer[-1].attention.output.dense
    basis = torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(8)
    for head in range(4):
        rows = slice(8 * head, 8 * head + 8)
        own.value.weight[rows], own.value.bias[rows] = basis.T @ own.value.weight[rows], basis.T @ own.value.bias[rows]
        out.weight[:, rows] = out.weight[:, rows] @ basis.inverse().T
    torch.testing.assert_close(attribute(model, example, "value_norms").scores, before, atol=1e-6, rtol=1e-4)
    own.value.weight.zero_()
    own.value.bias.zero_()
    with pytest.warns(UserWarning, match="gives 0 to every token"):
        assert not attribute(model, example, "value_norms").scores.any()


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_value_norms_of_an_encoder_decoder_are_those_of_its_cross_attention(name):
    model = tiny.loaded(name, scale=2.0)
    example = tiny.example(model, name)
    capture = model.capture(example, keep=Keep.of("weights", "value"))
    weights, value = (capture.tensor(tensor, "decoder", "cross")[-1] for tensor in ("weights", "value"))
    W_O = projections(model, "decoder", "cross")[-1].need("W_O")
    expected = sum(weights[h, :, :, None] * (value[h] @ W_O[h])[None] for h in range(len(weights))).norm(dim=-1)
    found = attribute(model, example, "value_norms")
    torch.testing.assert_close(found.map, expected, atol=1e-6, rtol=1e-4)
    with pytest.raises(InputError, match="encoder-decoder"):
        attribute(model, example, "decompx")


def test_an_edited_model_is_decomposed_as_it_is_edited():
    model = loaded("llama", "sdpa")
    edited = EditedModel(model, [uniform()])
    example = read(model, "llama")
    target = model.resolve(example, 3)
    found = decompose(edited, example, target)
    assert float(found.values.double().sum()) == pytest.approx(found.total, abs=1e-6)
    assert found.total == pytest.approx(float(edited.targets([Row(example)], target)), abs=1e-6)
    assert not torch.allclose(found.values, decompose(model, example, target).values, rtol=1e-2)


def test_alti_of_parallel_vectors_is_their_share():
    z = torch.randn(1, 6, generator=torch.Generator().manual_seed(0))
    shares = torch.tensor([0.2, 0.5, 0.3])
    torch.testing.assert_close(nearness(shares[None, :, None] * z[:, None], z)[0], shares)
    assert nearness(torch.zeros(2, 2, 3), torch.ones(2, 3)).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_globenc_does_not_grow_or_vanish_with_the_number_of_layers():
    layer = 1e20 * torch.rand(3, 3, generator=torch.Generator().manual_seed(0))
    found = multiplied([layer, *[layer / 1e35] * 40])
    torch.testing.assert_close(found.sum(-1), torch.ones(3))


def test_constants_go_by_the_dot_product_then_by_length_and_else_stay():
    by_dot = share_out(torch.tensor([[1.0, 0.0], [0.0, 5.0], [2.0, 0.0]]))
    assert by_dot.tolist() == [[3.0, 0.0], [0.0, 5.0], [0.0, 0.0]]
    by_length = share_out(torch.tensor([[0.0, 1.0], [0.0, 3.0], [4.0, 0.0]]))
    assert by_length.tolist() == [[1.0, 1.0], [3.0, 3.0], [0.0, 0.0]]
    assert share_out(torch.tensor([[0.0], [0.0], [4.0]])).tolist() == [[0.0], [0.0], [4.0]]


def refusal(function, method="decompx"):
    """What is said where a model adds such a function of its states to them."""
    module = network("bert")
    dense = module.bert.encoder.layer[1].output.dense
    forward = dense.forward
    dense.forward = lambda x: forward(x) + function(forward(x))
    model = load(module)
    with pytest.raises((InputError, NumericsError)) as error:
        attribute(model, read(model, "bert"), method)
    return str(error.value)


def test_what_is_no_sum_over_tokens_is_refused_with_the_module():
    message = refusal(torch.exp)
    assert "encoder.layer.1.output.dense" in message and "exp" in message
    assert "encoder.layer.1.output.dense" in refusal(lambda x: x.sort(-1).values)
    assert "not known what it was made from" in refusal(lambda x: torch.from_numpy(x.detach().numpy().copy()))


@pytest.mark.parametrize("scale", ["probability", "log_probability"])
def test_decompx_explains_logits_and_what_is_linear_in_them(scale):
    model = loaded("bert")
    example = read(model, "bert")
    with pytest.raises(InputError, match="logit"):
        attribute(model, example, "decompx", Target(scale=scale))
    with pytest.raises(InputError, match="no sum over the tokens"):
        attribute(model, example, "decompx", Target(function=lambda logits: logits.softmax(-1)[:, 0]))
    first, both = (
        attribute(model, example, "decompx", Target(function=function)).scores
        for function in (lambda logits: logits[:, 0], lambda logits: 2 * logits[:, 0] - logits[:, 1])
    )
    second = attribute(model, example, "decompx", 1).scores
    torch.testing.assert_close(both, 2 * first - second, atol=1e-6, rtol=1e-4)


def test_too_many_tokens_for_the_memory_are_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(parts_module, "BUDGET_GIB", 1e-6)
    model = load(network("bert"))
    with pytest.raises(InputError, match=r"6 parts would take .* GiB"):
        attribute(model, read(model, "bert"), "decompx")


def test_states_that_do_not_add_up_are_reported_with_the_first_module(monkeypatch):
    monkeypatch.setattr("attnprobe.models.vectors.rules.slope", lambda function, x: 1.1 * slope(function, x))
    model = load(network("bert"))
    with pytest.raises(NumericsError, match=r"layer\.0\.intermediate\.intermediate_act_fn"):
        attribute(model, read(model, "bert"), "decompx")


def test_layers_without_a_residual_and_windows_are_refused():
    class Bare(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.attention = block.attention

        def forward(self, x, visible=None):
            return self.attention(x, visible=visible)

    made = planted("P3A")
    made.model.module.blocks[0].forward = Bare(made.model.module.blocks[0]).forward
    with pytest.raises(InputError, match="no place was found where what its attention gives is added"):
        attribute(made.model, made.example, "globenc")
