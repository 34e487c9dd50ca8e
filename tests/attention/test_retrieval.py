"""Attention over retrieved records: which, by what scores, and what full attention would have put elsewhere."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention.retrieval import Found, Index, attend_found, outside_mass, over_records
from attnprobe.errors import InputError

N_RECORDS, WIDTH, D_VALUE = 30, 8, 3


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def slow_search(query: Tensor, vector: Tensor, k: int) -> list[int]:
    """The k records of largest inner product, by sorting all of them."""
    return sorted(range(len(vector)), key=lambda j: float(query @ vector[j]), reverse=True)[:k]


@pytest.mark.parametrize("k", [1, 4, N_RECORDS])
def test_an_exact_search_gives_the_records_of_a_sorted_list(k: int):
    vector, query = randn(N_RECORDS, WIDTH), randn(2, 5, WIDTH)
    found = Index(vector).search(query, k)
    for at in torch.cartesian_prod(torch.arange(2), torch.arange(5)).tolist():
        one = query[tuple(at)]
        assert found.record[tuple(at)].tolist() == slow_search(one, vector, k)
        assert (found.score[tuple(at)] - vector[slow_search(one, vector, k)] @ one).abs().max() < 1e-13
    assert (found.n_compared == N_RECORDS).all()


def test_of_equals_the_first_records_are_found():
    vector = torch.ones(N_RECORDS, 2, dtype=torch.float64)
    assert Index(vector).search(vector[:1], 3).record.tolist() == [[0, 1, 2]]


def test_fewer_records_than_asked_for_leave_empty_places():
    found = Index(torch.eye(2).double()).search(torch.tensor([[1.0, 2.0]]).double(), k=3)
    assert found.record.tolist() == [[1, 0, -1]]
    assert found.score.tolist() == [[2.0, 1.0, -math.inf]]


def test_attention_over_all_records_is_full_attention():
    vector, value, query = randn(N_RECORDS, WIDTH), randn(N_RECORDS, D_VALUE), randn(2, 5, WIDTH)
    read = attend_found(Index(vector).search(query, N_RECORDS), query, vector, value)
    expected = F.scaled_dot_product_attention(query, vector.expand(2, -1, -1), value.expand(2, -1, -1))
    assert (read.z - expected).abs().max() < 1e-13
    assert (read.outside == 0).all()
    full = torch.softmax(query @ vector.T / math.sqrt(WIDTH), -1)
    assert (over_records(read, N_RECORDS) - full).abs().max() < 1e-13


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("scale", [None, 2.0])
def test_attention_is_over_the_found_alone_and_outside_is_what_full_attention_puts_elsewhere(
    k: int, scale: float | None
):
    """The search is by other vectors than the attention, so that what is found is not what attention likes best."""
    found_by, asked = randn(N_RECORDS, 4), randn(5, 4)
    query, key, value = randn(5, WIDTH), randn(N_RECORDS, WIDTH), randn(N_RECORDS, D_VALUE)
    read = attend_found(Index(found_by).search(asked, k), query, key, value, scale=scale)
    sharpness = 1 / math.sqrt(WIDTH) if scale is None else scale
    for i in range(5):
        chosen = slow_search(asked[i], found_by, k)
        parts = [math.exp(sharpness * float(query[i] @ key[j])) for j in range(N_RECORDS)]
        inside = math.fsum(parts[j] for j in chosen)
        assert read.found.record[i].tolist() == chosen
        assert read.weights[i].tolist() == pytest.approx([parts[j] / inside for j in chosen], rel=1e-12)
        others = math.fsum(part for j, part in enumerate(parts) if j not in chosen)
        assert read.outside[i].item() == pytest.approx(others / (inside + others), rel=1e-12)


def test_what_full_attention_gives_is_the_found_and_the_others_by_their_shares():
    """full z = (1 - outside) z + outside · (attention over the records that were not found)."""
    query, key, value = randn(5, WIDTH), randn(N_RECORDS, WIDTH), randn(N_RECORDS, D_VALUE)
    read = attend_found(Index(key).search(query, 6), query, key, value)
    scores = query @ key.T / math.sqrt(WIDTH)
    full = torch.softmax(scores, -1) @ value
    others = torch.softmax(scores.scatter(-1, read.found.record, -math.inf), -1) @ value
    share = read.outside[:, None]
    assert (full - ((1 - share) * read.z + share * others)).abs().max() < 1e-13


def test_the_map_over_all_records_gives_z_and_leaves_out_what_was_not_found():
    query, key, value = randn(2, 5, WIDTH), randn(N_RECORDS, WIDTH), randn(N_RECORDS, D_VALUE)
    read = attend_found(Index(key, n_bits=4, n_tables=1).search(query, 6), query, key, value)
    whole = over_records(read, N_RECORDS)
    assert (whole @ value - read.z).abs().max() < 1e-13
    assert ((whole > 0).sum(-1) == (read.found.record >= 0).sum(-1)).all()


def test_a_query_that_found_nothing_reads_nothing_and_says_so():
    nothing = Found(torch.tensor([[-1, -1]]), torch.full((1, 2), -math.inf), torch.tensor([0]))
    query, key = randn(1, WIDTH), randn(N_RECORDS, WIDTH)
    read = attend_found(nothing, query, key, randn(N_RECORDS, D_VALUE))
    assert read.weights.tolist() == [[0.0, 0.0]] and read.z.tolist() == [[0.0] * D_VALUE]
    assert read.outside.item() == pytest.approx(1.0, abs=1e-14)


def test_no_gradient_passes_through_the_choice():
    """A record that was not chosen has exactly none; the vectors that were searched have none at all."""
    query, key, value = (x.requires_grad_() for x in (randn(1, WIDTH), randn(N_RECORDS, WIDTH), randn(N_RECORDS, 1)))
    vector = randn(N_RECORDS, WIDTH).requires_grad_()
    found = Index(vector).search(query, 4)
    read = attend_found(found, query, key, value)
    for gradient in torch.autograd.grad(read.z.sum(), (key, value)):
        reached = set((gradient.abs().sum(-1) > 0).nonzero().flatten().tolist())
        assert reached == set(found.record.flatten().tolist())
    assert torch.autograd.grad(read.z.sum(), vector, allow_unused=True) == (None,)
    assert not found.score.requires_grad


def test_the_share_outside_shrinks_with_every_further_record():
    query, key = randn(5, WIDTH), randn(N_RECORDS, WIDTH)
    shares = torch.stack([outside_mass(Index(key).search(query, k), query, key, scale=1.0) for k in (1, 5, 20, 30)])
    assert (shares.diff(dim=0) < 0).all()
    assert (shares[-1] == 0).all()


# ---------------------------------------------------------------- random planes


def test_without_planes_all_records_share_one_bucket_and_the_search_is_exact():
    vector, query = randn(N_RECORDS, WIDTH), randn(5, WIDTH)
    found, exact = Index(vector, n_bits=0).search(query, 4), Index(vector).search(query, 4)
    assert all(torch.equal(a, b) for a, b in zip(found, exact, strict=True))


def test_a_record_finds_itself_and_its_multiples_in_its_own_bucket():
    vector = F.normalize(randn(N_RECORDS, WIDTH), dim=-1)
    found = Index(vector, n_bits=20, n_tables=1).search(3 * vector, 1)
    assert found.record.flatten().tolist() == list(range(N_RECORDS))
    assert (found.score - 3).abs().max() < 1e-13


@pytest.mark.parametrize("angle", [0.3, 1.2, 2.5])
def test_two_vectors_share_a_side_as_often_as_their_angle_says(angle: float):
    """Charikar 2002: with probability 1 - angle / pi; over 20000 planes the spread is 0.0035 at most."""
    pair = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    codes = Index(pair, n_bits=1, n_tables=20_000).codes(pair)
    assert (codes[:, 0] == codes[:, 1]).double().mean().item() == pytest.approx(1 - angle / math.pi, abs=0.012)


def test_what_is_compared_is_what_shares_a_bucket_in_some_table():
    vector, query = randn(N_RECORDS, WIDTH), randn(5, WIDTH)
    index = Index(vector, n_bits=3, n_tables=2, seed=1)
    found = index.search(query, N_RECORDS)
    mine, theirs = index.codes(query), index.codes(vector)
    for i in range(5):
        near = [j for j in range(N_RECORDS) if any(mine[t, i] == theirs[t, j] for t in range(2))]
        assert found.n_compared[i] == len(near)
        assert found.record[i].tolist() == sorted(near, key=lambda j: -float(query[i] @ vector[j])) + [-1] * (
            N_RECORDS - len(near)
        )
    assert 0 < found.n_compared.double().mean() < N_RECORDS


def test_more_tables_find_more_of_the_best_records_and_compare_more():
    vector, query = randn(300, WIDTH), randn(40, WIDTH)
    best = Index(vector).search(query, 5).record
    shares, compared = [], []
    for n_tables in (1, 4, 16):
        found = Index(vector, n_bits=5, n_tables=n_tables).search(query, 5)
        shares.append((found.record[:, :, None] == best[:, None, :]).any(1).double().mean().item())
        compared.append(found.n_compared.double().mean().item())
    assert shares[0] < shares[1] < shares[2] and shares[2] > 0.9
    assert compared[0] < compared[1] < compared[2] < 300


def test_a_seed_is_a_draw():
    vector = randn(N_RECORDS, WIDTH)
    one, again, other = (Index(vector, n_bits=8, seed=seed).codes(vector) for seed in (3, 3, 4))
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_what_does_not_fit_is_refused():
    vector, query = randn(N_RECORDS, WIDTH), randn(5, WIDTH)
    found = Index(vector).search(query, 2)
    for k, asked in ((0, query), (2, query[:, :-1]), (2, query[:0])):
        with pytest.raises(InputError, match="k = 1 or more and queries of width 8"):
            Index(vector).search(asked, k)
    for options in ({"n_bits": 63}, {"n_bits": -1}, {"n_bits": 4, "n_tables": 0}):
        with pytest.raises(InputError, match="0 to 62 bits and 1 or more tables"):
            Index(vector, **options)
    without_types = inspect.unwrap(attend_found)
    with pytest.raises(InputError, match="one search result a query"):
        without_types(found, query[:3], vector, vector)
    with pytest.raises(InputError, match="30 keys and 29 values"):
        without_types(found, query, vector, vector[:-1])
