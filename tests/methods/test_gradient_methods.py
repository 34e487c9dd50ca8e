"""The gradient family against exact planted values, captum's own calls, and slow re-implementations."""

import warnings

import numpy as np
import pytest
import torch
from captum.attr import LayerIntegratedGradients, NoiseTunnel, Saliency
from torch import nn

from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.methods.paths import scale_free_norm
from attnprobe.models import load
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted import planted
from attnprobe.target import Target
from tests import tiny

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

COMPLETE = ("input_x_gradient", "integrated_gradients", "gradient_shap", "layer_conductance", "deep_lift")
LINEAR = {
    "P1": [0, 0, 1, 0],
    "P2": [2, 0, 0],
    "P3A": [0, 1.3, 1.4],
    "P3B": [0, 1.3, 1.4],
}
# methods.md, section I; deep_lift as the rescale rule gives it by hand.
GATES = [
    ("P6", "input_x_gradient", [0, 0, 0]),
    ("P6", "integrated_gradients", [0, 0.5, 0.5]),
    ("P6", "deep_lift", [0, 0.5, 0.5]),
    ("P7", "input_x_gradient", [0, 1, 1]),
    ("P7", "integrated_gradients", [0, 0.5, 0.5]),
    ("P7", "deep_lift", [0, 0.5, 0.5]),
    ("P8", "input_x_gradient", [0, -1, -2]),
    ("P8", "integrated_gradients", [0, 0, -1]),
    ("P8", "deep_lift", [0, 0, -1]),
    ("P9", "input_x_gradient", [0, 1, 1]),
    ("P9", "integrated_gradients", [0, 1, 1]),
    ("P9", "deep_lift", [0, 1, 1]),
    ("P9_unequal", "input_x_gradient", [0, 0, 0]),
    ("P9_unequal", "integrated_gradients", [0, 0, 0]),
    ("P9_unequal", "deep_lift", [0, 0, 0]),
    ("P10", "input_x_gradient", [0, 0, 0]),
    ("P10", "integrated_gradients", [0, 1, 0]),
    ("P10", "deep_lift", [0, 1, 0]),
]


def scores(name, method, **options):
    made = planted(name)
    return attribute(made.model, made.example, method, **options).scores


def close(found, expected, atol=1e-6):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float32), atol=atol, rtol=0)


def double(name, scale=2.0):
    """A tiny model in float64 and an input of it."""
    model = tiny.loaded(name, scale=scale, dtype=torch.float64)
    given = tiny.given(name)
    return model, model.example(given.double()) if name == "vit" else tiny.example(model, name)


@pytest.fixture(scope="module")
def bert():
    return double("bert", 3.0)


# ---------------------------------------------------------------- planted values


@pytest.mark.parametrize("name", list(LINEAR))
@pytest.mark.parametrize("method", COMPLETE)
def test_where_the_target_is_linear_every_method_gives_the_exact_contribution(name, method):
    layer = {"layer": 0} if method == "layer_conductance" else {}
    close(scores(name, method, **layer), LINEAR[name], atol=2e-6)


@pytest.mark.parametrize(("name", "method", "expected"), GATES)
def test_a_gate_gets_the_exact_value(name, method, expected):
    close(scores(name, method), expected, atol=0.02 if method == "integrated_gradients" else 1e-6)


@pytest.mark.parametrize("name", ["P6", "P7", "P8", "P9", "P10"])
def test_an_even_number_of_steps_integrates_the_planted_kinks_as_conductance_does(name):
    path = attribute(*two(name), "integrated_gradients", n_steps=400, max_steps=400)
    flow = attribute(*two(name), "layer_conductance", layer=0, n_steps=400, max_steps=400)
    torch.testing.assert_close(path.scores, flow.scores, atol=5e-3, rtol=0)


def two(name):
    made = planted(name)
    return made.model, made.example


@pytest.mark.parametrize(("reduction", "first"), [("l2", 1.01**0.5), ("l1", 1.1), ("sum", 1.1)])
@pytest.mark.parametrize("method", ["saliency", "smooth_grad"])
def test_the_size_of_the_gradient_points_at_the_token_without_a_value(method, reduction, first):
    close(scores("P1", method, reduction=reduction), [first, 0.7, 0.1, 0.1])


def test_where_the_softmax_moves_the_path_decides():
    close(scores("P1c", "input_x_gradient"), [-1.362, -1.362, 1, 0], atol=5e-4)
    close(scores("P1c", "integrated_gradients", tolerance=1e-6), [-0.508, -0.508, 2.015, 0], atol=6e-4)
    close(scores("P1c", "layer_conductance", layer=0, n_steps=100), [-0.508, -0.508, 2.015, 0], atol=2e-3)


def test_two_hops_are_followed_to_the_content_by_gradients_and_seen_at_the_carrier_by_conductance():
    for method in ("input_x_gradient", "integrated_gradients", "gradient_shap", "deep_lift"):
        close(scores("P5", method), [0, 0.815, 0])
    close(scores("P5", "layer_conductance", layer=0), [0, 0.815, 0])
    close(scores("P5", "layer_conductance", layer=1), [0.0025, 0.0025, 0.81])


@pytest.mark.parametrize("method", ["integrated_gradients", "deep_lift"])
def test_from_flipped_signs_neither_token_of_an_equality_has_a_say(method):
    made = planted("P9")
    flipped = -made.model.embed(made.example)
    found = attribute(made.model, made.example, method, baseline=flipped)
    close(found.scores, [0, 0, 0], atol=1e-6)
    assert found.used["baseline"] == "given" and found.used["change"] == pytest.approx(0)


# ---------------------------------------------------------------- references


def by_embeddings(model, example, label):
    """The model's own logit of embeddings, for captum and autograd without any of our code."""
    return lambda rows: model.module(inputs_embeds=rows).logits[:, label]


def test_saliency_and_its_reductions_are_autograds(bert):
    model, example = bert
    rows = model.module.get_input_embeddings()(example.inputs["input_ids"]).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(by_embeddings(model, example, 1)(rows).sum(), rows)
    for reduction, expected in (("l2", gradient[0].norm(dim=-1)), ("l1", gradient[0].abs().sum(-1))):
        close(attribute(model, example, "saliency", 1, reduction=reduction).scores, expected.float())
    close(attribute(model, example, "saliency", 1, reduction="sum").scores, gradient[0].sum(-1).float())
    product = (gradient * rows)[0].sum(-1).detach()
    close(attribute(model, example, "input_x_gradient", 1).scores, product.float())


@pytest.mark.parametrize(("path", "part"), [("words", "word_embeddings"), ("embeddings", "")])
def test_both_paths_of_integrated_gradients_are_captums_at_the_layer(path, part):
    model = load(tiny.build("bert", scale=3.0).double())  # of its own: a word's vector is changed
    example = model.example(tiny.IDS)
    bed = model.module.bert.embeddings
    layer, ids = bed.get_submodule(part), example.inputs["input_ids"]
    mean = bed.word_embeddings.weight.detach().mean(0)
    with torch.no_grad():  # a word whose vector is the mean of all
        bed.word_embeddings.weight[59] = mean
    reference = LayerIntegratedGradients(lambda given: model.module(given).logits[:, 1], layer)
    expected = reference.attribute(ids, baselines=torch.full_like(ids, 59), n_steps=40)[0].sum(-1)
    found = attribute(model, example, "integrated_gradients", 1, baseline=mean, path=path, n_steps=40)
    close(found.scores, expected.float())
    assert abs(found.residual) < 1e-8


def test_smooth_grad_is_captums_with_noise_in_units_of_the_embeddings(bert):
    model, example = bert
    rows = model.embed(example)[None].clone()
    torch.manual_seed(7)
    reference = NoiseTunnel(Saliency(by_embeddings(model, example, 0)))
    deviation = float(rows.std(correction=0)) * 0.3
    expected = reference.attribute(rows.requires_grad_(), nt_samples=12, stdevs=deviation, abs=False)[0].norm(dim=-1)
    found = attribute(model, example, "smooth_grad", 0, n_samples=12, sigma=0.3, seed=7)
    close(found.scores, expected.float())
    assert found.used["noise"] == pytest.approx(deviation)


def test_smooth_grad_without_noise_is_the_plain_gradient_in_one_pass(bert):
    found = attribute(*bert, "smooth_grad", sigma=0.0)
    close(found.scores, attribute(*bert, "saliency").scores)
    assert found.forward_passes == 1


@pytest.mark.parametrize(("name", "layer"), [("bert", 1), ("gpt2", 2), ("albert", 2)])
def test_layer_conductance_is_the_integral_of_gradients_over_the_models_own_hidden_states(name, layer):
    """The trapezoid by hand: gradient at hidden_states[layer] times its step, along the line of embeddings."""
    model, example = double(name)
    end, start = model.embed(example), model.fillers["mean"].expand(example.n_tokens, -1)
    points = torch.linspace(0, 1, 26, dtype=torch.double)
    out = [
        model.module(inputs_embeds=(start + t * (end - start))[None].requires_grad_(), output_hidden_states=True)
        for t in points
    ]
    at = (0, -1) if name == "gpt2" else (0,)
    gradients = [torch.autograd.grad(o.logits[at][2], o.hidden_states[layer], retain_graph=True)[0] for o in out]
    states = [o.hidden_states[layer].detach() for o in out]
    steps = [(g + h) / 2 * (b - a) for g, h, a, b in zip(gradients, gradients[1:], states, states[1:], strict=False)]
    expected = torch.stack(steps).sum(0)[0].sum(-1)
    found = attribute(model, example, "layer_conductance", 2, layer=layer, tolerance=1.0)
    close(found.scores, expected.float())


def test_gradient_shap_approaches_the_mean_of_integrated_gradients_over_its_baselines(bert):
    model, example = bert
    found = attribute(model, example, "gradient_shap", n_samples=300)
    assert found.used["baselines"] == ["mean", "zero"]
    exact = attribute(model, example, "integrated_gradients", baseline=["mean", "zero"], tolerance=1e-4)
    assert bool(((found.scores - exact.scores).abs() <= 5 * found.standard_error + 1e-4).all())
    assert found.used["change"] == pytest.approx(exact.used["change"])


def test_gradient_shap_takes_texts_as_baselines_cut_or_repeated_to_the_input(bert):
    model, example = bert
    found = attribute(model, example, "gradient_shap", 0, against=[tiny.IDS[::-1][:5]], n_samples=200)
    ids = [tiny.IDS[::-1][i % 5] for i in range(example.n_tokens)]
    begin = model.embed(model.example(ids))
    expected = attribute(model, example, "integrated_gradients", 0, baseline=begin)
    assert bool(((found.scores - expected.scores).abs() <= 5 * found.standard_error + 1e-4).all())


# ---------------------------------------------------------------- completeness, precision, batches


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit"])
@pytest.mark.parametrize("path", ["words", "embeddings"])
def test_integrated_gradients_are_complete_in_float64(name, path):
    # A random T5 is steep and has kinks (ReLU): smaller parameters and more steps.
    scale, n_steps, share = (0.5, 400, 2e-3) if name == "t5" else (2.0, 100, 1e-5)
    model, example = double(name, scale)
    found = attribute(model, example, "integrated_gradients", path=path, n_steps=n_steps, max_steps=n_steps)
    assert abs(found.residual) <= share * abs(found.used["change"])
    assert float(found.scores.sum()) == pytest.approx(found.used["change"], rel=2 * share)


@pytest.mark.parametrize("name", ["bert", "llama", "bart", "vit"])
@pytest.mark.parametrize("layer", [0, -1])
def test_the_states_of_every_layer_are_a_full_cut(name, layer):
    model, example = double(name)
    found = attribute(model, example, "layer_conductance", layer=layer, n_steps=100, max_steps=100)
    assert abs(found.residual) <= 0.01 * abs(found.used["change"])


@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("method", ["saliency", "input_x_gradient", "integrated_gradients", "smooth_grad"])
def test_bfloat16_is_near_float32(name, method):
    options = {"integrated_gradients": {"n_steps": 20, "max_steps": 20}}.get(method, {})
    module = tiny.build(name, "eager", scale=1.0)
    answers = []
    for dtype in (torch.float32, torch.bfloat16):
        model = load(module.to(dtype))
        example = tiny.example(model, name)
        answers.append(attribute(model, example, method, Target(label=3, position=-1), **options).scores)
    assert torch.corrcoef(torch.stack(answers))[0, 1] > 0.99


@pytest.mark.parametrize("method", ["smooth_grad", "gradient_shap", "layer_conductance", "integrated_gradients"])
def test_scores_do_not_depend_on_the_batch(method):
    model, example = double("gpt2")
    options = {"n_samples": 7} if "g" in method[-4:] or "shap" in method else {"tolerance": 1.0}
    ones, all_at_once = (attribute(model, example, method, batch_size=n, **options) for n in (1, 64))
    torch.testing.assert_close(ones.scores, all_at_once.scores, atol=1e-7, rtol=1e-5)


def test_nobody_elses_random_numbers_are_touched(bert):
    torch.manual_seed(3)
    np.random.seed(3)
    expected = torch.rand(3), np.random.rand(3)
    torch.manual_seed(3)
    np.random.seed(3)
    first = attribute(*bert, "gradient_shap", seed=1).scores
    assert torch.equal(attribute(*bert, "gradient_shap", seed=1).scores, first)
    assert not torch.equal(attribute(*bert, "gradient_shap", seed=2).scores, first)
    attribute(*bert, "smooth_grad", n_samples=5)
    assert torch.equal(torch.rand(3), expected[0]) and bool((np.random.rand(3) == expected[1]).all())


# ---------------------------------------------------------------- baselines


def test_several_baselines_are_averaged_and_their_spread_is_the_standard_error(bert):
    model, example = bert
    vector = torch.ones(32) * 0.1
    one, two, three = (attribute(model, example, "integrated_gradients", baseline=b) for b in ("mean", "zero", vector))
    all_three = attribute(model, example, "integrated_gradients", baseline=["mean", "zero", vector])
    each = torch.stack([one.scores, two.scores, three.scores])
    close(all_three.scores, each.mean(0))
    close(all_three.standard_error, each.std(0) / 3**0.5)
    assert all_three.used["baseline"] == ["mean", "zero", "given"]
    assert all_three.used["changes"] == pytest.approx([x.used["change"] for x in (one, two, three)])
    assert all_three.residual == pytest.approx((one.residual + two.residual + three.residual) / 3, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": []}, "names no baseline"),
        ({"baseline": torch.zeros(5)}, r"a vector \[32\], or one a token \[12, 32\], got \[5\]"),
        ({"baseline": "pad"}, "no 'pad' embedding"),
        ({"path": "words and all"}, "option path"),
        ({"n_steps": 0}, "n_steps is from 1"),
    ],
)
def test_a_baseline_or_path_that_does_not_exist_is_an_error_that_says_what_does(bert, options, message):
    with pytest.raises(InputError, match=message):
        attribute(*bert, "integrated_gradients", **options)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gradient_shap", {"n_samples": 4}, "at least 5"),
        ("gradient_shap", {"against": []}, "at least one"),
        ("smooth_grad", {"sigma": -1.0}, "0 or more"),
        ("smooth_grad", {"n_samples": 0}, "at least 1"),
        ("layer_conductance", {"layer": 3}, "layers 0 to 2"),
    ],
)
def test_an_option_out_of_range_is_an_error(bert, method, options, message):
    with pytest.raises(InputError, match=message):
        attribute(*bert, method, **options)


def test_norms_that_divide_the_size_away_are_known_by_what_they_do():
    found = {name: scale_free_norm(tiny.build(name)) for name in ("bert", "gpt2", "llama", "gemma2", "t5")}
    assert found["bert"] is None and found["gpt2"] is None
    assert found["llama"] == "LlamaRMSNorm" and found["gemma2"] == "Gemma2RMSNorm" and "Norm" in found["t5"]


def test_a_zero_baseline_is_warned_of_where_it_cannot_converge_and_left_out_of_gradient_shap():
    model, example = double("llama")
    found = attribute(model, example, "integrated_gradients", baseline="zero", n_steps=8, max_steps=8)
    assert any("LlamaRMSNorm divides the size" in w for w in found.warnings)
    assert attribute(model, example, "gradient_shap").used["baselines"] == ["mean"]
    bert = double("bert")
    assert not attribute(*bert, "integrated_gradients", baseline="zero").warnings


# ---------------------------------------------------------------- deep_lift


class Network(nn.Module):
    """Attention with constant weights, then an MLP whose activation is given, read at the first token."""

    def __init__(self, activation):
        super().__init__()
        self.token_embedding = nn.Embedding(6, 4)
        self.blocks = nn.ModuleList([MultiHeadAttention(4, 1)])
        nn.init.zeros_(self.blocks[0].query.weight)
        nn.init.zeros_(self.blocks[0].query.bias)
        self.first, self.activation, self.second = nn.Linear(4, 5), activation, nn.Linear(5, 2)

    def forward(self, embeddings, is_token=None):
        mixed = self.blocks[0](embeddings)[:, 0]
        return self.second(self.activation(self.first(mixed)))


class Twice(nn.Module):
    """One activation that runs twice."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.relu(x) - 0.1)


class Own(nn.Module):
    """An activation that is a function."""

    def forward(self, x):
        return torch.tanh(x)


def network(activation):
    torch.manual_seed(1)
    made = Network(activation).double()
    words = Vocabulary.of(["a b c"], specials=("[PAD]", "[UNK]"), begin=None)
    model = OwnModel(made, words, labels=("no", "yes"))
    return model, model.example("a b c")


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh(), nn.Sigmoid()], ids=["relu", "tanh", "sigmoid"])
def test_deep_lift_is_the_rescale_rule_by_hand(activation):
    model, example = network(activation)
    made, end = model.module, model.embed(example)
    start = model.fillers["mean"].expand(3, -1)
    z, z0 = (made.first(made.blocks[0](x[None])[:, 0])[0] for x in (end, start))
    slope = (activation(z) - activation(z0)) / (z - z0)
    # Everything but the activation is affine: the multiplier of an entry is its weight through it.
    inputs = end.clone().requires_grad_()
    hidden = made.first(made.blocks[0](inputs[None])[:, 0])[0]
    (multiplier,) = torch.autograd.grad((hidden * slope.detach() * made.second.weight[1]).sum(), inputs)
    found = attribute(model, example, "deep_lift", "yes", baseline="mean")
    close(found.scores, ((end - start) * multiplier).sum(-1).float().detach())
    assert abs(found.residual) < 1e-9 and not found.warnings
    assert (found.forward_passes, found.backward_passes) == (4, 2)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (nn.GELU(), r"'activation' \(GELU\) computes gelu"),
        (Own(), r"'activation' \(Own\) computes tanh"),
        (Twice(), "'activation.relu' runs more than once"),
    ],
)
def test_deep_lift_refuses_by_name_what_captum_has_no_hook_for(activation, message):
    with pytest.raises(InputError, match=message):
        attribute(*network(activation), "deep_lift", baseline="mean")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("bert", r"'bert.embeddings.LayerNorm' \(LayerNorm\)"),
        ("llama", r"'model.layers.0.input_layernorm' \(LlamaRMSNorm\)"),
        ("vit", r"'vit.*' \(LayerNorm\) computes layer_norm"),
    ],
)
def test_deep_lift_refuses_a_transformer_at_its_first_norm_and_states_the_gap_when_it_must(name, place):
    model, example = double(name)
    with pytest.raises(InputError, match=place):
        attribute(model, example, "deep_lift")
    found = attribute(model, example, "deep_lift", approximate=True)
    assert float(found.scores.double().sum()) == pytest.approx(found.used["change"] + found.residual, abs=1e-5)
    assert any("deep_lift: with plain gradients where" in w for w in found.warnings)


def test_deep_lift_refuses_an_attention_whose_weights_move_with_the_input():
    with pytest.raises(
        InputError, match=r"'blocks.0.attention' \(MultiHeadAttention\) computes matmul of tensors that both"
    ):
        attribute(*two("P1c"), "deep_lift")
    with pytest.raises(InputError, match="runs more than once"):
        attribute(*network(Twice()), "deep_lift", baseline="mean", approximate=True)


def test_deep_lift_leaves_nothing_on_the_modules_it_hooked():
    made = planted("P6")
    relus = [part for part in made.model.module.modules() if isinstance(part, nn.ReLU)]
    before = [set(vars(relu)) for relu in relus]
    attribute(made.model, made.example, "deep_lift")
    assert relus and [set(vars(relu)) for relu in relus] == before
    assert all(not relu._forward_hooks and not relu._forward_pre_hooks for relu in relus)


# ---------------------------------------------------------------- pictures


def test_the_vectors_of_a_picture_are_its_projected_patches_and_special_tokens_have_none():
    model, example = double("vit")
    with torch.no_grad():
        expected = model.module.vit.embeddings.patch_embeddings(example.inputs["pixel_values"])[0]
    found = model.embed(example)
    assert torch.equal(found[1:], expected) and not bool(found[0].any())
    gradient = attribute(model, example, "saliency")
    assert float(gradient.scores[0]) == 0 and bool((gradient.scores[1:] > 0).all())


def test_taking_a_patch_away_is_blacking_out_its_pixels():
    model, example = double("vit")
    pixels, expected = example.inputs["pixel_values"], []
    with torch.no_grad():
        whole = model.module(pixels).logits[0, 0]
        for row in range(3):
            for column in range(3):
                dark = pixels.clone()
                dark[..., 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 0
                expected.append(whole - model.module(dark).logits[0, 0])
    found = attribute(model, example, "leave_one_out", 0, operator="mask")
    close(found.scores, [0.0, *(float(x) for x in expected)])


def test_a_model_without_a_vector_a_patch_is_refused_with_the_reason():
    import transformers

    config = transformers.PvtConfig(image_size=32, depths=[1, 1, 1, 1])
    model = load(transformers.PvtForImageClassification(config).eval())
    example = model.example(torch.rand(3, 32, 32))
    with warnings.catch_warnings(), pytest.raises(InputError, match="needs a vector for each token or patch"):
        attribute(model, example, "saliency")
    assert model.fillers == {}
