"""Masks: who may look where, and what happens to a query that may look nowhere."""

import warnings

import pytest
import torch

from attnprobe.attention.masks import (
    BlindRowsWarning,
    blind_rows,
    causal_mask,
    expecting_blind_rows,
    padding_mask,
    to_visible,
)
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.scores import scaled_dot_product_attention
from attnprobe.errors import InputError


def test_a_causal_mask_is_the_lower_triangle_and_ends_at_the_last_key():
    assert torch.equal(causal_mask(5), torch.ones(5, 5).tril().bool())
    assert torch.equal(causal_mask(2, 5), causal_mask(5)[-2:])
    with pytest.raises(InputError, match="at least as many keys"):
        causal_mask(3, 2)


def test_causal_and_padding_masks_combine_with_and():
    both = causal_mask(3) & padding_mask(torch.tensor([[True, True, False], [True, True, True]]))
    assert both.shape == (2, 1, 3, 3)
    assert both[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    assert torch.equal(both[1, 0], causal_mask(3))


def test_a_fully_masked_row_is_zeros_and_flagged_and_its_gradients_are_finite():
    query, key, value = (torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    visible = torch.tensor([[True, False, False], [False, False, False], [True, True, True]])
    scores, weights, z = scaled_dot_product_attention(query, key, value, visible=visible)
    assert blind_rows(visible).tolist() == [False, True, False]
    assert weights[0, 1].tolist() == [0.0, 0.0, 0.0]
    assert z[0, 1].tolist() == [0.0] * 4
    assert torch.allclose(weights.sum(-1), torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64))
    gradients = torch.autograd.grad(z.square().sum() + weights.square().sum(), (query, key, value))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert gradients[0][0, 1].tolist() == [0.0] * 4
    assert torch.isneginf(scores[0, 1]).all()


def test_a_module_warns_once_a_call_of_rows_that_may_look_at_nothing():
    attention = MultiHeadAttention(8, 2)
    visible = torch.ones(3, 3, dtype=torch.bool)
    visible[1] = False
    with pytest.warns(BlindRowsWarning, match="1 of 3 query rows") as caught:
        out = attention(torch.randn(2, 3, 8), visible=visible)
    assert len(caught) == 1
    assert torch.equal(out[0, 1], attention.output.bias)


def test_rows_that_were_meant_to_look_at_nothing_are_not_warned_of():
    with warnings.catch_warnings(), expecting_blind_rows():
        warnings.simplefilter("error")
        MultiHeadAttention(8, 2)(torch.randn(1, 3, 8), visible=torch.zeros(3, 3, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (1, 3, 4), (2, 1, 1, 4), (2, 5, 3, 4), (1, 1)])
def test_a_mask_of_two_to_four_axes_fits(shape: tuple[int, ...]):
    visible = to_visible(torch.ones(shape, dtype=torch.bool), (2, 5, 3, 4))
    assert visible is not None
    assert visible.shape[-1] == 4
    assert visible.ndim == 4


def test_a_mask_that_does_not_fit_or_is_not_boolean_is_refused():
    with pytest.raises(InputError, match="does not fit"):
        to_visible(torch.ones(3, 5, dtype=torch.bool), (2, 5, 3, 4))
    with pytest.raises(InputError, match="does not fit"):
        to_visible(torch.ones(4, dtype=torch.bool), (2, 5, 3, 4))
    with pytest.raises(InputError, match="boolean"):
        to_visible(torch.zeros(3, 4), (2, 5, 3, 4))
    with pytest.raises(InputError, match=r"\[batch key\]"):
        padding_mask(torch.ones(3))
