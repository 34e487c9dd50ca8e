"""Figures of experiments draw the numbers of their tables, and say what is missing."""

import math

import pandas as pd
import pytest

from attnprobe import experiment_figures as figures
from attnprobe.errors import InputError
from attnprobe.experiments.outcome import KEYS, Outcome, values_frame

STEPS = ("head", "layer 0")


def outcome(rows):
    """An outcome of rows (example, layer, head, variant, measure, value)."""
    table = values_frame([(i, "encoder", "self", layer, head, *rest) for i, layer, head, *rest in rows])
    return Outcome("trial", "model", ("logit of a",), table, dict.fromkeys(table.measure, ""))


def of_examples(*measures, variants=("",), layers=("0",), heads=("0",)):
    return outcome(
        [
            (i, layer, head, variant, measure, 0.1 * (i + 1) * (number + 1) / len(measures))
            for i in range(8)
            for layer in layers
            for head in heads
            for variant in variants
            for number, measure in enumerate(measures)
        ]
    )


def test_the_scatters_have_a_point_an_example():
    found = of_examples("median_change", "max_weight")
    axes = figures.permuted_scatter(found)
    points = axes.collections[0].get_offsets()
    assert points[:, 0].tolist() == pytest.approx(found.of("max_weight").tolist())
    assert points[:, 1].tolist() == pytest.approx(found.of("median_change").tolist())
    axes = figures.top_weight_scatter(of_examples("js_difference", "weight_difference"))
    assert len(axes.collections[0].get_offsets()) == 8


def test_the_distribution_ends_at_ln_2():
    axes = figures.counterfactual_distribution(of_examples("jsd"))
    dashed = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [math.log(2)]
    assert "8 examples" in axes.get_title(loc="left")


def test_the_heatmaps_have_a_cell_a_layer_and_head_in_order():
    found = of_examples("total_variation", layers=("10", "2", "all"), heads=("all", "0", "1"))
    axes = figures.uniform_heatmap(found)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2", "10"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "all"]
    assert [text.get_text() for text in axes.texts] == ["0.45"] * 6
    axes = figures.identifiability_heatmap(of_examples("free_keeping_sum", layers=("0", "1"), heads=("0", "1")))
    assert len(axes.texts) == 4


def test_the_boxes_have_an_order_each():
    axes = figures.removal_boxes(of_examples("removed", variants=("attention", "gradient_x_attention")))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["attention", "gradient × attention"]


def test_the_cascade_starts_at_one_and_follows_the_means():
    found = of_examples("spearman", variants=("raw_attention", "my_method"), layers=STEPS)
    axes = figures.cascade_lines(found)
    lines = [line for line in axes.lines if line.get_label() in ("Raw attention", "My method")]
    assert [line.get_ydata().tolist() for line in lines] == [pytest.approx([1.0, 0.45, 0.45])] * 2
    assert [label.get_text() for label in axes.get_xticklabels()] == ["trained", *STEPS]


def test_the_curve_of_the_twins_leaves_the_other_seed_apart():
    found = of_examples("jsd", "total_variation", variants=("0.01", "0.1", "another seed"))
    axes = figures.twins_curve(found)
    curve = next(line for line in axes.lines if line.get_label() == "twins, by λ")
    assert curve.get_xdata().tolist() == pytest.approx([0.225, 0.225])
    assert curve.get_ydata().tolist() == pytest.approx([0.45, 0.45])
    assert any(line.get_label() == "another seed" for line in axes.lines)


def test_the_bars_are_the_means_of_a_table():
    axes = figures.right_bars(of_examples("right", variants=("uniform", "trained")).to_frame())
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([0.45, 0.45])


@pytest.mark.parametrize("name", ["permuted_scatter", "removal_boxes", "uniform_heatmap", "twins_curve", "right_bars"])
def test_a_table_without_what_is_drawn_is_refused_by_name(name):
    draw = getattr(figures, name)
    with pytest.raises(InputError, match=name):
        draw(pd.DataFrame({"measure": ["other"]}))
    with pytest.raises(InputError, match="which is not there"):
        draw(of_examples("other"))
    assert "measure" in KEYS
