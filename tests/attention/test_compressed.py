"""Compressed memories: full attention at c = 1; slots against torch's own pooling and convolution."""

from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from attnprobe.attention.mechanisms.compressed import (
    compressive,
    compressive_weights,
    memory_compressed,
    memory_compressed_weights,
)
from attnprobe.errors import InputError

N_TOKENS, D_HEAD = 12, 4
PRECISE = {"rtol": 0, "atol": 1e-12}


def tensors(n_queries: int = N_TOKENS, n_keys: int = N_TOKENS) -> list[Tensor]:
    sizes = (n_queries, n_keys, n_keys)
    return [torch.randn(2, size, D_HEAD, dtype=torch.float64) for size in sizes]


def pooled(x: Tensor, factor: int, kernel: Tensor | None = None) -> Tensor:
    """torch's own pooling over tokens, or its convolution of each channel."""
    by_channel = x.mT
    if kernel is None:
        return functional.avg_pool1d(by_channel, factor, ceil_mode=True, count_include_pad=False).mT
    weight = kernel.expand(x.shape[-1], 1, -1).contiguous()
    filled = functional.pad(by_channel, (0, -x.shape[-2] % factor))
    return functional.conv1d(filled, weight, stride=factor, groups=x.shape[-1]).mT


@pytest.mark.parametrize("n_keys", [12, 13, 2])
@pytest.mark.parametrize("kernel", [None, torch.tensor([0.5, -1.0, 2.0]).double()])
def test_slots_are_those_of_torchs_pooling_or_convolution(kernel: Tensor | None, n_keys: int):
    query, key, value = tensors(5, n_keys)
    expected = functional.scaled_dot_product_attention(query, pooled(key, 3, kernel), pooled(value, 3, kernel))
    torch.testing.assert_close(memory_compressed(query, key, value, factor=3, kernel=kernel), expected, **PRECISE)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mechanism", [memory_compressed, compressive])
def test_slots_of_one_token_are_torchs_full_attention(mechanism: Any, causal: bool):
    query, key, value = tensors()
    z = functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
    torch.testing.assert_close(mechanism(query, key, value, factor=1, causal=causal), z, **PRECISE)


@pytest.mark.parametrize("n_old", [0, 6, 7])
def test_recent_tokens_stay_as_they_are_and_old_ones_are_pooled(n_old: int):
    query, key, value = tensors(4)
    parts = [torch.cat([pooled(x[:, :n_old], 3), x[:, n_old:]], 1) if n_old else x for x in (key, value)]
    expected = functional.scaled_dot_product_attention(query, *parts)
    found = compressive(query, key, value, n_recent=N_TOKENS - n_old, factor=3)
    torch.testing.assert_close(found, expected, **PRECISE)


def test_a_segment_sees_its_own_past_and_the_memories_before_it():
    """Causal, as in the Compressive Transformer: old slots, recent memory, and the segment up to the token itself."""
    n_queries, n_recent = 4, 6
    query, key, value = tensors(n_queries)
    n_old = N_TOKENS - n_recent
    key_slots, value_slots = (torch.cat([pooled(x[:, :n_old], 2), x[:, n_old:]], 1) for x in (key, value))
    n_slots = key_slots.shape[1]
    found = compressive(query, key, value, n_recent=n_recent, factor=2, causal=True)
    for i in range(n_queries):
        end = n_slots - n_queries + i + 1
        alone = functional.scaled_dot_product_attention(query[:, i : i + 1], key_slots[:, :end], value_slots[:, :end])
        torch.testing.assert_close(found[:, i : i + 1], alone, **PRECISE)


def test_a_slot_is_seen_from_its_last_token_on():
    query, key, value = tensors(7, 7)
    weights = memory_compressed_weights(query, key, factor=3, causal=True)
    z = memory_compressed(query, key, value, factor=3, causal=True)
    slots_seen = [0, 0, 1, 1, 1, 2, 3]  # the last slot holds token 6 alone
    for i, n_slots in enumerate(slots_seen):
        if not n_slots:
            assert weights[:, i].eq(0).all() and z[:, i].eq(0).all()
            continue
        keys, values = pooled(key, 3)[:, :n_slots], pooled(value, 3)[:, :n_slots]
        alone = functional.scaled_dot_product_attention(query[:, i : i + 1], keys, values)
        torch.testing.assert_close(z[:, i : i + 1], alone, **PRECISE)


def test_the_weight_of_a_slot_is_spread_over_its_tokens():
    query, key, _ = tensors(3, 7)
    kernel = torch.tensor([0.2, 0.5, 0.3]).double()
    slots = torch.softmax(query @ pooled(key, 3, kernel).mT / D_HEAD**0.5, -1)
    weights = memory_compressed_weights(query, key, factor=3, kernel=kernel)
    for j in range(7):
        torch.testing.assert_close(weights[..., j], slots[..., j // 3] * kernel[j % 3], **PRECISE)


def test_old_tokens_of_a_slot_share_alike_and_recent_ones_have_their_own():
    query, key, _ = tensors(3)
    weights = compressive_weights(query, key, n_recent=5, factor=3)
    for first, last in ((0, 3), (3, 6), (6, 7)):
        torch.testing.assert_close(
            weights[..., first:last], weights[..., first : first + 1].expand(-1, -1, last - first)
        )
    assert (weights[..., 8:] - weights[..., 7:-1]).abs().min() > 1e-4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, k, v: memory_compressed(q, k, v, factor=0), "factor = 0"),
        (lambda q, k, v: memory_compressed(q, k, v, factor=2, kernel=torch.ones(3)), r"factor = 2.*a kernel \(3,\)"),
        (lambda q, k, v: compressive(q, k, v, n_recent=-1), "n_recent = -1"),
        (lambda q, k, v: compressive(q, k, v, n_recent=5, causal=True), "n_recent = 5 is less than 12 queries"),
    ],
)
def test_settings_that_make_no_sense_are_refused(call: Any, message: str):
    with pytest.raises(InputError, match=message):
        call(*tensors())
