"""Our attention against torch's own, and the identities that the heads keep."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnprobe.attention.masks import causal_mask, padding_mask
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.scores import scaled_dot_product_attention, scaled_dot_scores
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.errors import EditError, InputError
from attnprobe.intervention import silence_head
from attnprobe.site import Site

PRECISIONS = [(torch.float32, 1e-6), (torch.float64, 1e-12)]
MASKS = ["none", "causal", "padding", "causal and padding"]
IS_TOKEN = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
D_MODEL, N_HEADS, N_TOKENS = 12, 3, 5


def mask_of(name: str) -> Tensor | None:
    causal, padding = causal_mask(N_TOKENS), padding_mask(IS_TOKEN)
    return {"none": None, "causal": causal, "padding": padding, "causal and padding": causal & padding}[name]


def twins(dtype: torch.dtype, d_context: int = D_MODEL) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Our module and torch's with the same parameters, biases not zero."""
    ours = MultiHeadAttention(D_MODEL, N_HEADS, d_context=d_context).to(dtype)
    theirs = nn.MultiheadAttention(
        D_MODEL, N_HEADS, kdim=d_context, vdim=d_context, batch_first=True, dtype=dtype
    ).requires_grad_(False)
    projections = (ours.query, ours.key, ours.value)
    if d_context == D_MODEL:
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
    else:
        theirs.q_proj_weight.copy_(ours.query.weight)
        theirs.k_proj_weight.copy_(ours.key.weight)
        theirs.v_proj_weight.copy_(ours.value.weight)
    theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
    theirs.out_proj.weight.copy_(ours.output.weight)
    theirs.out_proj.bias.copy_(ours.output.bias)
    return ours, theirs.requires_grad_(True)


def recorded(module: MultiHeadAttention, *args: Tensor, **options: Tensor | None) -> tuple[Tensor, Site]:
    tape = Tape(keep=Keep.of("query", "key", "value", "scores", "weights", "z"), differentiable=True)
    with recording(tape):
        out = module(*args, **options)
    return out, tape.sites[0]


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("mask", MASKS)
def test_attention_equals_torch_multihead_attention_with_copied_parameters(mask: str, dtype, tolerance: float):
    ours, theirs = twins(dtype)
    x = torch.randn(2, N_TOKENS, D_MODEL, dtype=dtype, requires_grad=True)
    out, site = recorded(ours, x, visible=mask_of(mask))
    reference, weights = theirs(
        x,
        x,
        x,
        attn_mask=~causal_mask(N_TOKENS) if "causal" in mask else None,
        key_padding_mask=~IS_TOKEN if "padding" in mask else None,
        average_attn_weights=False,
    )
    assert (out - reference).abs().max() < tolerance
    assert (site.weights - weights).abs().max() < tolerance
    direction = torch.randn_like(out)
    got = torch.autograd.grad((out * direction).sum(), [x, *(p.weight for p in (ours.query, ours.key, ours.value))])
    want = torch.autograd.grad((reference * direction).sum(), [x, theirs.in_proj_weight])
    scale = max(1.0, float(want[1].abs().max()))
    assert (got[0] - want[0]).abs().max() < tolerance * scale
    assert (torch.cat(got[1:]) - want[1]).abs().max() < tolerance * scale


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_cross_attention_equals_torch_multihead_attention_with_copied_parameters(dtype, tolerance: float):
    ours, theirs = twins(dtype, d_context=7)
    x, context = torch.randn(2, 4, D_MODEL, dtype=dtype), torch.randn(2, N_TOKENS, 7, dtype=dtype, requires_grad=True)
    out, site = recorded(ours, x, context, visible=padding_mask(IS_TOKEN))
    reference, weights = theirs(x, context, context, key_padding_mask=~IS_TOKEN, average_attn_weights=False)
    assert site.place.kind == "cross"
    assert (out - reference).abs().max() < tolerance
    assert (site.weights - weights).abs().max() < tolerance
    (got,) = torch.autograd.grad(out.square().sum(), context)
    (want,) = torch.autograd.grad(reference.square().sum(), context)
    assert (got - want).abs().max() < tolerance * max(1.0, float(want.abs().max()))


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("biased", [False, True])
def test_attention_equals_torch_scaled_dot_product_attention(mask: str, biased: bool, dtype, tolerance: float):
    query, key, value = (torch.randn(2, 3, N_TOKENS, 4, dtype=dtype, requires_grad=True) for _ in range(3))
    visible, bias = mask_of(mask), torch.randn(3, N_TOKENS, N_TOKENS, dtype=dtype) if biased else None
    z = scaled_dot_product_attention(query, key, value, visible=visible, bias=bias).z
    shift = torch.zeros(2, 3, N_TOKENS, N_TOKENS, dtype=dtype) if bias is None else bias.expand(2, -1, -1, -1)
    hidden = shift if visible is None else shift.masked_fill(~visible, -torch.inf)
    reference = F.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
    assert (z - reference).abs().max() < tolerance
    got = torch.autograd.grad(z.square().sum(), (query, key, value))
    want = torch.autograd.grad(reference.square().sum(), (query, key, value))
    assert all((a - b).abs().max() < tolerance * max(1.0, float(b.abs().max())) for a, b in zip(got, want, strict=True))


def test_a_score_bias_is_added_to_the_scores_untouched_by_the_scale():
    attention, x, bias = MultiHeadAttention(D_MODEL, N_HEADS), torch.randn(2, 5, D_MODEL), torch.randn(3, 5, 5)
    _, plain = recorded(attention, x)
    _, biased = recorded(attention, x, score_bias=bias)
    assert torch.allclose(biased.scores - plain.scores, bias.expand(2, -1, -1, -1), atol=1e-6)


def test_attention_by_hand():
    """Two tokens, one head: the formula with loops."""
    query, key, value = (torch.randn(2, 3, dtype=torch.float64) for _ in range(3))
    z = scaled_dot_product_attention(query, key, value).z
    for i in range(2):
        raised = [math.exp(float(query[i] @ key[j]) / math.sqrt(3)) for j in range(2)]
        by_hand = sum(e * value[j] for j, e in enumerate(raised)) / sum(raised)
        assert torch.allclose(z[i], by_hand, atol=1e-14)


def test_the_scale_keeps_the_variance_of_gaussian_scores_at_one():
    scores = scaled_dot_scores(torch.randn(200, 64), torch.randn(200, 64))
    assert abs(float(scores.var()) - 1) < 0.05


def test_one_head_equals_single_attention():
    attention = MultiHeadAttention(6, 1, bias=False).double()
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    single = scaled_dot_product_attention(attention.query(x), attention.key(x), attention.value(x)).z
    assert (attention(x) - attention.output(single)).abs().max() < 1e-14


def test_the_output_is_the_sum_of_what_each_head_adds():
    attention, x = MultiHeadAttention(D_MODEL, N_HEADS).double(), torch.randn(2, 5, D_MODEL, dtype=torch.float64)
    out, site = recorded(attention, x)
    added = attention.head_outputs(site.z)
    assert (added.sum(1) + attention.output.bias - out).abs().max() < 1e-14
    slow = torch.stack([site.z[:, h] @ attention.output.weight[:, 4 * h : 4 * h + 4].T for h in range(N_HEADS)], 1)
    assert (added - slow).abs().max() < 1e-14


def test_a_silenced_head_is_missing_from_the_output_and_nothing_else():
    attention, x = MultiHeadAttention(D_MODEL, N_HEADS).double(), torch.randn(2, 5, D_MODEL, dtype=torch.float64)
    out, site = recorded(attention, x)
    with recording(Tape(edits=[silence_head(0, 1)])):
        without = attention(x)
    assert (out - without - attention.head_outputs(site.z)[:, 1]).abs().max() < 1e-14
    with pytest.raises(EditError, match="never fired"), recording(Tape(edits=[silence_head(7, 1)])):
        attention(x)


@pytest.mark.parametrize("mask", MASKS)
def test_the_site_holds_what_the_module_used(mask: str):
    attention, x = MultiHeadAttention(D_MODEL, N_HEADS), torch.randn(2, N_TOKENS, D_MODEL)
    out, site = recorded(attention, x, visible=mask_of(mask))
    assert torch.allclose(site.weights.sum(-1), torch.ones(2, N_HEADS, N_TOKENS))
    assert torch.equal(site.weights @ site.value, site.z)
    assert torch.equal(attention(x, visible=mask_of(mask)), out)
    if mask != "none":
        assert (site.weights.masked_select(~mask_of(mask)) == 0).all()


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(InputError, match="10 is not divisible by n_heads = 3"):
        MultiHeadAttention(10, 3)
    assert MultiHeadAttention(10, 3, d_head=4, d_value=5)(torch.randn(1, 2, 10)).shape == (1, 2, 10)
