"""max_sensitivity: the embeddings really move, for every method, and the model does not."""

import pytest
import torch
from captum.attr import Saliency
from captum.metrics import sensitivity_max

from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.metrics import robustness
from attnprobe.models import load
from attnprobe.models.moved import MovedModel
from attnprobe.models.planted import planted
from attnprobe.models.rows import Row
from tests import tiny

max_sensitivity = robustness["max_sensitivity"].function


@pytest.fixture(scope="module")
def model():
    return load(tiny.build("bert", "eager", seed=4, scale=2.0))


@pytest.fixture(scope="module")
def example(model):
    return model.example(tiny.IDS[:6])


def moves(model, example, radius, n, seed):
    embeddings = model.embed(example)
    draw = torch.rand(n, *embeddings.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    return embeddings, embeddings + (radius * draw).to(embeddings)


@pytest.mark.filterwarnings("ignore:Input Tensor")
def test_it_is_captums_own_of_the_models_own_gradient(model, example):
    label = model.resolve(example).label
    embeddings, moved = moves(model, example, 0.02, 4, seed=3)

    def explain(rows):
        def forward(e):
            return model.module(inputs_embeds=e).logits[:, label]

        found = Saliency(forward).attribute(rows, abs=False)
        return tuple(f.norm(dim=-1) for f in found) if isinstance(found, tuple) else found.norm(dim=-1)

    expected = sensitivity_max(explain, embeddings[None].clone(), lambda rows: moved.clone(), n_perturb_samples=4)
    assert max_sensitivity(model, "saliency", example, n_samples=4, seed=3) == pytest.approx(float(expected), rel=1e-3)


def test_attention_and_removal_start_from_the_moved_embeddings(model, example):
    target = model.resolve(example)
    _, (moved,) = moves(model, example, 0.3, 1, seed=0)
    there = MovedModel(model, example, moved)
    with torch.no_grad():
        out = model.module(inputs_embeds=moved[None], output_attentions=True)
        falls = []
        for j in range(6):
            without = moved.clone()
            without[j] = model.fillers["mean"]
            falls.append(float(target(out.logits)[0] - target(model.module(inputs_embeds=without[None]).logits)[0]))
    weights = there.capture(example).weights()
    assert torch.allclose(weights, torch.stack(out.attentions)[:, 0], atol=1e-6)
    removal = attribute(there, example, "leave_one_out", target, operator="mean")
    assert removal.scores.tolist() == pytest.approx(falls, abs=1e-4)
    assert torch.equal(model.embed(example), there.inner.embed(example)) and not torch.equal(
        moved, model.embed(example)
    )
    other = model.example(tiny.IDS[:5])
    assert torch.equal(there.forward([Row(other)]), model.forward([Row(other)]))


def test_nothing_moves_where_nothing_can(model, example):
    assert max_sensitivity(model, "raw_attention", example, radius=0.0) == 0
    made = planted("P4")  # a sum, so the gradient is the same everywhere
    assert max_sensitivity(made.model, "saliency", made.example, made.target) == pytest.approx(0, abs=1e-6)
    assert max_sensitivity(made.model, "leave_one_out", made.example, made.target) > 0
    assert max_sensitivity(model, lambda m, e, t: torch.ones(e.n_tokens), example) == 0


def test_wider_moves_change_more_and_options_reach_the_method(model, example):
    near, far = (max_sensitivity(model, "saliency", example, radius=r) for r in (0.001, 0.2))
    assert near < far
    l1 = max_sensitivity(model, "saliency", example, options={"reduction": "l1"})
    assert l1 != max_sensitivity(model, "saliency", example)
    with pytest.raises(InputError, match="no option"):
        max_sensitivity(model, "saliency", example, options={"layer": 1})
    with pytest.raises(InputError, match="radius is 0 or more"):
        max_sensitivity(model, "saliency", example, n_samples=0)


FAMILIES = ["rollout", "attention_x_gradient", "integrated_gradients", "value_zeroing", "kernel_shap", "cp_lrp"]


@pytest.mark.parametrize("method", FAMILIES)
def test_methods_of_every_family_are_asked_at_the_moved_place(model, example, method):
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    assert 0 < max_sensitivity(model, method, example, n_samples=1, radius=0.1) < float("inf")
    assert all(torch.equal(value, before[key]) for key, value in model.module.state_dict().items())
