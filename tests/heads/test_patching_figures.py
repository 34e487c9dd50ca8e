"""Figures of patching draw the numbers of the results."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from attnprobe.errors import InputError
from attnprobe.heads.edges import edge_attribution
from attnprobe.heads.information_flow import information_flow
from attnprobe.heads.patching import patch_heads, patch_states
from attnprobe.patching_figures import edge_matrix, flow_curves, patching_map
from tests.heads.made_pairs import linear, tiny_pair


def cells(figure):
    """The numbers of a drawn map, [row column]; NaN where nothing is drawn."""
    drawn = figure.axes[0].collections[0].get_array()
    return np.ma.filled(drawn.astype(float), np.nan)


def saved(figure, tmp_path):
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "figure.png", dpi=50)
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_maps_have_a_cell_for_each_place(tmp_path):
    model, made = linear()
    heads, each, states = (
        patch_heads(model, made),
        patch_heads(model, made, positions="each"),
        patch_states(model, made),
    )
    np.testing.assert_allclose(cells(patching_map(heads)), heads.values[..., 0])
    np.testing.assert_allclose(cells(patching_map(each, head=1)), each.values[:, 1])
    np.testing.assert_allclose(cells(patching_map(states)), states.values[:, 0])
    most = each.values.abs().argmax(1)
    for layer, row in enumerate(cells(patching_map(each))):
        assert row.tolist() == [each.values[layer, head, at].item() for at, head in enumerate(most[layer])]
    figure = patching_map(states)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["r", "s/u", "t"]
    assert "clean" in figure.get_suptitle() and "put clean into corrupt" in figure.axes[0].get_title(loc="left")
    with pytest.raises(InputError, match="heads 0 to 1"):
        patching_map(each, head=2)
    saved(figure, tmp_path)


def test_curves_are_the_changes_by_layer(tmp_path):
    model, made = tiny_pair("gpt2")
    flow = information_flow(model, made.clean, sources={"early": [0, 1], "$late$": [9]}, window=1)
    figure = flow_curves(flow)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    for line, expected in zip(lines, flow.relative, strict=True):
        np.testing.assert_allclose(line.get_ydata(), expected)
    saved(figure, tmp_path)
    some = flow_curves(flow, sources=["early"], relative=False)
    np.testing.assert_allclose(some.axes[0].lines[0].get_ydata(), flow.change[0])
    with pytest.raises(InputError, match="no source is named 'middle'"):
        flow_curves(flow, sources=["middle"])
    whole = information_flow(model, made.clean, window=2)
    drawn = flow_curves(whole).axes[0].get_legend().get_texts()
    strength = whole.relative.abs().amax(1)
    kept = {name for name, s in zip(whole.sources, strength, strict=True) if s >= strength.sort().values[-8]}
    assert {text.get_text() for text in drawn} == kept


def test_the_matrix_of_edges_has_the_parts_that_carry_most(tmp_path):
    found = edge_attribution(*tiny_pair("gpt2"))
    figure = edge_matrix(found, n=5)
    drawn = cells(figure)
    assert drawn.shape == (5, 5)
    names = (
        [t.get_text() for t in labels]
        for labels in (figure.axes[0].get_yticklabels(), figure.axes[0].get_xticklabels())
    )
    writers, readers = names
    table = found.to_frame().set_index(["writer", "reader"]).share
    for row, writer in enumerate(writers):
        for column, reader in enumerate(readers):
            if (writer, reader) in table.index:
                assert drawn[row, column] == pytest.approx(table[writer, reader])
            else:
                assert np.isnan(drawn[row, column])
    best = found.top(1).iloc[0]
    assert best.writer in writers and best.reader in readers
    assert torch.tensor(np.nan_to_num(drawn)).abs().max() == pytest.approx(abs(best.share))
    with pytest.raises(InputError, match="n is at least 1"):
        edge_matrix(found, n=0)
    saved(figure, tmp_path)
