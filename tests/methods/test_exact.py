"""Methods against exact planted values, captum's own call, and slow re-implementations from the formula."""

import itertools

import pytest
import torch

from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.methods import Scores, methods
from attnprobe.models.planted import planted
from tests import tiny

# methods.md, section I: name, method, options, exact values.
PLANTED = [
    ("P1", "raw_attention", {}, [0.1, 0.7, 0.1, 0.1]),
    ("P1", "rollout", {}, [0.55, 0.35, 0.05, 0.05]),
    ("P1", "attention_x_gradient", {}, [0, 0, 1, 0]),
    ("P1", "input_x_gradient", {}, [0, 0, 1, 0]),
    ("P1", "integrated_gradients", {}, [0, 0, 1, 0]),
    ("P1", "leave_one_out", {}, [0, 0, 1, 0]),
    ("P1", "leave_one_out", {"operator": "attention_mask"}, [-1 / 9, -7 / 3, 1, -1 / 9]),
    ("P1", "shapley_sampling", {}, [0, 0, 1, 0]),
    ("P1", "value_zeroing", {"read": "target"}, [0, 0, 1, 0]),
    ("P2", "raw_attention", {}, [0.05, 0.9, 0.05]),
    ("P2", "rollout", {}, [0.525, 0.45, 0.025]),
    ("P2", "attention_x_gradient", {}, [0, 0, 0]),
    ("P2", "input_x_gradient", {}, [2, 0, 0]),
    ("P2", "integrated_gradients", {}, [2, 0, 0]),
    ("P2", "leave_one_out", {}, [2, 0, 0]),
    ("P2", "shapley_sampling", {}, [2, 0, 0]),
    ("P1c", "input_x_gradient", {}, [-1.362, -1.362, 1, 0]),
    ("P1c", "integrated_gradients", {"tolerance": 1e-4}, [-0.508, -0.508, 2.015, 0]),
    ("P1c", "leave_one_out", {}, [-1.5, -1.5, 1, 0]),
    ("P1c", "shapley_sampling", {"n_samples": 100}, [-0.5, -0.5, 2, 0]),
    ("P1c", "value_zeroing", {"read": "target"}, [0, 0, 1, 0]),
    ("P3A", "raw_attention", {}, [0.1, 0.525, 0.375]),
    ("P3B", "raw_attention", {}, [0.1, 0.375, 0.525]),
    ("P3A", "raw_attention", {"heads": "max"}, [0.1, 0.8, 0.65]),
    ("P3A", "attention_x_gradient", {}, [0, 1.3, 1.4]),
    ("P3B", "attention_x_gradient", {}, [0, 1.3, 1.4]),
    ("P3B", "integrated_gradients", {}, [0, 1.3, 1.4]),
    ("P3A", "leave_one_out", {"operator": "attention_mask"}, [-0.3, 0.467, 0.383]),
    ("P5", "raw_attention", {}, [0.05, 0.05, 0.9]),
    ("P5", "rollout", {}, [0.510625, 0.22875, 0.260625]),
    ("P5", "rollout", {"identity": 0.0}, [0.0925, 0.815, 0.0925]),
    ("P5", "input_x_gradient", {}, [0, 0.815, 0]),
    ("P5", "value_zeroing", {"read": "target"}, [0.0025, 0.815, 0.81]),
    ("P6", "leave_one_out", {}, [0, 0, 0]),
    ("P6", "shapley_sampling", {"n_samples": 100}, [0, 0.5, 0.5]),
    ("P7", "input_x_gradient", {}, [0, 1, 1]),
    ("P7", "leave_one_out", {}, [0, 1, 1]),
    ("P8", "leave_one_out", {}, [0, -1, -2]),
    ("P8", "integrated_gradients", {"max_steps": 400}, [0, 0, -1]),
    ("P9", "integrated_gradients", {}, [0, 1, 1]),
    ("P10", "input_x_gradient", {}, [0, 0, 0]),
    ("P10", "leave_one_out", {}, [0, 1, 0]),
]


@pytest.mark.parametrize(("name", "method", "options", "expected"), PLANTED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_method_gives_the_exact_value_on_a_planted_model(name, method, options, expected):
    made = planted(name)
    found = attribute(made.model, made.example, method, **options).scores
    sampled = method == "shapley_sampling" and name in ("P6", "P1c")
    atol = 0.15 if sampled else 2e-2 if method == "integrated_gradients" else 6e-4
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), atol=atol, rtol=0)


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert", scale=3.0)


@pytest.fixture(scope="module")
def short(bert):
    return bert.example(tiny.IDS[:6])


def test_raw_attention_is_the_row_of_the_position_that_is_read(bert, short):
    weights = bert.capture(short).weights()
    torch.testing.assert_close(attribute(bert, short, "raw_attention").scores, weights[-1].mean(0)[0])
    torch.testing.assert_close(
        attribute(bert, short, "raw_attention", read="column_max", layer=1).scores, weights[1].mean(0).amax(0)
    )
    causal = tiny.loaded("llama")
    example = causal.example(tiny.IDS)
    last = causal.capture(example).weights()[-1].mean(0)[-1]
    torch.testing.assert_close(attribute(causal, example, "raw_attention").scores, last)


def test_rollout_multiplies_last_layer_first(bert, short):
    product = torch.eye(6)
    for layer in bert.capture(short).weights().mean(1):
        product = (0.5 * layer + 0.5 * torch.eye(6)) @ product
    found = attribute(bert, short, "rollout")
    torch.testing.assert_close(found.scores, product[0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.map.sum(-1), torch.ones(6), atol=1e-5, rtol=0)


def test_attention_x_gradient_equals_the_models_own_eager_attentions_and_autograd(bert, short):
    module = bert.module
    out = module(**short.inputs, output_attentions=True)
    label = int(out.logits.argmax())
    gradients = torch.autograd.grad(out.logits[0, label], out.attentions)
    expected = sum((a * g).sum((0, 1, 2)) for a, g in zip(out.attentions, gradients, strict=True))
    torch.testing.assert_close(
        attribute(bert, short, "attention_x_gradient").scores, expected.detach(), atol=1e-6, rtol=1e-4
    )


def test_leave_one_out_is_the_fall_of_the_target(bert, short):
    mean = bert.embed(short).new_tensor(bert.module.get_input_embeddings().weight.mean(0).tolist())
    with torch.no_grad():
        whole = bert.module(**short.inputs).logits[0]
        label = int(whole.argmax())
        expected = []
        for j in range(6):
            embeddings = bert.embed(short).clone()
            embeddings[j] = mean
            expected.append(whole[label] - bert.module(inputs_embeds=embeddings[None]).logits[0, label])
    torch.testing.assert_close(
        attribute(bert, short, "leave_one_out").scores, torch.stack(expected), atol=1e-5, rtol=1e-4
    )


def test_occlusion_is_the_mean_over_the_windows_of_a_token(bert, short):
    mean = bert.module.get_input_embeddings().weight.detach().mean(0)
    with torch.no_grad():
        whole = bert.module(**short.inputs).logits[0]
        label = int(whole.argmax())
        total, count = torch.zeros(6), torch.zeros(6)
        for start in range(4):
            embeddings = bert.embed(short).clone()
            embeddings[start : start + 3] = mean
            total[start : start + 3] += whole[label] - bert.module(inputs_embeds=embeddings[None]).logits[0, label]
            count[start : start + 3] += 1
    torch.testing.assert_close(attribute(bert, short, "occlusion").scores, total / count, atol=1e-5, rtol=1e-4)


def test_integrated_gradients_add_up_to_the_change_of_the_target(bert, short):
    found = attribute(bert, short, "integrated_gradients", baseline="mean", tolerance=1e-3)
    assert abs(found.residual) <= 1e-3 * abs(found.used["change"]) + 1e-5
    assert found.scores.sum().item() == pytest.approx(found.used["change"] + found.residual, abs=1e-4)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_integrated_gradients_warn_where_a_zero_baseline_does_not_converge():
    model = tiny.loaded("llama", scale=3.0)
    found = attribute(model, model.example(tiny.IDS), "integrated_gradients", baseline="zero", n_steps=8, max_steps=8)
    assert any("add up to" in w for w in found.warnings)


def test_shapley_values_approach_the_exact_ones_within_their_standard_error(bert, short):
    mean = bert.module.get_input_embeddings().weight.detach().mean(0)
    embeddings = bert.embed(short)
    masks = torch.tensor(list(itertools.product([False, True], repeat=6)))
    with torch.no_grad():
        batch = torch.where(masks[..., None], embeddings, mean)
        logits = bert.module(inputs_embeds=batch).logits
        label = int(bert.module(**short.inputs).logits.argmax())
    value = {tuple(m.tolist()): float(v) for m, v in zip(masks, logits[:, label], strict=True)}
    exact = torch.zeros(6)
    orders = list(itertools.permutations(range(6)))
    for order in orders:
        kept = [False] * 6
        for j in order:
            before = value[tuple(kept)]
            kept[j] = True
            exact[j] += (value[tuple(kept)] - before) / len(orders)
    found = attribute(bert, short, "shapley_sampling", n_samples=40)
    assert abs(found.residual) < 1e-4
    assert bool(((found.scores - exact).abs() <= 4 * found.standard_error + 1e-3).all())


def test_value_zeroing_equals_a_layer_run_again_by_hand(bert, short):
    """Each layer alone, from the input that it had, with the value rows of one token zeroed by a hook."""
    from attnprobe.methods.value_zeroing import layer_changes

    hidden = bert.module(**short.inputs, output_hidden_states=True).hidden_states
    expected = torch.zeros(3, 6, 6, dtype=torch.double)
    for number, layer in enumerate(bert.module.bert.encoder.layer):
        plain = layer(hidden[number])
        plain = plain[0] if isinstance(plain, tuple) else plain
        for j in range(6):

            def zero(module, args, output, j=j):
                output = output.clone()
                output[:, j] = 0
                return output

            handle = layer.attention.self.value.register_forward_hook(zero)
            changed = layer(hidden[number])
            handle.remove()
            changed = changed[0] if isinstance(changed, tuple) else changed
            expected[number, :, j] = 1 - torch.cosine_similarity(changed.double(), plain.double(), dim=-1)[0].detach()
    expected = (expected / expected.sum(-1, keepdim=True)).float()
    for found, wanted in zip(layer_changes(bert, short, "encoder"), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-3)


def test_value_zeroing_of_a_decoder_differs_between_layers():
    from attnprobe.methods.value_zeroing import layer_changes

    model = tiny.loaded("llama", "sdpa")
    maps = layer_changes(model, model.example(tiny.IDS), "decoder")
    assert all(not torch.allclose(a, b, atol=1e-3) for a, b in itertools.combinations(maps, 2))
    assert all(bool((m.triu(1).abs() < 1e-6).all()) for m in maps)


@pytest.mark.parametrize("operator", ["mean", "zero", "attention_mask", "delete"])
def test_every_operator_that_a_model_has_is_accepted_and_recorded(bert, short, operator):
    found = attribute(bert, short, "leave_one_out", operator=operator)
    assert found.used["operator"] == operator


def test_an_operator_that_a_model_lacks_is_an_error_with_the_ones_it_has(bert, short):
    with pytest.raises(InputError, match="no 'mask' embedding"):
        attribute(bert, short, "leave_one_out", operator="mask")
    with pytest.raises(InputError, match="did you mean 'mean'"):
        attribute(bert, short, "leave_one_out", operator="meen")


def test_deleting_the_explained_position_is_refused():
    model = tiny.loaded("gpt2")
    with pytest.raises(InputError, match="position 11, which is explained"):
        attribute(model, model.example(tiny.IDS), "leave_one_out", operator="delete")


def test_any_function_of_the_form_is_a_method(bert, short):
    def position(model, example, target):
        return torch.arange(example.n_tokens).float()

    found = attribute(bert, short, position)
    assert found.method == "position" and found.scores.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (torch.zeros(3), "shape \\(3,\\), expected one a token \\(6,\\)"),
        (torch.tensor([float("nan")] * 6), "6 of 6 values"),
    ],
)
def test_a_method_that_gives_no_score_a_token_is_an_error(bert, short, answer, message):
    with pytest.raises(Exception, match=message):
        attribute(bert, short, lambda model, example, target: answer)


def test_scores_that_are_all_zero_are_a_stated_warning(bert, short):
    with pytest.warns(UserWarning, match="gives 0 to every token"):
        found = attribute(bert, short, lambda model, example, target: Scores(torch.zeros(6)))
    assert found.warnings


def test_a_method_added_with_the_decorator_is_in_the_registry():
    assert "leave_one_out" in methods and methods["leave_one_out"].family == "ablation"
