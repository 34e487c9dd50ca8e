"""compare(): all methods in one call, with controls, intervals, and nothing lost when one fails."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe import running
from attnprobe.attributing import attribute
from attnprobe.comparison import compare
from attnprobe.errors import InputError, NumericsError
from attnprobe.finding import findings
from attnprobe.intervals import over_texts
from attnprobe.judged_tables import RANDOM, holds_up
from attnprobe.methods import methods
from attnprobe.metrics import agreement, by_default, faithfulness
from attnprobe.models.planted import planted
from attnprobe.orders import random_orders
from attnprobe.study import Settings
from tests import tiny

FEW = ["raw_attention", "leave_one_out", "input_x_gradient", "random_scores"]


@pytest.fixture(scope="module")
def model():
    return tiny.loaded("bert", "sdpa", scale=2.0)


@pytest.fixture(scope="module")
def two(model):
    examples = [model.example(tiny.IDS), model.example(tiny.IDS[3:])]
    return compare(model, examples, FEW, n_random=10, n_resamples=100, verdicts=False, progress=False)


def test_each_method_has_a_row_in_each_table(two):
    assert two.methods == tuple(FEW)
    assert set(two.to_frame().method) == set(FEW)
    assert len(two.to_frame()) == len(FEW) * (12 + 9)
    assert len(two.agreement) == 2 * len(by_default(agreement)) * math.comb(len(FEW), 2)
    assert len(two.faithfulness) == 3 * len(by_default(faithfulness)) * len(FEW)
    assert len(two.main) == len(by_default(faithfulness)) * len(FEW)
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
    one = compare(model, [model.example(tiny.IDS)], FEW, n_random=5, n_resamples=100, verdicts=False, progress=False)
    tau = one.agreement.query("metric == 'kendall_tau'")
    assert (tau.interval_over == "tokens").all() and tau.low.notna().all() and (tau.low <= tau.high).all()
    assert one.faithfulness.low.isna().all() and (one.faithfulness.n == 1).all()


def test_the_same_seed_gives_the_same_tables(model):
    runs = [
        compare(
            model, [model.example(tiny.IDS)], FEW, n_random=5, n_resamples=50, seed=3, verdicts=False, progress=False
        )
        for _ in range(2)
    ]
    pd.testing.assert_frame_equal(runs[0].faithfulness, runs[1].faithfulness)
    pd.testing.assert_frame_equal(runs[0].agreement, runs[1].agreement)


def test_random_scores_do_not_hold_up_over_many_texts():
    model = tiny.loaded("distilbert", "sdpa", scale=2.0)
    draw = torch.Generator().manual_seed(0)
    examples = [model.example(torch.randint(3, 60, (10,), generator=draw)) for _ in range(12)]
    found = compare(
        model,
        examples,
        ["random_scores", "leave_one_out"],
        n_random=20,
        n_resamples=200,
        verdicts=False,
        progress=False,
    )
    rows = found.main.query("metric == 'comprehensiveness'").set_index("method")
    assert rows.holds_up["leave_one_out"] == "yes" and rows.holds_up["random_scores"] == "open"
    assert abs(rows.random_beaten["random_scores"] - 0.5) < 0.25 < rows.random_beaten["leave_one_out"]


def test_no_faithfulness_row_costs_a_pass_twice(model):
    from attnprobe.models.evaluator import Meter

    with Meter() as meter:
        compare(
            model,
            [model.example(tiny.IDS)],
            ["leave_one_out", "random_scores"],
            operators="mean",
            n_random=5,
            verdicts=False,
            progress=False,
        )
    n_random_and_methods, n_oracle = 7 * 2 * 12, 12 * 13  # orders x kinds x sizes; steps of two greedy orders
    assert meter.forward <= n_random_and_methods + n_oracle + 12 + 6


@pytest.mark.parametrize(
    ("interval", "beaten", "n", "n_orders", "expected"),
    [
        ([0.01, 0.2], 0.7, 20, 1000, "yes"),
        ([-0.1, 0.2], 0.99, 20, 1000, "open"),
        ([-0.3, -0.1], 0.2, 20, 1000, "no"),
        ([math.nan, math.nan], 0.97, 1, 50, "yes"),
        ([math.nan, math.nan], 0.6, 1, 50, "open"),
        ([0.01, 0.02], 0.6, 3, 150, "open"),
        ([math.nan, math.nan], 0.3, 1, 50, "open"),
        ([math.nan, math.nan], 0.05, 1, 20, "no"),
        ([math.nan, math.nan], 1.0, 1, 18, "open"),
        ([math.nan, math.nan], 0.0, 1, 18, "open"),
        ([math.nan, math.nan], 1.0, 2, 20, "yes"),
        ([math.nan, math.nan], math.nan, 0, 0, "open"),
    ],
)
def test_a_method_holds_up_only_by_its_interval_or_by_beating_nearly_all_of_enough_random_orders(
    interval, beaten, n, n_orders, expected
):
    assert holds_up(interval, beaten, n, n_orders) == expected


def test_a_method_that_is_no_better_than_random_orders_is_rarely_said_to_be():
    """Six texts, values and random orders of one law: about 7 % are judged at all, as the interval promises."""
    draw = np.random.default_rng(0)
    verdicts = []
    for seed in range(300):
        differences = list(draw.normal(size=6) - draw.normal(size=(6, 50)).mean(1))
        found = over_texts(differences, n_resamples=1000, seed=seed)
        verdicts.append(holds_up([found.low, found.high], 0.5, found.n, 300))
    assert verdicts.count("open") >= 0.9 * 300


def test_a_method_that_fails_is_a_row_of_failures_and_the_others_go_on(model):
    def broken(model, example, target):
        return torch.full((example.n_tokens,), float("nan"))

    text = [model.example(tiny.IDS)]
    with pytest.warns(UserWarning, match="'broken' gave no answer on any of the 1 texts, and is left out: .*NaN"):
        found = compare(model, text, ["raw_attention", broken], n_random=3, verdicts=False, progress=False)
    assert found.methods == ("raw_attention",)
    assert found.failures.method.tolist() == ["broken"] and "NaN" in found.failures.error[0]


@pytest.mark.filterwarnings("ignore:.*gave no answer")
@pytest.mark.parametrize("error", [ValueError("two"), RuntimeError("two"), KeyError("two")])
def test_a_method_of_ones_own_may_raise_anything(model, error):
    def broken(model, example, target):
        raise error

    found = compare(
        model, [model.example(tiny.IDS)], [broken, "raw_attention"], n_random=3, verdicts=False, progress=False
    )
    assert found.methods == ("raw_attention",)
    assert found.failures.error.tolist() == [f"{type(error).__name__}: {error}"]


def test_a_text_whose_orders_cannot_be_judged_keeps_what_the_methods_said(model, monkeypatch):
    plain, calls = running.judge, []

    def fails_on_the_first(*args):
        calls.append(1)
        if len(calls) == 1:
            raise NumericsError("1 of 4 values are NaN")
        return plain(*args)

    monkeypatch.setattr(running, "judge", fails_on_the_first)
    given = [model.example(tiny.IDS), model.example(tiny.IDS[3:])]
    found = compare(model, given, ["raw_attention"], n_random=3, verdicts=False, progress=False)
    assert found.failures.method.tolist() == ["judging by removal"] and set(found.main.n) == {1}
    assert found.failures.error.tolist() == ["mean: 1 of 4 values are NaN"]
    assert set(found.to_frame().example_index) == {0, 1}


def test_no_method_at_all_is_an_error_with_the_first_reason(model):
    def broken(model, example, target):
        return torch.zeros(2)

    with pytest.raises(InputError, match="expected one a token"):
        compare(model, [model.example(tiny.IDS)], [broken], verdicts=False, progress=False)


def test_finished_texts_are_on_disk_when_a_later_one_fails(model, tmp_path, monkeypatch):
    plain = running.judge
    calls = []

    def fails_on_the_second(*args):
        calls.append(1)
        if len(calls) == 1 + 3:  # the first operator of the second text
            raise KeyboardInterrupt
        return plain(*args)

    monkeypatch.setattr(running, "judge", fails_on_the_second)
    with pytest.raises(KeyboardInterrupt):
        compare(
            model,
            [model.example(tiny.IDS)] * 2,
            FEW,
            n_random=2,
            verdicts=False,
            progress=False,
            folder=tmp_path / "out",
        )
    assert len(pd.read_csv(tmp_path / "out" / "attributions.csv")) == 12 * len(FEW)


def test_rows_of_an_earlier_run_do_not_stay_where_the_first_text_fails(model, tmp_path):
    def fails_on_short(model, example, target):
        if example.n_tokens < 10:
            raise ValueError("short")
        return torch.ones(example.n_tokens)

    short, long = model.example(tiny.IDS[3:]), model.example(tiny.IDS)
    compare(model, [long, long], ["raw_attention"], n_random=2, verdicts=False, progress=False, folder=tmp_path)
    compare(
        model,
        [short, long],
        [fails_on_short],
        n_random=2,
        verdicts=False,
        progress=False,
        folder=tmp_path,
        resume=False,
    )
    table = pd.read_csv(tmp_path / "attributions.csv")
    assert set(table.method) == {"fails_on_short"} and set(table.example_index) == {1}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_methods_run_on_a_planted_model_where_attention_is_known_to_mislead():
    made = planted("P2")
    found = compare(made.model, [made.example], "all", n_random=4, operators="zero", progress=False)
    assert set(found.methods) == set(methods) and found.failures.empty


def test_every_finding_rests_on_rows_of_the_tables(two):
    found = findings(two)
    assert {"attention", "removal", "agreement"} <= {finding.topic for finding in found}
    for finding in found:
        assert finding.claim.endswith(".") and len(finding.evidence)
    (attention,) = [f for f in found if f.topic == "attention"]
    assert set(attention.evidence.method) == {"raw_attention"} and set(attention.evidence.operator) == {"mean"}


def test_tables_are_written_as_csv(two, tmp_path):
    paths = two.save_tables(tmp_path / "tables")
    assert {p.stem for p in paths} == set(two.tables)
    again = pd.read_csv(tmp_path / "tables" / "faithfulness.csv")
    assert again["mean"].tolist() == pytest.approx(two.faithfulness["mean"].tolist())


def test_two_texts_are_too_few_for_any_verdict_on_agreement(two):
    assert (
        two.agreement.low.isna().all()
        and two.faithfulness.low.isna().all()
        and two.curves.dropna().method.eq(RANDOM).all()
    )
    (finding,) = [f for f in findings(two) if f.topic == "agreement"]
    assert finding.verdict == "open" and "too little for an interval" in finding.claim


def test_a_comparison_without_random_orders_says_nothing_of_them(model):
    found = compare(model, [model.example(tiny.IDS)], FEW, n_random=0, verdicts=False, progress=False)
    assert set(found.faithfulness.holds_up) == {"open"}
    assert not [f for f in findings(found) if f.topic in ("attention", "removal")]


def test_an_order_of_two_methods_is_not_called_stable(model):
    """Of two there are two orders: Kendall's tau is 1 or -1, whatever happens."""
    given = {"operators": ["mean", "zero"], "n_random": 2, "verdicts": False, "progress": False}
    found = compare(model, [model.example(tiny.IDS)], ["raw_attention", "leave_one_out"], **given)
    assert not found.stability.empty and not [f for f in findings(found) if f.topic == "operators"]


def test_a_check_that_was_measured_once_is_counted_once(two):
    counted = two.checks.set_index("check").n
    assert counted["|logits with capture - logits without|"] == 1 and counted["|weights @ value - z|"] == 6


def test_other_texts_of_one_length_get_other_random_orders(model):
    given = [model.example(tiny.IDS), model.example(tiny.IDS[::-1])]
    orders = [
        random_orders(attribute(model, e, "raw_attention"), Settings("mean", 3, 10, 0, "")) for e in [*given, given[0]]
    ]
    first, other, again = ([o.scores.tolist() for o in found] for found in orders)
    assert first == again and all(a != b for a, b in zip(first, other, strict=True))
