"""Paired tests over examples: scipy's numbers, Holm's correction, effect sizes, and no p-value of a few examples."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from attnprobe.errors import InputError
from attnprobe.judgement.effects import Effects
from attnprobe.judgement.rule import quality_of
from attnprobe.significance import cohens_dz, holm, paired, paired_columns, rank_biserial
from attnprobe.verdict_tables import shares

DRAW = np.random.default_rng(0)


def test_wilcoxon_is_scipys_column_by_column_with_missing_pairs_left_out():
    differences = DRAW.normal(0.3, 1, size=(20, 4))
    differences[:3, 1], differences[5, 2] = math.nan, 0.0
    found = paired_columns(differences)
    for column, one in zip(differences.T, found, strict=True):
        known = column[~np.isnan(column)]
        expected = stats.wilcoxon(known)
        assert one.p == pytest.approx(expected.pvalue) and one.statistic == pytest.approx(expected.statistic)
        assert one.n == len(known) and one.difference == pytest.approx(known.mean())


def test_the_permutation_test_is_exact_for_few_pairs():
    differences = np.array([0.2, 0.5, -0.1, 0.9, 0.4, 0.3, 0.25])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 7)).reshape(7, -1).T
    means = (signs * differences).mean(1)
    # Two-sided as scipy does it: twice the smaller tail.
    expected = 2 * min((means >= differences.mean() - 1e-12).mean(), (means <= differences.mean() + 1e-12).mean())
    assert paired(differences, test="permutation").p == pytest.approx(expected)


def test_under_no_difference_p_is_below_alpha_about_as_often_as_alpha_says():
    differences = DRAW.normal(size=(12, 400))
    for test in ("wilcoxon", "permutation"):
        p = np.array([one.p for one in paired_columns(differences, test=test)])
        assert 0.02 < (p < 0.05).mean() < 0.09


@pytest.mark.parametrize("test", ["wilcoxon", "permutation"])
def test_fewer_than_six_examples_have_no_p_value(test):
    found = paired([0.1, 0.2, 0.3, 0.4, 0.5], test=test)
    assert math.isnan(found.p) and found.n == 5 and found.difference == pytest.approx(0.3)


def test_equal_methods_have_p_of_one():
    found = paired([0.0] * 8)
    assert found.p == 1.0 and found.effect == 0.0


def test_holm_is_its_definition_and_never_below_p():
    p = DRAW.uniform(size=9) ** 3
    order = np.argsort(p)
    expected, running = np.empty(9), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (9 - rank) * p[i]))
        expected[i] = running
    assert holm(list(p)) == pytest.approx(list(expected)) and (np.array(holm(list(p))) >= p).all()


def test_effect_sizes_are_their_formulas():
    d = DRAW.normal(0.2, 1, 15)
    ranks = stats.rankdata(abs(d))
    assert rank_biserial(d) == pytest.approx((ranks[d > 0].sum() - ranks[d < 0].sum()) / ranks.sum())
    assert cohens_dz(d) == pytest.approx(stats.ttest_1samp(d, 0).statistic / math.sqrt(15))
    assert rank_biserial(-d) == pytest.approx(-rank_biserial(d))


def test_a_test_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="no test is named 'wilcoxen'; did you mean 'wilcoxon'"):
        paired([0.5] * 8, test="wilcoxen")


def test_maps_that_order_nothing_do_not_differ_from_random_orders():
    """What a flat map has and what random orders have on average is one sum, added up in two ways."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(12):
        values = torch.from_numpy(draw.random(11) * (draw.random(11) < 0.4))
        values[0] = 1.0
        effects = Effects("mean", torch.arange(11), values, torch.zeros(11), 1.0, 0.0, 16, 0)
        quality, random = quality_of(torch.full((11,), 0.1), effects)
        rows.append({"method": "flat", "verdict": "undecided", "quality": quality, "random": random})
    table = pd.DataFrame(rows)
    assert (table.quality != table["random"]).any()  # by rounding
    found = shares(table).iloc[0]
    assert (found.difference, found.p, found.effect) == (0.0, 1.0, 0.0)
