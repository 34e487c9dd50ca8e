"""Attention weighted by gradients: planted values, slow versions from the formulas on the models' own attentions."""

import pytest
import torch
import transformers

from attnprobe.attention.recurrent import RecurrentEncoderDecoder
from attnprobe.attention.seam import NOTHING, Keep
from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.intervention import gate, silence_head, zero_value
from attnprobe.methods.attention_gradient import weight_gradients
from attnprobe.methods.chefer_2021b import normalised
from attnprobe.models import load
from attnprobe.models.evaluator import differentiable
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted import planted
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row
from attnprobe.target import Target
from tests import tiny

# Of [CLS] the handbook gives no number for Chefer et al. 2021b: its own score is set to 0.
PLANTED = [
    ("P1", "chefer_2021b", {}, [0, 0, 1, 0]),
    ("P1", "grad_sam", {}, [0, 0, 1 / 4, 0]),
    ("P1", "attention_integrated_gradients", {}, [0, 0, 1, 0]),
    ("P2", "chefer_2021b", {}, [0, 0, 0]),
    ("P2", "chefer_2021b", {"own": "keep"}, [1, 0, 0]),
    ("P3A", "chefer_2021b", {}, [0, 0.65, 0.7]),
    ("P3B", "chefer_2021b", {}, [0, 0.65, 0.7]),
    ("P3A", "grad_sam", {}, [0, 1.3 / 6, 1.4 / 6]),
    ("P3A", "grad_sam", {"tokens": "queries"}, [2.7 / 6, 0, 0]),
    ("P3A", "attention_x_gradient", {"heads": 0}, [0, 0.8, 0.1]),
    ("P3A", "attention_x_gradient", {"heads": 1}, [0, 0.5, 1.3]),
    ("P3B", "attention_integrated_gradients", {}, [0, 1.3, 1.4]),
    ("P5", "chefer_2021b", {}, [0, 0.6611125, 0.81]),
    ("P6", "attention_x_gradient", {}, [0, 0, 0]),
    ("P6", "chefer_2021b", {}, [0, 0, 0]),
    ("P6", "attention_integrated_gradients", {"tolerance": 1e-4}, [0, 0.5, 0.5]),
    ("P7", "attention_x_gradient", {}, [0, 1, 1]),
    ("P7", "chefer_2021b", {}, [0, 1, 1]),
    ("P7", "attcat", {}, [0, 1 / 3, 1 / 3]),
    ("P8", "attention_x_gradient", {}, [0, -1, -2]),
    ("P8", "chefer_2021b", {}, [0, 0, 0]),
    ("P8", "attcat", {}, [0, -1 / 3, -2 / 3]),
    ("P9", "attention_x_gradient", {}, [0, 1, 1]),
    ("P9", "chefer_2021b", {}, [0, 1, 1]),
    ("P9_unequal", "attention_x_gradient", {}, [0, 0, 0]),
    ("P9_unequal", "chefer_2021b", {}, [0, 0, 0]),
    ("P10", "attention_x_gradient", {}, [0, 0, 0]),
    ("P10", "chefer_2021b", {}, [0, 0, 0]),
]


@pytest.mark.parametrize(("name", "method", "options", "expected"), PLANTED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_planted_model_gives_the_exact_value(name, method, options, expected):
    made = planted(name)
    found = attribute(made.model, made.example, method, **options).scores
    kinked = name == "P6" and method == "attention_integrated_gradients"  # its path crosses a kink
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float32), atol=2e-3 if kinked else 1e-6, rtol=0
    )


def ready(name, scale=4.0):
    model = tiny.loaded(name, scale=scale, dtype=torch.float64)
    example = tiny.example(model, name)
    return model, example, model.resolve(example)


def own_attentions(model, example, target):
    """The model's own eager attentions by (stack, kind), with the target's gradients, and its hidden states."""
    out = model.module(**example.inputs, output_attentions=True, output_hidden_states=True)
    if hasattr(out, "cross_attentions") and out.cross_attentions:
        maps = {"encoder": out.encoder_attentions, "decoder": out.decoder_attentions, "cross": out.cross_attentions}
    else:
        maps = {"self": out.attentions}
    y = target(out.logits).sum()
    gradients = {
        kind: [g[0] for g in torch.autograd.grad(y, layers, retain_graph=True)] for kind, layers in maps.items()
    }
    weights = {kind: [layer[0].detach() for layer in layers] for kind, layers in maps.items()}
    return weights, gradients, (out, y)


def close(found, expected):
    torch.testing.assert_close(found.double(), expected.double(), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_weights_times_gradients_of_a_head_add_up_to_the_gradient_of_its_gate(name):
    model, example, target = ready(name)
    stack = explained_stack(model, example)
    tolerance = 1e-9 if name in ("bert", "gpt2") else 1e-5  # Llama and T5 take their softmax in float32
    found = weight_gradients(model, example, target, stack)
    assert len(found) == stack.n_layers
    for layer in found:
        gates = torch.ones(4, dtype=torch.float64, requires_grad=True)
        edit = gate(gates, layer.place.layer, stack=stack.name, kind=stack.kind)
        logits, _ = differentiable(model, [Row(example, edits=(edit,))], NOTHING)
        (expected,) = torch.autograd.grad(target(logits).sum(), gates)
        summed = layer.product.double().sum((1, 2))
        assert float((summed - expected).abs().max()) <= tolerance * max(1.0, float(expected.abs().max()))


def linear_behind(name):
    """A model whose answer is linear in the attention output of its last layer: no norm or MLP behind it."""
    module = tiny.build(name, "eager", scale=4.0).double()
    with torch.no_grad():
        if name == "gpt2":
            module.transformer.ln_f = torch.nn.Identity()
            module.transformer.h[-1].mlp.c_proj.weight.zero_()
        elif name == "llama":
            module.model.norm = torch.nn.Identity()
            module.model.layers[-1].mlp.down_proj.weight.zero_()
        else:
            module.decoder.final_layer_norm = torch.nn.Identity()
            module.decoder.block[-1].layer[-1].DenseReluDense.wo.weight.zero_()
    return load(module)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_where_the_answer_is_linear_in_the_last_layer_it_is_the_effect_of_zeroing_values_there(name):
    model = linear_behind(name)
    example = tiny.example(model, name)
    target = model.resolve(example, Target(label=3, against=7, position=2))
    stack = explained_stack(model, example)
    found = attribute(model, example, "attention_x_gradient", target, layers="last").scores
    where = {"layers": stack.n_layers - 1, "stack": stack.name, "kind": stack.kind}
    rows = [Row(example, edits=(zero_value(j, **where),)) for j in range(example.n_tokens)]
    answers = model.targets([Row(example), *rows], target)
    close(found, answers[0] - answers[1:])
    assert float(found.abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
@pytest.mark.parametrize(("tokens", "axis"), [("keys", 1), ("queries", 2)])
def test_grad_sam_is_the_mean_of_weights_times_positive_gradients(name, tokens, axis):
    model, example, target = ready(name)
    if name == "t5" and tokens == "queries":
        with pytest.raises(InputError, match="the answer's tokens"):
            attribute(model, example, "grad_sam", target, tokens=tokens)
        return
    weights, gradients, _ = own_attentions(model, example, target)
    kind = "cross" if name == "t5" else "self"
    expected = torch.zeros(example.n_tokens, dtype=torch.float64)
    for a, g in zip(weights[kind], gradients[kind], strict=True):
        for head in range(4):
            expected += (a[head] * g[head].clamp(min=0)).mean(axis - 1) / (4 * len(weights[kind]))
    close(attribute(model, example, "grad_sam", target, tokens=tokens).scores, expected)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_attcat_weighs_gradient_times_layer_input_by_the_mean_attention_on_a_token(name):
    model, example, target = ready(name)
    weights, _, (out, y) = own_attentions(model, example, target)
    inputs = out.hidden_states[:-1]  # of layers 0 to L - 1; the last entry is behind the last layer
    gradients = torch.autograd.grad(y, inputs)
    expected = torch.zeros(example.n_tokens, dtype=torch.float64)
    for a, x, g in zip(weights["self"], inputs, gradients, strict=True):
        for j in range(example.n_tokens):
            on_token = sum(float(a[h, i, j]) for h in range(4) for i in range(len(a[h]))) / (4 * len(a[0]))
            expected[j] += on_token * float((x[0, j] * g[0, j]).detach().sum())
    close(attribute(model, example, "attcat", target).scores, expected)


def test_attcat_of_frozen_parameters_finds_the_same():
    free, example, target = ready("bert")
    frozen = load(tiny.build("bert").double().requires_grad_(False))
    close(attribute(frozen, example, "attcat", target).scores, attribute(free, example, "attcat", target).scores)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit"])
def test_chefer_2021b_is_the_product_of_layers_with_the_identity_added(name):
    model, example, target = ready(name)
    weights, gradients, _ = own_attentions(model, example, target)
    n, row = example.n_tokens, 0 if name in ("bert", "vit") else example.n_tokens - 1
    relevance = torch.eye(n, dtype=torch.float64)
    for a, g in zip(weights["self"], gradients["self"], strict=True):
        layer = torch.stack([(g[h] * a[h]).clamp(min=0) for h in range(len(a))]).mean(0)
        relevance = (torch.eye(n, dtype=torch.float64) + layer) @ relevance
    found = attribute(model, example, "chefer_2021b", target, own="keep").scores
    close(found, relevance[row])
    without = attribute(model, example, "chefer_2021b", target).scores
    assert float(without[row]) == 0 and torch.equal(without[torch.arange(n) != row], found[torch.arange(n) != row])


def residual_handled(relevance):
    """Eqs. 8 and 9: the identity taken off, rows divided by their sums (0/0 is 0), the identity put back."""
    beyond = relevance - torch.eye(len(relevance), dtype=relevance.dtype)
    for row in beyond:
        total = float(row.sum())
        row /= total if total > 0 else 1.0
    return beyond + torch.eye(len(relevance), dtype=relevance.dtype)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_chefer_2021b_carries_relevance_from_encoder_to_decoder_by_its_rules(name):
    model, example, target = ready(name)
    weights, gradients, _ = own_attentions(model, example, target)

    def layer(kind, number):
        a, g = weights[kind][number], gradients[kind][number]
        return torch.stack([(g[h] * a[h]).clamp(min=0) for h in range(4)]).mean(0).double()

    source, answer = (torch.eye(n, dtype=torch.float64) for n in (example.n_tokens, 3))
    between = torch.zeros(3, example.n_tokens, dtype=torch.float64)
    for number in range(3):
        source = source + layer("encoder", number) @ source
    for number in range(3):
        own = layer("decoder", number)
        answer, between = answer + own @ answer, between + own @ between
        between = between + residual_handled(answer).T @ layer("cross", number) @ residual_handled(source)
    found = attribute(model, example, "chefer_2021b", target)
    close(found.map, between)
    close(found.scores, between.mean(0))  # the answer's probability is read from all three positions
    one = attribute(model, example, "chefer_2021b", Target(label=5, position=1))
    assert one.used["read_rows"] == [1]


def test_an_empty_row_of_relevance_stays_empty_when_it_is_normalised():
    relevance = torch.eye(3, dtype=torch.float64)
    relevance[1, 0], relevance[1, 1] = 1.0, 4.0
    expected = torch.tensor([[1, 0, 0], [0.25, 1.75, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(normalised(relevance), expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_attention_integrated_gradients_are_the_left_sum_of_gradients_at_scaled_weights(monkeypatch):
    """Hao et al. 2021 on BERT, by a softmax whose result is scaled in one layer; probability, as published."""
    model, example, target = ready("bert")
    module, plain, steps = model.module, torch.nn.functional.softmax, 5
    expected = torch.zeros(3, 4, 12, 12, dtype=torch.float64)
    weights, _, _ = own_attentions(model, example, target)
    for number in range(3):
        for step in range(steps):
            calls, live = [], []

            def scaled(*args, number=number, step=step, calls=calls, live=live, **options):
                calls.append(1)
                out = plain(*args, **options)
                if len(calls) == number + 1:
                    out = out * (step / steps)
                    live.append(out)
                return out

            monkeypatch.setattr(torch.nn.functional, "softmax", scaled)
            logits = module(**example.inputs).logits
            monkeypatch.setattr(torch.nn.functional, "softmax", plain)
            (g,) = torch.autograd.grad(logits.softmax(-1)[0, target.label], live)
            expected[number] += weights["self"][number] * g[0] / steps
    options = {"rule": "left", "n_steps": steps, "max_steps": steps, "scale": "probability"}
    found = attribute(model, example, "attention_integrated_gradients", target, **options)
    close(found.map, expected.sum((0, 1)))
    close(found.scores, expected.sum((0, 1, 2)))
    one = attribute(model, example, "attention_integrated_gradients", target, layers=1, heads=2, **options)
    close(one.map, expected[1, 2])


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_attention_integrated_gradients_add_up_to_the_fall_of_the_target_without_the_layers_attention(name):
    model, example, target = ready(name, scale=2.0)
    stack = explained_stack(model, example)
    silenced = [
        Row(example, edits=(silence_head(layer, None, stack=stack.name, kind=stack.kind),))
        for layer in range(stack.n_layers)
    ]
    answers = model.targets([Row(example), *silenced], target)
    change = float((answers[0] - answers[1:]).sum())
    tolerance = 5e-3 if name == "t5" else 1e-4  # T5's ReLUs give the path kinks
    found = attribute(model, example, "attention_integrated_gradients", target, tolerance=tolerance)
    assert found.residual == pytest.approx(float(found.scores.double().sum()) - change, abs=1e-6)
    assert abs(found.residual) <= tolerance * float((answers[0] - answers[1:]).abs().sum()) + 1e-6


def test_attention_integrated_gradients_warn_where_too_few_steps_do_not_add_up():
    model, example, target = ready("t5")
    with pytest.warns(UserWarning, match="after 1 steps the scores of layer"):
        found = attribute(
            model, example, "attention_integrated_gradients", target, n_steps=1, max_steps=1, tolerance=1e-3
        )
    assert found.forward_passes <= 3 + 4 + 2 and found.backward_passes <= 3 + 1


def test_attention_integrated_gradients_of_a_recurrent_decoder_scale_the_weights_that_it_had():
    """Each step's weights depend on what earlier steps saw; held fast, they still add up to the fall of the target."""
    words = Vocabulary.of(["a good film"])
    answers = Vocabulary.of(["un bon film"], specials=("[BOS]", "[EOS]", "[UNK]"), begin="[BOS]", end="[EOS]")
    torch.manual_seed(0)
    network = RecurrentEncoderDecoder(
        len(words.tokens), len(answers.tokens), d_embedding=5, d_state=6, d_alignment=7
    ).double()
    model = OwnModel(network, words, target_vocabulary=answers)
    example = model.example("a good film", answer="un bon film")
    target = model.resolve(example)
    rows = [Row(example), Row(example, edits=(silence_head(0, None, kind="cross"),))]
    whole, empty = model.targets(rows, target).tolist()
    found = attribute(model, example, "attention_integrated_gradients", target)
    assert float(found.scores.sum()) == pytest.approx(whole - empty, abs=1e-6) and abs(whole - empty) > 1e-3
    assert found.map.shape == (4, 4)  # a row for each word of the answer and its end


@pytest.mark.parametrize(
    "method", ["attention_x_gradient", "grad_sam", "attcat", "attention_integrated_gradients", "chefer_2021b"]
)
def test_a_model_that_keeps_windows_apart_is_refused(method):
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 2], window_size=4, num_labels=3
    )
    torch.manual_seed(0)
    model = load(transformers.SwinForImageClassification(config).eval())
    example = model.example({"pixel_values": torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))})
    with pytest.raises(InputError, match=r"windows|cannot be told which is whose"):
        attribute(model, example, method)


def test_the_probability_of_a_target_that_is_a_function_is_refused():
    model, example, _ = ready("bart")
    with pytest.raises(InputError, match="no probability to take in its place"):
        attribute(model, example, "attention_integrated_gradients", scale="probability")


def test_layers_and_heads_of_attention_times_gradient_add_up_to_the_whole():
    model, example, target = ready("gpt2")
    whole = attribute(model, example, "attention_x_gradient", target).scores
    layers = [attribute(model, example, "attention_x_gradient", target, layers=n).scores for n in range(3)]
    heads = [attribute(model, example, "attention_x_gradient", target, heads=n).scores for n in range(4)]
    close(torch.stack(layers).sum(0), whole)
    close(torch.stack(heads).sum(0), whole)
    close(attribute(model, example, "attention_x_gradient", target, layers="last").scores, layers[2])
    with pytest.raises(InputError, match="no head 4"):
        attribute(model, example, "attention_x_gradient", target, heads=4)
    with pytest.raises(InputError, match="no layer 3"):
        attribute(model, example, "grad_sam", target, layers=3)


def test_live_weights_are_those_of_the_capture():
    model, example, target = ready("llama")
    stack = explained_stack(model, example)
    found = weight_gradients(model, example, target, stack)
    for layer, site in zip(found, model.capture(example, keep=Keep.of("weights")).sites, strict=True):
        torch.testing.assert_close(layer.weights, site.need("weights")[0])
