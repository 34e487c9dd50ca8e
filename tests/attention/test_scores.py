"""Scores against loops over pairs, and scaled dot-product attention against torch's own."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention.learned_scores import (
    LEARNED_SCORES,
    AdditiveScore,
    GeneralScore,
    LocationScore,
    additive_scores,
    general_scores,
    location_scores,
)
from attnprobe.attention.masks import causal_mask
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.mechanisms.softmax import scaled_dot, scaled_dot_weights
from attnprobe.attention.scores import SCORES, attend, dot_scores, scaled_dot_scores
from attnprobe.errors import InputError

D_QUERY, D_KEY, D_HIDDEN, N_QUERIES, N_KEYS = 4, 3, 6, 5, 7


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def pairs(query: Tensor, key: Tensor, fit) -> Tensor:
    """A score by a loop over pairs."""
    return torch.tensor([[float(fit(q, k)) for k in key] for q in query], dtype=torch.float64)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() < tolerance)


def test_additive_scores_are_the_formula_of_each_pair():
    query, key = normal(N_QUERIES, D_QUERY), normal(N_KEYS, D_KEY)
    W, U, u = normal(D_HIDDEN, D_QUERY), normal(D_HIDDEN, D_KEY), normal(D_HIDDEN)
    by_hand = pairs(query, key, lambda q, k: sum(u[h] * math.tanh(W[h] @ q + U[h] @ k) for h in range(D_HIDDEN)))
    assert close(additive_scores(query, key, W, U, u), by_hand)


def test_additive_attention_without_direction_is_uniform():
    score = AdditiveScore(D_QUERY, D_KEY, D_HIDDEN).double()
    with torch.no_grad():
        score.direction.zero_()
    weights = attend(score, normal(2, N_QUERIES, D_QUERY), normal(2, N_KEYS, D_KEY), normal(2, N_KEYS, 2)).weights
    assert torch.equal(weights, torch.full_like(weights, 1 / N_KEYS))


@pytest.mark.parametrize(
    "score",
    [AdditiveScore(4, 3, 6), GeneralScore(4, 3), dot_scores, scaled_dot_scores],
    ids=lambda score: getattr(score, "__name__", type(score).__name__),
)
def test_permuting_keys_permutes_the_weights_and_nothing_else(score):
    width = D_KEY if isinstance(score, torch.nn.Module) else D_QUERY
    query, key, value = normal(N_QUERIES, D_QUERY).float(), normal(N_KEYS, width).float(), normal(N_KEYS, 2).float()
    order = torch.randperm(N_KEYS)
    plain, permuted = attend(score, query, key, value), attend(score, query, key[order], value[order])
    assert close(plain.weights[:, order], permuted.weights, 1e-6)
    assert close(plain.z, permuted.z, 1e-5)


def test_dot_scores_are_the_formula_of_each_pair():
    query, key = normal(N_QUERIES, D_KEY), normal(N_KEYS, D_KEY)
    assert close(dot_scores(query, key), pairs(query, key, torch.dot))
    assert close(scaled_dot_scores(query, key), pairs(query, key, lambda q, k: q @ k / math.sqrt(D_KEY)))


def test_general_scores_with_the_identity_are_dot_products_and_else_the_formula():
    query, key, W = normal(N_QUERIES, D_QUERY), normal(N_KEYS, D_KEY), normal(D_QUERY, D_KEY)
    assert close(general_scores(query, key, W), pairs(query, key, lambda q, k: q @ W @ k))
    identity = torch.eye(D_KEY, dtype=torch.float64)
    narrow = normal(N_QUERIES, D_KEY)
    assert close(general_scores(narrow, key, identity), pairs(narrow, key, torch.dot))


def test_the_scale_keeps_the_variance_of_gaussian_scores_at_one_and_dot_products_do_not():
    for width in (16, 256):
        query, key = normal(400, width), normal(400, width)
        assert abs(float(scaled_dot_scores(query, key).var()) - 1) < 0.06
        assert abs(float(dot_scores(query, key).var()) / width - 1) < 0.06


def test_a_location_score_looks_at_the_query_alone():
    query, key, W = normal(N_QUERIES, D_QUERY), normal(N_KEYS, D_KEY), normal(9, D_QUERY)
    scores = location_scores(query, key, W)
    assert close(scores, torch.tensor([[float(W[j] @ q) for j in range(N_KEYS)] for q in query], dtype=torch.float64))
    assert torch.equal(scores, location_scores(query, normal(N_KEYS, 1), W))
    with pytest.raises(InputError, match="9 positions got 10 keys"):
        LocationScore(D_QUERY, 9)(query.float(), torch.zeros(10, D_KEY))


@pytest.mark.parametrize("name", LEARNED_SCORES)
def test_a_score_with_parameters_learns_and_keeps_rows_apart(name: str):
    sizes = {"general": (4, 3), "location": (4, 7), "additive": (4, 3, 6)}[name]
    score = LEARNED_SCORES[name](*sizes).double()
    query, key = normal(2, 3, N_QUERIES, D_QUERY), normal(2, 3, N_KEYS, D_KEY)
    scores = score(query, key)
    assert scores.shape == (2, 3, N_QUERIES, N_KEYS)
    assert close(scores[1, 2], score(query[1, 2], key[1, 2]))
    gradients = torch.autograd.grad(scores.square().sum(), list(score.parameters()))
    assert all(gradient.abs().max() > 0 for gradient in gradients)


MASKS = {
    "all": None,
    "causal": causal_mask(300),
    "random": torch.rand(2, 3, 300, 300, generator=torch.Generator().manual_seed(0)) > 0.5,
    "padding": torch.arange(300)[None, None, None, :] < torch.tensor([300, 170])[:, None, None, None],
    "a window": (torch.arange(300) - torch.arange(300)[:, None]).abs() < 20,
}


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_scaled_dot_equals_torch_scaled_dot_product_attention_with_its_gradients(mask: str, biased: bool):
    query, key, value = (normal(2, 3, 300, 4).requires_grad_() for _ in range(3))
    bias, visible = (normal(3, 300, 300) if biased else None), MASKS[mask]
    shift = torch.zeros(2, 3, 300, 300, dtype=torch.float64) if bias is None else bias.expand(2, -1, -1, -1)
    hidden = shift if visible is None else shift.masked_fill(~visible, -torch.inf)
    z = scaled_dot(query, key, value, visible=visible, bias=bias)
    reference = F.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
    assert close(z, reference)
    direction = torch.randn_like(z)
    got = torch.autograd.grad(z, (query, key, value), direction)
    want = torch.autograd.grad(reference, (query, key, value), direction)
    assert all(close(a, b, 1e-11) for a, b in zip(got, want, strict=True))
    weights = scaled_dot_weights(query, key, visible=visible, bias=bias)
    assert close(weights @ value, reference)
    assert visible is None or (weights.masked_select(~visible) == 0).all()


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (127, 127), (128, 128), (129, 129), (3, 200), (130, 300)])
def test_causal_equals_the_mask_at_every_length_and_the_last_query_is_at_the_last_key(n_queries: int, n_keys: int):
    query, key, value = normal(2, n_queries, 4), normal(2, n_keys, 4), normal(2, n_keys, 5)
    visible = torch.ones(n_queries, n_keys).tril(n_keys - n_queries).bool()
    reference = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
    assert close(scaled_dot(query, key, value, causal=True), reference)
    assert close(scaled_dot_weights(query, key, causal=True) @ value, reference)
    padded = visible & (torch.arange(n_keys) != 1)
    reference = F.scaled_dot_product_attention(query, key, value, attn_mask=padded)
    assert close(scaled_dot(query, key, value, causal=True, visible=torch.arange(n_keys)[None] != 1), reference)


def test_no_gradient_reaches_the_future():
    query, key, value = (normal(200, 4).requires_grad_() for _ in range(3))
    z = scaled_dot(query, key, value, causal=True)
    for i in (0, 127, 128, 150):
        for gradient in torch.autograd.grad(z[i].sum(), (query, key, value), retain_graph=True):
            assert gradient[i + 1 :].abs().max() == 0


@pytest.mark.parametrize(
    "options",
    [{}, {"normalizer": "sparsemax"}, {"bias": torch.zeros(140, 140)}],
    ids=lambda score: getattr(score, "__name__", type(score).__name__),
)
def test_queries_that_may_look_at_nothing_get_zeros_and_no_gradient(options):
    query, key, value = (normal(140, 4).requires_grad_() for _ in range(3))
    visible = torch.rand(140, 140) > 0.5
    visible[[0, 130, 139]] = False  # one in the first block of queries, two in the last
    z = scaled_dot(query, key, value, visible=visible, **options)
    assert (z[[0, 130, 139]] == 0).all()
    assert (scaled_dot_weights(query, key, visible=visible, **options)[[0, 130, 139]] == 0).all()
    gradients = torch.autograd.grad(z.square().sum(), (query, key, value))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][[0, 130, 139]] == 0).all()
    blind = scaled_dot(query, key, value, visible=torch.zeros(140, 140, dtype=torch.bool), **options)
    assert (blind == 0).all()


def test_what_lies_in_hidden_keys_does_not_matter():
    query, key, value = normal(2, 150, 4), normal(2, 150, 4), normal(2, 150, 4)
    visible = torch.arange(150)[None, None, :] < torch.tensor([150, 90])[:, None, None]
    z = scaled_dot(query, key, value, visible=visible)
    key[1, 90:], value[1, 90:] = 50.0, -7.0
    assert torch.equal(z, scaled_dot(query, key, value, visible=visible))


def test_each_weight_is_what_a_change_of_the_value_does_to_z():
    """A_ij = dz_i / dv_j, for every normalizer and score."""
    query, key, value = normal(6, 4), normal(6, 4), normal(6, 1)
    for normalizer in ("softmax", "sparsemax", "entmax15", "sigmoid", "softmax_plus_one"):
        for score in SCORES:
            options = {"normalizer": normalizer, "score": score, "temperature": 0.7, "causal": True}
            jacobian = torch.autograd.functional.jacobian(lambda v, o=options: scaled_dot(query, key, v, **o), value)
            assert close(scaled_dot_weights(query, key, **options), jacobian[:, 0, :, 0])


def test_the_scale_of_dot_is_a_temperature_of_sqrt_d():
    query, key, value = normal(5, 9), normal(7, 9), normal(7, 2)
    reference = F.scaled_dot_product_attention(query[None], key[None], value[None])[0]
    assert close(scaled_dot(query, key, value, score="dot", temperature=3.0), reference)


def test_what_does_not_fit_is_refused_with_what_would():
    query, key, value = normal(2, 5, 4), normal(2, 7, 4), normal(2, 7, 3)
    with pytest.raises(InputError, match=r"mask \(visible\) of \(5, 6\) does not broadcast to scores of \(2, 5, 7\)"):
        scaled_dot(query, key, value, visible=torch.ones(5, 6, dtype=torch.bool))
    with pytest.raises(InputError, match="a bias of"):
        scaled_dot(query, key, value, bias=torch.zeros(3, 5, 7))
    with pytest.raises(InputError, match=r"boolean.*got torch.float64.*bias"):
        scaled_dot(query, key, value, visible=normal(5, 7))
    with pytest.raises(InputError, match="temperature is above 0, got 0"):
        scaled_dot(query, key, value, temperature=0.0)
    with pytest.raises(InputError, match="did you mean 'sparsemax'"):
        Mechanism.of("scaled_dot", normalizer="sparse_max")
    with pytest.raises(InputError, match="did you mean 'scaled_dot'"):
        Mechanism.of("scaled_dot", score="scaled")
