"""Maps of several mechanisms beside each other: what is drawn is what each says of the same query and key."""

import numpy as np
import pytest
import torch

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.patterns import local_mask
from attnprobe.errors import InputError
from attnprobe.mask_figures import map_gallery, reach_picture

NAMES = ["the", "cat", "sat", "down"]


def test_each_panel_is_the_map_of_its_mechanism_under_the_mask():
    query, key = torch.randn(2, 4, 8, dtype=torch.float64)
    panels = map_gallery(
        ["scaled_dot", Mechanism.of("top_k", k=2), "lsh"], query, key, visible=causal_mask(4), tokens=NAMES
    )
    assert [axes.get_title(loc="left") for axes in panels] == ["scaled_dot", "top_k, k=2", "lsh"]
    shown = [np.asarray(axes.collections[0].get_array()).reshape(4, 4) for axes in panels]
    expected = torch.softmax((query @ key.T / 8**0.5).masked_fill(~causal_mask(4), -torch.inf), -1)
    np.testing.assert_allclose(shown[0], expected, atol=1e-12)
    assert ((shown[1] > 0).sum(1) <= 2).all() and all((one[~causal_mask(4).numpy()] == 0).all() for one in shown)
    assert [text.get_text() for text in panels[0].get_xticklabels()] == NAMES
    assert {axes.collections[0].get_clim() for axes in panels} == {(0, 1)}


def test_weights_below_zero_have_the_other_colour():
    (axes,) = map_gallery(["linformer"], *torch.randn(2, 4, 8))
    assert axes.collections[0].get_clim() == (-1, 1)


def test_a_mask_that_a_mechanism_cannot_keep_is_refused():
    with pytest.raises(InputError, match="'nystrom' takes no mask"):
        map_gallery(["nystrom"], *torch.randn(2, 4, 8), visible=causal_mask(4))
    with pytest.raises(InputError, match=r"on one query \[token d_head\]"):
        map_gallery(["hard"], *torch.randn(2, 1, 4, 8))


def test_a_hundred_tokens_have_round_numbers_at_their_axes():
    axes = reach_picture(local_mask(100, 5))
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(10 * n) for n in range(10)]
