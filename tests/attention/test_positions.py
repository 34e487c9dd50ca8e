"""Tables and biases of positions against closed forms and transformers' own numbers, and what each scheme promises."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.positions import NONE, relative_positions
from attnprobe.attention.positions.alibi import alibi, alibi_bias, alibi_slopes
from attnprobe.attention.positions.buckets import BucketBias, bucket, bucket_bias, t5
from attnprobe.attention.positions.learned import LearnedPositions, learned
from attnprobe.attention.positions.sinusoidal import frequencies, shift_matrix, sinusoidal, sinusoidal_table
from attnprobe.errors import InputError

N, D = 7, 4


def qkv(n: int = N, d: int = D) -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, 3, n, d, dtype=torch.float64) for _ in range(3))


# ---------------------------------------------------------------- none


def test_without_positions_the_order_of_the_keys_does_not_matter():
    query, key, value = qkv()
    order = torch.randperm(N)
    whole, mixed = (NONE.scores(query, k) for k in (key, key[..., order, :]))
    assert torch.equal(whole.scores[..., order], mixed.scores)
    assert not whole.position.any()
    z, same = whole.scores.softmax(-1) @ value, mixed.scores.softmax(-1) @ value[..., order, :]
    assert (z - same).abs().max() < 1e-14
    assert torch.equal(NONE.embed(query), query)


def test_relative_positions_are_counted_from_the_last_query_at_the_last_key():
    assert torch.equal(relative_positions(N), torch.arange(N) - torch.arange(N)[:, None])
    assert torch.equal(relative_positions(2, N), relative_positions(N)[-2:])
    with pytest.raises(InputError, match="3 queries and only 2 keys"):
        relative_positions(3, 2)


# ---------------------------------------------------------------- sinusoidal


@pytest.mark.parametrize("d_model", [2, 6, 64])
def test_sinusoids_are_those_of_the_paper_entry_by_entry(d_model: int):
    table = sinusoidal_table(9, d_model)
    for p in range(9):
        for i in range(d_model // 2):
            angle = p / 10000 ** (2 * i / d_model)
            assert abs(table[p, 2 * i].item() - math.sin(angle)) < 1e-14
            assert abs(table[p, 2 * i + 1].item() - math.cos(angle)) < 1e-14


def test_sinusoids_are_those_of_distilbert_and_in_halves_those_of_marian():
    theirs = torch.empty(50, 16)
    create_sinusoidal_embeddings(50, 16, theirs)
    assert (sinusoidal_table(50, 16) - theirs).abs().max() < 1e-7
    halves = MarianSinusoidalPositionalEmbedding(50, 16).create_weight()
    assert (sinusoidal_table(50, 16, layout="halves") - halves).abs().max() < 1e-7


@pytest.mark.parametrize("k", [0, 1, 17, -5, 1000])
def test_a_shift_is_one_rotation_wherever_it_starts(k: int):
    turn = shift_matrix(k, 8)
    for p in (5, 42, 500):
        here, there = sinusoidal_table(1, 8, start=p), sinusoidal_table(1, 8, start=p + k)
        assert (here @ turn.T - there).abs().max() < 1e-12
    assert (turn @ turn.T - torch.eye(8, dtype=torch.float64)).abs().max() < 1e-14
    assert abs(torch.linalg.det(turn).item() - 1) < 1e-12


def test_products_of_sinusoids_depend_on_the_distance_alone_and_are_a_sum_of_cosines():
    table, omega = sinusoidal_table(30, 8), frequencies(8)
    closed = torch.cos(relative_positions(30)[..., None] * omega).sum(-1)
    assert (table @ table.T - closed).abs().max() < 1e-13


def test_the_sinusoidal_scheme_adds_its_table_in_the_precision_of_the_embeddings():
    x = torch.zeros(2, 5, 8, dtype=torch.float32)
    added = sinusoidal(8).embed(x)
    assert added.dtype is torch.float32
    assert torch.equal(added[1], sinusoidal_table(5, 8).float())


# ---------------------------------------------------------------- learned


def test_learned_positions_are_rows_of_a_table_and_only_those_learn():
    table = LearnedPositions(10, D)
    table(3, start=4).sum().backward()
    assert torch.equal(table(3, start=4), F.embedding(torch.tensor([4, 5, 6]), table.weight))
    assert table.weight.grad.ne(0).any(-1).nonzero().flatten().tolist() == [4, 5, 6]


def test_a_position_beyond_the_table_is_an_error_that_says_where_it_ends():
    scheme = learned(5, D)
    assert scheme.embed(torch.zeros(1, 5, D)).shape == (1, 5, D)
    with pytest.raises(InputError, match="0 to 4 were learned, got position 5"):
        scheme.embed(torch.zeros(1, 6, D))
    with pytest.raises(InputError, match="got position 5"):
        scheme.table(1, 5)


def test_tables_of_parameters_are_parameters_of_their_scheme():
    assert [tuple(p.shape) for p in learned(5, D).parameters()] == [(5, D)]
    assert [tuple(p.shape) for p in t5(3).parameters()] == [(32, 3)]
    assert list(alibi(4).parameters()) == []


# ---------------------------------------------------------------- T5


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (32, 20), (8, 16), (10, 1000), (18, 128), (4, 3)])
def test_buckets_have_the_numbers_of_transformers_t5(causal: bool, n_buckets: int, max_distance: int):
    if causal and max_distance <= n_buckets // 2:
        max_distance += n_buckets
    offset = torch.arange(-3000, 3001)
    theirs = T5Attention._relative_position_bucket(
        offset, bidirectional=not causal, num_buckets=n_buckets, max_distance=max_distance
    )
    assert torch.equal(bucket(offset, n_buckets=n_buckets, max_distance=max_distance, causal=causal), theirs)


@pytest.mark.parametrize("causal", [False, True])
def test_the_bias_of_t5_is_that_of_transformers_also_for_a_caches_last_queries(causal: bool):
    theirs = T5Attention(
        T5Config(num_heads=3, d_kv=4, d_model=12, is_decoder=causal), has_relative_attention_bias=True, layer_idx=0
    ).requires_grad_(False)
    table = theirs.relative_attention_bias.weight
    ours = bucket_bias(table, 200, causal=causal)
    assert torch.equal(ours, theirs.compute_bias(200, 200)[0])
    last = theirs.compute_bias(2, 200, past_seen_tokens=198)[0]
    assert torch.equal(bucket_bias(table, 2, 200, causal=causal), last)


def test_pairs_of_one_bucket_share_one_number_and_its_gradient():
    module = BucketBias(2, n_buckets=8, max_distance=16).double()
    bias = module(40)
    rows = bucket(relative_positions(40), n_buckets=8, max_distance=16)
    for number in rows.unique():
        assert (bias[:, rows == number] == module.weight[number, :, None]).all()
    bias.sum().backward()
    assert torch.equal(module.weight.grad[:, 0], torch.bincount(rows.flatten(), minlength=8).double())
    assert len(bias[0, 0, 17:].unique()) == 1  # whatever is further than max_distance


def test_scores_of_t5_and_alibi_also_come_without_their_bias():
    query, key, _ = qkv()
    for scheme, scale in ((t5(3), 1.0), (alibi(3), None)):
        found = scheme.scores(query, key, scale=scale)
        plain = torch.einsum("bhid,bhjd->bhij", query, key) * (scale or D**-0.5)
        assert (found.content - plain).abs().max() < 1e-14
        assert (found.position - scheme.bias(N, N)).abs().max() < 1e-14


def test_t5s_bias_does_not_change_when_everything_moves_and_has_no_end():
    module = BucketBias(2)
    assert torch.equal(module(500)[:, 400:, 400:], module(100))


# ---------------------------------------------------------------- ALiBi


@pytest.mark.parametrize("n_heads", [1, 2, 3, 5, 6, 7, 8, 12, 16, 20, 25, 112])
def test_alibi_gives_the_weights_of_bloom_for_any_number_of_heads(n_heads: int):
    theirs = build_alibi_tensor(torch.ones(1, N), n_heads, torch.float32)  # m_h · j: differs by a constant a query
    bias = alibi_bias(alibi_slopes(n_heads), N)
    assert (alibi_slopes(n_heads) / theirs[:, 0, 1] - 1).abs().max() < 1e-6
    content = torch.randn(n_heads, N, N, dtype=torch.float64).masked_fill(~causal_mask(N), -torch.inf)
    assert ((content + bias).softmax(-1) - (content + theirs).softmax(-1)).abs().max() < 1e-6


def test_slopes_are_a_geometric_row_that_ends_at_two_to_the_minus_eight():
    for n_heads in (2, 4, 8, 16):
        slopes = alibi_slopes(n_heads)
        assert slopes[-1] == 2**-8
        assert (slopes[1:] / slopes[:-1] - slopes[0]).abs().max() < 1e-15


def test_alibi_falls_in_a_straight_line_on_both_sides():
    slopes = torch.tensor([0.5, 0.125], dtype=torch.float64)
    bias = alibi_bias(slopes, N)
    for i in range(N):
        for j in range(N):
            assert bias[:, i, j].tolist() == [-0.5 * abs(i - j), -0.125 * abs(i - j)]
    assert torch.equal(alibi_bias(slopes, 2, N), bias[:, -2:])


def test_alibi_of_slope_zero_is_plain_attention():
    query, key, value = qkv()
    bias = alibi_bias(torch.zeros(3, dtype=torch.float64), N)
    assert not bias.any()
    z = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    assert (z - F.scaled_dot_product_attention(query, key, value)).abs().max() < 1e-14


def test_without_content_alibis_weights_are_geometric_so_a_longer_input_changes_little():
    slope, n = 0.25, 400
    weights = alibi_bias(torch.tensor([slope], dtype=torch.float64), 1, n).softmax(-1)[0, 0]
    ratio = math.exp(-slope)
    closed = torch.tensor([(1 - ratio) / (1 - ratio**n) * ratio**d for d in reversed(range(n))], dtype=torch.float64)
    assert (weights - closed).abs().max() < 1e-15
    for shorter in (20, 50, 100):  # what an input of this length lacks is e^(−slope · length), with content within ±c
        assert abs(weights[:-shorter].sum().item() - ratio**shorter) < 1e-12


def test_alibi_does_not_change_when_everything_moves_and_has_no_end():
    slopes = alibi_slopes(6)
    assert torch.equal(alibi_bias(slopes, 3000)[:, 2990:, 2990:], alibi_bias(slopes, 10))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sinusoidal_table(3, 5), "even, got 5"),
        (lambda: sinusoidal(4, layout="half"), "did you mean 'halves'"),
        (lambda: frequencies(4, base=0.0), "above 0"),
        (lambda: sinusoidal_table(0, 4), "n_tokens"),
        (lambda: LearnedPositions(0, 4), "max_length"),
        (lambda: LearnedPositions(4, 4)(2, start=-1), "start"),
        (lambda: bucket(torch.tensor([1]), n_buckets=2), "n_buckets is a whole number of at least 4"),
        (lambda: bucket(torch.tensor([1]), max_distance=8), "max_distance is larger, got 8"),
        (lambda: BucketBias(2, max_distance=16, causal=True), "max_distance is larger, got 16"),
        (lambda: alibi_slopes(0), "n_heads"),
    ],
)
def test_settings_that_make_no_scheme_are_refused_with_what_would(make, words: str):
    with pytest.raises(InputError, match=words):
        make()
