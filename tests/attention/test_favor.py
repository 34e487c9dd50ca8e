"""FAVOR+: its directions are uniform and orthogonal, its products are exp(q·k / sqrt(d)) on average."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from attnprobe.attention.approximation import error_to_full
from attnprobe.attention.mechanisms.favor import favor, favor_weights, haar_orthogonal, orthogonal_directions
from attnprobe.errors import InputError

D_HEAD = 4
PRECISE = {"rtol": 0, "atol": 1e-12}


def by_loops(query: Tensor, key: Tensor, directions: Tensor, causal: bool = False) -> Tensor:
    """The map in plain numbers, from the features as the paper defines them."""
    scale = query.shape[-1] ** 0.25

    def features(x: list[float]) -> list[float]:
        x = [a / scale for a in x]
        return [
            math.exp(sum(a * w for a, w in zip(x, row, strict=True)) - sum(a * a for a in x) / 2)
            for row in directions.tolist()
        ]

    keys = [features(k) for k in key.tolist()]
    rows = []
    for i, q in enumerate(query.tolist()):
        fits = [sum(a * b for a, b in zip(features(q), k, strict=True)) for k in keys]
        fits = [fit if not causal or j <= i else 0.0 for j, fit in enumerate(fits)]
        rows.append([fit / sum(fits) for fit in fits])
    return query.new_tensor(rows)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n_features", [1, 4, 11])
def test_map_and_z_are_those_of_the_formula(n_features: int, causal: bool):
    query, key, value = (torch.randn(6, D_HEAD, dtype=torch.float64) for _ in range(3))
    weights = by_loops(query, key, orthogonal_directions(n_features, D_HEAD, seed=3), causal)
    options = {"n_features": n_features, "seed": 3, "causal": causal}
    torch.testing.assert_close(favor_weights(query, key, **options), weights, **PRECISE)
    torch.testing.assert_close(favor(query, key, value, **options), weights @ value, **PRECISE)


def test_directions_are_orthogonal_within_a_block_and_as_long_as_gaussian_vectors():
    W = torch.stack([orthogonal_directions(2 * D_HEAD + 1, D_HEAD, seed) for seed in range(1000)])
    for block in (W[:, :D_HEAD], W[:, D_HEAD : 2 * D_HEAD]):
        products = block @ block.mT
        assert (products - torch.diag_embed(products.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-12
    squares = W.square().sum(-1)  # chi-square with d_head degrees: mean d, variance 2 d
    n_lengths = squares.numel()
    assert abs(squares.mean() - D_HEAD) < 4 * math.sqrt(2 * D_HEAD / n_lengths)
    assert abs(squares.var() - 2 * D_HEAD) < 0.6
    assert squares[:, :D_HEAD].std(dim=-1).min() > 0, "rows of a block have lengths of their own"


def test_rotations_are_uniform_which_plain_qr_is_not():
    generator = torch.Generator().manual_seed(0)
    n_draws, size = 4000, 3
    corners = torch.stack([haar_orthogonal(size, generator)[0, 0] for _ in range(n_draws)])
    # uniform: mean 0, mean square 1/size
    assert abs(corners.mean()) < 4 / math.sqrt(size * n_draws)
    assert abs(corners.square().mean() - 1 / size) < 0.03
    plain = torch.stack([torch.linalg.qr(torch.randn(size, size))[0][0, 0] for _ in range(n_draws)])
    assert abs(plain.mean()) > 0.3


def test_products_of_features_are_the_exponential_on_average():
    q, k = torch.tensor([0.6, -0.3, 0.8, 0.1]).double(), torch.tensor([0.5, 0.4, 0.2, -0.7]).double()
    a, b = q / D_HEAD**0.25, k / D_HEAD**0.25
    W = torch.cat([orthogonal_directions(D_HEAD, D_HEAD, seed) for seed in range(2000)])
    products = torch.exp(W @ a - a @ a / 2) * torch.exp(W @ b - b @ b / 2)
    error = products.std() / math.sqrt(len(products))
    assert abs(products.mean() - math.exp(q @ k / math.sqrt(D_HEAD))) < 4 * error


def test_the_map_nears_softmax_as_features_grow():
    query, key, value = (torch.randn(16, 8, dtype=torch.float64) for _ in range(3))
    means = []
    for n_features in (8, 64, 512, 4096):
        errors = [error_to_full("favor", query, key, value, n_features=n_features, seed=seed) for seed in range(8)]
        means.append([sum(error[name] for error in errors) / len(errors) for name in ("weights_mean", "z_mean")])
    for fewer, more in pairwise(means):
        assert more[0] < 0.8 * fewer[0]
        assert more[1] < 0.8 * fewer[1]
    assert means[-1][0] < means[0][0] / 3


def test_orthogonal_directions_are_nearer_than_independent_ones():
    x = torch.randn(2, 8, 6, dtype=torch.float64)
    softmax = torch.softmax(x[0] @ x[1].T / math.sqrt(6), -1)
    errors = torch.zeros(2)
    for seed in range(60):
        independent = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for which, W in enumerate((orthogonal_directions(6, 6, seed), independent)):
            errors[which] += (by_loops(x[0], x[1], W) - softmax).square().mean()
    assert errors[0] < errors[1]


def test_a_seed_is_a_map_and_leaves_the_global_numbers_alone():
    query, key = torch.randn(2, 5, D_HEAD).double().unbind(0)
    state = torch.get_rng_state()
    assert torch.equal(favor_weights(query, key, seed=1), favor_weights(query, key, seed=1))
    assert not torch.allclose(favor_weights(query, key, seed=1), favor_weights(query, key, seed=2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("causal", [False, True])
def test_scores_of_hundreds_do_not_overflow(causal: bool):
    query, key = (torch.randn(2, 12, 16, dtype=torch.float32) * 6).unbind(0)
    weights = favor_weights(query, key, causal=causal)
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(12))


def test_no_features_are_refused():
    x = torch.randn(2, D_HEAD)
    with pytest.raises(InputError, match="n_features = 0"):
        favor(x, x, x, n_features=0)
