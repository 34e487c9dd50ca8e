"""Methods that read attention alone, and value zeroing: planted values, slow versions from the formulas, scipy."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.methods.attention import roll_out
from attnprobe.methods.attention_flow import flows
from attnprobe.methods.effective_attention import reached
from attnprobe.methods.mixing import mixed
from attnprobe.models.planted import planted
from tests import tiny

GATES = ("P6", "P7", "P8", "P9", "P9_unequal", "P10")
PLANTED = [
    ("P1", "attention_flow", {}, [0.55, 0.35, 0.05, 0.05]),
    ("P1", "effective_attention", {}, [0, 0, 0.1, 0]),
    ("P1", "value_zeroing", {"read": "target", "attention": "frozen"}, [0, 0, 1, 0]),
    ("P1", "raw_attention", {"sink": "drop"}, [0, 7 / 9, 1 / 9, 1 / 9]),
    ("P2", "rollout", {"identity": 0.0}, [0.05, 0.9, 0.05]),
    ("P2", "rollout", {"against": "uniform"}, [0.525 / (2 / 3), 0.45 * 6, 0.025 * 6]),
    ("P2", "rollout", {"against": "uniform_difference"}, [0.525 - 2 / 3, 0.45 - 1 / 6, 0.025 - 1 / 6]),
    ("P3A", "raw_attention", {"heads": "min"}, [0.1, 0.25, 0.1]),
    ("P3B", "raw_attention", {"heads": "max"}, [0.1, 0.55, 0.7]),
    ("P3B", "raw_attention", {"heads": 1}, [0.1, 0.55, 0.35]),
    ("P5", "raw_attention", {"layer": "mean"}, [0.475, 0.05, 0.475]),
    ("P5", "raw_attention", {"layer": 0, "read": "column_max"}, [0.9, 0.9, 0.9]),
    ("P5", "raw_attention", {"layer": 0, "read": "column_mean"}, [1 / 3, 1 / 3, 1 / 3]),
    ("P5", "attention_flow", {}, [0.365079, 0.317460, 0.317460]),
    ("P5", "attention_flow", {"normalised": False}, [0.575, 0.5, 0.5]),
    ("P5", "value_zeroing", {"read": "target", "attention": "frozen"}, [0.0025, 0.815, 0.81]),
    *((gate, "raw_attention", {}, [1 / 3, 1 / 3, 1 / 3]) for gate in GATES),
    *((gate, "rollout", {}, [2 / 3, 1 / 6, 1 / 6]) for gate in GATES),
    *((gate, "attention_flow", {}, [2 / 3, 1 / 6, 1 / 6]) for gate in GATES),
]


@pytest.mark.parametrize(("name", "method", "options", "expected"), PLANTED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_planted_model_gives_the_exact_value(name, method, options, expected):
    made = planted(name)
    found = attribute(made.model, made.example, method, **options).scores
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), atol=1e-6, rtol=0)


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert", scale=6.0)


@pytest.fixture(scope="module")
def short(bert):
    return bert.example(tiny.IDS[:6])


@pytest.fixture(scope="module")
def llama():
    return tiny.loaded("llama", scale=6.0)


def test_a_dropped_sink_leaves_rows_of_one_and_the_row_without_anything_else_empty(llama):
    example = llama.example(tiny.IDS)
    weights = llama.capture(example).weights()[1].mean(0)
    found = attribute(llama, example, "raw_attention", layer=1, sink="drop")
    expected = torch.zeros(12, 12)
    for i in range(1, 12):
        expected[i, 1:] = weights[i, 1:] / weights[i, 1:].sum()
    torch.testing.assert_close(found.map, expected, atol=1e-6, rtol=1e-5)
    assert found.used["undefined_rows"] == [0]
    column = attribute(llama, example, "raw_attention", layer=1, sink="drop", read="column_mean")
    torch.testing.assert_close(column.scores, expected[1:].mean(0), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("method", ["raw_attention", "effective_attention"])
def test_a_position_that_sees_nothing_but_the_sink_is_an_error(llama, method):
    with pytest.raises(InputError, match="nothing but the first token"):
        attribute(llama, llama.example([7]), method, sink="drop")


def test_the_share_of_sinks_counts_heads_that_rest_on_the_first_token(llama):
    example = llama.example(tiny.IDS)
    weights = llama.capture(example).weights()
    heads = [w[:, 0].mean() > 0.3 for layer in weights for w in layer]
    found = attribute(llama, example, "raw_attention", layer="mean")
    assert found.used["sink_share"] == pytest.approx(sum(map(float, heads)) / len(heads))
    one_layer = attribute(llama, example, "raw_attention", layer=0)
    assert one_layer.used["sink_share"] == pytest.approx(sum(map(float, heads[:4])) / 4)


def test_a_model_that_looks_both_ways_has_no_share_of_sinks(bert, short):
    assert "sink_share" not in attribute(bert, short, "raw_attention").used


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_discarding_sets_the_lowest_weights_of_each_layer_to_zero_before_the_product(bert, short, share):
    product = torch.eye(6)
    for layer in bert.capture(short).weights().amax(1):
        flat = layer.flatten().clone()
        lowest = flat.topk(int(36 * share), largest=False).indices
        flat[lowest[lowest != 0]] = 0
        both = (flat.view(6, 6) + torch.eye(6)) / 2
        product = both / both.sum(-1, keepdim=True) @ product
    found = attribute(bert, short, "rollout", heads="max", discard=share)
    torch.testing.assert_close(found.scores, product[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_rollout_is_held_against_that_of_uniform_attention_over_what_is_visible(name):
    model = tiny.loaded(name, scale=6.0)
    example = model.example(tiny.IDS)
    seen = (model.capture(example).weights()[0] > 0).any(0).float()
    if name == "llama":
        assert torch.equal(seen, torch.ones(12, 12).tril())
    even = torch.matrix_power(0.5 * seen / seen.sum(-1, keepdim=True) + 0.5 * torch.eye(12), 3)[-1]
    plain = attribute(model, example, "rollout")
    expected = torch.where(even > 0, plain.scores / even, 0.0)
    torch.testing.assert_close(
        attribute(model, example, "rollout", against="uniform").scores, expected, atol=1e-5, rtol=1e-5
    )
    difference = attribute(model, example, "rollout", against="uniform_difference").scores
    torch.testing.assert_close(difference, plain.scores - even, atol=1e-6, rtol=1e-5)
    assert plain.used["first_token"] == pytest.approx(float(plain.scores[0]), abs=1e-6)
    assert plain.used["first_token_if_uniform"] == pytest.approx(float(even[0]), abs=1e-6)


def test_uniform_attention_has_the_rollout_that_it_is_held_against():
    made = planted("P7")
    found = attribute(made.model, made.example, "rollout", against="uniform").scores
    torch.testing.assert_close(found, torch.ones(3))


def test_a_measured_share_of_identity_is_one_minus_the_mixing_ratio_of_each_token(bert, short):
    """Kobayashi et al. 2021 on BERT by its own modules: vectors behind residual and norm, then the product."""
    with torch.no_grad():
        out = bert.module(**short.inputs, output_attentions=True, output_hidden_states=True)
    product = torch.eye(6)
    for layer, a, states in zip(bert.module.bert.encoder.layer, out.attentions, out.hidden_states[:3], strict=True):
        value, dense, norm = layer.attention.self.value, layer.attention.output.dense, layer.attention.output.LayerNorm
        x, mixed_map = states[0].detach(), torch.zeros(6, 6)
        f = torch.stack([value(x)[:, 8 * h : 8 * h + 8] @ dense.weight[:, 8 * h : 8 * h + 8].T for h in range(4)])
        u = torch.einsum("hij,hjd->ijd", a[0], f) + torch.eye(6)[..., None] * x[None]
        for i in range(6):
            z = u[i].sum(0) + dense.bias
            g = (u[i] - u[i].mean(-1, keepdim=True)) / (z.var(unbiased=False) + norm.eps).sqrt() * norm.weight
            others = torch.cat([g[:i], g[i + 1 :]]).sum(0).norm()
            ratio = others / (others + g[i].norm())
            attention = a[0].mean(0)[i].clone()
            attention[i] = 0
            mixed_map[i] = ratio * attention / attention.sum()
            mixed_map[i, i] = 1 - ratio
        product = mixed_map.detach() @ product
    found = attribute(bert, short, "rollout", identity="norm_ratio")
    torch.testing.assert_close(found.map, product, atol=1e-5, rtol=1e-4)
    assert len(found.used["identity"]) == 3


def largest_flow(capacities, row, token):
    """The maximum flow as a linear program: what leaves (L, row), with all that comes in going out again between."""
    n_layers, n = len(capacities), len(capacities[0])
    edges = list(itertools.product(range(n_layers), range(n), range(n)))
    conserved = []
    for layer, node in itertools.product(range(1, n_layers), range(n)):
        into = [float(edge[0] == layer and edge[2] == node) for edge in edges]
        out = [float(edge[0] == layer - 1 and edge[1] == node) for edge in edges]
        conserved.append(np.subtract(into, out))
    from_row = np.array([float(edge[0] == n_layers - 1 and edge[1] == row) for edge in edges])
    limits = []
    for layer, query, key in edges:
        dead = (layer == n_layers - 1 and query != row) or (layer == 0 and key != token)
        limits.append((0.0, 0.0 if dead else float(capacities[layer][query, key])))
    found = linprog(-from_row, A_eq=np.array(conserved), b_eq=np.zeros(len(conserved)), bounds=limits)
    return -found.fun


def random_maps(n_layers, n, seed=0, sharp=2.0):
    generator = torch.Generator().manual_seed(seed)
    return list((sharp * torch.randn(n_layers, n, n, generator=generator, dtype=torch.float64)).softmax(-1))


def test_attention_flow_is_the_solution_of_the_linear_program():
    capacities = [mixed(m, 0.5) for m in random_maps(3, 4)]
    expected = [[largest_flow(capacities, row, token) for token in range(4)] for row in range(4)]
    found = flows(capacities, torch.arange(4))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-7, rtol=0)


def test_attention_flow_is_at_least_rollout_at_most_one_and_equal_with_one_layer():
    maps = random_maps(4, 6)
    capacities = [mixed(m, 0.5) for m in maps]
    found = flows(capacities, torch.arange(6))
    assert bool((found >= roll_out(maps, 0.5) - 1e-7).all()) and bool((found <= 1 + 1e-7).all())
    torch.testing.assert_close(flows(capacities[:1], torch.arange(6)), capacities[0], atol=1e-8, rtol=0)


def test_attention_flow_follows_tokens_when_they_trade_places():
    maps, order = random_maps(3, 5), torch.tensor([3, 0, 4, 1, 2])
    capacities = [mixed(m, 0.5) for m in maps]
    moved = [m[order][:, order] for m in capacities]
    found, again = (flows(c, torch.arange(5)) for c in (capacities, moved))
    torch.testing.assert_close(again, found[order][:, order], atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_attention_flow_of_a_causal_model_is_at_least_its_rollout(name):
    model = tiny.loaded(name, scale=6.0)
    example = model.example(tiny.IDS)
    flow = attribute(model, example, "attention_flow", normalised=False).scores
    assert bool((flow >= attribute(model, example, "rollout").scores - 1e-6).all())
    shares = attribute(model, example, "attention_flow").scores
    torch.testing.assert_close(shares, flow / flow.sum(), atol=1e-6, rtol=1e-5)


def test_effective_attention_cannot_tell_rows_of_attention_with_one_output_apart():
    values = torch.arange(4.0, dtype=torch.float64)[:, None]
    rows = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.4, 0.6, 0, 0], [0.8, 0, 0, 0.2]], dtype=torch.float64)
    basis, rank = reached(values, keep_sum=False)
    summed, more = reached(values, keep_sum=True)
    exact = torch.tensor([0, 0.6, 1.2, 1.8], dtype=torch.float64) / 14
    kept = torch.tensor([0.52, 0.34, 0.16, -0.02], dtype=torch.float64)
    assert (rank, more) == (1, 2)
    for row in rows:
        torch.testing.assert_close(row @ basis @ basis.T, exact, atol=1e-12, rtol=0)
        torch.testing.assert_close(row @ summed @ summed.T, kept, atol=1e-12, rtol=0)


def own_projection(model, name):
    """W_O [head d_value d_model] of the last layer that is explained, from the module's own weight."""
    module = model.module
    if name == "bert":
        weight = module.bert.encoder.layer[-1].attention.output.dense.weight.T
    elif name == "gpt2":
        weight = module.transformer.h[-1].attn.c_proj.weight
    elif name == "llama":
        weight = module.model.layers[-1].self_attn.o_proj.weight.T
    else:
        weight = module.decoder.block[-1].layer[1].EncDecAttention.o.weight.T
    return weight.detach().double().reshape(4, 8, 32)


@pytest.mark.parametrize("keep_sum", [False, True])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_effective_attention_is_the_shortest_row_with_the_output_of_the_whole(name, keep_sum):
    from attnprobe.attention.seam import Keep

    model = tiny.loaded(name, scale=6.0, dtype=torch.float64)
    example = tiny.example(model, name)
    kind = "cross" if name == "t5" else "self"
    row = {"bert": 0, "gpt2": 11, "llama": 11, "t5": 1}[name]
    site = model.capture(example, keep=Keep.of("weights", "value", kind=kind)).sites[-1]
    W_O = own_projection(model, name)
    for head in range(4):
        options = {"heads": head, "keep_sum": keep_sum}
        if name == "t5":
            found = attribute(model, example, "effective_attention", **options).map[row].double()
        else:
            found = attribute(model, example, "effective_attention", **options).scores.double()
        weights = site.weights[0, head, row].double()
        T = site.value[0, head].double() @ W_O[head]
        torch.testing.assert_close(found @ T, weights @ T, atol=1e-5, rtol=1e-4)
        T = torch.cat([T, torch.ones(12, 1)], dim=1) if keep_sum else T
        shortest = torch.linalg.lstsq(T.T, (weights @ T)[:, None], driver="gelsd").solution[:, 0]
        torch.testing.assert_close(found, shortest, atol=1e-5, rtol=1e-3)
        if keep_sum:
            assert float(found.sum()) == pytest.approx(1.0, abs=1e-5)


def test_effective_attention_of_an_early_position_has_only_what_it_may_see(llama):
    from attnprobe.target import Target

    example = llama.example(tiny.IDS)
    found = attribute(llama, example, "effective_attention", Target(position=4))
    assert bool((found.scores[5:] == 0).all()) and bool((found.scores[:5] != 0).all())
    # Five keys and eight directions of value: nothing is free, so all of the attention is effective.
    raw = attribute(llama, example, "raw_attention", Target(position=4))
    assert found.used["free_directions"] == [0, 0, 0, 0]
    torch.testing.assert_close(found.scores, raw.scores, atol=1e-5, rtol=1e-4)


class Values:
    """Within the block, the outputs of value maps are 0 at a token, by hooks; weights as they were where given."""

    def __init__(self, maps, token, frozen=None, monkeypatch=None):
        self.maps, self.token, self.frozen, self.monkeypatch = maps, token, frozen, monkeypatch

    def __enter__(self):
        def zero(module, args, output):
            output = output.clone()
            output[:, self.token] = 0
            return output

        self.handles = [m.register_forward_hook(zero) for m in self.maps]
        if self.frozen is not None:
            given = iter(self.frozen)
            self.plain = torch.nn.functional.softmax
            self.monkeypatch.setattr(torch.nn.functional, "softmax", lambda *a, **k: next(given)[None])

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()
        if self.frozen is not None:
            self.monkeypatch.setattr(torch.nn.functional, "softmax", self.plain)


def test_frozen_attention_is_that_of_the_plain_pass_and_recomputed_is_not(bert, short, monkeypatch):
    module = bert.module
    maps = [layer.attention.self.value for layer in module.bert.encoder.layer]
    frozen = attribute(bert, short, "value_zeroing", read="target", attention="frozen").scores
    again = attribute(bert, short, "value_zeroing", read="target").scores
    with torch.no_grad():
        out = module(**short.inputs, output_attentions=True)
        label = int(out.logits.argmax())
        weights = [a[0] for a in out.attentions]
        for j in range(6):
            with Values(maps, j):
                expected = out.logits[0, label] - module(**short.inputs).logits[0, label]
            torch.testing.assert_close(again[j], expected, atol=1e-5, rtol=1e-4)
            with Values(maps, j, weights, monkeypatch):
                expected = out.logits[0, label] - module(**short.inputs).logits[0, label]
            torch.testing.assert_close(frozen[j], expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(frozen, again, atol=1e-3)


def parts_of(module, name):
    """Layers of the decoder, and the value maps of encoder self-, decoder cross- and decoder self-attention."""
    if name == "bart":
        body = module.model
        return (
            list(body.decoder.layers),
            [layer.self_attn.v_proj for layer in body.encoder.layers],
            [layer.encoder_attn.v_proj for layer in body.decoder.layers],
            [layer.self_attn.v_proj for layer in body.decoder.layers],
        )
    return (
        list(module.decoder.block),
        [block.layer[0].SelfAttention.v for block in module.encoder.block],
        [block.layer[1].EncDecAttention.v for block in module.decoder.block],
        [block.layer[0].SelfAttention.v for block in module.decoder.block],
    )


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_values_of_the_source_are_zeroed_in_the_encoder_and_in_cross_attention(name):
    model = tiny.loaded(name, scale=3.0)
    example = tiny.example(model, name)
    _, encoder, cross, _ = parts_of(model.module, name)
    target = model.resolve(example)
    found = attribute(model, example, "value_zeroing", target, read="target")
    with torch.no_grad():
        whole = target(model.module(**example.inputs).logits)
        for j in range(0, example.n_tokens, 3):
            with Values([*encoder, *cross], j):
                expected = whole - target(model.module(**example.inputs).logits)
            torch.testing.assert_close(found.scores[j], expected[0], atol=1e-4, rtol=1e-3)
    assert found.used["zeroed"] == "encoder self-attention, decoder cross-attention"


def changed_outputs(module, inputs, layer, maps, token):
    """What a decoder layer gives out in a whole pass in which it alone has a token's values at 0."""
    seen = []
    handle = layer.register_forward_hook(
        lambda m, a, output: seen.append(output[0] if isinstance(output, tuple) else output)
    )
    with torch.no_grad(), Values(maps, token):
        module(**inputs)
    handle.remove()
    return seen[0].view(-1, 32).double()


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_value_zeroing_of_an_encoder_decoder_joins_source_and_answer_in_each_decoder_layer(name):
    from attnprobe.methods.value_zeroing import layer_changes

    model = tiny.loaded(name, scale=3.0)
    example = model.example(tiny.IDS[:5], answer=[4, 5, 6])
    layers, _, cross, own = parts_of(model.module, name)
    below = roll_out(layer_changes(model, example, "encoder"), 0.0).double()
    between = torch.zeros(3, 5, dtype=torch.float64)
    for number, layer in enumerate(layers):
        plain = changed_outputs(model.module, example.inputs, layer, [], 0)
        outputs = [changed_outputs(model.module, example.inputs, layer, [cross[number]], j) for j in range(5)]
        outputs += [changed_outputs(model.module, example.inputs, layer, [own[number]], i) for i in range(3)]
        distance = torch.stack([1 - torch.cosine_similarity(o, plain, dim=-1) for o in outputs], dim=1)
        shares = distance / distance.sum(-1, keepdim=True)
        between = shares[:, 5:] @ between + shares[:, :5] @ below
    found = attribute(model, example, "value_zeroing")
    torch.testing.assert_close(found.map.double(), between, atol=1e-4, rtol=1e-2)
    torch.testing.assert_close(found.scores.double(), between.mean(0), atol=1e-4, rtol=1e-2)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("raw_attention", {"layer": 3}, "no layer 3; the stack has layers 0 to 2"),
        ("raw_attention", {"heads": 4}, "no head 4"),
        ("rollout", {"identity": 1.5}, "a share from 0 to 1, got 1.5"),
        ("rollout", {"discard": 1.0}, "from 0 to below 1, got 1.0"),
        ("attention_flow", {"identity": -0.5}, "a share from 0 to 1, got -0.5"),
        ("effective_attention", {"rank_tolerance": 2.0}, "from 0 to below 1, got 2.0"),
        ("value_zeroing", {"attention": "frozen"}, "belongs to read='target'"),
    ],
)
def test_an_option_out_of_range_is_an_error_with_what_it_may_be(bert, short, method, options, message):
    with pytest.raises(InputError, match=message):
        attribute(bert, short, method, **options)
