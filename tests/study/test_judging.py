"""Orders under removal: the quick way is the metrics' own, random orders are fair, and the oracle is the best."""

from itertools import permutations

import numpy as np
import pytest
import torch

from attnprobe.attributing import attribute
from attnprobe.comparison import compare
from attnprobe.judging import QUICK, Answers, judge
from attnprobe.metrics import by_default, faithfulness
from attnprobe.models.planted import planted
from attnprobe.orders import as_attribution, foreign_ranks, oracles, random_orders, random_ranks, ranks_of
from attnprobe.study import FOREIGN, METHOD, ORACLE, RANDOM_ORDER, REVERSED, Settings
from tests import tiny

OPERATORS = ("mean", "zero", "attention_mask", "resample")


@pytest.fixture(scope="module")
def model():
    return tiny.loaded("bert", "sdpa", scale=2.0)


def settings(operator="mean", n_random=6):
    return Settings(operator, n_random, 50, 0, "", (operator,))


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_order_has_the_value_that_the_registered_metric_gives_it(model, operator):
    example = model.example(tiny.IDS[:7])
    said = [attribute(model, example, name) for name in ("raw_attention", "leave_one_out")]
    found = judge(model, said, settings(operator), operator, foreign=[])
    for metric, entry in by_default(faithfulness).items():
        for a in said:
            expected = entry.function(model, a, operator=operator)
            assert found.value(metric, a.method) == pytest.approx(expected, abs=1e-6)
            back = as_attribution(a, len(ranks_of(a)) - 1 - ranks_of(a))
            expected = entry.function(model, back, operator=operator)
            assert found.value(metric, a.method, REVERSED) == pytest.approx(expected, abs=1e-6)
        drawn = [entry.function(model, o, operator=operator) for o in random_orders(said[0], settings(operator))]
        assert found.random(metric) == pytest.approx(np.array(drawn), abs=1e-6)


def test_all_default_metrics_that_read_a_curve_are_quick():
    assert {entry.function for entry in by_default(faithfulness).values()} <= set(QUICK)


def test_the_oracle_of_few_units_is_the_best_of_all_orders(model):
    example = model.example(tiny.IDS[:5])
    said = attribute(model, example, "raw_attention")
    found = judge(model, [said], settings(n_random=0), "mean")
    assert set(found.exact) == {"comprehensiveness", "sufficiency", "deletion_area"}
    for metric, best in (("comprehensiveness", max), ("sufficiency", min), ("deletion_area", min)):
        entry = faithfulness[metric]
        values = [
            float(entry.function(model, as_attribution(said, np.array(ranks)), operator="mean"))
            for ranks in permutations(range(int(said.units.sum())))
        ]
        oracle = best(v for v, role in zip(found.values[metric], found.roles, strict=True) if role == ORACLE)
        assert oracle == pytest.approx(best(values), abs=1e-6)


def test_the_greedy_oracle_finds_the_causal_token_first():
    made = planted("P2", n_tokens=14)
    example = made.example
    target = made.model.resolve(example)
    effects = attribute(made.model, example, "leave_one_out", target, operator="zero")
    found = judge(made.model, [effects], settings("zero", n_random=20), "zero")
    assert "comprehensiveness" not in found.exact
    oracle = max(v for v, role in zip(found.values["comprehensiveness"], found.roles, strict=True) if role == ORACLE)
    assert oracle >= found.random("comprehensiveness").max() - 1e-6
    assert oracle >= found.value("comprehensiveness", "leave_one_out") - 1e-6


def plain_greedy(n_units, answer, sign):
    """The slow rule: every step looks at every unit that is left, and takes one."""
    gone = np.zeros(n_units, dtype=bool)
    order = []
    while len(order) < n_units:
        left = np.flatnonzero(~gone)
        sets = np.stack([gone | (np.arange(n_units) == unit) for unit in left])
        numbers = sign * answer(sets if sign > 0 else ~sets)
        unit = int(left[np.argmin(numbers)])
        gone[unit] = True
        order.append(unit)
    return order


def test_where_units_add_up_the_search_for_the_best_order_is_the_slow_one():
    weights = np.random.default_rng(0).normal(size=16)

    def answer(gone):
        return (~gone) @ weights

    found = oracles(16, answer, [])
    assert np.argsort(found[0]).tolist() == plain_greedy(16, answer, 1.0) == np.argsort(-weights).tolist()
    assert np.argsort(found[1]).tolist() == plain_greedy(16, answer, -1.0)


def test_the_search_finds_what_only_works_together_where_it_is_brought_back():
    """A chain: each unit does something only where those before it are there, which no early look shows."""
    n, chain = 24, [17, 3, 20, 9, 11, 6]

    def answer(gone):
        there = ~gone
        return sum(np.logical_and.reduce(there[:, chain[: k + 1]], axis=1).astype(float) for k in range(len(chain)))

    found = oracles(n, answer, [])
    assert np.argsort(found[1])[: len(chain)].tolist() == chain
    assert np.argsort(found[0])[0] == chain[0]


@pytest.mark.parametrize(("n_units", "most"), [(9, 90), (40, 790), (128, 1850), (512, 6430)])
def test_every_unit_has_one_place_and_long_texts_cost_no_square(n_units, most):
    asked = []

    def answer(gone):
        asked.append(len(gone))
        return gone @ np.linspace(-1, 1, n_units) ** 3

    found = oracles(n_units, answer, [])
    assert all(sorted(order) == list(range(n_units)) for order in found.tolist())
    assert sum(asked) <= most + 2  # one unit a step would ask for n (n + 1) sets: 16,512 of 128 units


def test_random_orders_have_every_unit_in_every_place_equally_often():
    found = random_ranks(9, 4000, np.random.default_rng(1))
    assert all(sorted(order) == list(range(9)) for order in found)
    counts = np.stack([np.bincount(found[:, unit], minlength=9) for unit in range(9)])
    assert abs(counts / len(found) - 1 / 9).max() < 0.02
    pairs = np.mean(found[:, 0] < found[:, 1])
    assert abs(pairs - 0.5) < 0.02


def test_every_permutation_of_three_is_as_likely_as_another():
    found = [tuple(order) for seed in range(1500) for order in random_ranks(3, 4, np.random.default_rng(seed))]
    counts = np.array([found.count(order) for order in permutations(range(3))])
    assert abs(counts / len(found) - 1 / 6).max() < 0.02


@pytest.mark.parametrize("n_orders", [0, 1, 7, 50, 203])
def test_as_many_random_orders_as_asked(n_orders):
    assert random_ranks(5, n_orders, np.random.default_rng(0)).shape == (n_orders, 5)


def test_a_foreign_order_is_that_of_the_other_inputs_scores(model):
    mine = attribute(model, model.example(tiny.IDS[:6]), "raw_attention")
    other = attribute(model, model.example(tiny.IDS[2:]), "raw_attention")
    n = int(mine.units.sum())
    wanted = torch.argsort(other.scores[other.units][:n], descending=True, stable=True)
    assert np.argsort(foreign_ranks(mine, other)).tolist() == wanted.tolist()
    back = np.argsort(foreign_ranks(other, mine)).tolist()
    assert back[n:] == list(range(n, int(other.units.sum())))  # units that it does not have come last


def test_a_set_is_evaluated_once(model):
    answers = Answers(model, attribute(model, model.example(tiny.IDS[:5]), "raw_attention"), "mean")
    gone = np.zeros((4, answers.n_units), dtype=bool)
    gone[1, 0] = gone[2, 0] = True
    values = answers(gone)
    assert len(answers.known) == 2 and values[0] == values[3] and values[1] == values[2]


def test_positions_lie_at_0_for_the_random_mean_and_at_1_for_the_best(model):
    found = compare(
        model,
        [model.example(tiny.IDS[:6]), model.example(tiny.IDS[2:9])],
        ["raw_attention", "leave_one_out"],
        operators=["mean", "attention_mask"],
        n_random=40,
        verdicts=False,
        progress=False,
    )
    table = found.positions
    assert len(table) == 2 * 2 * 3 * 2 and set(table.kind) == {"content", "renormalising"}
    assert (table.position.dropna() <= 1 + 1e-9).all() and table.foreign.notna().all() and table.reversed.notna().all()
    row = table.iloc[0]
    expected = (row.value - row.random_mean) / (row.oracle - row.random_mean)
    assert row.position == pytest.approx(expected)
    means = found.faithfulness.set_index(["operator", "metric", "method"]).position
    for key, part in table.groupby(["operator", "metric", "method"]):
        assert means[key] == pytest.approx(part.position.mean(), nan_ok=True)


def test_roles_and_names_go_with_their_orders(model):
    said = [attribute(model, model.example(tiny.IDS[:6]), name) for name in ("raw_attention", "random_scores")]
    other = [attribute(model, model.example(tiny.IDS[3:]), "raw_attention")]
    found = judge(model, said, settings(n_random=3), "mean", other)
    assert found.roles[:5] == (METHOD, METHOD, REVERSED, REVERSED, FOREIGN) and found.roles.count(RANDOM_ORDER) == 3
    assert found.names[4] == "raw_attention" and np.isnan(found.value("sufficiency", "random_scores", FOREIGN))


def test_a_metric_of_ones_own_that_fails_is_a_row_of_failures_and_the_others_go_on(model):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faithfulness, "_entries", dict(faithfulness._entries))

        @faithfulness.add(family="faithfulness", source="here", low=0, high=1, better="higher", default=True)
        def broken(model, attribution, *, operator=None):
            raise KeyError("boo")

        found = compare(
            model,
            model.example(tiny.IDS[:5]),
            ["raw_attention"],
            operators=["mean", "zero"],
            n_random=2,
            n_resamples=20,
            verdicts=False,
            progress=False,
        )
    table = found.faithfulness.set_index(["operator", "metric"])
    assert np.isnan(table["mean"]["mean", "broken"]) and table["mean"]["mean", "comprehensiveness"] == pytest.approx(
        faithfulness["comprehensiveness"].function(model, found.studies[0].attributions[0], operator="mean"), abs=1e-6
    )
    assert found.failures.error.tolist() == ["mean, broken: KeyError: 'boo'", "zero, broken: KeyError: 'boo'"]
    assert set(found.failures.method) == {"judging by removal"}
