"""Relative keys and values against the paper's sums written as loops, and what they promise."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.positions.shaw import (
    ShawPositions,
    clipped_distances,
    seen_values,
    shaw_attention,
    shaw_scores,
)
from attnprobe.errors import InputError

N, D = 7, 4


def qkv() -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, 3, N, D, dtype=torch.float64) for _ in range(3))


def moved(x: Tensor, by: int) -> Tensor:
    """The same tokens further right, with others before them."""
    return torch.cat([torch.randn_like(x[..., :1, :]).repeat_interleave(by, -2), x], -2)


def shaw_by_loops(query, key, value, module, visible):
    """Section 3.2 of the paper, one query of one head at a time."""
    z = torch.zeros_like(value)
    for row in range(query.shape[0]):
        for head in range(query.shape[1]):
            for i in range(N):
                scores, values = [], []
                for j in range(N):
                    r = max(-module.max_distance, min(module.max_distance, j - i)) + module.max_distance
                    fit = query[row, head, i] @ (key[row, head, j] + module.key_table[r]) / math.sqrt(D)
                    scores.append(fit if visible[i, j] else torch.tensor(-torch.inf, dtype=fit.dtype))
                    values.append(value[row, head, j] + module.value_table[r])
                z[row, head, i] = torch.stack(scores).softmax(0) @ torch.stack(values)
    return z


@pytest.mark.parametrize("max_distance", [0, 2, 10])
def test_shaws_attention_is_the_papers_sum_written_as_loops(max_distance: int):
    module = ShawPositions(max_distance, D, spread=1.0).double().requires_grad_(False)
    query, key, value = qkv()
    for visible in (causal_mask(N), torch.ones(N, N, dtype=torch.bool)):
        z = shaw_attention(query, key, value, *module(N), visible=visible).z
        assert (z - shaw_by_loops(query, key, value, module, visible)).abs().max() < 1e-13


def test_shaw_with_zero_vectors_is_plain_attention():
    query, key, value = qkv()
    zeros = torch.zeros(N, N, D, dtype=torch.float64)
    found = shaw_attention(query, key, value, zeros, zeros)
    assert (found.z - F.scaled_dot_product_attention(query, key, value)).abs().max() < 1e-14
    assert torch.equal(shaw_scores(query, key, zeros).scores, shaw_scores(query, key, zeros).content)


def test_shaws_scores_do_not_change_when_everything_moves():
    module = ShawPositions(3, D, spread=1.0).double()
    query, key, _ = qkv()
    here = shaw_scores(query, key, module(N)[0]).scores
    there = shaw_scores(moved(query, 17), moved(key, 17), module(N + 17)[0]).scores
    assert (there[..., 17:, 17:] - here).abs().max() < 1e-14
    assert torch.equal(clipped_distances(2, N, max_distance=3), clipped_distances(N, max_distance=3)[-2:])


def test_what_a_query_gets_of_a_key_has_the_position_in_it_and_weights_are_the_gradient():
    module = ShawPositions(2, D, spread=1.0).double().requires_grad_(False)
    query, key, value = qkv()
    _, weights, z = shaw_attention(query, key, value, *module(N))
    seen = seen_values(value, module(N)[1])
    assert ((weights[..., None] * seen).sum(-2) - z).abs().max() < 1e-14
    assert (weights @ value - z).abs().max() > 0.1  # the plain identity does not hold, and must not be relied on
    flows = torch.autograd.functional.jacobian(lambda v: shaw_attention(query, key, v, *module(N)).z[0, 0], value)
    for c in range(D):
        assert (flows[:, c, 0, 0, :, c] - weights[0, 0]).abs().max() < 1e-14


def test_a_negative_reach_is_refused():
    with pytest.raises(InputError, match="max_distance is a whole number of at least 0"):
        ShawPositions(-1, 4)
