"""Figures of heads draw the numbers of the profile, and groups of heads are those that were planted."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from attnprobe.errors import InputError
from attnprobe.head_cluster_figure import _apart, cluster_map
from attnprobe.head_clusters import clusters
from attnprobe.head_figures import head_maps, top_heads
from attnprobe.head_profile import HeadProfile, Told
from tests.heads.made import capture_of, random_weights


def made(values, n_layers=2, n_heads=3, stacks=(("encoder", "self"),), units=None):
    """A profile of some values [example head] by name."""
    places = [(s, k, layer, head) for s, k in stacks for layer in range(n_layers) for head in range(n_heads)]
    heads = pd.DataFrame(places, columns=["stack", "kind", "layer", "head"])
    units = units or {}
    facts = {
        name: Told("score", "f", "s", "d.", name.upper(), *units.get(name, (0, None)), "number") for name in values
    }
    arrays = {name: np.asarray(rows, dtype=float) for name, rows in values.items()}
    return HeadProfile("model", heads, arrays, facts, ("",) * len(next(iter(arrays.values()))))


def cells(axes):
    """The numbers of a drawn map, [row column]; NaN where nothing is drawn."""
    drawn = axes.collections[0].get_array()
    return np.ma.filled(drawn.astype(float), np.nan)


def saved(figure, tmp_path):
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "figure.png", dpi=50)
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_a_map_has_the_mean_of_each_head_by_layer(tmp_path):
    profile = made({"a": [[0, 1, 2, 3, 4, 5], [2, 1, 2, 3, 4, 7]], "b": [[0, -1, 2, np.nan, 4, 1]] * 2},
                   units={"b": (None, None)})  # fmt: skip
    figure = head_maps(profile, ["a", "b"])
    first, second = (axes for axes in figure.axes if axes.get_title(loc="left"))
    assert cells(first).tolist() == [[1, 1, 2], [3, 4, 6]]
    assert np.array_equal(cells(second), [[0, -1, 2], [np.nan, 4, 1]], equal_nan=True)
    assert first.collections[0].get_clim() == (0, 6) and second.collections[0].get_clim() == (-4, 4)
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["A", "B"]
    assert "mean of 2 examples" in figure.get_suptitle()
    saved(figure, tmp_path)


def test_scores_that_are_alike_everywhere_are_not_drawn_unless_asked_for():
    profile = made({"a": [range(6)], "flat": [[1] * 6], "none": [[np.nan] * 6]})
    assert [axes.get_title(loc="left") for axes in head_maps(profile).axes if axes.get_title(loc="left")] == ["A"]
    assert len([axes for axes in head_maps(profile, "flat").axes if axes.get_title(loc="left")]) == 1
    with pytest.raises(InputError, match="differ"):
        head_maps(made({"flat": [[1] * 6]}))


def test_of_several_stacks_one_is_named():
    stacks = (("encoder", "self"), ("decoder", "cross"))
    profile = made({"a": [range(12)]}, stacks=stacks)
    with pytest.raises(InputError, match=r"say stack= and kind= \(encoder self, decoder cross\)"):
        head_maps(profile)
    figure = head_maps(profile, stack="decoder", kind="cross")
    assert cells(figure.axes[0]).tolist() == [[6, 7, 8], [9, 10, 11]]
    with pytest.raises(InputError, match="one stack"):
        head_maps(profile, stack="vision")


@pytest.fixture
def kinds():
    """24 heads: 6 with a high a, 6 with a low b, 12 that are neither."""
    draw = np.random.default_rng(0)
    a, b, c = (0.02 * draw.standard_normal(24) for _ in range(3))
    a[[0, 5, 9, 13, 17, 21]] += 1.0
    b[[1, 4, 8, 12, 16, 20]] -= 1.0
    return made({"a": [a], "b": [b], "c": [c]}, n_layers=4, n_heads=6)


def test_heads_of_a_kind_are_grouped_and_named_by_what_is_special_of_them(kinds):
    found = clusters(kinds, n=3, scores=["a", "b"])
    members = {
        name: sorted(6 * row.layer + row.head for row in found.table[found.table.name == name].itertuples())
        for name in found.names
    }
    assert members.pop("high: A") == [0, 5, 9, 13, 17, 21]
    assert set(members) == {"mixed (1)", "mixed (2)"}  # to lie below all heads is no name
    assert [1, 4, 8, 12, 16, 20] in members.values()
    assert sorted(found.table.cluster) == list(found.table.cluster)  # groups lie together


def test_standardised_scores_have_mean_0_and_deviation_1_in_the_order_of_the_tree(kinds):
    found = clusters(kinds)
    assert found.standardised.mean(0) == pytest.approx([0, 0, 0], abs=1e-12)
    assert found.standardised.std(0) == pytest.approx([1, 1, 1])
    at = [6 * row.layer + row.head for row in found.table.itertuples()]
    for column, name in enumerate(found.scores):
        values = kinds.values[name][0]
        assert found.standardised[:, column] == pytest.approx((values[at] - values.mean()) / values.std())


def test_scores_without_a_difference_or_a_number_are_left_out_and_told():
    profile = made({"a": [range(6)], "flat": [[1] * 6], "holes": [[np.nan, 1, 2, 3, 4, 5]]})
    found = clusters(profile)
    assert found.scores == ("a",) and found.left_out == ("flat", "holes")
    with pytest.raises(InputError, match="1 score"):
        clusters(made({"flat": [[1] * 6]}))
    with pytest.raises(InputError, match="'a'"):
        clusters(profile, scores=["aa"])
    with pytest.raises(InputError, match="at least 1"):
        clusters(profile, n=0)


def test_two_groups_of_one_name_are_told_apart():
    a = [0.0, 0.1, 0.2, 5.0, 5.1, 20.0]
    found = clusters(made({"a": [a]}), n=3)
    assert len(set(found.names)) == 3


def test_the_cluster_map_draws_every_head_in_order_with_the_names_of_the_groups(kinds, tmp_path):
    found = clusters(kinds, n=3, scores=["a", "b"])
    figure = cluster_map(found)
    axes = figure.axes[1]
    assert cells(axes) == pytest.approx(found.standardised)
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        f"{row.layer}.{row.head}" for row in found.table.itertuples()
    ]
    drawn = {text.get_text().replace("\n", " ") for text in axes.texts}
    sizes = found.table.name.value_counts()
    assert drawn == {f"{name} ({sizes[name]})" for name in found.names}
    saved(figure, tmp_path)
    saved(cluster_map(kinds), tmp_path)


def test_names_are_moved_apart_but_stay_in_order_within_the_map():
    places = _apart([1, 2, 3, 50, 98, 99], [10, 10, 10, 10, 10, 10], 100)
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(places))
    assert places[3] == 50 and places[-1] <= 95


def test_the_strip_has_the_maps_of_the_top_heads(tmp_path):
    weights = random_weights(2, 3, 5, 5)
    capture = capture_of(weights, ("a", "b$", "c", "a_very_long_token_it_is", "e"))
    profile = made({"a": [[0, 1, 2, 3, 4, 5]]})
    figure = top_heads(profile, "a", [capture, capture], k=2)
    *maps, scale = figure.axes
    assert len(maps) == 4 and scale.get_ylabel() == "attention weight"
    for axes, head in zip(maps, (2, 1, 2, 1), strict=True):
        assert cells(axes) == pytest.approx(weights[1, head].numpy(), abs=1e-6)  # the colour scale takes the root
    assert [axes.get_title(loc="left").split()[0] for axes in maps[:2]] == ["1.2", "1.1"]
    assert [text.get_text() for text in maps[0].get_yticklabels()][3] == "a_very_long…"
    saved(figure, tmp_path)
    lowest = top_heads(profile, "a", capture, k=1, lowest=True)
    assert cells(lowest.axes[0]) == pytest.approx(weights[0, 0].numpy(), abs=1e-6)


def test_a_capture_without_the_head_is_refused():
    profile = made({"a": [[0, 1, 2, 3, 4, 5]]})
    with pytest.raises(InputError, match="lacks layer 1, head 2"):
        top_heads(profile, "a", capture_of(random_weights(1, 3, 4, 4)))


def test_the_title_says_on_what_the_numbers_are():
    places = pd.DataFrame({"stack": ["encoder"] * 4, "kind": "self", "layer": [0, 0, 1, 1], "head": [0, 1, 0, 1]})
    told = {form: Told(form, "f", "s", "d.", form.upper(), 0, None, "number") for form in ("score", "probe")}
    values = {"score": np.array([[0.1, 0.2, 0.3, 0.4]]), "probe": np.array([[1.0, 2.0, 3.0, 4.0]])}
    both = HeadProfile("model", places, values, told, ("",))
    alone = HeadProfile("model", places, {"probe": values["probe"]}, {"probe": told["probe"]}, ("",))
    assert head_maps(both).get_suptitle() == "encoder self-attention; mean of 1 example"
    for figure in (head_maps(alone), head_maps(both, "probe")):
        assert figure.get_suptitle() == "encoder self-attention; probes of the model, on no example"


def test_what_cannot_be_drawn_is_refused():
    found = made({"a": [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]]})
    with pytest.raises(InputError, match="columns is at least 1"):
        head_maps(found, columns=0)
    with pytest.raises(InputError, match="captures is empty"):
        top_heads(found, "a", [])
