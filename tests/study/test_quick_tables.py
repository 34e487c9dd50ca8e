"""What tables compute for all at once is what the registered functions give one by one; the oracle may be left out."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe import tables
from attnprobe.comparison import compare
from attnprobe.metrics import agreement
from attnprobe.study import FOREIGN, METHOD, ORACLE, RANDOM_ORDER, REVERSED, Judged
from tests import tiny

FEW = ["raw_attention", "leave_one_out", "input_x_gradient", "random_scores"]


@pytest.fixture(scope="module")
def asked():
    model = tiny.loaded("bert", "sdpa", scale=2.0)
    examples = [model.example(tiny.IDS), model.example(tiny.IDS[3:])]

    def ask(**options):
        return compare(model, examples, FEW, n_random=20, n_resamples=50, verdicts=False, progress=False, **options)

    return ask


@pytest.fixture(scope="module")
def found(asked):
    return asked()


def with_ties(study):
    """The study with one method's scores rounded until some tie, and another's all alike."""
    a, b, *rest = study.attributions
    tied = torch.arange(len(a.scores)).remainder(3).to(a.scores)
    return replace(study, attributions=(replace(a, scores=tied), replace(b, scores=torch.ones_like(b.scores)), *rest))


@pytest.mark.parametrize("metric", ["kendall_tau", "spearman"])
def test_agreement_of_all_pairs_is_what_the_metric_says_of_each(found, metric):
    first, second = found.studies
    # Ties, a constant, and a method that failed on one of the texts.
    studies = [with_ties(first), replace(second, attributions=second.attributions[1:])]
    table = tables.agreement(studies, found.settings)
    for row in table[table.metric == metric].itertuples():
        pairs = [(s.attribution(row.method_a), s.attribution(row.method_b)) for s in studies]
        both = [(a.scores[a.units], b.scores[b.units]) for a, b in pairs if a is not None and b is not None]
        both = both if row.direction == "signed" else [(x.abs(), y.abs()) for x, y in both]
        values = [agreement[metric].function(x, y) for x, y in both]
        known = [value for value in values if not np.isnan(value)]
        assert row.n == len(known)
        if known:
            assert row.mean == pytest.approx(sum(known) / len(known), abs=1e-9)


def test_orders_are_found_by_role_and_name():
    roles, names = (METHOD, REVERSED, METHOD, RANDOM_ORDER, FOREIGN), ("a", "a", "b", "", "b")
    judged = Judged("mask", roles, names, {"m": np.arange(5.0)})
    assert (
        judged.value("m", "b") == 2 and judged.value("m", "a", REVERSED) == 1 and judged.value("m", "b", FOREIGN) == 4
    )
    assert judged.random("m").tolist() == [3] and np.isnan(judged.value("m", "a", FOREIGN))


def test_without_an_oracle_all_but_the_place_below_it_is_the_same(asked, found):
    less = asked(oracle=False)
    assert all(ORACLE not in judged.roles for study in less.studies for judged in study.judged)
    of_oracle = ["oracle", "oracle_search", "position"]
    assert set(less.positions.oracle_search) == {"none"} == set(less.faithfulness.oracle_search)
    assert less.positions[["oracle", "position"]].isna().all(axis=None)
    pd.testing.assert_frame_equal(less.positions.drop(columns=of_oracle), found.positions.drop(columns=of_oracle))
    assert found.positions.oracle.notna().all() and "none" not in set(found.positions.oracle_search)


def test_a_folder_of_a_comparison_with_an_oracle_is_not_gone_on_with_without(asked, tmp_path):
    asked(folder=tmp_path)
    with pytest.raises(Exception, match="oracle was True, is False"):
        asked(folder=tmp_path, oracle=False)
