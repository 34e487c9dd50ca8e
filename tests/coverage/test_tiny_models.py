"""Tiny models of every type: they run, they repeat, and they leave the random numbers of others alone."""

import random

import pytest
import torch
from torch import nn

from benchmarks.tiny_models import NotBuilt, build, model_types

CHEAP = ("bert", "llama", "t5", "vit", "qwen2_vl", "whisper")


def _tensors(output):
    values = output.values() if hasattr(output, "values") else output
    return [value for value in values if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("model_type", CHEAP)
def test_a_tiny_model_runs_twice_to_the_same_bits_and_leaves_the_random_numbers_alone(model_type):
    state, plain = torch.get_rng_state(), random.getstate()
    built = build(model_type)
    assert torch.equal(torch.get_rng_state(), state) and random.getstate() == plain
    with torch.no_grad():
        first, second = (_tensors(built.module(**built.inputs)) for _ in range(2))
    assert first and all(
        torch.equal(a, b) and bool(torch.isfinite(a).all()) for a, b in zip(first, second, strict=True)
    )
    assert built.model_type == model_type and built.model_class == type(built.module).__name__
    assert not built.module.training and built.module.config._attn_implementation == "eager"
    assert sum(parameter.numel() for parameter in built.module.parameters()) < 5_000_000


def test_the_seed_decides_the_parameters():
    def values(seed):
        return nn.utils.parameters_to_vector(build("gpt2", seed).module.parameters())

    assert torch.equal(values(0), values(0))
    assert not torch.equal(values(0), values(1))


def test_pictures_have_their_places_in_the_text():
    built = build("qwen2_vl")
    assert int((built.inputs["input_ids"] == built.module.config.image_token_id).sum()) > 0


def test_an_unknown_type_is_answered_with_the_nearest():
    with pytest.raises(NotBuilt, match=r"'lama'.*'llama'"):
        build("lama")


def test_the_types_are_sorted_and_hold_parts_of_models_too():
    types = model_types()
    assert types == sorted(set(types)) and {"bert", "qwen2_vl_vision", "clip_text_model"} <= set(types)
