"""Edits of some heads under a mask of their own, and knock-outs where there are no scores."""

import pytest
import torch
from torch import Tensor

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.mechanisms import Mechanism, mechanisms
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.errors import EditError
from attnprobe.intervention import knock_out, permute, replace_weights, silence_head, uniform
from attnprobe.site import Site

N = 6
MASKED = [name for name in mechanisms if "visible" in mechanisms[name].options]


def seen(attention: MultiHeadAttention, x: Tensor, *edits, visible: Tensor | None = None) -> Site:
    with recording(Tape(edits, keep=Keep.of("query", "key", "value", "weights", "z", "scores"))) as tape:
        attention(x, visible=visible)
    return tape.sites[0]


def own_masks() -> Tensor:
    """[1 head query key]: head 0 sees all, head 1 no key from 3 on, head 2 the last two alone."""
    visible = torch.ones(1, 3, N, N, dtype=torch.bool)
    visible[0, 1, :, 3:] = False
    visible[0, 2, :, :4] = False
    return visible


@pytest.mark.parametrize("heads", [1, [1], [2, 1]])
def test_the_even_share_of_a_head_is_that_of_its_own_mask(heads):
    attention, x, visible = MultiHeadAttention(9, 3).double(), torch.randn(2, N, 9).double(), own_masks()
    plain = seen(attention, x, visible=visible)
    site = seen(attention, x, uniform(heads=heads), visible=visible)
    for head in range(3):
        chosen = head in ([heads] if isinstance(heads, int) else heads)
        keys = visible[0, head].double()
        expected = keys / keys.sum(-1, keepdim=True) if chosen else plain.weights[0, head]
        assert (site.weights[0, head] - expected).abs().max() < 1e-12


@pytest.mark.parametrize("heads", [1, [2, 1]])
def test_weights_of_a_head_are_shuffled_among_its_own_keys(heads):
    attention, x, visible = MultiHeadAttention(9, 3).double(), torch.randn(1, N, 9).double(), own_masks()
    plain, site = (seen(attention, x, *edits, visible=visible) for edits in ((), (permute(seed=0, heads=heads),)))
    assert site.weights.masked_select(~visible).eq(0).all()
    assert torch.equal(site.weights[:, 0], plain.weights[:, 0])
    assert torch.equal(site.weights.sort(-1).values, plain.weights.sort(-1).values)
    assert not torch.equal(site.weights[:, 1], plain.weights[:, 1])


# ------------------------------------------------------------------------------------------------ knock-outs


@pytest.mark.parametrize("name", MASKED)
def test_a_knock_out_asks_a_mechanism_again_without_the_key(name: str):
    """As if the key were not there, for this query alone."""
    attention, x = MultiHeadAttention(8, 2, mechanism=name).double(), torch.randn(1, N, 8).double()
    plain = seen(attention, x)
    best = int(plain.weights[0, 0, 2].argmax())
    site = seen(attention, x, knock_out(2, best, heads=0))
    left = [key for key in range(N) if key != best]
    mechanism = Mechanism.of(name)
    expected = mechanism.weights(plain.query[0, 0, 2:3], plain.key[0, 0, left])[0]
    assert site.weights[0, 0, 2, best] == 0
    assert (site.weights[0, 0, 2, left] - expected).abs().max() < 1e-10
    assert torch.equal(site.weights[0, 1], plain.weights[0, 1])
    assert (site.weights @ site.value - site.z).abs().max() < 1e-12


def test_one_knock_out_after_the_other_and_in_rows_of_a_batch():
    attention, x = MultiHeadAttention(8, 2, mechanism="hard").double(), torch.randn(1, N, 8).double()
    order = (seen(attention, x).query @ seen(attention, x).key.mT)[0, 0, 2].argsort(descending=True).tolist()
    cut = [knock_out(2, key, heads=0) for key in order[:3]]
    site = seen(attention, x, *cut)
    assert site.weights[0, 0, 2].nonzero().flatten().tolist() == [order[3]]
    rows = [[], cut[:1], cut[:2]]
    with recording(Tape(row_edits=rows, n_rows=3, keep=Keep.of("weights"))) as tape:
        attention(x.repeat(3, 1, 1))
    assert tape.sites[0].weights[:, 0, 2].argmax(-1).tolist() == order[:3]


def test_a_knock_out_keeps_to_the_mask_of_the_pass():
    attention, x = MultiHeadAttention(8, 2, mechanism="linear").double(), torch.randn(1, N, 8).double()
    visible = causal_mask(N)
    plain, site = (seen(attention, x, *edits, visible=visible) for edits in ((), (knock_out(4, 1),)))
    expected = plain.weights[0, :, 4].clone()
    expected[:, 1] = 0
    expected = expected / expected.sum(-1, keepdim=True)
    assert (site.weights[0, :, 4] - expected).abs().max() < 1e-12
    assert site.weights.masked_select(~visible).eq(0).all()


@pytest.mark.parametrize("name", [name for name in mechanisms if name not in MASKED])
def test_a_mechanism_that_takes_no_mask_says_why_no_key_can_be_cut(name: str):
    attention, x = MultiHeadAttention(8, 2, mechanism=name), torch.randn(1, N, 8)
    with pytest.raises(EditError, match=rf"asks the mechanism again with a mask, and '{name}' takes no mask"):
        seen(attention, x, knock_out(2, 1))


def test_weights_that_an_edit_put_there_hand_on_their_mass_or_are_refused():
    attention, x = MultiHeadAttention(8, 2).double(), torch.randn(1, N, 8).double()
    given = torch.rand(2, N, N).double()
    site = seen(attention, x, replace_weights(0, given), knock_out(2, 1))
    left = given[:, 2].clone()
    left[:, 1] = 0
    expected = left * (given[:, 2].sum(-1) / left.sum(-1))[:, None]
    assert (site.weights[0, :, 2] - expected).abs().max() < 1e-12
    one_hot = torch.zeros(2, N, N).double()
    one_hot[..., 1] = 1
    with pytest.raises(EditError, match="put all weight of 2 queries on what is cut"):
        seen(attention, x, replace_weights(0, one_hot), knock_out(2, 1))
    silent = seen(attention, x, silence_head(0, [0, 1]), knock_out(2, 1))  # no mass, nothing to hand on
    assert silent.weights.eq(0).all() and silent.z.eq(0).all()


def test_what_is_captured_holds_none_of_the_tensors_it_was_made_of():
    attention, x = MultiHeadAttention(8, 2, mechanism="hard"), torch.randn(1, N, 8)
    with recording(Tape(keep=Keep.of("weights"))) as tape:
        attention(x)
    assert not hasattr(tape.sites[0].normalizer, "source")
