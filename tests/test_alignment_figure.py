"""The picture of an alignment shows the weights it was given, under the right names."""

import pytest
import torch
from matplotlib.patches import Rectangle

from attnprobe.alignment_figure import alignment_picture
from attnprobe.errors import InputError


def test_the_picture_shows_every_weight_in_its_cell_under_its_names():
    weights = torch.rand(3, 5).softmax(-1)
    axes = alignment_picture(weights, list("a bcd"), list("xyz"), title="one")
    drawn = torch.tensor(axes.collections[0].get_array().reshape(3, 5))
    assert torch.equal(drawn, weights.double())
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "␣", "b", "c", "d"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y", "z"]
    assert axes.get_title(loc="left") == "one"


def test_boxes_frame_the_cells_they_name():
    axes = alignment_picture(torch.eye(4), list("abcd"), list("wxyz"), boxes={(1, 3): (0, 2)})
    (frame,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert (frame.get_xy(), frame.get_width(), frame.get_height()) == ((0, 1), 2, 2)


def test_weights_that_do_not_fit_the_names_are_refused():
    with pytest.raises(InputError, match="3 outputs and 5 inputs"):
        alignment_picture(torch.rand(5, 3), list("abcde"), list("xyz"))
