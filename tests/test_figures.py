"""Figures by their artists' data."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

from attnprobe.appearance import AGAINST, FOR, LOOKS, PAPER, WEIGHT, in_order, look, main_six
from attnprobe.attributing import attribute
from attnprobe.colours import diverging, sequential
from attnprobe.errors import InputError
from attnprobe.figures import agreement_heatmap, attention_map, faithfulness_bars, removal_curves, token_scores
from attnprobe.models.planted import planted


@pytest.fixture
def agreement():
    rows = [
        ("kendall_tau", "signed", "raw_attention", "rollout", 0.65, 0.37, 0.88, 1, "tokens"),
        ("kendall_tau", "signed", "raw_attention", "leave_one_out", -0.2, -0.6, 0.2, 1, "tokens"),
        ("kendall_tau", "signed", "rollout", "leave_one_out", 0.15, np.nan, np.nan, 1, "tokens"),
    ]
    return pd.DataFrame(
        rows, columns=["metric", "direction", "method_a", "method_b", "mean", "low", "high", "n", "interval_over"]
    )


@pytest.fixture
def faithfulness():
    rows = [
        ("comprehensiveness", "higher", m, v, np.nan, np.nan, 0.1, 0.3)
        for m, v in (("raw_attention", 0.2), ("leave_one_out", 0.6))
    ]
    return pd.DataFrame(
        rows, columns=["metric", "better", "method", "mean", "low", "high", "random_low", "random_high"]
    )


@pytest.fixture
def curves():
    names = ["random orders", *LOOKS]
    rows = [(m, "removed", s, 0.9 - s / (i + 2), 0.1, 0.8, 3) for i, m in enumerate(names) for s in (0.0, 0.5, 1.0)]
    return pd.DataFrame(rows, columns=["method", "kind", "share", "mean", "low", "high", "n"])


@pytest.fixture
def scores():
    values = {("raw_attention", False): [0.2, 0.5, 0.3], ("leave_one_out", True): [-0.001, -1.0, 2.999]}
    rows = [
        (0, i, p, m, s, v)
        for (m, s), row in values.items()
        for i, (p, v) in enumerate(zip(("[CLS]", "bad", "good"), row, strict=True))
    ]
    return pd.DataFrame(rows, columns=["example_index", "token_index", "piece", "method", "signed", "score"])


@pytest.fixture(scope="module")
def said():
    made = planted("P2")
    return [attribute(made.model, made.example, m) for m in ("raw_attention", "leave_one_out")]


def test_agreement_shows_each_pair_once_and_brackets_what_is_open(agreement):
    axes = agreement_heatmap(agreement)
    shown = np.ma.getdata(axes.collections[0].get_array()).reshape(3, 3)
    assert shown[1, 0] == 0.65 and shown[2, 0] == -0.2 and np.isnan(shown[0, 0]) and np.isnan(shown[0, 1])
    words = [t.get_text() for t in axes.texts]
    assert words == ["+0.65", "(−0.20)", "(+0.15)"]  # the last has no interval


def test_bars_show_the_mean_before_the_random_band(faithfulness):
    axes = faithfulness_bars(faithfulness)
    assert [(round(b.get_x(), 6), round(b.get_width(), 6)) for b in axes.patches] == [(0.1, 0.2)] * 2
    points = {
        line.get_label(): line.get_xdata()[0]
        for line in axes.lines
        if line.get_label() in ("Raw attention", "Leave-one-out")
    }
    assert points == {"Raw attention": 0.2, "Leave-one-out": 0.6}
    assert [t.get_text() for t in axes.get_yticklabels()] == ["Raw attention", "Leave-one-out"]


def test_curves_show_six_methods_at_most_in_their_colours(curves):
    axes = removal_curves(curves)
    lines = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert list(lines) == [look(m).label for m in main_six(LOOKS)] and len(lines) == 6
    assert list(lines["Rollout"].get_ydata()) == list(curves[curves.method == "rollout"]["mean"])
    assert lines["Rollout"].get_color() == LOOKS["rollout"].light and lines["Rollout"].get_marker() == "D"


def test_a_map_shows_each_weight_at_its_place():
    weights = torch.tensor([[0.9, 0.1], [0.4, 0.6]])
    axes = attention_map(weights, ["a", "b"])
    assert np.allclose(axes.collections[0].get_array().reshape(2, 2), weights)
    assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b"]


@pytest.mark.parametrize("n", [1, 3, 4, 40])
def test_a_map_of_any_size_finds_room(n):
    weights = torch.full((n, n), 1 / n)
    axes = attention_map(weights, [f"token{i}" for i in range(n)])
    axes.figure.draw_without_rendering()  # a layout that collapses warns, and a warning fails the test
    assert min(axes.get_window_extent().bounds[2:]) > 50


def test_names_below_end_at_their_tick(agreement, scores):
    weights = torch.eye(3)
    for axes in (agreement_heatmap(agreement), attention_map(weights, ["a", "b", "c"]), token_scores(scores)):
        turned = {(t.get_ha(), t.get_rotation_mode(), t.get_rotation() > 0) for t in axes.get_xticklabels()}
        assert turned == {("right", "anchor", True)}


@pytest.mark.parametrize("kind", ["removed", "alone"])
def test_the_legend_covers_no_data(curves, kind):
    axes = removal_curves(curves.assign(kind=kind), kind=kind)
    axes.figure.draw_without_rendering()
    legend = axes.get_legend().get_window_extent()
    assert not legend.overlaps(axes.get_window_extent())
    assert legend.x1 <= axes.figure.bbox.x1


def test_token_scores_are_shares_grey_where_there_is_no_direction(scores):
    axes = token_scores(scores)
    signed, unsigned = axes.collections
    assert np.allclose(signed.get_array().reshape(2, 3)[1].filled(), [-0.00025, -0.25, 0.74975])
    assert np.allclose(unsigned.get_array().reshape(2, 3)[0].filled(), [0.2, 0.5, 0.3])
    assert [t.get_text() for t in axes.get_xticklabels()] == ["[CLS]", "bad", "good"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["Raw attention", "Leave-one-out"]
    assert sorted(t.get_text() for t in axes.texts) == sorted(["20", "50", "30", "0", "−25", "+75"])


def test_token_scores_take_attributions_as_well_as_their_frame(said):
    words = [[t.get_text() for t in token_scores(x).texts] for x in (said[1], said[1:], said[1].to_frame())]
    assert words == [["+100", "0", "0"]] * 3
    both = token_scores(said)
    assert [t.get_text() for t in both.get_yticklabels()] == ["Raw attention", "Leave-one-out"]
    assert sorted(t.get_text() for t in both.texts) == sorted(["5", "90", "5", "+100", "0", "0"])


def test_token_scores_draw_one_text_and_each_method_once(said, scores):
    other = planted("P1")
    with pytest.raises(InputError, match="of several"):
        token_scores([*said, attribute(other.model, other.example, "rollout")])
    with pytest.raises(InputError, match="twice"):
        token_scores([*said, said[0]])
    with pytest.raises(InputError, match="no text 7"):
        token_scores(scores, example_index=7)
    with pytest.raises(InputError, match="missing"):
        token_scores([])


def test_colours_run_from_orange_over_paper_to_blue():
    colours = diverging()
    assert [to_hex(colours(x)) for x in (0.0, 0.5, 1.0)] == [AGAINST, PAPER, FOR]
    assert [to_hex(sequential()(x)) for x in (0.0, 1.0)] == [PAPER, WEIGHT]


def test_nothing_is_left_open_and_axes_can_be_given(faithfulness):
    figure, axes = plt.subplots()
    assert faithfulness_bars(faithfulness, ax=axes) is axes
    plt.close(figure)
    faithfulness_bars(faithfulness)
    assert plt.get_fignums() == []


def test_figures_can_be_saved(agreement, faithfulness, curves, scores, tmp_path):
    drawn = [
        agreement_heatmap(agreement),
        faithfulness_bars(faithfulness),
        removal_curves(curves),
        token_scores(scores),
    ]
    for number, axes in enumerate(drawn):
        axes.figure.savefig(tmp_path / f"{number}.svg")
        assert (tmp_path / f"{number}.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("figure", "wrong"),
    [
        (agreement_heatmap, {"metric": "kendal"}),
        (faithfulness_bars, {"metric": "x"}),
        (removal_curves, {"kind": "x"}),
        (removal_curves, {"methods": ["x"]}),
    ],
)
def test_what_a_table_does_not_have_is_told(figure, wrong, agreement, faithfulness, curves):
    table = {agreement_heatmap: agreement, faithfulness_bars: faithfulness, removal_curves: curves}[figure]
    with pytest.raises(InputError, match="the table has no"):
        figure(table, **wrong)
    with pytest.raises(InputError, match="missing"):
        figure(pd.DataFrame({"a": [1]}))


def test_methods_are_ordered_by_family():
    families = {
        "shapley_sampling": "perturbation",
        "rollout": "attention",
        "raw_attention": "attention",
        "mine": "control",
        "leave_one_out": "ablation",
    }
    assert in_order(families, families) == ["raw_attention", "rollout", "leave_one_out", "shapley_sampling", "mine"]
