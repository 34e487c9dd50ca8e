"""Associative memory: Hopfield's energy and recall, and the dictionary that sharp attention becomes."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention.memory import energy, hopfield, nearest, outside_bound, separation
from attnprobe.errors import InputError

N_PATTERNS, WIDTH = 6, 12
BETAS = [0.1, 1.0, 4.0, 50.0]


def patterns(n: int = N_PATTERNS, width: int = WIDTH) -> Tensor:
    return torch.randn(n, width, dtype=torch.float64)


def slow_energy(state: list[float], pattern: list[list[float]], beta: float) -> float:
    """Ramsauer et al. 2021, equation 2 without its constants, in Python numbers."""
    overlaps = [beta * math.fsum(a * b for a, b in zip(one, state, strict=True)) for one in pattern]
    top = max(overlaps)
    lse = (top + math.log(math.fsum(math.exp(o - top) for o in overlaps))) / beta
    return math.fsum(x * x for x in state) / 2 - lse


@pytest.mark.parametrize("beta", BETAS)
def test_the_energy_is_that_of_the_paper(beta: float):
    pattern, state = patterns(), patterns(3)
    expected = [slow_energy(one.tolist(), pattern.tolist(), beta) for one in state]
    assert energy(state, pattern, beta=beta).tolist() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("beta", BETAS)
def test_the_energy_never_rises_and_with_its_constants_stays_at_0_or_above(beta: float):
    pattern, state = patterns().expand(4, -1, -1), 3 * torch.randn(4, 5, WIDTH, dtype=torch.float64)
    found = hopfield(state, pattern, beta=beta, n_steps=30).energy
    rises = found.diff(dim=0)
    constants = math.log(N_PATTERNS) / beta + pattern.square().sum(-1).max() / 2
    assert found.shape == (31, 4, 5)
    assert rises.max() < 1e-12 and rises[0].max() < -0.1
    assert (found + constants).min() > -1e-12


@pytest.mark.parametrize("beta", BETAS)
def test_a_step_is_gradient_descent_on_the_energy_with_step_1(beta: float):
    pattern, state = patterns(), patterns(3).requires_grad_()
    (slope,) = torch.autograd.grad(energy(state, pattern, beta=beta).sum(), state)
    assert (hopfield(state, pattern, beta=beta).state - (state - slope)).abs().max() < 1e-12


@pytest.mark.parametrize("beta", BETAS)
def test_one_step_is_attention(beta: float):
    pattern, state = patterns().expand(2, -1, -1), patterns(3).expand(2, -1, -1)
    found = hopfield(state, pattern, beta=beta)
    expected = F.scaled_dot_product_attention(state, pattern, pattern, scale=beta)
    assert (found.state - expected).abs().max() < 1e-13
    assert (found.weights - torch.softmax(beta * state @ pattern.mT, -1)).abs().max() < 1e-13


def test_separated_patterns_come_back_in_one_step():
    """Orthogonal ones of length 10, from a state that lies a third of the way to another pattern."""
    pattern = 10 * torch.eye(N_PATTERNS, dtype=torch.float64)
    damaged = pattern * 2 / 3 + pattern.roll(1, 0) / 3
    found = hopfield(damaged, pattern)
    assert (separation(pattern) == 100).all()
    assert (found.state - pattern).abs().max() < 1e-13
    assert found.weights.argmax(-1).tolist() == list(range(N_PATTERNS))


def test_patterns_too_close_for_their_beta_blend_into_one_resting_point():
    pattern = torch.tensor([[5.0, 0.1], [5.0, -0.1]], dtype=torch.float64)
    found = hopfield(pattern, pattern, n_steps=200)
    assert (found.state - torch.tensor([5.0, 0.0], dtype=torch.float64)).abs().max() < 1e-6
    apart = hopfield(pattern, pattern, beta=1e4, n_steps=200)
    assert (apart.state - pattern).abs().max() < 1e-6


def test_more_steps_are_steps_one_after_the_other():
    pattern, state = patterns(), patterns(2)
    once = torch.softmax(state @ pattern.T, -1) @ pattern
    twice = torch.softmax(once @ pattern.T, -1) @ pattern
    found = hopfield(state, pattern, n_steps=2)
    assert (found.state - twice).abs().max() < 1e-13
    assert (found.weights - torch.softmax(once @ pattern.T, -1)).abs().max() < 1e-13  # those of the last step


def test_separation_is_the_gap_to_the_most_similar_other_pattern():
    pattern = patterns()
    for i, found in enumerate(separation(pattern).tolist()):
        overlaps = [float(pattern[i] @ pattern[j]) for j in range(N_PATTERNS)]
        assert found == pytest.approx(overlaps[i] - max(o for j, o in enumerate(overlaps) if j != i), abs=1e-12)
    assert separation(pattern[:1]).tolist() == [math.inf]


def test_one_hot_keys_and_queries_make_a_python_dictionary():
    words = {"cat": 0, "dog": 1, "owl": 2}
    meaning = {"cat": 9.0, "dog": -4.0, "owl": 2.5}
    key = torch.eye(3, dtype=torch.float64)
    value = torch.tensor([[meaning[word]] for word in words], dtype=torch.float64)
    asked = ["owl", "cat", "owl", "dog"]
    query = key[[words[word] for word in asked]]
    found = nearest(query, key, value)
    assert found.z.flatten().tolist() == [meaning[word] for word in asked]
    assert found.found.flatten().tolist() == [words[word] for word in asked]
    soft = F.scaled_dot_product_attention(query, key, value, scale=1e3)
    assert torch.equal(soft, found.z)  # e^-1000 is 0


@pytest.mark.parametrize("k", [1, 2, N_PATTERNS])
def test_neighbours_are_those_of_a_sorted_list(k: int):
    query, key, value = patterns(4), patterns(), torch.randn(N_PATTERNS, 3, dtype=torch.float64)
    for by, closeness in (("dot", lambda q, x: float(q @ x)), ("distance", lambda q, x: -math.dist(q, x))):
        found = nearest(query, key, value, k=k, by=by)
        for i, one in enumerate(query):
            best = sorted(range(N_PATTERNS), key=lambda j: closeness(one, key[j]), reverse=True)[:k]
            assert found.found[i].tolist() == best
            assert found.weights[i].tolist() == [1 / k if j in best else 0.0 for j in range(N_PATTERNS)]
            assert (found.z[i] - value[best].mean(0)).abs().max() < 1e-14


def test_keys_of_one_length_have_the_same_neighbours_by_product_and_by_distance():
    query, key, value = patterns(8), F.normalize(patterns(), dim=-1), patterns()
    by_dot, by_distance = (nearest(query, key, value, k=3, by=by).found for by in ("dot", "distance"))
    assert torch.equal(by_dot, by_distance)


def test_of_equals_the_first_counts():
    key = torch.ones(5, 2, dtype=torch.float64)
    assert nearest(key[:1], key, key, k=3).found.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("beta", [1.0, 8.0, 64.0, 512.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_soft_look_up_is_as_near_to_the_neighbours_as_the_gap_says(beta: float, k: int):
    """Mass outside of the k best <= our bound <= n e^(-beta gap), and for k = 1 so far is z from the dictionary's."""
    query, key = F.normalize(patterns(50), dim=-1), F.normalize(patterns(), dim=-1)
    value = torch.rand(N_PATTERNS, 3, dtype=torch.float64)
    scores = query @ key.T
    weights = torch.softmax(beta * scores, -1)
    hard = nearest(query, key, value, k=k)
    outside = weights.masked_fill(hard.weights > 0, 0.0).sum(-1)
    ordered = scores.sort(dim=-1, descending=True).values
    gap = ordered[:, k - 1] - ordered[:, k]
    bound = outside_bound(scores, beta=beta, k=k)
    slack = 1 + 1e-12
    assert (outside <= bound * slack).all()
    assert (bound <= N_PATTERNS * torch.exp(-beta * gap) * slack).all()
    if k == 1:
        assert ((weights @ value - hard.z).abs().amax(-1) <= bound * slack).all()  # values lie between 0 and 1


def test_the_bound_is_reached_and_a_tie_never_sharpens():
    scores = torch.tensor([[2.0, 2.0, -1.0, -1.0, -1.0], [2.0, 2.0, 2.0, -1.0, -1.0]], dtype=torch.float64)
    outside = torch.softmax(0.5 * scores, -1)[0, 2:].sum()
    share = float(outside / (1 - outside))  # outside / inside is the bound where all outside tie
    assert outside_bound(scores, beta=0.5, k=2)[0].item() == pytest.approx(share, rel=1e-12)
    assert outside_bound(scores, beta=1e6, k=2).tolist() == [0.0, 1.0]
    assert outside_bound(scores, beta=1.0, k=5).tolist() == [0.0, 0.0]


def test_at_64_small_gaps_are_still_far_from_the_argmax_and_at_10000_they_are_not():
    scores = torch.tensor([[0.5, 0.49, 0.1]], dtype=torch.float64)
    assert 1 - torch.softmax(64 * scores, -1).max() > 0.3
    assert 1 - torch.softmax(1e4 * scores, -1).max() < 1e-12
    assert outside_bound(scores, beta=64.0).item() == 1.0
    assert outside_bound(scores, beta=1e4).item() < 1e-12


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_a_beta_that_is_no_sharpness_is_refused(beta: float):
    for ask in (hopfield, energy):
        with pytest.raises(InputError, match="a number above 0"):
            ask(patterns(), patterns(), beta=beta)
    with pytest.raises(InputError, match="a number above 0"):
        outside_bound(patterns(), beta=beta)


def test_other_numbers_that_mean_nothing_are_refused():
    with pytest.raises(InputError, match="n_steps is how often"):
        hopfield(patterns(), patterns(), n_steps=0)
    for k in (0, N_PATTERNS + 1):
        with pytest.raises(InputError, match=f"1 to {N_PATTERNS}, got {k}"):
            nearest(patterns(), patterns(), patterns(), k=k)
        with pytest.raises(InputError, match=f"1 to {N_PATTERNS}, got {k}"):
            outside_bound(patterns(2, N_PATTERNS), beta=1.0, k=k)
    with pytest.raises(InputError, match="'dot'"):
        inspect.unwrap(nearest)(patterns(), patterns(), patterns(), by="cosine")
