"""Capture on transformers models: what is shown is what the model used, and the model is left as it was."""

import threading

import pytest
import torch
from transformers import AttentionInterface

from attnprobe.attention.seam import Keep
from attnprobe.errors import CaptureError
from attnprobe.intervention import silence_head
from attnprobe.models import load
from tests import tiny

CELLS = [(n, i) for n in tiny.NAMES for i in ("eager", "sdpa") if not (i == "sdpa" and n in tiny.EAGER_ONLY)]


@pytest.mark.parametrize("name", tiny.NAMES)
def test_weights_and_logits_are_bit_equal_to_the_models_own_eager_attention(name):
    module = tiny.build(name, "eager")
    model = load(module)
    example = tiny.example(model, name)
    maps, logits = tiny.reference(module, dict(example.inputs))
    capture = model.capture(example, check="full")
    for (stack, kind), expected in maps.items():
        assert torch.equal(capture.weights(stack or None, kind), expected)
    assert torch.equal(capture.logits, logits)
    assert all(check.passed for check in capture.checks)


@pytest.mark.parametrize(("name", "implementation"), CELLS)
def test_logits_with_capture_are_those_without_bit_for_bit(name, implementation):
    module = tiny.build(name, implementation)
    model = load(module)
    example = tiny.example(model, name)
    with torch.no_grad():
        before = module(**example.inputs).logits
        capture = model.capture(example, keep=Keep.of("query", "key", "value", "scores", "weights", "z"), check="full")
        after = module(**example.inputs).logits
    assert torch.equal(capture.logits, before)
    assert torch.equal(after, before)
    (check,) = [c for c in capture.checks if c.name.startswith("|logits")]
    assert check.value == 0


@pytest.mark.parametrize(("name", "implementation"), CELLS)
def test_weights_times_value_is_the_z_that_the_models_own_kernel_made(name, implementation):
    model = load(tiny.build(name, implementation))
    capture = model.capture(tiny.example(model, name), keep=Keep.of("weights", "value", "z"))
    for site in capture.sites:
        torch.testing.assert_close(site.weights @ site.value, site.z, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in tiny.NAMES if n not in tiny.EAGER_ONLY])
def test_weights_under_the_fused_kernel_are_those_of_eager(name):
    module = tiny.build(name, "sdpa")
    model = load(module)
    example = tiny.example(model, name)
    maps, _ = tiny.reference(module, dict(example.inputs))
    for (stack, kind), expected in maps.items():
        torch.testing.assert_close(model.capture(example).weights(stack or None, kind), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_our_formula_gives_the_weights_of_the_models_eager_function(name):
    module = tiny.build(name, "eager")
    model = load(module, numerics="own")
    example = tiny.example(model, name)
    maps, logits = tiny.reference(module, dict(example.inputs))
    capture = model.capture(example, check="full")
    for (stack, kind), expected in maps.items():
        torch.testing.assert_close(capture.weights(stack or None, kind), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(capture.logits, logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "qwen3", "gemma2", "gpt_oss"])
def test_nothing_above_the_diagonal_of_a_causal_model(name):
    model = load(tiny.build(name, "eager"))
    weights = model.capture(tiny.example(model, name)).weights()
    assert bool((weights.triu(1) == 0).all())


def test_the_fused_kernel_gives_causal_maps_too():
    model = load(tiny.build("llama", "sdpa"))
    weights = model.capture(model.example(tiny.IDS)).weights()
    assert bool((weights.triu(1) == 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-6, rtol=0)


def test_sinks_are_stated_as_rows_that_sum_to_at_most_one():
    model = load(tiny.build("gpt_oss"))
    capture = model.capture(model.example(tiny.IDS))
    assert any("at most 1" in c.name for c in capture.checks)
    assert bool((capture.weights().sum(-1) < 1).any())


@pytest.mark.parametrize("name", ["albert", "t5"])
def test_layers_are_numbered_by_call(name):
    model = load(tiny.build(name))
    capture = model.capture(tiny.example(model, name))
    for stack, kind in capture.stacks():
        assert [s.place.layer for s in capture.select(stack, kind)] == [0, 1, 2]
    if name == "albert":
        assert [s.place.call for s in capture.sites] == [0, 1, 2]
        assert len({s.place.path for s in capture.sites}) == 1


def test_only_what_is_asked_for_is_kept():
    model = load(tiny.build("bert", "sdpa"))
    capture = model.capture(model.example(tiny.IDS), keep=Keep.of("weights", layers=[1], heads=[0, 3]))
    (site,) = capture.sites
    assert site.layer == 1 and site.weights.shape[1] == 2
    assert site.value is None and site.z is None
    reduced = model.capture(model.example(tiny.IDS), keep=Keep(reduce=lambda s: {"largest": s.weights.amax(-1)}))
    assert not reduced.sites and [p.layer for p, _ in reduced.reduced] == [0, 1, 2]


def snapshot(module):
    return {k: v.clone() for k, v in module.state_dict().items()}, str(module.config), module.training


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("fails", [False, True])
def test_model_and_transformers_are_as_they_were_after_the_block_also_after_an_error(implementation, fails):
    module = tiny.build("bert", implementation)
    module.train()
    model = load(module)
    get_interface = AttentionInterface.get_interface
    state, config, _ = snapshot(module)
    hooks = [dict(m._forward_hooks) | dict(m._forward_pre_hooks) for m in module.modules()]

    def explode(site):
        raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError):
            model.capture(model.example(tiny.IDS), edits=[explode])
    else:
        model.capture(model.example(tiny.IDS), edits=[silence_head(0, 1)])
    assert AttentionInterface.get_interface is get_interface
    assert [dict(m._forward_hooks) | dict(m._forward_pre_hooks) for m in module.modules()] == hooks
    assert module.training and all(m.training for m in module.modules())
    after, config_after, _ = snapshot(module)
    assert config_after == config and all(torch.equal(after[k], v) for k, v in state.items())
    assert module.config._attn_implementation == implementation
    assert all(p.grad is None for p in module.parameters())


def test_a_kernel_that_hides_its_mask_is_switched_for_the_block_and_put_back():
    module = tiny.build("llama", "sdpa")
    expected = load(module).capture(load(module).example(tiny.IDS)).weights()
    module.config._attn_implementation_internal = "flex_attention"
    model = load(module)
    capture = model.capture(model.example(tiny.IDS), check="off")
    assert module.config._attn_implementation == "flex_attention"
    torch.testing.assert_close(capture.weights(), expected, atol=1e-5, rtol=1e-4)


class Exponentials(torch.nn.Module):
    """Attention that no softmax and no fused kernel computes."""

    def forward(self, x):
        weights = (x @ x.transpose(1, 2)).exp()
        return weights / weights.sum(-1, keepdim=True) @ x


class Unfinished(torch.nn.Module):
    """A softmax over keys whose weights no product uses."""

    def forward(self, x):
        weights = (x @ x.transpose(1, 2)).softmax(-1)
        return (weights[..., None] * x[:, None]).sum(2)


def with_attention_behind(module, layer, attention):
    """A tiny BERT with another attention behind the output map of a layer."""
    output = module.bert.encoder.layer[layer].output
    output.dense = torch.nn.Sequential(output.dense, attention)
    return module.eval()


def test_a_model_without_attention_weights_says_what_it_has_instead():
    from transformers import FNetConfig, FNetModel

    config = FNetConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, intermediate_size=48)
    model = load(FNetModel(config).eval())
    with pytest.raises(CaptureError, match=r"no attention weights to show: 2 x \w+FourierTransform \(a Fourier"):
        model.capture(model.example(tiny.IDS))


def test_attention_that_is_not_followed_is_an_error_that_names_it():
    class HiddenAttention(Unfinished):
        pass

    model = load(with_attention_behind(tiny.build("bert", "eager"), 1, HiddenAttention()))
    with pytest.raises(CaptureError, match=r"outside of the seam at bert\.encoder\.layer\.1\.output"):
        model.capture(model.example(tiny.IDS))


def test_what_calls_itself_attention_and_shows_no_weights_is_stated():
    class HiddenAttention(Exponentials):
        pass

    model = load(with_attention_behind(tiny.build("bert", "eager"), 1, HiddenAttention()))
    checks = {check.name: check for check in model.capture(model.example(tiny.IDS)).checks}
    stated = checks["modules that call themselves attention and showed no weights"]
    assert (stated.value, stated.where) == (1.0, "bert.encoder.layer.1.output.dense.1")


def test_two_threads_with_two_models_do_not_mix():
    models = [load(tiny.build("bert", "sdpa", seed=s)) for s in (0, 1)]
    expected = [m.capture(m.example(tiny.IDS)).weights() for m in models]
    found: dict[int, list[bool]] = {0: [], 1: []}

    def work(i: int) -> None:
        for _ in range(20):
            found[i].append(torch.equal(models[i].capture(models[i].example(tiny.IDS)).weights(), expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(found[0]) and all(found[1]) and len(found[0]) == len(found[1]) == 20


def test_a_thread_without_a_tape_runs_the_plain_model_meanwhile():
    module = tiny.build("bert", "sdpa")
    model = load(module)
    example = model.example(tiny.IDS)
    with torch.no_grad():
        plain = module(**example.inputs).logits
    seen = []

    def look(site):
        def other() -> None:
            with torch.no_grad():
                seen.append(module(**example.inputs).logits)

        if site.layer == 0:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return site.replace(weights=torch.zeros_like(site.weights))

    model.capture(example, edits=[look])
    assert torch.equal(seen[0], plain)


def test_a_user_mask_with_holes_is_respected():
    module = tiny.build("bert", "sdpa")
    model = load(module)
    mask = torch.ones(1, 12, dtype=torch.long)
    mask[0, 4:6] = 0
    capture = model.capture(model.example({"input_ids": torch.tensor([tiny.IDS]), "attention_mask": mask}))
    assert bool((capture.weights()[..., 4:6] == 0).all())


@pytest.mark.parametrize("pads", [0, 1, 4])
def test_left_padding_changes_nothing(pads):
    model = load(tiny.build("gpt2", "sdpa"))
    ids = torch.tensor([[0] * pads + tiny.IDS])
    example = model.example({"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) >= pads).long()[None]})
    assert example.n_tokens == len(tiny.IDS)
    alone = model.capture(model.example(tiny.IDS))
    assert torch.equal(model.capture(example).logits, alone.logits)


def test_bfloat16_has_no_nan_and_passes_its_checks():
    module = tiny.build("bert", "sdpa").to(torch.bfloat16)
    model = load(module)
    capture = model.capture(model.example(tiny.IDS), check="full")
    assert bool(torch.isfinite(capture.weights()).all())
    assert all(c.passed for c in capture.checks)


def test_gradients_reach_every_layers_weights():
    model = load(tiny.build("llama", "sdpa"))
    capture = model.capture(model.example(tiny.IDS), differentiable=True, check="off")
    gradients = torch.autograd.grad(capture.logits[0, -1, 3], [s.weights for s in capture.sites])
    assert all(bool((g != 0).any()) for g in gradients)


def test_a_check_that_fails_is_an_error_with_the_place_and_both_numbers(monkeypatch):
    from attnprobe.models.huggingface import interface, numerics

    def wrong(*args):
        site = numerics.delegate(*args)
        return type(site)(**{**site.__dict__, "weights": site.weights * 1.01})

    monkeypatch.setitem(interface.NUMERICS, "delegate", wrong)
    model = load(tiny.build("bert", "eager"))
    with pytest.raises(CaptureError, match=r"layer 0 .*: 0\.01.*, allowed 0\.0001"):
        model.capture(model.example(tiny.IDS))
    with pytest.warns(UserWarning, match="not what the model used"):
        model.capture(model.example(tiny.IDS), check="warn")


def test_windows_of_a_picture_are_parts_of_their_layer():
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(image_size=16, patch_size=2, window_size=2, embed_dim=8, depths=[2], num_heads=[2])
    module = SwinForImageClassification(config).eval()
    module.set_attn_implementation("eager")
    model = load(module)
    picture = model.example(torch.rand(3, 16, 16))
    capture = model.capture(picture)
    with torch.no_grad():
        (last,) = model.module(**picture.inputs, output_attentions=True).attentions  # of a stage, the last layer's
    assert model.stacks[0].n_layers == 2
    assert model.stacks[0].n_parts == (16, 16)
    sites = [site for site in capture.sites if site.place.layer == 1]
    assert [site.place.part for site in sites] == list(range(16))
    assert all(torch.equal(site.weights[0], last[part]) for part, site in enumerate(sites))


def test_threads_that_share_a_model_do_not_mix_embeddings_or_modes():
    from attnprobe.attributing import attribute

    module = tiny.build("bert", "sdpa").train()
    model = load(module)
    examples = [model.example(tiny.IDS), model.example(tiny.IDS[::-1])]
    methods = ("input_x_gradient", "leave_one_out", "value_zeroing", "shapley_sampling")
    expected = {(m, i): attribute(model, e, m).scores for m in methods for i, e in enumerate(examples)}
    wrong: list[tuple[str, int]] = []

    def work(i: int) -> None:
        for _ in range(4):
            for method in methods:
                found = attribute(model, examples[i], method).scores
                if not torch.allclose(found, expected[method, i], atol=1e-5):
                    wrong.append((method, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == [] and all(part.training for part in module.modules())


def test_a_compiled_model_is_seen_through():
    module = tiny.build("bert", "eager")
    plain, compiled = load(module), load(torch.compile(module, backend="eager"))
    assert torch.equal(
        compiled.capture(compiled.example(tiny.IDS)).weights(), plain.capture(plain.example(tiny.IDS)).weights()
    )


def test_a_value_that_is_not_finite_names_its_layer():
    from attnprobe.errors import NumericsError

    module = tiny.build("bert", "eager")
    with torch.no_grad():
        module.bert.encoder.layer[1].attention.self.value.weight.fill_(float("nan"))
    model = load(module)
    with pytest.raises(NumericsError, match=r"layer 1 .* not finite"):
        model.capture(model.example(tiny.IDS))


def test_gradients_and_edits_are_refused_where_attention_is_outside_of_the_seam():
    from attnprobe.attributing import attribute
    from attnprobe.target import Target

    class HiddenAttention(Unfinished):
        pass

    model = load(with_attention_behind(tiny.build("bert", "eager"), 2, HiddenAttention()))
    with pytest.raises(CaptureError, match="outside of the seam"):
        attribute(model, model.example(tiny.IDS), "attention_x_gradient", Target(label=0))


def test_the_logits_are_measured_anew_for_longer_inputs_and_other_kernels():
    module = tiny.build("bert", "sdpa")
    model = load(module)
    captures = [model.capture(model.example(tiny.IDS[:n])) for n in (5, 6, 12)]
    module.set_attn_implementation("eager")
    captures.append(model.capture(model.example(tiny.IDS)))
    reused = [[c.reused for c in capture.checks if c.name.startswith("|logits")] for capture in captures]
    assert reused == [[False], [True], [False], [False]]


@pytest.mark.parametrize("lowest", [-1e4, -float("inf"), torch.finfo(torch.float32).min])
def test_a_mask_of_any_very_negative_number_hides_its_keys_from_edits_too(lowest):
    from attnprobe.intervention import uniform

    model = load(tiny.build("bert", "eager"))
    mask = torch.zeros(1, 1, 12, 12)
    mask[..., 4] = lowest
    example = model.example({"input_ids": torch.tensor([tiny.IDS]), "attention_mask": mask})
    assert bool((model.capture(example, edits=[uniform()]).weights()[..., 4] == 0).all())


def test_a_boolean_mask_of_rank_four_is_refused_where_eager_attention_would_add_it():
    from attnprobe.errors import InputError

    model = load(tiny.build("bert", "eager"))
    mask = torch.ones(1, 1, 12, 12, dtype=torch.bool)
    with pytest.raises(InputError, match="hides nothing"):
        model.capture(model.example({"input_ids": torch.tensor([tiny.IDS]), "attention_mask": mask}))
