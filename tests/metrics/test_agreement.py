"""Agreement metrics beside scipy, scikit-learn and slow versions written from the papers."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from attnprobe.errors import InputError
from attnprobe.metrics import agreement
from attnprobe.metrics.ranks import pair_of

rbo, jensen_shannon, top_k_kendall = (agreement[n].function for n in ("rbo", "jensen_shannon", "top_k_kendall"))


def random_pairs(n_pairs=20, n=9):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, n, generator=generator) for _ in range(n_pairs)]


def test_jensen_shannon_is_the_square_of_scipys_distance():
    for a, b in random_pairs():
        expected = jensenshannon(a.abs().double(), b.abs().double()) ** 2
        assert jensen_shannon(a, b) == pytest.approx(expected, abs=1e-12)


def test_jensen_shannon_ends_at_the_logarithm_of_two_and_sees_amounts_alone():
    a, b = torch.tensor([1.0, 2.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 5.0, 1.0])
    assert jensen_shannon(a, b) == pytest.approx(math.log(2)) and jensen_shannon(a, b) <= math.log(2)
    assert jensen_shannon(a, -7 * a) == pytest.approx(0, abs=1e-12)
    assert math.isnan(jensen_shannon(a, torch.zeros(4)))


def test_rank_biased_overlap_is_its_sum_with_the_rest_at_the_last_overlap():
    """What is beyond the end agrees as the whole does, that is fully: the infinite sum, added up far."""
    for a, b in random_pairs(5):
        first, second = np.argsort(-a.numpy()).tolist(), np.argsort(-b.numpy()).tolist()
        longer = list(range(9, 400))
        lists = [first + longer, second + longer]
        terms = [0.9 ** (d - 1) * len(set(lists[0][:d]) & set(lists[1][:d])) / d for d in range(1, 400)]
        assert rbo(a, b) == pytest.approx(0.1 * sum(terms), abs=1e-9)


def test_rank_biased_overlap_weighs_the_top():
    order = torch.arange(10, 0, -1.0)
    top, bottom = order.clone(), order.clone()
    top[[0, 1]], bottom[[8, 9]] = order[[1, 0]], order[[9, 8]]
    assert rbo(order, top) < rbo(order, bottom) < 1
    for p in (0.0, 1.0, -1.0):
        with pytest.raises(InputError, match="p lies between 0 and 1"):
            rbo(order, top, p=p)


def test_top_k_kendall_is_kendalls_where_the_lists_hold_the_same_tokens():
    a, b = torch.tensor([9.0, 8, 7, 1, 1, 1, 1, 1, 1]), torch.tensor([8.0, 9, 7, 1, 1, 1, 1, 1, 1])
    assert top_k_kendall(a, b, k=3) == pytest.approx(1 - 2 * 1 / 3)
    assert top_k_kendall(a, b, k=3) == top_k_kendall(a, b, k=5)  # cut to a third


def test_top_k_kendall_is_the_mean_over_all_orders_that_the_lists_allow():
    """With p = ½ a pair of which one list says nothing counts what an order drawn at random would."""
    for a, b in random_pairs(6):
        lists = [torch.argsort(values, descending=True)[:3].tolist() for values in (a, b)]
        tokens = sorted({*lists[0], *lists[1]})
        ranks = []
        for top in lists:
            rest = [t for t in tokens if t not in top]
            ranks.append([{t: r for r, t in enumerate((*top, *order))} for order in itertools.permutations(rest)])
        pairs = list(itertools.combinations(tokens, 2))
        against = [np.mean([(x[i] < x[j]) != (y[i] < y[j]) for x in ranks[0] for y in ranks[1]]) for i, j in pairs]
        assert top_k_kendall(a, b, k=3) == pytest.approx(1 - 2 * sum(against) / len(pairs))


def test_lists_that_share_nothing_are_far_apart_and_more_so_if_doubt_counts_against_them():
    a = torch.tensor([9.0, 8, 0, 0, 1, 1])
    b = torch.tensor([0.0, 0, 9, 8, 1, 1])
    assert [top_k_kendall(a, b, k=2, p=p) for p in (0.0, 0.5, 1.0)] == pytest.approx([1 - 8 / 6, 1 - 10 / 6, -1])


@pytest.mark.parametrize("name", sorted(agreement))
def test_scores_of_any_precision_are_compared_as_they_are(name):
    function = agreement[name].function
    a, b = torch.rand(2, 9, generator=torch.Generator().manual_seed(3)).bfloat16()
    expected = function(a.float(), b.float())
    assert function(a, b) == pytest.approx(expected) == function(a.requires_grad_(), b.double())


@pytest.mark.parametrize("name", sorted(agreement))
def test_scores_that_are_not_known_agree_with_nothing(name):
    function, known = agreement[name].function, torch.tensor([3.0, 2.0, 1.0, 0.5])
    unknown = torch.tensor([3.0, math.nan, 1.0, 0.5])
    assert math.isnan(function(known, unknown)) and math.isnan(function(unknown, known))


def test_scores_of_other_tokens_are_refused():
    for other in (torch.tensor([1.0, 2.0]), torch.ones(1, 3)):
        with pytest.raises(InputError, match="one score a token, got shapes"):
            pair_of(torch.tensor([1.0, 2.0, 3.0]), other)
