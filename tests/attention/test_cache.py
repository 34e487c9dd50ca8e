"""Key-value caches: one step after the other is one causal pass, and shared heads are torch's grouped queries."""

import inspect
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention.cache import KeyValueCache, Read, grouped_query_attention
from attnprobe.errors import InputError

N_HEADS, N_TOKENS, D_HEAD, D_VALUE = 4, 9, 6, 5
EXACT = 1e-12


def tokens(n_kv_heads: int, n_tokens: int = N_TOKENS) -> tuple[Tensor, Tensor, Tensor]:
    shapes = [(N_HEADS, D_HEAD), (n_kv_heads, D_HEAD), (n_kv_heads, D_VALUE)]
    query, key, value = (torch.randn(2, heads, n_tokens, width, dtype=torch.float64) for heads, width in shapes)
    return query, key, value


def in_chunks(
    cache: KeyValueCache, query: Tensor, key: Tensor, value: Tensor, sizes: list[int]
) -> tuple[KeyValueCache, Read]:
    """Tokens appended some at a time, each chunk's queries right behind it; weights over all tokens."""
    weights, z, start = [], [], 0
    for size in sizes:
        new = slice(start, start + size)
        cache = cache.append(key[..., new, :], value[..., new, :])
        read = cache.attend(query[..., new, :])
        spread = cache.spread(read.weights)
        weights.append(F.pad(spread, (0, query.shape[-2] - spread.shape[-1])))
        z.append(read.z)
        start += size
    return cache, Read(torch.cat(weights, -2), torch.cat(z, -2))


def torch_z(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None) -> Tensor:
    """torch's own attention; causal unless a mask is given."""
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=visible, is_causal=visible is None, enable_gqa=True
    )


def torch_weights(query: Tensor, key: Tensor, visible: Tensor | None = None) -> Tensor:
    """torch's own weights: what it gives where the value of token j is the j-th unit vector."""
    units = torch.eye(key.shape[-2], dtype=key.dtype).expand(*key.shape[:-2], -1, -1)
    return torch_z(query, key, units, visible)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("sizes", [[1] * 9, [9], [4, 1, 1, 3]])
def test_step_by_step_is_one_causal_pass(n_kv_heads: int, sizes: list[int]):
    query, key, value = tokens(n_kv_heads)
    cache, read = in_chunks(KeyValueCache(), query, key, value, sizes)
    assert (read.z - torch_z(query, key, value)).abs().max() < EXACT
    assert (read.weights - torch_weights(query, key)).abs().max() < EXACT
    assert cache.n_seen == N_TOKENS and cache.position.tolist() == list(range(N_TOKENS))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 3, 20])
@pytest.mark.parametrize("n_sinks", [0, 2])
@pytest.mark.parametrize("sizes", [[1] * 9, [9], [4, 1, 1, 3]])
def test_a_sliding_cache_is_a_pass_under_a_banded_mask(n_kv_heads: int, window: int, n_sinks: int, sizes: list[int]):
    query, key, value = tokens(n_kv_heads)
    i, j = torch.meshgrid(torch.arange(N_TOKENS), torch.arange(N_TOKENS), indexing="ij")
    visible = (j <= i) & ((i - j < window) | (j < n_sinks))
    _, read = in_chunks(KeyValueCache(window=window, n_sinks=n_sinks), query, key, value, sizes)
    assert (read.z - torch_z(query, key, value, visible)).abs().max() < EXACT
    assert (read.weights - torch_weights(query, key, visible)).abs().max() < EXACT


def test_a_sliding_cache_keeps_the_last_tokens_and_the_sinks_and_no_more():
    cache = KeyValueCache(window=3, n_sinks=2)
    for step in range(8):
        here = torch.full((1, 1, 1, 2), float(step))
        cache = cache.append(here, here)
    assert cache.position.tolist() == [0, 1, 5, 6, 7]
    assert cache.key[0, 0, :, 0].tolist() == [0, 1, 5, 6, 7]
    assert cache.value[0, 0, :, 1].tolist() == [0, 1, 5, 6, 7]
    assert (cache.n_seen, cache.n_numbers) == (8, 2 * 5 * 2)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_grouped_queries_are_those_of_torch(n_kv_heads: int):
    query, key, value = tokens(n_kv_heads)
    visible = torch.rand(2, 1, N_TOKENS, N_TOKENS) < 0.7
    visible[..., 0] = True
    weights, z = grouped_query_attention(query, key, value, visible=visible)
    assert (z - torch_z(query, key, value, visible)).abs().max() < EXACT
    assert (weights - torch_weights(query, key, visible)).abs().max() < EXACT


def test_as_many_key_heads_as_query_heads_is_multi_head_and_one_is_multi_query():
    """Each query head alone against the key head that it reads."""
    query, key, value = tokens(N_HEADS)
    of_its_own, _ = grouped_query_attention(query, key, value)
    of_the_first, _ = grouped_query_attention(query, key[:, :1], value[:, :1])
    in_pairs, _ = grouped_query_attention(query, key[:, :2], value[:, :2])
    for head in range(N_HEADS):
        for found, read in ((of_its_own, head), (of_the_first, 0), (in_pairs, head // 2)):
            expected = torch.softmax(query[:, head] @ key[:, read].mT / D_HEAD**0.5, -1)
            assert (found[:, head] - expected).abs().max() < EXACT


def test_shared_heads_save_their_share_of_the_cache():
    sizes = {n: KeyValueCache().append(*tokens(n)[1:]).n_numbers for n in (1, 2, 4)}
    assert sizes == {n: 2 * n * N_TOKENS * (D_HEAD + D_VALUE) for n in (1, 2, 4)}


def test_appending_leaves_the_old_cache_as_it_was():
    """Two ways to go on from one beginning, as in a beam search."""
    query, key, value = tokens(2)
    begun = KeyValueCache().append(key[..., :5, :], value[..., :5, :])
    before = begun.attend(query[..., 4:5, :])
    one, other = (begun.append(torch.randn_like(key[..., 5:6, :]), value[..., 5:6, :]) for _ in range(2))
    assert not torch.equal(one.attend(query[..., 5:6, :]).z, other.attend(query[..., 5:6, :]).z)
    assert torch.equal(begun.attend(query[..., 4:5, :]).z, before.z) and begun.n_seen == 5


def test_gradients_reach_a_kept_key_and_value_and_none_that_was_dropped():
    query, key, value = (x.requires_grad_() for x in tokens(1))
    cache, _ = in_chunks(KeyValueCache(window=3), query, key, value, [1] * N_TOKENS)
    last = cache.attend(query[..., -1:, :]).z.sum()
    for gradient in torch.autograd.grad(last, (key, value)):
        reached = gradient.abs().sum((0, 1, 3)) > 0
        assert reached.tolist() == [False] * (N_TOKENS - 3) + [True] * 3


def test_the_scale_is_taken():
    query, key, value = tokens(2, 3)
    cache = KeyValueCache().append(key, value)
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True, scale=0.3)
    assert (cache.attend(query, scale=0.3).z - expected).abs().max() < EXACT


def test_other_leading_axes_go_side_by_side():
    shapes = [(N_HEADS, 3, D_HEAD), (2, 3, D_HEAD), (2, 3, D_VALUE)]
    query, key, value = (torch.randn(2, 3, *shape, dtype=torch.float64) for shape in shapes)
    found = KeyValueCache().append(key, value).attend(query)
    for at in itertools.product(range(2), range(3)):
        alone = KeyValueCache().append(key[at], value[at]).attend(query[at])
        assert (found.z[at] - alone.z).abs().max() < EXACT
        assert (alone.z - torch_z(query[at][None], key[at][None], value[at][None])[0]).abs().max() < EXACT


def test_what_does_not_fit_is_refused():
    query, key, value = tokens(2)
    cache = KeyValueCache().append(key, value)
    append, attend = map(inspect.unwrap, (KeyValueCache.append, grouped_query_attention))  # without jaxtyping
    with pytest.raises(InputError, match="empty"):
        KeyValueCache().attend(query)
    with pytest.raises(InputError, match="4 query heads cannot share 3"):
        KeyValueCache().append(*tokens(3)[1:]).attend(query)
    with pytest.raises(InputError, match="fits what is kept"):
        cache.append(key[:, :1], value[:, :1])
    with pytest.raises(InputError, match=r"\[\*batch kv_head token width\]"):
        append(cache, key[..., :1, :], value)
    with pytest.raises(InputError, match=r"\[\*batch head token width\]"):
        attend(query[..., :-1], key, value)
    with pytest.raises(InputError, match="10 queries, but the keys of the last 9"):
        cache.attend(tokens(2, 10)[0])
    with pytest.raises(InputError, match="1 or more and 0 or more sinks"):
        KeyValueCache(window=0)
    with pytest.raises(InputError, match="give window="):
        KeyValueCache(n_sinks=1)


def test_queries_whose_keys_a_window_has_dropped_are_refused():
    query, key, value = tokens(2)
    cache = KeyValueCache(window=3).append(key, value)
    assert cache.attend(query).z.shape[-2] == N_TOKENS  # the first chunk's queries: nothing is dropped yet
    later = cache.append(key[..., :1, :], value[..., :1, :])
    with pytest.raises(InputError, match="2 queries, but the keys of the last 1 tokens"):
        later.attend(query[..., :2, :])


def test_a_cache_says_how_much_it_holds_and_that_append_gives_a_new_one():
    empty = KeyValueCache(window=2)
    kept = empty.append(torch.zeros(1, 1, 5, 4), torch.zeros(1, 1, 5, 4))
    assert repr(kept) == "KeyValueCache(5 tokens seen, 5 kept, window=2, n_sinks=0, 40 numbers)"
    with pytest.raises(InputError, match=r"cache = cache.append\(key, value\)"):
        empty.attend(torch.zeros(1, 1, 1, 4))
