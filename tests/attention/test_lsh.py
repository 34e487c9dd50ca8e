"""Hashed attention is softmax over the keys that some round finds; against loops over tokens written from the paper."""

import math

import pytest
import torch
from torch import Tensor

from attnprobe.attention.approximation import error_to_full
from attnprobe.attention.hashing import hash_buckets
from attnprobe.attention.mechanisms.lsh import lsh, lsh_weights
from attnprobe.errors import InputError

D_HEAD = 6
PRECISE = {"rtol": 0, "atol": 1e-10}


def found_by_round(buckets: list[int], chunk: int, causal: bool) -> list[set[int]]:
    """P_i of one round, the token itself included, token by token."""
    order = sorted(range(len(buckets)), key=lambda token: (buckets[token], token))
    chunk_of = {token: place // chunk for place, token in enumerate(order)}
    return [
        {
            j
            for j in range(len(buckets))
            if buckets[j] == buckets[i] and 0 <= chunk_of[i] - chunk_of[j] <= 1 and (not causal or j <= i)
        }
        for i in range(len(buckets))
    ]


def union_softmax(x: Tensor, found: list[list[set[int]]]) -> Tensor:
    """Softmax of q·k/|k| over the union of what the rounds found, less the token itself unless it is alone."""
    n_tokens = len(x)
    rows = torch.zeros(n_tokens, n_tokens, dtype=x.dtype)
    for i in range(n_tokens):
        keys = sorted(set().union(*(one[i] for one in found)) - {i}) or [i]
        scores = torch.stack([x[i] @ x[j] / x[j].norm() for j in keys])
        rows[i, keys] = torch.softmax(scores, 0)
    return rows


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("n_tokens", "n_buckets", "n_rounds", "chunk"),
    [(13, 4, 1, 3), (13, 2, 3, 4), (12, 6, 2, 4), (5, 8, 2, 9), (9, 1, 2, 2)],
)
def test_the_map_is_softmax_over_the_union_of_the_rounds(
    n_tokens: int, n_buckets: int, n_rounds: int, chunk: int, causal: bool
):
    x, value = torch.randn(2, n_tokens, D_HEAD, dtype=torch.float64).unbind(0)
    buckets = hash_buckets(x, n_buckets, n_rounds, seed=5).tolist()
    expected = union_softmax(x, [found_by_round(one, chunk, causal) for one in buckets])
    options = {"n_buckets": n_buckets, "n_rounds": n_rounds, "chunk": chunk, "causal": causal, "seed": 5}
    torch.testing.assert_close(lsh_weights(x, x, **options), expected, **PRECISE)
    torch.testing.assert_close(lsh(x, x, value, **options), expected @ value, **PRECISE)


def test_rounds_weigh_by_their_share_of_the_exponentials():
    """z = sum_r exp(lse_r - lse) z_r with scores q·k - log N, as the paper combines its rounds."""
    n_tokens, chunk, n_rounds = 16, 4, 3
    x, value = torch.randn(2, n_tokens, D_HEAD, dtype=torch.float64).unbind(0)
    buckets = hash_buckets(x, 2, n_rounds).tolist()
    rounds = [found_by_round(one, chunk, causal=False) for one in buckets]
    expected = torch.zeros_like(value)
    for i in range(n_tokens):
        sums, parts = [], []
        for one in rounds:
            keys = sorted(one[i] - {i})
            n_found = torch.tensor([sum(j in other[i] for other in rounds) for j in keys], dtype=x.dtype)
            scores = torch.tensor([float(x[i] @ x[j] / x[j].norm()) for j in keys], dtype=x.dtype) - n_found.log()
            sums.append(torch.logsumexp(scores, 0))
            parts.append(torch.softmax(scores, 0) @ value[keys] if keys else torch.zeros_like(value[0]))
        shares = torch.softmax(torch.stack(sums), 0)
        expected[i] = sum(share * part for share, part in zip(shares, parts, strict=True))
    torch.testing.assert_close(lsh(x, x, value, n_buckets=2, n_rounds=n_rounds, chunk=chunk), expected, **PRECISE)


@pytest.mark.parametrize("n_rounds", [1, 4])
def test_one_bucket_and_one_chunk_is_full_attention_without_the_token_itself(n_rounds: int):
    x, value = torch.randn(2, 3, 11, D_HEAD, dtype=torch.float64).unbind(0)
    keys = x / x.norm(dim=-1, keepdim=True)
    others = ~torch.eye(11, dtype=torch.bool)
    full = torch.nn.functional.scaled_dot_product_attention(x, keys, value, attn_mask=others, scale=1.0)
    torch.testing.assert_close(lsh(x, x, value, n_buckets=1, chunk=11, n_rounds=n_rounds), full, **PRECISE)


def test_the_bucket_is_the_nearest_of_the_drawn_directions_and_their_opposites():
    x = torch.randn(40, D_HEAD, dtype=torch.float64)
    generator = torch.Generator().manual_seed(2)
    R = torch.randn(D_HEAD, 3, generator=generator, dtype=torch.float64)
    expected = [max(range(6), key=lambda b: float(row @ R[:, b % 3]) * (1 if b < 3 else -1)) for row in x]
    assert hash_buckets(x, 6, 1, seed=2)[0].tolist() == expected


def test_length_does_not_change_the_bucket_and_the_opposite_direction_never_shares_it():
    x = torch.randn(30, D_HEAD, dtype=torch.float64)
    buckets = hash_buckets(x, 8, 4)
    assert torch.equal(hash_buckets(7 * x, 8, 4), buckets)
    assert (hash_buckets(-x, 8, 4) != buckets).all()


def test_near_directions_share_a_bucket_more_often_than_far_ones():
    x = torch.randn(500, D_HEAD, dtype=torch.float64)
    shares = [
        (hash_buckets(x + noise * torch.randn_like(x), 8, 4) == hash_buckets(x, 8, 4)).double().mean().item()
        for noise in (0.05, 0.5, 5.0)
    ]
    assert shares[0] > shares[1] + 0.1 > shares[2] + 0.2


def test_tokens_that_are_the_same_get_the_same_weight():
    x = torch.randn(8, D_HEAD, dtype=torch.float64)
    x[5] = x[2]
    weights = lsh_weights(x, x, n_buckets=4, n_rounds=3, chunk=8)
    others = [i for i in range(8) if i not in (2, 5)]
    torch.testing.assert_close(weights[others, 2], weights[others, 5], **PRECISE)
    assert weights[2, 5] > 0 and weights[2, 2] == 0


def test_a_token_that_nobody_joins_looks_at_itself():
    x = torch.eye(D_HEAD, dtype=torch.float64)[:2] * torch.tensor([[1.0], [1.0]])
    x = torch.cat([x[:1], -x[:1]])
    torch.testing.assert_close(lsh_weights(x, x, n_buckets=4, chunk=2), torch.eye(2, dtype=torch.float64))
    causal = lsh_weights(*[torch.randn(6, D_HEAD, dtype=torch.float64)] * 2, n_buckets=1, chunk=6, causal=True)
    assert causal[0].tolist() == [1, 0, 0, 0, 0, 0]


def test_more_rounds_find_more_and_come_nearer():
    n_tokens, found, errors = 64, [], []
    for n_rounds in (1, 2, 4, 8):
        entries = error = 0.0
        for seed in range(5):
            torch.manual_seed(seed)
            x = torch.randn(n_tokens, 8, dtype=torch.float64)
            x = x / x.norm(dim=-1, keepdim=True) * math.sqrt(8)
            value = torch.randn(n_tokens, 8, dtype=torch.float64)
            options = {"n_buckets": 4, "chunk": 16, "seed": seed}
            entries += (lsh_weights(x, x, n_rounds=n_rounds, **options) > 0).sum().item()
            error += error_to_full("lsh", x, x, value, n_rounds=n_rounds, **options)["z_mean"]
        found.append(entries)
        errors.append(error)
    assert found == sorted(found) and found[0] < found[-1]
    assert errors == sorted(errors, reverse=True)


def test_no_map_is_formed_on_the_way_to_z():
    n_tokens, chunk = 2048, 8
    x = torch.randn(n_tokens, 4)
    sizes: list[int] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            sizes.extend([found.numel()] if torch.is_tensor(found) else [])
            return found

    with Watch():
        lsh(x, x, x, chunk=chunk, n_rounds=2)
    assert max(sizes) <= n_tokens * 2 * 2 * chunk


def test_queries_and_keys_that_differ_are_refused():
    x = torch.randn(4, D_HEAD)
    with pytest.raises(InputError, match="shares queries and keys"):
        lsh(x, x + 1, x)


@pytest.mark.parametrize("options", [{"n_buckets": 3}, {"n_buckets": 0}, {"n_rounds": 0}, {"chunk": 0}])
def test_settings_that_make_no_sense_are_refused(options: dict[str, int]):
    x = torch.randn(4, D_HEAD)
    with pytest.raises(InputError, match=f"{next(iter(options))} = {next(iter(options.values()))}"):
        lsh(x, x, x, **options)
