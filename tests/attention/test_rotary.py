"""Rotary positions against complex numbers, against transformers' own rotations, and by what they promise."""

import pytest
import torch
from torch import Tensor
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox_rotation
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotation
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rotation

from attnprobe.attention.positions.rotary import rotary, rotate, to_halves
from attnprobe.errors import InputError

N, D = 9, 8
LAYOUTS = ["halves", "interleaved"]


def tensors(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def angles(n_rotated: int, n: int = N, base: float = 10000.0) -> Tensor:
    """p / base^(2i/d), one at a time."""
    rows = [[p / base ** (2 * i / n_rotated) for i in range(n_rotated // 2)] for p in range(n)]
    return torch.tensor(rows, dtype=torch.float64)


def test_interleaved_pairs_are_complex_numbers_turned_by_their_angles():
    x = tensors(2, 3, N, D)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones(N, D // 2).double(), angles(D))
    assert (rotate(x, layout="interleaved") - torch.view_as_real(turned).flatten(-2)).abs().max() < 1e-14


def test_halves_are_the_rotation_of_llama_given_the_same_angles():
    query, key = tensors(2, 3, N, D), tensors(2, 1, N, D)
    both = torch.cat([angles(D)] * 2, -1)[None]
    theirs = llama_rotation(query, key, both.cos(), both.sin())
    for ours, other in zip((rotate(query), rotate(key)), theirs, strict=True):
        assert (ours - other).abs().max() < 1e-14


def test_the_angles_are_llamas_too():
    config = LlamaConfig(
        hidden_size=16, num_attention_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    )
    query = torch.randn(1, 2, 300, 8)
    cosines, sines = LlamaRotaryEmbedding(config)(query, torch.arange(300)[None])
    theirs, _ = llama_rotation(query, query, cosines, sines)
    assert (rotate(query, base=500.0) - theirs).abs().max() < 1e-4  # theirs has angles in float32


@pytest.mark.parametrize("n_rotated", [2, 4, 8])
def test_interleaved_partial_rotation_is_that_of_gptj(n_rotated: int):
    query = tensors(2, 3, N, D)
    by_token = query.transpose(1, 2)  # theirs is [batch token head width]
    turned = gptj_rotation(by_token[..., :n_rotated], angles(n_rotated).sin()[None], angles(n_rotated).cos()[None])
    theirs = torch.cat([turned, by_token[..., n_rotated:]], -1).transpose(1, 2)
    assert (rotate(query, layout="interleaved", n_rotated=n_rotated) - theirs).abs().max() < 1e-14


@pytest.mark.parametrize("n_rotated", [2, 4, 8])
def test_halves_in_partial_rotation_are_those_of_gpt_neox(n_rotated: int):
    query = tensors(2, 3, N, D)
    both = torch.cat([angles(n_rotated)] * 2, -1)[None]
    theirs, _ = neox_rotation(query, query, both.cos(), both.sin())
    assert (rotate(query, n_rotated=n_rotated) - theirs).abs().max() < 1e-14
    assert torch.equal(rotate(query, n_rotated=n_rotated)[..., n_rotated:], query[..., n_rotated:])


def test_the_angles_of_partial_rotation_are_gpt_neoxs_too():
    parameters = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    config = GPTNeoXConfig(hidden_size=32, num_attention_heads=2, rope_parameters=parameters)
    query = torch.randn(1, 2, 20, 16)
    cosines, sines = GPTNeoXRotaryEmbedding(config)(query, torch.arange(20)[None])
    assert (rotate(query, n_rotated=4) - neox_rotation(query, query, cosines, sines)[0]).abs().max() < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_do_not_change_when_everything_moves_by_seventeen(layout):
    query, key = tensors(2, 3, N, D), tensors(2, 3, N, D)
    here, there = (
        rotate(query, places, layout=layout) @ rotate(key, places, layout=layout).mT
        for places in (torch.arange(N), torch.arange(N) + 17)
    )
    assert (here - there).abs().max() < 1e-14
    assert (here - query @ key.mT).abs().max() > 0.1  # and yet positions do something


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n_rotated", [None, 4])
def test_lengths_are_kept_turns_add_up_and_the_first_position_is_not_turned(layout, n_rotated):
    x = tensors(2, 3, N, D)
    options = {"layout": layout, "n_rotated": n_rotated}
    turned = rotate(x, **options)
    assert (turned.norm(dim=-1) - x.norm(dim=-1)).abs().max() < 1e-14
    assert torch.equal(turned[..., 0, :], x[..., 0, :])
    twice = rotate(rotate(x, torch.full((N,), 5), **options), torch.full((N,), -12), **options)
    assert (twice - rotate(x, torch.full((N,), -7), **options)).abs().max() < 1e-14


def test_a_score_is_a_sum_of_cosines_of_the_distance_times_frequency():
    """One pair of both layouts with equal query and key of length 1: the score at distance δ is Σ_i cos(δ ω_i)."""
    ones = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(D // 2).expand(N, D)
    turned = rotate(ones, layout="interleaved")
    place = torch.arange(N, dtype=torch.float64)
    closed = torch.cos((place[:, None] - place)[..., None] * angles(D, 2)[1]).sum(-1)
    assert (turned @ turned.mT - closed).abs().max() < 1e-14


def test_the_two_layouts_differ_by_a_permutation_and_give_the_same_scores():
    query, key = tensors(2, 3, N, D), tensors(2, 3, N, D)
    order = to_halves(D)
    assert torch.equal(rotate(query, layout="interleaved")[..., order], rotate(query[..., order]))
    mixed = rotate(query, layout="interleaved") @ rotate(key, layout="interleaved").mT
    halves = rotate(query[..., order]) @ rotate(key[..., order]).mT
    assert (mixed - halves).abs().max() < 1e-14
    assert (mixed - rotate(query) @ rotate(key).mT).abs().max() > 0.1  # the wrong layout is another model


def test_the_scheme_turns_queries_and_keys_and_shows_content_alone():
    query, key = tensors(2, 3, N, D), tensors(2, 3, N, D)
    found = rotary().scores(query, key)
    assert (found.content - query @ key.mT / D**0.5).abs().max() < 1e-14
    place = torch.arange(N)
    for i in range(N):  # the key alone turned by the distance
        back = rotate(key, place - i)
        assert (found.scores[..., i, :] - (query[..., i : i + 1, :] @ back.mT)[..., 0, :] / D**0.5).abs().max() < 1e-14
    last = rotary().scores(query[..., -2:, :], key).scores
    assert (last - found.scores[..., -2:, :]).abs().max() < 1e-14


def test_rows_may_stand_at_positions_of_their_own():
    x = tensors(2, 3, N, D)
    places = torch.stack([torch.arange(N), torch.arange(N) - 4])[:, None]
    turned = rotate(x, places)
    assert torch.equal(turned[0], rotate(x[0])) and torch.equal(turned[1], rotate(x[1], torch.arange(N) - 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_angles_do_not_lose_precision_far_out(dtype):
    """At position 100 000 a float32 angle is off by up to 0.004; the turn here is exact up to the type of x."""
    x = tensors(1, D).to(dtype)
    turned = rotate(x, torch.tensor([100_000]))
    assert turned.dtype is dtype
    exact = rotate(x.double(), torch.tensor([100_000]))
    assert (turned.double() - exact).abs().max() < 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rotate(tensors(N, 5)), "even, got 5"),
        (lambda: rotate(tensors(N, D), n_rotated=10), "at most that, got 10"),
        (lambda: rotate(tensors(N, D), torch.arange(N - 1)), "fit"),
        (lambda: rotate(tensors(N, D), torch.arange(N).double()), "whole numbers"),
        (lambda: rotary(layout="half"), "did you mean 'halves'"),
    ],
)
def test_what_cannot_be_turned_is_refused(make, words: str):
    with pytest.raises(InputError, match=words):
        make()
