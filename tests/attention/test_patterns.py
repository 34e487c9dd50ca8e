"""Sparse patterns against their definitions pair by pair, against full attention where they cover all, and drawn."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention.masks import causal_mask, padding_mask
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.patterns import (
    adjacency_mask,
    big_bird_mask,
    block_mask,
    edge_mask,
    global_mask,
    local_mask,
    random_mask,
    strided_mask,
)
from attnprobe.attention.scores import scaled_dot_product_attention
from attnprobe.errors import InputError
from attnprobe.mask_figures import mask_and_reach, mask_gallery, mask_picture, reach_picture

N = 9
FULL = torch.ones(N, N, dtype=torch.bool)
COVERING = {
    "a local window as wide as the input": local_mask(N, N),
    "blocks of a full layout": block_mask(torch.ones(3, 3, dtype=torch.bool), 4, n_tokens=N),
    "stride 1, both directions": strided_mask(N, 1, causal=False),
    "everyone global": global_mask(N, range(N)),
    "as many random keys as there are": random_mask(N, N, seed=3),
    "window, global and random blocks of BigBird": big_bird_mask(N, block_size=2, n_random=5, seed=1),
    "a complete graph": edge_mask(N, [(i, j) for i in range(N) for j in range(i)]),
}


def pairs(rule) -> Tensor:
    """A mask from a rule, one pair at a time."""
    return torch.tensor([[bool(rule(i, j)) for j in range(N)] for i in range(N)])


def qkv(n: int = N) -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, 3, n, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))


@pytest.mark.parametrize("width", [1, 2, 4, N, 50])
def test_a_window_is_all_pairs_nearer_than_its_width(width: int):
    assert torch.equal(local_mask(N, width), pairs(lambda i, j: abs(i - j) < width))
    assert torch.equal(local_mask(N, width, causal=True), pairs(lambda i, j: 0 <= i - j < width))
    assert torch.equal(local_mask(N, width, causal=True), local_mask(N, width) & causal_mask(N))


@pytest.mark.parametrize("stride", [1, 2, 3, 20])
def test_a_stride_is_counted_from_the_own_position(stride: int):
    assert torch.equal(strided_mask(N, stride), pairs(lambda i, j: j <= i and (i - j) % stride == 0))
    assert torch.equal(strided_mask(N, stride, causal=False), pairs(lambda i, j: (i - j) % stride == 0))


@pytest.mark.parametrize(("size", "n_blocks"), [(1, 9), (2, 5), (4, 3), (9, 1)])
def test_a_block_is_seen_whole_or_not_at_all(size: int, n_blocks: int):
    layout = torch.rand(n_blocks, n_blocks) < 0.5
    assert torch.equal(block_mask(layout, size, n_tokens=N), pairs(lambda i, j: layout[i // size, j // size]))


def test_global_positions_see_all_and_are_seen_by_all():
    assert torch.equal(global_mask(N, [0, -2]), pairs(lambda i, j: {i, j} & {0, N - 2}))
    assert not global_mask(N, []).any()


def test_random_keys_are_as_many_as_asked_for_distinct_evenly_spread_and_the_same_for_a_seed():
    mask = random_mask(N, 4, seed=5)
    assert mask.sum(1).tolist() == [4] * N
    assert torch.equal(mask, random_mask(N, 4, seed=5)) and not torch.equal(mask, random_mask(N, 4, seed=6))
    before = torch.random.get_rng_state()
    random_mask(N, 4, seed=5)
    assert torch.equal(before, torch.random.get_rng_state())  # the global generator is left alone
    drawn = torch.stack([random_mask(N, 4, seed=seed) for seed in range(2000)]).double().mean(0)
    assert (drawn - 4 / N).abs().max() < 5 * (4 / N * 5 / N / 2000) ** 0.5  # five standard errors


def test_random_keys_beside_a_mask_are_others_and_all_where_there_are_too_few():
    seen = local_mask(N, 3)
    mask = random_mask(N, 5, seed=2, beside=seen)
    assert not (mask & seen).any()
    assert mask.sum(1).tolist() == [min(5, N - int(row.sum())) for row in seen]


def test_big_bird_is_window_and_global_blocks_and_so_many_random_ones():
    n, size = 40, 4
    mask = big_bird_mask(n, block_size=size, n_window=3, n_random=2, seed=7)
    blocks = mask.reshape(10, size, 10, size)
    assert torch.equal(blocks.all(3).all(1), blocks.any(3).any(1))  # whole blocks
    layout = blocks[:, 0, :, 0]
    fixed = torch.tensor([[abs(a - b) <= 1 or {a, b} & {0, 9} != set() for b in range(10)] for a in range(10)])
    assert (layout | ~fixed).all()
    assert (layout & ~fixed).sum(1).tolist() == [0, *[2] * 8, 0]


def test_a_graph_by_its_edges_and_by_its_matrix_is_the_same():
    edges = [(0, 3), (3, 5), (8, 1)]
    assert torch.equal(edge_mask(N, edges), pairs(lambda i, j: i == j or (i, j) in edges or (j, i) in edges))
    one_way = edge_mask(N, edges, directed=True, loops=False)
    assert torch.equal(one_way, pairs(lambda i, j: (i, j) in edges))
    assert torch.equal(adjacency_mask(one_way.double() * 0.3, loops=False), one_way)
    assert torch.equal(adjacency_mask(one_way), one_way | torch.eye(N, dtype=torch.bool))
    assert torch.equal(edge_mask(N, []), torch.eye(N, dtype=torch.bool))


@pytest.mark.parametrize("name", COVERING)
def test_a_pattern_that_covers_everything_is_full_attention(name: str):
    assert torch.equal(COVERING[name], FULL)
    query, key, value = qkv()
    found = scaled_dot_product_attention(query, key, value, visible=COVERING[name]).z
    assert (found - F.scaled_dot_product_attention(query, key, value)).abs().max() < 1e-14


PATTERNS = {
    "causal": causal_mask(N),
    "window": local_mask(N, 3),
    "stride": strided_mask(N, 4) | local_mask(N, 4, causal=True),
    "blocks": block_mask(torch.eye(3, dtype=torch.bool), 3),
    "big bird": big_bird_mask(N, block_size=1, n_random=1),
    "graph": edge_mask(N, [(0, 8), (2, 4)]),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_hidden_keys_have_weight_zero_and_nothing_flows_from_them(name: str):
    visible, (query, key, value) = PATTERNS[name], qkv()
    _, weights, z = scaled_dot_product_attention(query, key, value, visible=visible)
    assert not weights[..., ~visible].any() and (weights[..., visible] > 0).all()
    assert (z - F.scaled_dot_product_attention(query, key, value, attn_mask=visible)).abs().max() < 1e-14
    for i in range(N):
        flows = torch.autograd.grad(z[..., i, :].square().sum(), (key, value), retain_graph=True)
        from_key, from_value = (gradient.ne(0).any(-1) for gradient in flows)
        assert torch.equal(from_value, visible[i].expand(2, 3, N))
        assert not from_key[..., ~visible[i]].any()  # of a key seen alone the weight is 1 whatever it is


def test_under_a_causal_mask_the_gradient_of_the_future_is_exactly_zero():
    attention = MultiHeadAttention(8, 2).double()
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    flows = torch.autograd.functional.jacobian(lambda x: attention(x, visible=causal_mask(6)), x)[0, :, :, 0]
    size = flows.abs().amax((1, 3))
    assert not size.triu(1).any() and (size.tril() > 0).sum() == 21


def test_what_stands_in_padding_changes_no_token():
    attention = MultiHeadAttention(8, 2).double()
    is_token = torch.tensor([[True] * 4 + [False] * 2])
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    other = torch.where(is_token[..., None], x, 1e3 * torch.randn_like(x))
    out, changed = (attention(given, visible=padding_mask(is_token))[:, :4] for given in (x, other))
    assert torch.equal(out, changed)
    alone = attention(x[:, :4])
    assert (out - alone).abs().max() < 1e-14


def test_patterns_combine_by_and_and_or_and_with_padding():
    both = (local_mask(4, 2) | global_mask(4, [0])) & causal_mask(4) & padding_mask(torch.tensor([[1, 1, 1, 0]]))
    assert both.shape == (1, 1, 4, 4)
    assert both[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: local_mask(5, 0), "width is a whole number of at least 1, got 0"),
        (lambda: local_mask(0, 2), "at least 1"),
        (lambda: strided_mask(5, 0), "stride"),
        (lambda: block_mask(torch.ones(2, 2, dtype=torch.bool), 4, n_tokens=4), "hold 5 to 8 tokens, got 4"),
        (lambda: block_mask(torch.ones(2, 2, dtype=torch.bool), 4, n_tokens=9), "hold 5 to 8 tokens, got 9"),
        (lambda: global_mask(5, [5]), "positions -5 to 4, got 5"),
        (lambda: random_mask(5, -1, seed=0), "n_random"),
        (lambda: big_bird_mask(8, block_size=2, n_window=2), "odd"),
        (lambda: big_bird_mask(8, block_size=0), "block_size"),
        (lambda: edge_mask(5, [(0, -1)]), "positions 0 to 4, got -1"),
    ],
)
def test_what_makes_no_pattern_is_refused_with_what_would(make, words: str):
    with pytest.raises(InputError, match=words):
        make()


# ---------------------------------------------------------------- pictures


def shown(axes) -> np.ndarray:
    return np.ma.getdata(axes.collections[0].get_array()).reshape(N, N)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_picture_is_dark_where_a_query_may_look_and_says_the_share(name: str):
    mask = PATTERNS[name]
    axes = mask_picture(mask)
    assert np.array_equal(shown(axes), mask.int().numpy())
    assert f"{100 * mask.double().mean():.0f}" in axes.get_title(loc="left")
    colours = axes.collections[0].to_rgba(shown(axes).astype(float)).sum(-1)
    assert colours[mask.numpy()].max() < colours[~mask.numpy()].min()


def test_the_picture_of_reach_counts_the_layers_until_a_key_is_seen():
    left, right = mask_and_reach(local_mask(N, 2), n_layers=3, tokens=list("abcdefghi"))
    assert left.figure is right.figure
    i, j = np.indices((N, N))
    far = np.maximum(abs(i - j), 1)
    assert np.array_equal(shown(right), np.where(far <= 3, far, 0))
    assert [text.get_text() for text in right.get_xticklabels()] == list("abcdefghi")
    assert right.collections[0].colorbar is not None and left.collections[0].colorbar is None


def test_the_picture_of_different_layers_takes_them_in_order():
    first, second = strided_mask(N, 3), local_mask(N, 3, causal=True)
    drawn = shown(reach_picture([first, second]))
    assert np.array_equal(drawn > 0, causal_mask(N).numpy())
    assert np.array_equal(drawn == 1, first.numpy())


def test_a_gallery_has_a_mask_and_its_reach_a_row_in_one_figure():
    rows = mask_gallery(PATTERNS, n_layers=2)
    assert [left.get_title(loc="left").split(",")[0] for left, _ in rows] == list(PATTERNS)
    assert len({axes.figure for row in rows for axes in row}) == 1
    assert all(
        np.array_equal(shown(left), mask.numpy()) for (left, _), mask in zip(rows, PATTERNS.values(), strict=True)
    )


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: mask_picture(torch.ones(1, N, N, dtype=torch.bool)), "choose one"),
        (lambda: mask_picture(torch.ones(N, N)), "boolean"),
        (lambda: mask_picture(FULL, tokens=["a"]), "1 names do not fit"),
        (lambda: reach_picture([FULL, FULL], n_layers=3), "2 masks"),
        (lambda: reach_picture(FULL, n_layers=0), "at least one layer"),
        (lambda: mask_gallery({}), "got none"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, words: str):
    with pytest.raises(InputError, match=words):
        draw()
