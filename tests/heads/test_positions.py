"""Spread and places: each score against weights made by hand, and against a slow version of its definition."""

import math

import pytest
import torch

from attnprobe.errors import InputError
from attnprobe.heads import head_scores
from attnprobe.heads.positions import best_offset, offset_mass, sink_rate
from tests.heads.made import capture_of, one_hot, random_weights

N = 7


def score(name, capture, **options):
    return head_scores[name].function(capture, **options)


@pytest.fixture(params=[False, True], ids=["both ways", "causal"])
def capture(request):
    return capture_of(random_weights(2, 3, N, N, causal=request.param))


def slowly(capture, of_head):
    """A definition written out with loops: of_head(rows) for the rows of each head as lists."""
    return [[of_head(head.tolist()) for head in layer] for layer in capture.maps()]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


DEFINITIONS = {
    "entropy": lambda A: mean(sum(-a * math.log(a) for a in row if a > 0) for row in A),
    "largest_weight": lambda A: mean(max(row) for row in A),
    "distance": lambda A: mean(sum(a * abs(i - j) for j, a in enumerate(row)) for i, row in enumerate(A)),
    "previous_token": lambda A: mean(A[i][i - 1] for i in range(1, N)),
    "same_position": lambda A: mean(A[i][i] for i in range(N)),
    "next_token": lambda A: mean(A[i][i + 1] for i in range(N - 1)),
    "first_token": lambda A: mean(A[i][0] for i in range(1, N)),
    "most_looked_at": lambda A: max(mean(A[i][j] for i in range(N)) for j in range(N)),
    "sink": lambda A: float(mean(A[i][0] for i in range(N)) > 0.3),
    "positional": lambda A: max(
        mean(max(range(N), key=A[i].__getitem__) == i + o for i in range(N) if 0 <= i + o < N) for o in range(-3, 4)
    ),
}


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_a_score_is_its_definition_written_with_loops(name, capture):
    expected = torch.tensor(slowly(capture, DEFINITIONS[name]), dtype=torch.float64)
    torch.testing.assert_close(score(name, capture), expected)


def test_a_previous_token_head_is_positional_and_its_offset_is_found():
    back, ahead, own = [0, 0, 1, 2, 3, 4], [2, 3, 4, 5, 5, 5], list(range(6))
    weights = torch.stack([one_hot(keys, 6) for keys in (back, ahead, own)])[None]
    capture = capture_of(weights)
    assert score("previous_token", capture).tolist() == [[1.0, 0.0, 0.0]]
    assert score("positional", capture).tolist() == [[1.0, 1.0, 1.0]]
    assert best_offset(capture).tolist() == [[-1, 2, 0]]
    assert offset_mass(capture, 2).tolist() == [[0.0, 1.0, 0.0]]


def test_the_best_offset_is_that_of_all_texts_together():
    back, twice = one_hot([0, 0, 1, 2], 4), one_hot([0, 0, 0, 1, 2, 3, 4, 5], 8)
    both = [capture_of(back[None, None]), capture_of(twice[None, None])]
    assert [best_offset(one).item() for one in both] == [-1, -2]
    assert best_offset(both).item() == -2  # 6 queries against 3 and 1


def test_queries_that_look_evenly_are_shared_between_the_keys():
    even = torch.full((1, 1, 4, 4), 0.25)
    assert score("positional", capture_of(even)).item() == pytest.approx(0.25)


def test_rows_that_keep_a_part_back_are_scored_by_the_rest():
    """A model with sinks of its own: the part that no token gets is not a look at the query itself."""
    whole = random_weights(1, 2, N, N)
    for name in ("entropy", "spread", "distance", "positional"):
        torch.testing.assert_close(score(name, capture_of(0.4 * whole)), score(name, capture_of(whole)))
    torch.testing.assert_close(score("previous_token", capture_of(0.4 * whole)),
                               0.4 * score("previous_token", capture_of(whole)))  # fmt: skip


def test_sinks_are_counted_at_every_key_from_later_queries_alone():
    rests = torch.tensor([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.7, 0.1]])
    capture = capture_of(rests[None, None])
    assert sink_rate(capture).tolist() == [1.0, 1.0, 0.0]  # 1.7/3, 1.2/2, 0.1
    assert sink_rate(capture, epsilon=0.58).tolist() == [0.0, 1.0, 0.0]
    assert score("sink", capture, epsilon=0.58).item() == 0.0
    assert score("sink", capture).item() == 1.0


@pytest.mark.parametrize("name", ["previous_token", "same_position", "next_token", "distance", "positional", "sink"])
def test_places_have_no_meaning_across(name):
    assert score(name, capture_of(random_weights(1, 2, 4, 4), kind="cross", stack="decoder")).isnan().all()


def test_offsets_and_sinks_of_cross_attention_are_refused():
    across = capture_of(random_weights(1, 2, 4, 4), kind="cross", stack="decoder")
    with pytest.raises(InputError, match="self-attention"):
        best_offset(across)
    with pytest.raises(InputError, match="self-attention"):
        sink_rate(across)


def test_layers_with_fewer_heads_have_nan_in_the_place_of_the_others():
    capture = capture_of([random_weights(3, N, N), random_weights(2, N, N)])
    for name, entry in head_scores.items():
        found = entry.function(capture)
        assert found.shape == (2, 3), name
        assert found[1, 2].isnan(), name
        assert found[1, :2].isnan().all() or found[1, :2].isfinite().all(), name


def test_of_offsets_that_do_equally_well_the_nearest_is_named():
    assert best_offset(capture_of(one_hot([1, 2, 0, 1], 4)[None, None])).item() == 1  # 2 queries each at 1 and -2
