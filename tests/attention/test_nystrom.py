"""Nyström attention: exact with as many landmarks as tokens, signed with fewer; the inverse against numpy's."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from attnprobe.attention.approximation import error_to_full
from attnprobe.attention.mechanisms.nystrom import iterative_inverse, nystrom, nystrom_weights, segment_means
from attnprobe.errors import InputError

N_TOKENS, D_HEAD = 10, 4


@pytest.fixture
def tensors() -> list[Tensor]:
    return [torch.randn(2, N_TOKENS, D_HEAD, dtype=torch.float64) for _ in range(3)]


def softmax_rows(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum(-1, keepdims=True)


def by_numpy(query: Tensor, key: Tensor, segments: list[list[int]]) -> np.ndarray:
    """The map of one head, from the formula."""
    q, k = query.numpy(), key.numpy()
    q_marks, k_marks = (np.stack([x[segment].mean(0) for segment in segments]) for x in (q, k))
    first, middle, last = (
        softmax_rows(a @ b.T / np.sqrt(D_HEAD)) for a, b in ((q, k_marks), (q_marks, k_marks), (q_marks, k))
    )
    return first @ np.linalg.pinv(middle) @ last


@pytest.mark.parametrize(
    "segments",
    [
        [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
        [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]],
        [[i] for i in range(10)],
        [[*range(10)]],
    ],
)
def test_the_map_is_the_product_of_three(tensors: list[Tensor], segments: list[list[int]]):
    query, key, _ = tensors
    weights = nystrom_weights(query, key, n_landmarks=len(segments))
    for head in range(2):
        np.testing.assert_allclose(weights[head].numpy(), by_numpy(query[head], key[head], segments), atol=1e-9)


@pytest.mark.parametrize("n_landmarks", [N_TOKENS, 64])
def test_with_as_many_landmarks_as_tokens_it_is_torchs_attention(tensors: list[Tensor], n_landmarks: int):
    z = torch.nn.functional.scaled_dot_product_attention(*tensors)
    torch.testing.assert_close(nystrom(*tensors, n_landmarks=n_landmarks), z, rtol=0, atol=1e-10)


def test_a_single_query_is_its_own_landmark(tensors: list[Tensor]):
    query, key, value = tensors
    z = torch.nn.functional.scaled_dot_product_attention(query[:, :1], key, value)
    torch.testing.assert_close(nystrom(query[:, :1], key, value, n_landmarks=5), z, rtol=0, atol=1e-12)


def test_segments_are_neighbours_in_order_and_differ_by_one_at_most():
    for n_tokens in (5, 12, 17):
        for n_segments in range(1, n_tokens + 1):
            # token i holds 2^i, so a segment's sum says which tokens it took
            x = 2.0 ** torch.arange(n_tokens, dtype=torch.float64)[:, None]
            sizes = []
            first = 0
            for mean in segment_means(x, n_segments)[:, 0].tolist():
                size = next(
                    s
                    for s in range(1, n_tokens + 1)
                    if abs(mean * s - sum(2.0**i for i in range(first, first + s))) < 1e-6
                )
                sizes.append(size)
                first += size
            assert first == n_tokens
            assert max(sizes) - min(sizes) <= 1


def test_rows_sum_to_one_and_entries_may_be_negative():
    lowest = 0.0
    for seed in range(20):
        torch.manual_seed(seed)
        query, key = 3 * torch.randn(2, 16, D_HEAD, dtype=torch.float64)
        weights = nystrom_weights(query, key, n_landmarks=4)
        torch.testing.assert_close(weights.sum(-1), torch.ones(16, dtype=torch.float64), rtol=0, atol=1e-8)
        lowest = min(lowest, weights.min().item())
    assert lowest < -0.1


def test_more_landmarks_are_nearer_to_full_attention():
    errors = dict.fromkeys((2, 8, 32), 0.0)
    for seed in range(6):
        torch.manual_seed(seed)
        tokens = torch.randn(1, 4, dtype=torch.float64) + 0.15 * torch.randn(64, 4, dtype=torch.float64).cumsum(0)
        for n_landmarks in errors:
            errors[n_landmarks] += error_to_full("nystrom", tokens, tokens, tokens, n_landmarks=n_landmarks)["z_mean"]
    assert errors[2] > 2 * errors[8] > 4 * errors[32]


def test_the_iterative_inverse_nears_that_of_numpy():
    middle = torch.softmax(torch.randn(3, 6, 6, dtype=torch.float64), -1)
    exact = torch.from_numpy(np.linalg.pinv(middle.numpy()))
    errors = [
        (middle @ iterative_inverse(middle, n_steps) @ middle - middle).abs().max().item() for n_steps in (2, 6, 12, 20)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-10
    torch.testing.assert_close(iterative_inverse(middle, 30), exact, rtol=1e-6, atol=1e-6)


def test_a_step_cubes_the_error_of_the_inverse():
    # for one number m the rule is z <- z (13 - mz (15 - mz (7 - mz))) / 4, and e = 1 - mz becomes (3 e³ + e⁴) / 4
    middle = torch.tensor([[[0.25]], [[0.9]]], dtype=torch.float64)
    z = 1 / middle  # the start is m / m² for one number: exact already
    torch.testing.assert_close(iterative_inverse(middle, 0), z)
    matrix = torch.diag_embed(torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64))
    errors = [1 - (matrix @ iterative_inverse(matrix, n)).diagonal() for n in (0, 1, 2)]
    for before, after in pairwise(errors):
        torch.testing.assert_close(after, (3 * before**3 + before**4) / 4, rtol=0, atol=1e-12)


def test_both_inverses_give_one_map_when_the_steps_suffice(tensors: list[Tensor]):
    query, key, _ = tensors
    exact = nystrom_weights(query, key, n_landmarks=3)
    near = nystrom_weights(query, key, n_landmarks=3, inverse="iterative", n_steps=25)
    torch.testing.assert_close(near, exact, rtol=0, atol=1e-8)


@pytest.mark.parametrize("options", [{"n_landmarks": 0}, {"n_steps": -1}])
def test_settings_that_make_no_sense_are_refused(tensors: list[Tensor], options: dict[str, int]):
    with pytest.raises(InputError, match=r"n_landmarks of 1 or more .* got"):
        nystrom(*tensors, **options)
