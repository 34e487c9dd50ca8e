"""The benchmark on planted models: how scores are judged, what is foretold, refusals, variants, the picture."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from attnprobe.attributing import attribute
from attnprobe.benchmark import Cell, benchmark_planted, by_method, to_frame, variants
from attnprobe.benchmark.judging import judge, levels
from attnprobe.benchmark_figure import benchmark_picture
from attnprobe.errors import InputError
from attnprobe.methods import Scores, methods
from attnprobe.models.planted import NAMES, planted

FEW = ["P8", "P12", "P1", "P9_unequal", "P17"]
QUICK = ["raw_attention", "rollout", "input_x_gradient", "leave_one_out", "random_scores"]


def judged(scores, truth, *, signed=True, error=None):
    """A method that says `scores`, beside a truth."""
    made = planted("P1", n_tokens=max(4, len(scores)))
    given = torch.tensor([*scores, *[0.0] * (made.example.n_tokens - len(scores))], dtype=torch.float64)
    spread = None if error is None else torch.tensor([*error, *[0.0] * (len(given) - len(error))])
    entry = methods.get_entry(lambda model, example, target: Scores(given, standard_error=spread))
    found = attribute(made.model, made.example, entry)
    object.__setattr__(found, "signed", signed)
    true = torch.tensor([*truth, *[0.0] * (len(given) - len(truth))], dtype=torch.float64)
    return judge(found, true)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_agreement_is_scipys_tau_b_where_nothing_is_nearly_equal():
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores, truth = generator.integers(0, 4, 6).astype(float), generator.integers(-2, 3, 6).astype(float)
        wanted = stats.kendalltau(scores, truth).statistic
        if np.ptp(scores) and np.ptp(truth):
            assert judged(scores.tolist(), truth.tolist()).agreement == pytest.approx(wanted)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_true_order_with_its_ties_is_1_and_ties_that_are_broken_cost():
    assert judged([0, 0, 5, 0], [0, 0, 1, 0]).agreement == pytest.approx(1)
    assert judged([0, 0, 5, 1], [0, 0, 1, 0]).agreement < 0.9
    assert judged([0, 0.001, 5, 0], [0, 0, 1, 0]).agreement == pytest.approx(1)  # a thousandth of 5 is nothing
    assert judged([0, 0.2, 5, 0], [0, 0, 1, 0]).agreement < 0.9
    assert judged([0, 0.2, 5, 0], [0, 0, 1, 0], error=[0, 0.3, 0.3, 0]).agreement == pytest.approx(1)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scores_that_are_all_equal_agree_with_nothing_and_a_flat_truth_is_no_order():
    none = judged([0, 0, 0, 0], [0, 0, 1, 0])
    assert (none.agreement, none.top1, none.idle, none.correct) == (0, 0, 0, False)
    even = judged([0.25] * 4, [0, 0, 1, 0])
    assert (even.agreement, even.top1, even.idle) == (0, 0.25, 0.75)
    flat = judged([0.1, 0.7, 0.1, 0.1], [0, 0, 0, 0])
    assert (flat.agreement, flat.top1, flat.idle, flat.correct) == (None, None, pytest.approx(1), False)
    assert judged([0, 0, 0, 0], [0, 0, 0, 0]).correct
    assert judged([1, 2, 3, 4], [1, 2, 3, 4]).idle is None
    assert judged([1e-17, 0, -1e-17, 0], [0, 0, 0, 0]).correct  # rounding


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sign_counts_where_a_method_has_one():
    truth = [0, 0, -1, 0]
    assert judged([0, 0, -2, 0], truth).correct
    assert judged([0, 0, 2, 0], truth).agreement == pytest.approx(-1) and judged([0, 0, 2, 0], truth).top1 == 0
    assert judged([0, 0, 2, 0], truth, signed=False).correct
    assert judged([0, 0, 2, 0], truth, signed=False).top1 == 1


def test_nearly_equal_values_have_one_rank_and_others_their_order():
    values = torch.tensor([3.0, 1.0, 1.0005, 2.0, -1.0])
    assert levels(values, 1e-3).tolist() == [3, 1, 1, 2, 0]
    assert levels(values, 1e-9).tolist() == [4, 1, 2, 3, 0]


@pytest.mark.parametrize("names", [FEW, pytest.param(NAMES, marks=pytest.mark.slow)], ids=["few", "all"])
def test_what_the_plans_foretell_of_methods_comes_true(names):
    """Every method that must rank as the truth does, does; every one that must not, does not."""
    foretold = {(name, method) for name in names for method in (*planted(name).right, *planted(name).misled)}
    there = sorted({method for _, method in foretold} & set(methods))
    cells = benchmark_planted(names, there, progress=False)
    wrong = [
        (c.model, c.method, c.expected, c.scores, c.refused)
        for c in cells
        if c.expected and (c.scores is None or c.correct is not (c.expected == "right"))
    ]
    assert wrong == []
    assert {(c.model, c.method) for c in cells if c.expected} == {pair for pair in foretold if pair[1] in methods}


@pytest.mark.parametrize("names", [FEW[-3:], pytest.param(NAMES, marks=pytest.mark.slow)], ids=["few", "all"])
def test_every_method_answers_or_refuses_a_planted_model_with_a_reason(names):
    cells = benchmark_planted(names, progress=False)
    assert len(cells) == len(names) * len(methods)
    assert [(c.model, c.method, c.fault) for c in cells if c.fault] == []
    for cell in cells:
        assert (cell.scores is None) == (cell.refused is not None)
        if cell.refused is not None:
            assert len(cell.refused) > 20
            continue
        assert len(cell.scores) == len(cell.truth) == len(cell.tokens)
        assert all(map(math.isfinite, cell.scores))
        assert cell.agreement is None or -1 <= cell.agreement <= 1
        assert cell.idle is None or 0 <= cell.idle <= 1 + 1e-9
        assert cell.seconds > 0 and cell.forward >= 0
        assert (cell.agreement is None) == (cell.model == "P9_unequal")


def test_a_fault_in_one_method_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch):
    import attnprobe.benchmark.planted as module

    plain = module.attribute

    def broken(model, example, method, target, **options):
        if method == "rollout":
            raise ZeroDivisionError("a fault")
        return plain(model, example, method, target, **options)

    monkeypatch.setattr(module, "attribute", broken)
    cells = benchmark_planted(["P1"], ["rollout", "leave_one_out"], progress=False)
    assert [(c.method, c.fault) for c in cells] == [("rollout", "ZeroDivisionError: a fault"), ("leave_one_out", None)]
    assert cells[1].correct and cells[0].scores is None


def test_the_same_threads_as_before():
    before = torch.get_num_threads()
    benchmark_planted(["P1"], ["raw_attention"], progress=False)
    assert torch.get_num_threads() == before


def test_options_reach_their_method_and_are_told():
    plain, none = (
        benchmark_planted(["P5"], ["rollout"], options=options, progress=False)[0]
        for options in (None, {"rollout": {"identity": 0.0}})
    )
    assert none.options["identity"] == 0.0 and none.expected is None and plain.expected == "misled"
    assert none.scores == pytest.approx((0.0925, 0.815, 0.0925)) and none.correct and not plain.correct
    with pytest.raises(InputError, match="has no option 'idenity'"):
        benchmark_planted(["P5"], ["rollout"], options={"rollout": {"idenity": 0.0}}, progress=False)


def test_variants_are_planted_and_told():
    cells = benchmark_planted(["P1", "P12"], QUICK, n_variants=4, progress=False)
    assert len(cells) == 2 * 5 * len(QUICK)
    told = list(dict.fromkeys(c.variant for c in cells if c.model == "P1"))
    assert told[:4] == ["as planted", "rotation 1", "noise 10 %", "12 tokens, reordered"]
    assert "rotation 4" in told[4] and "noise 10 %" in told[4]
    assert {c.expected for c in cells if c.variant != "as planted"} == {None}
    by = {(c.model, c.variant, c.method): c for c in cells}
    for method in ("raw_attention", "input_x_gradient", "leave_one_out"):
        plain, turned = by["P1", "as planted", method], by["P1", "rotation 1", method]
        assert turned.scores == pytest.approx(plain.scores, abs=1e-6) and turned.agreement == plain.agreement
        assert by["P1", "12 tokens, reordered", "leave_one_out"].correct
    with pytest.raises(InputError, match="0 or more"):
        variants("P1", -1)


def test_the_table_of_methods_counts_and_averages_what_was_done():
    cells = benchmark_planted(["P1", "P4", "P8", "P17"], ["rollout", "leave_one_out"], progress=False)
    table = by_method(cells).set_index("method")
    done = {m: [c for c in cells if c.method == m and c.scores is not None] for m in table.index}
    for method, row in table.iterrows():
        assert row.agreement == pytest.approx(np.mean([c.agreement for c in done[method]]))
        assert row.n_correct == sum(bool(c.correct) for c in done[method])
        assert (row.n_models, row.n_refused) == (len(done[method]), 4 - len(done[method]))
        assert row.forward == sum(c.forward for c in done[method])
    assert (table.loc["rollout", "n_refused"], table.loc["leave_one_out", "n_refused"]) == (1, 0)
    assert table.loc["leave_one_out", "additive"] == 1 > table.loc["leave_one_out", "interacting"]
    frame = to_frame(cells)
    assert len(frame) == 8 and set(Cell.__dataclass_fields__) == set(frame.columns)
    assert pd.isna(frame[frame.refused.notna()].agreement).all()


def test_names_that_do_not_exist_are_errors():
    with pytest.raises(InputError, match="no planted model is named 'P99'"):
        benchmark_planted(["P99"], progress=False)
    with pytest.raises(InputError, match="did you mean 'rollout'"):
        benchmark_planted(["P1"], ["rolout"], progress=False)


def test_the_picture_shows_every_method_and_model_with_the_numbers_of_the_table():
    cells = benchmark_planted(["P1", "P8", "P9_unequal", "P17"], QUICK, progress=False)
    figure = benchmark_picture(cells)
    heat = figure.axes[0]
    table = by_method(cells)
    assert [label.get_text() for label in heat.get_yticklabels()] == list(table.method)
    names = [label.get_text().split()[0] for label in heat.get_xticklabels()]
    assert names == ["P1", "P17", "P8", "P9_unequal"]  # tokens that act one by one first
    shown = heat.collections[0].get_array().reshape(len(table), 4)
    at = {(c.method, c.model): c.agreement for c in cells}
    for row, method in enumerate(table.method):
        for column, model in enumerate(names):
            wanted = at[method, model]
            hidden = bool(np.ma.getmaskarray(shown)[row, column])
            assert hidden == (wanted is None)
            assert hidden or shown[row, column] == pytest.approx(wanted)
    assert "–" in [text.get_text() for text in heat.texts]  # rollout on P17
    passes = figure.axes[2]
    assert {bar.get_width() for bar in passes.containers[0]} == {float(n) for n in table.forward}
    with pytest.raises(InputError, match="at least one method"):
        benchmark_picture([])
