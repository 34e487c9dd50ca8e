"""compare(): all methods in one call, with controls, intervals, and nothing lost when one fails."""

import math

import pandas as pd
import pytest
import torch

from attnprobe.comparison import compare
from attnprobe.errors import InputError
from attnprobe.finding import findings
from attnprobe.intervals import over_texts
from attnprobe.methods import methods
from attnprobe.metrics import agreement, faithfulness
from attnprobe.models import load
from attnprobe.models.planted import planted
from attnprobe.tables import RANDOM, holds_up
from tests import tiny

FEW = ["raw_attention", "leave_one_out", "input_x_gradient", "random_scores"]


@pytest.fixture(scope="module")
def model():
    return load(tiny.build("bert", "sdpa", scale=2.0))


@pytest.fixture(scope="module")
def two(model):
    examples = [model.example(tiny.IDS), model.example(tiny.IDS[3:])]
    return compare(model, examples, FEW, n_random=10, n_resamples=100, progress=False)


def test_each_method_has_a_row_in_each_table(two):
    assert two.methods == tuple(FEW)
    assert set(two.to_frame().method) == set(FEW)
    assert len(two.to_frame()) == len(FEW) * (12 + 9)
    assert len(two.agreement) == 2 * len(agreement) * math.comb(len(FEW), 2)
    assert len(two.faithfulness) == len(faithfulness) * len(FEW)
    assert set(two.curves.method) == {*FEW, RANDOM}
    assert set(two.costs.method) == set(FEW)
    assert two.checks.passed.all() and len(two.checks) >= 3


def test_agreement_is_the_mean_over_the_texts(two):
    expected = [
        agreement["spearman"].function(s.attribution("raw_attention").scores, s.attribution("leave_one_out").scores)
        for s in two.studies
    ]
    table = two.agreement.query(
        "metric == 'spearman' and direction == 'signed' and method_a == 'raw_attention' and method_b == 'leave_one_out'"
    )
    assert table["mean"].item() == pytest.approx(sum(expected) / 2) and table.n.item() == 2


def test_one_text_has_intervals_over_its_tokens_and_says_so(model):
    one = compare(model, [model.example(tiny.IDS)], FEW, n_random=5, n_resamples=100, progress=False)
    tau = one.agreement.query("metric == 'kendall_tau'")
    assert (tau.interval_over == "tokens").all() and tau.low.notna().all() and (tau.low <= tau.high).all()
    assert one.faithfulness.low.isna().all() and (one.faithfulness.n == 1).all()


def test_the_same_seed_gives_the_same_tables(model):
    runs = [
        compare(model, [model.example(tiny.IDS)], FEW, n_random=5, n_resamples=50, seed=3, progress=False)
        for _ in range(2)
    ]
    pd.testing.assert_frame_equal(runs[0].faithfulness, runs[1].faithfulness)
    pd.testing.assert_frame_equal(runs[0].agreement, runs[1].agreement)


def test_random_scores_do_not_hold_up_over_many_texts():
    model = load(tiny.build("distilbert", "sdpa", scale=2.0))
    draw = torch.Generator().manual_seed(0)
    examples = [model.example(torch.randint(3, 60, (10,), generator=draw)) for _ in range(12)]
    found = compare(model, examples, ["random_scores", "leave_one_out"], n_random=20, n_resamples=200, progress=False)
    rows = found.faithfulness.query("metric == 'comprehensiveness'").set_index("method")
    assert rows.holds_up["leave_one_out"] == "yes" and rows.holds_up["random_scores"] == "open"
    assert abs(rows.random_beaten["random_scores"] - 0.5) < 0.25 < rows.random_beaten["leave_one_out"]


def test_no_faithfulness_row_costs_a_pass_twice(model):
    from attnprobe.models.evaluator import Meter

    with Meter() as meter:
        compare(model, [model.example(tiny.IDS)], ["leave_one_out", "random_scores"], n_random=5, progress=False)
    rows_at_most = 7 * 2 * (5 + 12)  # orders x kinds x shares
    assert meter.forward <= rows_at_most + 12 + 6
    assert meter.reused > 100


@pytest.mark.parametrize(
    ("interval", "beaten", "n", "expected"),
    [
        ([0.01, 0.2], 0.7, 20, "yes"),
        ([-0.1, 0.2], 0.99, 20, "open"),
        ([-0.3, -0.1], 0.2, 20, "no"),
        ([math.nan, math.nan], 0.97, 1, "yes"),
        ([math.nan, math.nan], 0.6, 1, "open"),
        ([0.01, 0.02], 0.6, 3, "open"),
        ([math.nan, math.nan], 0.3, 1, "no"),
        ([math.nan, math.nan], math.nan, 0, "open"),
    ],
)
def test_a_method_holds_up_only_by_its_interval_or_by_beating_nearly_all_random_orders(interval, beaten, n, expected):
    assert holds_up(interval, beaten, n) == expected


def test_a_method_that_fails_is_a_row_of_failures_and_the_others_go_on(model):
    def broken(model, example, target):
        return torch.full((example.n_tokens,), float("nan"))

    found = compare(model, [model.example(tiny.IDS)], ["raw_attention", broken], n_random=3, progress=False)
    assert found.methods == ("raw_attention",)
    assert found.failures.method.tolist() == ["broken"] and "NaN" in found.failures.error[0]


def test_no_method_at_all_is_an_error_with_the_first_reason(model):
    def broken(model, example, target):
        return torch.zeros(2)

    with pytest.raises(InputError, match="expected one a token"):
        compare(model, [model.example(tiny.IDS)], [broken], progress=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["rolout"]}, "did you mean 'rollout'"),
        ({"methods": []}, "no method was named"),
        ({"examples": []}, "there is no text"),
        ({"examples": [tiny.IDS, list(range(3, 50)) * 2]}, "text 2 of 2: the input has 94 tokens, the model takes 64"),
        ({"target": "LABEL_5"}, "did you mean 'LABEL_"),
        ({"options": {"rollout": {}}}, "not among the methods"),
        ({"options": {"raw_attention": {"headz": 1}}}, "did you mean 'heads'"),
        ({"operator": "mask"}, "no 'mask' embedding"),
    ],
)
def test_bad_input_is_one_error_before_any_work(model, arguments, message):
    given = {
        "examples": [model.example(tiny.IDS)],
        "methods": ["raw_attention"],
        "progress": False,
        "n_random": 2,
    } | arguments
    with pytest.raises(InputError, match=message):
        compare(model, **given)


def test_finished_texts_are_on_disk_when_a_later_one_fails(model, tmp_path, monkeypatch):
    from attnprobe import comparison

    plain = comparison.judge
    calls = []

    def fails_on_the_second(*args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(*args)

    monkeypatch.setattr(comparison, "judge", fails_on_the_second)
    with pytest.raises(KeyboardInterrupt):
        compare(model, [model.example(tiny.IDS)] * 2, FEW, n_random=2, progress=False, folder=tmp_path / "out")
    assert len(pd.read_csv(tmp_path / "out" / "attributions.csv")) == 12 * len(FEW)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_methods_run_on_a_planted_model_where_attention_is_known_to_mislead():
    made = planted("P2")
    found = compare(made.model, [made.example], n_random=4, progress=False)
    assert set(found.methods) == set(methods) and found.failures.empty


def test_every_finding_rests_on_rows_of_the_tables(two):
    found = findings(two)
    assert len(found) == 3
    for finding in found:
        assert finding.claim.endswith(".") and finding.verdict in ("yes", "no", "open") and len(finding.evidence)
    assert found[0].evidence.method.tolist() == ["raw_attention"]


def test_tables_are_written_as_csv(two, tmp_path):
    paths = two.save_tables(tmp_path / "tables")
    assert {p.stem for p in paths} == set(two.tables)
    again = pd.read_csv(tmp_path / "tables" / "faithfulness.csv")
    assert again["mean"].tolist() == pytest.approx(two.faithfulness["mean"].tolist())


def test_an_interval_needs_two_values():
    assert math.isnan(over_texts([1.0], n_resamples=10, seed=0).low)
