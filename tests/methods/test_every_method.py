"""Every registered method passes here; a new one is tested without a new file."""

import pytest
import torch

from attnprobe.attributing import attribute
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.methods import FAMILIES, methods
from attnprobe.models import load
from attnprobe.models.planted import planted
from attnprobe.target import Target
from tests import tiny

MODELS = ("bert", "llama", "gpt2", "modernbert", "gemma2")
CELLS = [(method, name) for method in methods for name in MODELS]


def ask(model, example, method, target=None):
    """The method with few samples: what holds of many holds of few."""
    return attribute(
        model, example, method, target, **({"n_samples": 5} if "n_samples" in methods[method].options else {})
    )


def model_of(name):
    return load(tiny.build(name, "eager", scale=2.0))


@pytest.mark.parametrize("method", list(methods))
def test_every_method_says_what_it_is(method):
    entry = methods[method]
    assert entry.family in FAMILIES
    assert entry.description.endswith(".") and len(entry.description) > 30
    assert entry.source and entry.facts["formula"] and entry.facts["cost"]
    assert isinstance(entry.facts["signed"], bool)


@pytest.mark.parametrize(("method", "name"), CELLS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_gives_one_finite_score_a_token_and_the_same_again(method, name):
    model = model_of(name)
    example = model.example(tiny.IDS)
    first, second = ask(model, example, method), ask(model, example, method)
    assert first.scores.shape == (example.n_tokens,) and bool(torch.isfinite(first.scores).all())
    assert torch.equal(first.scores, second.scores)
    assert first.method == method and first.seconds > 0
    assert list(first.to_frame().token) == list(example.tokens)


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_leaves_the_model_as_it_was(method):
    module = tiny.build("bert", "sdpa").train()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    config = str(module.config)
    model = load(module)
    ask(model, model.example(tiny.IDS), method)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert module.training and str(module.config) == config
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert all(not m._forward_hooks and not m._forward_pre_hooks and not m._backward_hooks for m in module.modules())


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_works_on_frozen_parameters(method):
    module = tiny.build("bert", "sdpa", scale=2.0)
    free = load(module)
    expected = ask(free, free.example(tiny.IDS), method).scores
    frozen = load(module.requires_grad_(False))
    torch.testing.assert_close(ask(frozen, frozen.example(tiny.IDS), method).scores, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "method", [m for m in methods if methods[m].facts["signed"] and methods[m].family != "control"]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_signed_method_is_linear_in_a_contrast(method):
    model = model_of("bert")
    example = model.example(tiny.IDS)
    a, b, contrast = (
        ask(model, example, method, target).scores
        for target in (Target(label=0), Target(label=1), Target(label=0, against=1))
    )
    torch.testing.assert_close(contrast, a - b, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_gives_a_text_the_same_scores_whatever_ran_before(method):
    model = model_of("bert")
    alone = ask(model_of("bert"), model_of("bert").example(tiny.IDS), method).scores
    ask(model, model.example(tiny.IDS[:5]), method)
    torch.testing.assert_close(ask(model, model.example(tiny.IDS), method).scores, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_sees_more_of_a_causal_model_than_its_first_token(method):
    model = model_of("llama")
    assert bool((ask(model, model.example(tiny.IDS), method).scores[1:] != 0).any())


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_runs_on_one_token(method):
    model = model_of("bert")
    assert ask(model, model.example([7]), method).scores.shape == (1,)


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_answers_or_refuses_with_a_reason_on_an_encoder_decoder(method):
    model = load(tiny.build("bart"))
    try:
        found = ask(model, model.example(tiny.IDS, answer=[4, 5]), method)
    except AttnprobeError as error:
        assert "encoder-decoder" in str(error)
    else:
        assert found.scores.shape == (len(tiny.IDS),)


@pytest.mark.parametrize("method", list(methods))
def test_every_method_refuses_an_option_it_does_not_have(method):
    model = model_of("bert")
    with pytest.raises(InputError, match="has no option 'colour'"):
        attribute(model, model.example(tiny.IDS), method, colour=1)


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_runs_on_a_planted_model(method):
    made = planted("P1")
    assert ask(made.model, made.example, method).scores.shape == made.truth.shape
