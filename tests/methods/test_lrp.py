"""Relevance: slow versions of the formulas on the models' own parameters, planted values, sums, models left alone."""

import math
import threading
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional

from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.normalizers import get_normalizer
from attnprobe.attention.transformer import TransformerClassifier
from attnprobe.attributing import attribute
from attnprobe.errors import InputError, NumericsError
from attnprobe.methods.attention_gradient import weight_gradients
from attnprobe.models import load
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted import planted
from attnprobe.models.reading import explained_stack
from attnprobe.models.relevance.calls import Call, kind_of_call
from attnprobe.models.relevance.passing import hand_back
from attnprobe.models.relevance.share_rules import ShareRules
from attnprobe.models.rows import Row
from attnprobe.target import Target
from tests import tiny

LRP = ("attn_lrp", "cp_lrp")


def built(name, implementation="eager", dtype=torch.float64):
    """A tiny model whose biases and gains are not 0 and 1."""
    module = tiny.build(name, implementation, scale=2.0).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return module


@cache
def ready(name, implementation="eager"):
    """A model for all tests that leave it as it is, an example and what is explained of it."""
    found = fresh(name, implementation)
    tiny.shared(found[0])
    return found


def fresh(name, implementation="eager"):
    """The same for a test that changes the model."""
    model = load(built(name, implementation))
    example = tiny.example(model, name)
    return model, example, model.resolve(example)


def close(found, expected, tolerance=1e-6):
    torch.testing.assert_close(found.double(), expected.double(), atol=tolerance, rtol=1e-4)


# ------------------------------------------------- slow versions: gradients of the formulas with parts detached by hand


def share(x, part):
    """x, of which a part of the gradient goes back."""
    return x * part + (x - x * part).detach()


def sloped(function, x):
    return x * (function(x) / x).detach()


def layer_norm(norm, x):
    mean = x.mean(-1, keepdim=True)
    std = (((x - mean) ** 2).mean(-1, keepdim=True) + norm.eps).sqrt().detach()
    return (x - mean) / std * norm.weight + norm.bias


def rms_norm(norm, x):
    std = ((x.float() ** 2).mean(-1, keepdim=True) + norm.variance_epsilon).sqrt().detach()
    return (x.float() / std).to(x.dtype) * norm.weight


def mixed(method, query, key, value, mask=None):
    """z of heads under the rules: uniform rule on both products, or the weights as constants."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    scores = scores if mask is None else scores.masked_fill(mask, -torch.inf)
    weights = scores.softmax(-1)
    if method == "cp_lrp":
        return weights.detach() @ value
    return share(weights, 0.25) @ share(value, 0.5)


def heads_of(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(0, 1)


def bert_by_hand(method, module, embeddings):
    n, bert = len(embeddings), module.bert
    x = embeddings + bert.embeddings.position_embeddings.weight[:n] + bert.embeddings.token_type_embeddings.weight[0]
    x = layer_norm(bert.embeddings.LayerNorm, x)
    for layer in bert.encoder.layer:
        own, out = layer.attention.self, layer.attention.output
        z = mixed(method, *(heads_of(part(x), 4) for part in (own.query, own.key, own.value)))
        x = layer_norm(out.LayerNorm, out.dense(z.transpose(0, 1).flatten(1)) + x)
        inner = sloped(functional.gelu, layer.intermediate.dense(x))
        x = layer_norm(layer.output.LayerNorm, layer.output.dense(inner) + x)
    return module.classifier(sloped(torch.tanh, bert.pooler.dense(x[0])))


def turned(x, cosine, sine):
    half = x.shape[-1] // 2
    return x * cosine + torch.cat([-x[..., half:], x[..., :half]], -1) * sine


def llama_by_hand(method, module, embeddings, gate="half"):
    llama, n = module.model, len(embeddings)
    cosine, sine = (t[0] for t in llama.rotary_emb(embeddings[None], torch.arange(n)[None]))
    mask = torch.ones(n, n, dtype=torch.bool).triu(1)
    x = embeddings
    for layer in llama.layers:
        a, h = layer.self_attn, rms_norm(layer.input_layernorm, x)
        query, key = (turned(heads_of(p(h), k), cosine, sine) for p, k in ((a.q_proj, 4), (a.k_proj, 2)))
        key, value = (t.repeat_interleave(2, 0) for t in (key, heads_of(a.v_proj(h), 2)))
        x = x + a.o_proj(mixed(method, query, key, value, mask).transpose(0, 1).flatten(1))
        h, mlp = rms_norm(layer.post_attention_layernorm, x), layer.mlp
        gated, up = sloped(functional.silu, mlp.gate_proj(h)), mlp.up_proj(h)
        product = gated.detach() * up if gate == "detach" else share(gated, 0.5) * share(up, 0.5)
        x = x + mlp.down_proj(product)
    return module.lm_head(rms_norm(llama.norm, x[-1]))


BY_HAND = {"bert": bert_by_hand, "llama": llama_by_hand}
FIXED = {"bert": Target(label=1), "llama": Target(label=1, against=7)}


def by_hand(method, name, module, embeddings, target, **options):
    leaf = embeddings.detach().clone().requires_grad_()
    logits = BY_HAND[name](method, module, leaf, **options)
    y = logits[target.label] - (0 if target.against is None else logits[target.against])
    (gradient,) = torch.autograd.grad(y, leaf)
    return (leaf * gradient).sum(-1).detach(), float(y.detach())


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(("method", "name"), [(m, n) for m in LRP for n in BY_HAND])
def test_relevance_is_embedding_times_the_gradient_of_the_formulas_with_coefficients_detached(
    method, name, implementation
):
    model, example, _ = ready(name, implementation)
    target = FIXED[name]
    expected, y = by_hand(method, name, model.module, model.embed(example), target)
    assert y == pytest.approx(float(model.targets([Row(example)], model.resolve(example, target))), abs=1e-6)
    found = attribute(model, example, method, target)
    close(found.scores, expected)
    assert found.residual == pytest.approx(float(expected.sum()) - y, abs=1e-6)


@pytest.mark.parametrize("method", LRP)
def test_a_gate_is_a_factor_that_gets_half_or_nothing(method):
    model, example, _ = ready("llama")
    found = {}
    for gate in ("half", "detach"):
        expected, _ = by_hand(method, "llama", model.module, model.embed(example), FIXED["llama"], gate=gate)
        found[gate] = attribute(model, example, method, FIXED["llama"], gate=gate)
        close(found[gate].scores, expected)
    assert float((found["half"].scores - found["detach"].scores).abs().max()) > 1e-3
    assert found["detach"].used["rules"]["gate"] == 3


# ------------------------------------------------------------------------------------------------------------ sums


@pytest.mark.parametrize("gate", ["half", "detach"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3", "mistral"])
def test_cp_lrp_adds_up_to_the_target_where_there_are_no_biases(name, gate):
    model, example, target = ready(name)
    found = attribute(model, example, "cp_lrp", target, gate=gate)
    y = float(model.targets([Row(example)], target))
    assert abs(y) > 0.1 and abs(found.residual) < 1e-6
    assert float(found.scores.double().sum()) == pytest.approx(y, abs=1e-6)


@pytest.mark.parametrize("name", ["bert", "gpt2", "albert", "t5", "bart", "modernbert", "vit"])
@pytest.mark.parametrize("method", LRP)
def test_the_residual_is_what_biases_norms_and_the_softmax_absorb(method, name):
    model, example, target = ready(name)
    found = attribute(model, example, method, target)
    y = float(model.targets([Row(example)], target))
    assert found.residual == pytest.approx(float(found.scores.double().sum()) - y, abs=1e-4 * max(1, abs(y)))
    absorbed = found.used["absorbed"]
    assert sum(absorbed.values()) == pytest.approx(-found.residual, abs=1e-4 * max(1, abs(y)))
    assert ("softmax" in absorbed) == (method == "attn_lrp")
    assert ("scale of the target" in absorbed) == (name in ("t5", "bart"))  # a log-probability


def test_attn_lrp_does_not_add_up_by_what_the_softmax_absorbs():
    model, example, target = ready("llama")
    found = attribute(model, example, "attn_lrp", target)
    assert abs(found.residual) > 1e-2
    assert found.used["absorbed"]["softmax"] == pytest.approx(-found.residual, abs=1e-5)


PLANTED = [
    ("P1", "cp_lrp", [0, 0, 1, 0]),
    ("P1", "attn_lrp", [0, 0, 0.5, 0]),  # half stays with the weights, whose bias B absorbs it
    ("P1c", "cp_lrp", [0, 0, 1, 0]),
    ("P1c", "attn_lrp", [-0.7 * math.log(7) / 4, -0.7 * math.log(7) / 4, 0.5, 0]),
    ("P2", "cp_lrp", [2, 0, 0]),
    ("P2", "attn_lrp", [2, 0, 0]),
    ("P3A", "cp_lrp", [0, 1.3, 1.4]),
    ("P3B", "cp_lrp", [0, 1.3, 1.4]),
    ("P3A", "attn_lrp", [0, 0.65, 0.7]),
    ("P3B", "attn_lrp", [0, 0.65, 0.7]),
    ("P5", "cp_lrp", [0, 0.815, 0]),
    ("P5", "attn_lrp", [0, 0.815 / 4, 0]),
    ("P6", "cp_lrp", [0, 0, 0]),
    ("P7", "cp_lrp", [0, 1, 1]),
    ("P8", "cp_lrp", [0, -1, -2]),
    ("P10", "cp_lrp", [0, 0, 0]),
    # Relevance of a weight is half of its share of y, times its gradient: 1/2 · 1 · 10, and of P3 (p + 2 p') / 2.7 / 4.
    ("P1", "chefer_2021a", [0, 0, 5, 0]),
    ("P2", "chefer_2021a", [0, 0, 0]),
    ("P3A", "chefer_2021a", [0, (0.8 + 2 * 0.5) / 10.8, (0.1 + 2 * 1.3) / 10.8]),
    ("P3B", "chefer_2021a", [0, (0.2 + 2 * 1.1) / 10.8, (0.7 + 2 * 0.7) / 10.8]),
    ("P8", "chefer_2021a", [0, 0, 0]),
]


@pytest.mark.parametrize(("name", "method", "expected"), PLANTED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_planted_values(name, method, expected):
    made = planted(name)
    found = attribute(made.model, made.example, method, made.target).scores
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), atol=1e-6, rtol=0)


# ------------------------------------------------------------------- what each function is, and what has no rule

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
W = torch.randn(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
KINDS = [
    (lambda x, y: functional.linear(x, W, W[0]), "affine"),
    (lambda x, y: x + y, "affine"),
    (lambda x, y: x.transpose(1, 2), "copy"),
    (lambda x, y: torch.cat([x, y]), "copy"),
    (lambda x, y: x * 3.0, "affine"),
    (lambda x, y: x.masked_fill(X > 0, -torch.inf), "affine"),
    (lambda x, y: x + torch.zeros_like(X).masked_fill(X > 0, torch.finfo(torch.float64).min), "affine"),
    (lambda x, y: x * y, "product"),
    (lambda x, y: x @ y.transpose(1, 2), "product"),
    (lambda x, y: x / y, "part"),
    (lambda x, y: functional.gelu(x), "activation"),
    (lambda x, y: torch.sigmoid(x), "held"),
    (lambda x, y: functional.layer_norm(x, (8,), W[0], W[1]), "norm"),
    (lambda x, y: functional.rms_norm(x, (8,), W[0]), "norm"),
    (lambda x, y: functional.softmax(x, -1), "softmax"),
    (lambda x, y: x.amax(-1), "homogeneous"),
    (lambda x, y: x.var(-1), "held"),
    (lambda x, y: torch.zeros_like(x), "constant"),
    (lambda x, y: x > 0, "nothing"),
]


class Asked(torch.overrides.TorchFunctionMode):
    """The first function that is called with these arguments."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        call = Call.of(func, args, kwargs or {})
        self.calls = [*getattr(self, "calls", []), *([call] if call.live else [])]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("function", "kind"), KINDS)
def test_what_a_function_is_is_told_from_its_numbers(function, kind):
    x, y = (t.clone().requires_grad_().clone() for t in (X, X.flip(0) + 0.1))
    with Asked() as asked:
        function(x, y)
    assert kind_of_call(asked.calls[-1]).kind == kind


BENT = [
    (torch.sigmoid, "held"),
    (torch.tanh, "activation"),
    (functional.gelu, "activation"),
    (functional.glu, "held"),
    (torch.exp, "held"),
    (lambda x: x * 1.02, "affine"),
    (lambda x: x.to(torch.bfloat16), "copy"),
]


@pytest.mark.parametrize("size", [1e-5, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("function", "kind"), BENT)
def test_what_a_function_is_depends_neither_on_the_size_nor_on_the_type_of_the_states(function, kind, dtype, size):
    x = (size * X).to(dtype).requires_grad_().clone()
    with Asked() as asked:
        function(x)
    assert kind_of_call(asked.calls[-1]).kind == kind


class Added(nn.Module):
    """Something that is not linear, added to the states."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return x + self.function(x)


class Hidden(torch.autograd.Function):
    """A square that torch functions do not show."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, above):
        return 2 * ctx.saved_tensors[0] * above


@pytest.mark.parametrize("method", LRP)
def test_what_is_not_linear_and_has_no_rule_is_refused_by_name(method):
    module = built("bert")
    module.bert.encoder.layer[1].output.dropout = Added(lambda x: x.exp())
    model = load(module)
    with pytest.raises(InputError, match=r"'bert.encoder.layer.1.output.dropout' computes exp, which is not linear"):
        attribute(model, model.example(tiny.IDS), method)


@pytest.mark.parametrize("method", LRP)
def test_what_is_hidden_from_the_rules_is_found_by_the_sum(method):
    module = built("bert")
    module.bert.encoder.layer[1].output.dropout = Added(lambda x: Hidden.apply(x.flip(-1)))
    model = load(module)
    with pytest.raises(NumericsError, match="some function that is not linear was not seen"):
        attribute(model, model.example(tiny.IDS), method)


class OldNorm(nn.Module):
    """A LayerNorm written out, as BERT's first code had it."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        return self.weight * (x - mean) / torch.sqrt((x - mean).pow(2).mean(-1, keepdim=True) + self.eps) + self.bias


class InPlace(nn.Module):
    """A norm of which every step changes a tensor in place."""

    def __init__(self, norm):
        super().__init__()
        self.norm = OldNorm(norm)
        self.inside = nn.Identity()  # not an innermost module, so its functions are met one by one

    def forward(self, x):
        out = self.inside(x).clone()
        out -= out.mean(-1, keepdim=True)
        size = out.pow(2).mean(-1, keepdim=True)
        size += self.norm.eps
        out.mul_(torch.rsqrt(size)).mul_(self.norm.weight)
        out[..., :] += self.norm.bias
        return out


@pytest.mark.parametrize("form", [OldNorm, InPlace])
@pytest.mark.parametrize("method", LRP)
def test_a_norm_is_one_however_it_is_written(method, form):
    model, example, target = fresh("bert")
    expected = attribute(model, example, method, target)
    for layer in model.module.bert.encoder.layer:
        layer.output.LayerNorm = form(layer.output.LayerNorm)
    found = attribute(load(model.module), example, method, target)
    close(found.scores, expected.scores)
    assert found.residual == pytest.approx(expected.residual, abs=1e-6)


def test_attn_lrp_goes_through_weights_that_are_no_softmax():
    words = Vocabulary.of(["a good film"], specials=("[PAD]", "[UNK]", "[CLS]"))
    found = {}
    for name in ("softmax", "sigmoid", "entmax15"):
        torch.manual_seed(0)
        network = TransformerClassifier(len(words.tokens), 2, d_model=8, n_heads=2, n_layers=1, max_length=6).double()
        attention = MultiHeadAttention(8, 2, normalizer=get_normalizer(name)).double()
        network.blocks[0].attention = attention
        model = OwnModel(network.eval(), words, labels=("no", "yes"))
        one, other = (attribute(model, model.example("a good film"), m, Target(label=1)) for m in LRP)
        assert float((one.scores - other.scores).abs().max()) > 1e-3
        assert one.used["absorbed"]["softmax"] != 0 and "softmax" not in other.used["absorbed"]
        found[name] = one.scores
    assert not torch.allclose(found["softmax"], found["sigmoid"])


# ---------------------------------------------------------------------------------------- the model is left as it was


def untouched(module):
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return all(
        "forward" not in part.__dict__ and not any(getattr(part, name) for name in hooks) for part in module.modules()
    )


@pytest.mark.parametrize("method", [*LRP, "chefer_2021a"])
def test_the_model_is_left_as_it_was_whatever_happens_inside(method):
    model, example, target = fresh("bert")
    plain = model.module(**example.inputs).logits
    attribute(model, example, method, target)
    assert untouched(model.module) and all(p.grad is None for p in model.module.parameters())

    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("out of order")

    kept, model.module.bert.encoder.layer[2].output.dropout = (
        model.module.bert.encoder.layer[2].output.dropout,
        Broken(),
    )
    with pytest.raises(ValueError, match="out of order"):
        attribute(model, example, method, target)
    assert untouched(model.module)
    model.module.bert.encoder.layer[2].output.dropout = kept
    assert torch.equal(model.module(**example.inputs).logits, plain)


def test_another_thread_runs_the_same_model_without_the_rules():
    model, example, target = fresh("bert")
    leaf = model.embed(example).detach().clone().requires_grad_()

    def gradient():
        logits = model.module(inputs_embeds=leaf[None]).logits
        return torch.autograd.grad(logits[0, 0], leaf)[0]

    expected, found = gradient(), []

    class Meanwhile(nn.Module):
        def forward(self, x):
            if threading.current_thread() is threading.main_thread():
                other = threading.Thread(target=lambda: found.append(gradient()))
                other.start()
                other.join()
            return x

    model.module.bert.encoder.layer[2].output.dropout = Meanwhile()
    attribute(model, example, "cp_lrp", target)
    assert found and all(torch.equal(one, expected) for one in found)


# ------------------------------------------------------------------------------------------ Chefer et al. 2021a by hand


def divided(a, b):
    return torch.where(b == 0, 0.0, a / (b + 1e-9))


def back_linear(linear, x, relevance):
    """α = 1: shares of the products that are positive."""
    w = linear.weight
    up, down, plus, minus = w.clamp(min=0), w.clamp(max=0), x.clamp(min=0), x.clamp(max=0)
    share = divided(relevance, plus @ up.T + minus @ down.T)
    return plus * (share @ up) + minus * (share @ down)


def back_sum(a, b, relevance):
    share = divided(relevance, a + b)
    of_a, of_b = a * share, b * share
    sizes = of_a.sum().abs(), of_b.sum().abs()
    whole = relevance.sum() / (sizes[0] + sizes[1])
    return of_a * sizes[0] * whole / of_a.sum(), of_b * sizes[1] * whole / of_b.sum()


def back_product(a, b, relevance):
    """Of a @ b: half to each."""
    share = divided(relevance, a @ b)
    return a * (share @ b.transpose(-1, -2)) / 2, b * (a.transpose(-1, -2) @ share) / 2


def joined(x):
    return x.transpose(0, 1).flatten(1)


def bert_relevance_of_weights(module, embeddings, label):
    """R of each layer's weights: a pass there with all states kept, and the rules of the paper back."""
    bert, kept = module.bert, []
    table = bert.embeddings
    x = embeddings + table.position_embeddings.weight[: len(embeddings)] + table.token_type_embeddings.weight[0]
    x = table.LayerNorm(x)
    for layer in bert.encoder.layer:
        own, out = layer.attention.self, layer.attention.output
        q, k, v = (heads_of(part(x), 4) for part in (own.query, own.key, own.value))
        a = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
        z = joined(a @ v)
        mixed_ = out.dense(z)
        h = out.LayerNorm(mixed_ + x)
        inner = functional.gelu(layer.intermediate.dense(h))
        written = layer.output.dense(inner)
        kept.append((x, q, k, v, a, z, mixed_, h, inner, written))
        x = layer.output.LayerNorm(written + h)
    pooled = bert.pooler.dense(x[:1]).tanh()
    relevance = back_linear(module.classifier, pooled, functional.one_hot(torch.tensor([label]), 3).double())
    whole = torch.zeros_like(x)
    whole[:1] = back_linear(bert.pooler.dense, x[:1], relevance)
    found = []
    for layer, (x, q, k, v, a, z, mixed_, h, inner, written) in zip(
        reversed(bert.encoder.layer), reversed(kept), strict=True
    ):
        own, out = layer.attention.self, layer.attention.output
        of_written, of_h = back_sum(written, h, whole)
        of_inner = back_linear(layer.output.dense, inner, of_written)
        of_h = of_h + back_linear(layer.intermediate.dense, h, of_inner)
        of_mixed, of_x = back_sum(mixed_, x, of_h)
        of_z = back_linear(out.dense, z, of_mixed)
        of_a, of_v = back_product(a, v, heads_of(of_z, 4))
        of_q, of_k = back_product(q, k.transpose(-1, -2), of_a)
        found.insert(0, of_a)
        parts = ((own.query, of_q), (own.key, of_k.transpose(-1, -2)), (own.value, of_v))
        whole = of_x + sum(back_linear(part, x, joined(of)) for part, of in parts)
    return found


def test_chefer_2021a_multiplies_gradients_and_relevance_by_the_papers_rules():
    model, example, _ = ready("bert")
    target = model.resolve(example, Target(label=1))
    with torch.no_grad():
        expected = bert_relevance_of_weights(model.module, model.embed(example), 1)
    rules = ShareRules()
    hand_back(model, example, target, rules)
    for found, one in zip(
        [rules.weights[place][0] for place in sorted(rules.weights, key=lambda p: p.layer)], expected, strict=True
    ):
        size = float(one.abs().max())
        assert float((found - one).abs().max()) < 1e-5 * size
    product = torch.eye(12, dtype=torch.float64)
    last = None
    gradients = weight_gradients(model, example, target, explained_stack(model, example))
    for layer, one in zip(gradients, expected, strict=True):
        last = torch.eye(12, dtype=torch.float64) + torch.stack(
            [(g * r).clamp(min=0) for g, r in zip(layer.gradient, one, strict=True)]
        ).mean(0)
        product = last @ product
    ask = {"target": target, "own": "keep"}
    close(attribute(model, example, "chefer_2021a", **ask).scores, product[0], 1e-7)
    normalised = attribute(model, example, "chefer_2021a", **ask, row_normalise=True, start_layer=-1).scores
    close(normalised, last[0] / last[0].sum(), 1e-7)
    assert float(normalised.sum()) == pytest.approx(1, abs=1e-6)
    zero, lowest = (attribute(model, example, "chefer_2021a", target, own=own).scores for own in ("zero", "row_min"))
    assert float(zero[0]) == 0 and torch.equal(zero[1:], lowest[1:])
    assert float(lowest[0]) == pytest.approx(float(product[0].min()), abs=1e-9)


@pytest.mark.parametrize("options", [{"own": "max"}, {"start_layer": 3}, {"start_layer": -4}])
def test_chefer_2021a_refuses_options_that_make_no_sense(options):
    model, example, target = ready("bert")
    with pytest.raises(InputError):
        attribute(model, example, "chefer_2021a", target, **options)
