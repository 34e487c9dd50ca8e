"""Every registered method passes here; a new one is tested without a new file."""

import re
from functools import cache

import numpy as np
import pytest
import torch

from attnprobe.attributing import attribute, passes
from attnprobe.errors import InputError
from attnprobe.methods import FAMILIES, KINDS, methods
from attnprobe.models import load
from attnprobe.models.planted import planted
from attnprobe.models.reading import kind_of
from attnprobe.target import Target
from tests import tiny

MODELS = ("bert", "llama", "gpt2", "modernbert", "gemma2")
OTHER_KINDS = ("bart", "t5", "vit")
# A lasso drops small coefficients, so that two targets' do not add up.
NOT_LINEAR = ("sparse_surrogate",)
# Orders cost a pass a token, so that few of them are many passes.
ORDERS = {"shapley_sampling": 6, "owen": 6}
# One method after the other, so that what was asked once is there for all tests of a method.
every_method = pytest.mark.parametrize("method", list(methods), scope="module")


def few(method, *, one_try=False):
    """Options that make a method quick: what holds of many samples holds of few. one_try: no steps added later."""
    known = methods[method].options
    options = {"n_samples": ORDERS.get(method, 32)} if "n_samples" in known else {}
    if "approximate" in known:
        options["approximate"] = True
    if one_try and {"n_steps", "max_steps"} <= set(known):
        options |= {"n_steps": 8, "max_steps": 8}
    return options


def ids_for(method):
    """Twelve tokens, or six where every subset of them is run."""
    return tiny.IDS[:6] if method == "shapley_exact" else tiny.IDS


def ask(model, example, method, target=None, **more):
    return attribute(model, example, method, target, **few(method), **more)


def fresh(name):
    """A model that nothing has run on."""
    return load(tiny.build(name, scale=2.0))


def model_of(name, implementation="eager", *, dtype=torch.float32):
    return tiny.loaded(name, implementation, scale=2.0, dtype=dtype)


@cache
def frozen_bert():
    return tiny.shared(load(tiny.build("bert", "sdpa", scale=2.0).requires_grad_(False)))


@cache
def asked(method, name):
    """What a method says the first time: example and attribution."""
    example = model_of(name).example(ids_for(method))
    return example, ask(model_of(name), example, method)


@cache
def alone(method):
    """A method's scores as the first thing that a model runs, and whether the random generators stayed as they were."""
    model = fresh("bert")
    torch.manual_seed(3)
    np.random.seed(3)
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    scores = ask(model, model.example(ids_for(method)), method).scores
    same = torch.equal(torch.get_rng_state(), before) and bool((np.random.get_state()[1] == numbers).all())
    return scores, same


def of_another_kind(name):
    """A model beyond classifiers and language models, with a function from ids to its example."""
    model = tiny.loaded(name)
    if name != "vit":
        return model, lambda ids: model.example(ids, answer=[4, 5])
    noise = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    return model, lambda _: model.example({"pixel_values": noise})


def nudge(module):
    """Move every parameter by the same small steps each time."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


@cache
def nudged():
    module = tiny.build("bert", scale=2.0)
    nudge(module)
    return load(module)


@pytest.fixture(scope="module")
def trained_on():
    """A module in training, on the other kernel, that one method after the other runs on, and what it was at first."""
    module = tiny.build("bert", "sdpa").train()
    return module, {k: v.clone() for k, v in module.state_dict().items()}, str(module.config), load(module)


@every_method
def test_every_method_says_what_it_is(method):
    entry = methods[method]
    assert entry.family in FAMILIES
    assert entry.description.endswith(".") and len(entry.description) > 30
    assert entry.source and entry.facts["formula"] and entry.facts["cost"]
    assert isinstance(entry.facts["signed"], bool)
    assert set(entry.facts.get("lacks", {})) < set(KINDS)
    assert callable(entry.facts["passes"])


@every_method
@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_tells_its_passes_before_it_runs(method, name):
    model = model_of(name)
    example, _ = asked(method, name)  # what is found once a model or text (projections, the position) is not counted
    told = passes(model, example, method, **few(method, one_try=True))
    found = attribute(model, example, method, **few(method, one_try=True))
    assert 0.6 * told.forward <= found.forward_passes <= told.forward
    assert 0.6 * told.backward <= found.backward_passes <= told.backward


@every_method
@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_gives_the_same_scores_for_one_row_as_for_64(method, name):
    model = model_of(name, dtype=torch.float64)
    example = model.example(ids_for(method))
    one, many = (ask(model, example, method, batch_size=size).scores for size in (1, 64))
    torch.testing.assert_close(one, many, atol=1e-5, rtol=1e-4)


@every_method
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_leaves_the_random_generators_alone(method):
    _, same = alone(method)
    assert same


@every_method
@pytest.mark.parametrize("name", OTHER_KINDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_does_the_kinds_of_model_that_it_claims_or_says_why_not(method, name):
    model, example_of = of_another_kind(name)
    example = example_of(ids_for(method))
    reason = methods[method].facts.get("lacks", {}).get(kind_of(model, example))
    if reason is None:
        found = ask(model, example, method)
        assert found.scores.shape == (example.n_tokens,) and bool(torch.isfinite(found.scores).all())
    else:
        with pytest.raises(InputError, match=re.escape(reason)):
            ask(model, example, method)


@every_method
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_gives_one_finite_score_a_token_and_the_same_again(method, name):
    example, first = asked(method, name)
    second = ask(model_of(name), example, method)
    assert first.scores.shape == (example.n_tokens,) and bool(torch.isfinite(first.scores).all())
    assert torch.equal(first.scores, second.scores)
    assert first.method == method and first.seconds > 0
    assert list(first.to_frame().token) == list(example.tokens)


@every_method
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_leaves_the_model_as_it_was(method, trained_on):
    module, before, config, model = trained_on
    ask(model, model.example(ids_for(method)), method)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert module.training and str(module.config) == config
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert all(not m._forward_hooks and not m._forward_pre_hooks and not m._backward_hooks for m in module.modules())


@every_method
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_works_on_frozen_parameters(method):
    free, frozen = model_of("bert", "sdpa"), frozen_bert()
    expected = ask(free, free.example(ids_for(method)), method).scores
    torch.testing.assert_close(
        ask(frozen, frozen.example(ids_for(method)), method).scores, expected, atol=1e-6, rtol=1e-4
    )


@pytest.mark.parametrize(
    "method",
    [m for m in methods if methods[m].facts["signed"] and methods[m].family != "control" and m not in NOT_LINEAR],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_signed_method_is_linear_in_a_contrast(method):
    example, predicted = asked(method, "bert")
    label = predicted.target.label
    other = (label + 1) % 3
    a = predicted.scores
    b, contrast = (
        ask(model_of("bert"), example, method, target).scores
        for target in (Target(label=other), Target(label=label, against=other))
    )
    torch.testing.assert_close(contrast, a - b, atol=1e-5, rtol=1e-3)


@every_method
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_gives_a_text_the_same_scores_whatever_ran_before(method):
    model = model_of("bert")
    expected, _ = alone(method)
    ask(model, model.example(tiny.IDS[:5]), method)
    found = ask(model, model.example(ids_for(method)), method).scores
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@every_method
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_sees_more_of_a_causal_model_than_its_first_token(method):
    _, found = asked(method, "llama")
    assert bool((found.scores[1:] != 0).any())


@every_method
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_sees_parameters_as_they_are_now_and_does_not_mind_no_grad(method):
    model = fresh("bert")
    example = model.example(ids_for(method))
    before = ask(model, example, method).scores
    nudge(model.module)
    with torch.no_grad():
        found = ask(model, example, method, 0).scores
    expected = ask(nudged(), nudged().example(ids_for(method)), method, 0).scores
    assert method == "random_scores" or not torch.equal(before, found)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@every_method
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_runs_on_one_token(method):
    model = model_of("bert")
    assert ask(model, model.example([7]), method).scores.shape == (1,)


@every_method
def test_every_method_refuses_an_option_it_does_not_have(method):
    model = model_of("bert")
    with pytest.raises(InputError, match="has no option 'colour'"):
        attribute(model, model.example(ids_for(method)), method, colour=1)


@every_method
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_runs_on_a_planted_model(method):
    made = planted("P1")
    assert ask(made.model, made.example, method).scores.shape == made.truth.shape
