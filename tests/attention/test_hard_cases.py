"""Masks with a batch axis, infinite and NaN numbers, half precision, equal scores: right, or refused by name."""

import math

import pytest
import torch
from torch import Tensor

from attnprobe.attention.approximation import error_to_full
from attnprobe.attention.cache import grouped_query_attention
from attnprobe.attention.indices import numbers
from attnprobe.attention.masks import causal_mask
from attnprobe.attention.mechanisms import Mechanism, mechanisms
from attnprobe.attention.mechanisms.linear import elu_features
from attnprobe.attention.mechanisms.linformer import drawn_projection
from attnprobe.attention.mechanisms.online import rows_of_weights, stream
from attnprobe.attention.memory import nearest
from attnprobe.attention.normalizers import entmax15, hard, softmax, sparsemax
from attnprobe.attention.patterns import block_mask
from attnprobe.attention.positions.shaw import ShawPositions, shaw_attention
from attnprobe.attention.retrieval import Index
from attnprobe.attention.sampling import draw, gumbel, gumbel_softmax, sampled
from attnprobe.errors import InputError, NumericsError

NAMES = list(mechanisms)
MASKED = [name for name in NAMES if "visible" in mechanisms[name].options]


def inputs(name: str, *batch: int, n: int = 6, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    query, key, value = (torch.randn(*batch, n, 4, dtype=dtype) for _ in range(3))
    return [key.clone() if name == "lsh" else query, key, value]


# ------------------------------------------------------------------------------------------------ masks and biases


def of_rows() -> Tensor:
    """[batch query key] with as many rows as heads: row 0 sees the first three keys alone, row 1 all."""
    visible = torch.ones(2, 6, 6, dtype=torch.bool)
    visible[0, :, 3:] = False
    return visible


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_of_batch_rows_is_one_of_batch_rows_with_as_many_heads(name: str):
    query, key, value = inputs(name, 2, 2)
    visible, mechanism = of_rows(), Mechanism.of(name)
    weights, z = mechanism.weights(query, key, visible), mechanism.z(query, key, value, visible)
    for row in range(2):
        for head in range(2):
            alone = mechanism.weights(query[row, head], key[row, head], visible[row])
            assert (weights[row, head] - alone).abs().max() < 1e-12
    assert weights[0, :, :, 3:].eq(0).all() and (weights @ value - z).abs().max() < 1e-12


def test_shared_heads_and_relative_positions_read_such_a_mask_alike():
    query, key, value = inputs("", 2, 2)
    assert grouped_query_attention(query, key, value, visible=of_rows()).weights[0, :, :, 3:].eq(0).all()
    one, two = key[:, :1], value[:, :1]
    found = grouped_query_attention(query, one, two, visible=of_rows()[:, None].repeat(1, 2, 1, 1))
    assert found.weights[0, :, :, 3:].eq(0).all() and found.weights[1, :, :, 3:].gt(0).all()
    tables = (table.detach().double() for table in ShawPositions(2, 4)(6))
    weights = shaw_attention(query, key, value, *tables, visible=of_rows()).weights
    assert weights[0, :, :, 3:].eq(0).all() and weights[1, :, :, 3:].gt(0).all()


def test_a_bias_that_may_be_of_rows_or_of_heads_is_refused():
    query, key, _ = inputs("", 2, 2)
    for name in ("scaled_dot", "online", "hard", "top_k"):
        with pytest.raises(InputError, match="may be of heads or of batch rows"):
            Mechanism.of(name).weights(query, key, bias=torch.zeros(2, 6, 6).double())
    of_heads = torch.randn(3, 6, 6).double()  # three heads, two rows: no doubt
    query, key, _ = inputs("", 2, 3)
    whole = Mechanism.of("scaled_dot").weights(query, key, bias=of_heads[None])
    assert torch.equal(Mechanism.of("scaled_dot").weights(query, key, bias=of_heads), whole)


def test_relative_positions_heed_their_scale():
    query, key, value = inputs("", 1, 1, n=3)
    keys, values = (table.detach().double() for table in ShawPositions(1, 4)(3))
    found = shaw_attention(query, key, value, keys, values, scale=0.25).weights[0, 0]
    for i in range(3):
        raised = [math.exp(0.25 * float(query[0, 0, i] @ (key[0, 0, j] + keys[i, j]))) for j in range(3)]
        assert (found[i] - torch.tensor(raised, dtype=torch.float64) / sum(raised)).abs().max() < 1e-12


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 3e38])
@pytest.mark.parametrize("name", [name for name in MASKED if name != "hopfield"])
def test_what_stands_at_a_hidden_key_does_not_matter(name: str, bad: float):
    query, key, value = inputs(name, 2, dtype=torch.float32)
    visible = causal_mask(6).clone()
    visible[:, 2], visible[:, 0] = False, True
    mechanism = Mechanism.of(name)
    weights, z = mechanism.weights(query, key, visible), mechanism.z(query, key, value, visible)
    key[:, 2] = bad
    assert torch.equal(mechanism.weights(query, key, visible), weights)
    assert torch.equal(mechanism.z(query, key, value, visible), z)


def test_scores_of_half_precision_may_overflow_where_they_are_hidden():
    query, key, value = torch.full((1, 3, 64), 60.0).half(), torch.randn(1, 3, 64).half(), torch.randn(1, 3, 2).half()
    key[:, 1] = 300
    visible = torch.tensor([[True, False, True]]).expand(3, 3)
    z = Mechanism.of("scaled_dot").z(query, key, value, visible)
    assert z.isfinite().all()
    assert (z - Mechanism.of("scaled_dot").weights(query, key, visible) @ value).abs().max() < 1e-2


# ------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("base", [1e3, 1e5, 1e6])
def test_large_scores_that_are_nearly_tied_keep_their_weights(base: float):
    key = torch.stack([torch.full((50,), base), torch.randn(50)], -1)
    query, value = torch.ones(1, 2), torch.randn(50, 3)
    scores = (query.double() * 2**-0.5 @ key.double().T).float()  # what float32 can say of them
    expected = torch.softmax(scores.double(), -1)
    weights = Mechanism.of("online", block_size=16).weights(query, key)
    _, lse = stream(query, key, value)
    assert abs(float(weights.sum()) - 1) < 1e-5
    assert abs(float(rows_of_weights(query, key, lse, 0).sum()) - 1) < 1e-5
    step = base * 2.0**-22  # a rounding of a score
    assert (weights.double() / expected - 1).abs().max() < 4 * step + 1e-5


def test_gradients_of_large_scores_are_softmaxs():
    key = torch.stack([torch.full((20,), 3e4), torch.randn(20)], -1).requires_grad_()
    query, value = torch.ones(1, 2), torch.randn(20, 3)
    direction = torch.randn(1, 3)
    (got,) = torch.autograd.grad((Mechanism.of("online", block_size=8).z(query, key, value) * direction).sum(), key)
    weights = torch.softmax((query * 2**-0.5) @ key.T, -1)
    (want,) = torch.autograd.grad((weights @ value * direction).sum(), key)
    assert (got - want).abs().max() < 1e-5 * max(1.0, float(want.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_near_to_double(name: str, dtype: torch.dtype):
    tensors = [tensor.to(dtype) for tensor in inputs(name, 1, 2, n=9)]
    tensors[0] = tensors[1].clone() if name == "lsh" else tensors[0]
    mechanism, wide = Mechanism.of(name), [tensor.double() for tensor in tensors]
    weights, z = mechanism.weights(*tensors[:2]), mechanism.z(*tensors)
    assert weights.dtype == z.dtype == dtype
    off = 0.02 if dtype == torch.float16 else 0.15
    size = max(1.0, float(mechanism.weights(*wide[:2]).abs().max()))
    assert (weights.double() - mechanism.weights(*wide[:2])).abs().max() < off * size
    assert (z.double() - mechanism.z(*wide)).abs().max() < 3 * off * size


def test_long_vectors_of_half_precision_are_summed_in_float32_or_refused():
    query, key, value = (
        (torch.randn(1, 64, 64) * 100).half(),
        (torch.randn(1, 64, 64) * 100).half(),
        torch.randn(1, 64, 2),
    )
    z = Mechanism.of("linear").z(query, key, value.half())
    products = elu_features(query.double()) @ elu_features(key.double()).mT
    expected = products / products.sum(-1, keepdim=True) @ value.half().double()
    assert (z.double() - expected).abs().max() < 2e-3
    for bad in (math.nan, math.inf, 1e30):
        with pytest.raises(NumericsError, match=r"sum to 0, infinity or NaN"):
            Mechanism.of("linear").z(torch.full((1, 2, 4), bad), torch.full((1, 2, 4), bad), torch.ones(1, 2, 1))


def test_landmarks_that_are_nearly_alike_still_give_softmax_where_each_token_is_one():
    """The middle map has a condition number of some 1e8: a coarser inverse, or one in float32, is far off."""
    base = torch.randn(1, 4, dtype=torch.float64)
    x = base + 1e-2 * torch.randn(6, 4, dtype=torch.float64)
    assert torch.linalg.cond(torch.softmax(x @ x.mT / 2, -1)) > 1e6
    value = torch.randn(6, 3, dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(x[None], x[None], value[None])[0]
    assert (Mechanism.of("nystrom").z(x, x, value) - expected).abs().max() < 1e-7
    # With fewer landmarks than tokens the inverse counts in full: against numpy's, in a longer text.
    x = base + torch.randn(40, 4, dtype=torch.float64) * 0.3
    marks = x.reshape(8, 5, 4).mean(1)
    first, middle, last = (torch.softmax(a @ b.mT / 2, -1) for a, b in ((x, marks), (marks, marks), (marks, x)))
    u, s, v = torch.linalg.svd(middle)
    kept = s > 1e-12 * s[0]
    slow = first @ (v.mH[:, kept] / s[kept]) @ u.mH[kept] @ last
    assert (Mechanism.of("nystrom", n_landmarks=8).weights(x, x) - slow).abs().max() < 1e-6 * float(slow.abs().max())


def test_of_equal_scores_the_first_count():
    query, key = torch.zeros(1, 4), torch.zeros(300, 4)
    for name, n in (("top_k", 4), ("hard", 1), ("nearest", 4)):
        weights = Mechanism.of(name).weights(query, key)
        assert weights.nonzero()[:, 1].tolist() == list(range(n))


def test_a_longer_text_is_projected_by_the_same_columns():
    for short, long in ((7, 8), (64, 65), (63, 300)):
        assert torch.equal(drawn_projection(long, 5, 3)[:, :short], drawn_projection(short, 5, 3))
    assert not torch.equal(drawn_projection(8, 5, 3), drawn_projection(8, 5, 4))
    E = torch.randn(3, 9).double()
    query, key, value = inputs("")
    longer = Mechanism.of("linformer", E=E)
    assert torch.equal(longer.z(query, key, value), Mechanism.of("linformer", E=E[:, :6]).z(query, key, value))


def test_rows_with_nan_stay_nan_and_the_others_as_they_are():
    scores = torch.tensor([[0.3, math.nan, 1.0], [0.5, 0.0, -1.0]])
    for normalizer in (softmax, sparsemax, entmax15, hard):
        weights = normalizer(scores)
        assert weights[0].isnan().any() and torch.equal(weights[1], normalizer(scores[1:])[0])


def test_nothing_is_drawn_or_found_by_numbers_that_are_none():
    bad, key, value = torch.tensor([[math.nan, 1.0]]), torch.eye(2), torch.ones(2, 1)
    for ask in (
        lambda: draw(bad),
        lambda: nearest(bad, key, value),
        lambda: Index(key).search(bad, 1),
        lambda: Mechanism.of("nearest").weights(bad, key),
    ):
        with pytest.raises(NumericsError, match="NaN"):
            ask()


# ------------------------------------------------------------------------------------------------ chance


@pytest.mark.parametrize("normalizer", [sampled(3), gumbel(3), gumbel(3, hard=True)], ids=lambda n: n.name)
def test_rows_of_a_batch_are_drawn_as_each_would_be_alone(normalizer):
    scores = torch.randn(1, 2, 5, 7, dtype=torch.float64)
    alone, together = normalizer(scores), normalizer(scores.repeat(4, 1, 1, 1))
    assert all(torch.equal(row, alone[0]) for row in together)
    heads = together[0]
    assert not torch.equal(heads[0], heads[1])


def test_keys_are_drawn_as_often_as_softmax_says():
    n, scores = 4000, torch.tensor([0.0, 1.0, -1.5, -torch.inf])
    drawn = torch.stack([sampled(seed)(scores.expand(1, 1, 4, 4))[0, 0] for seed in range(n // 4)]).flatten(0, 1)
    expected = scores.double().softmax(-1)
    spread = (expected * (1 - expected) / n).sqrt()
    assert ((drawn.double().mean(0) - expected).abs() <= 4 * spread).all()


def test_noise_reaches_as_low_as_gumbels_law_says():
    """ln w of equal scores is the noise but for a constant; of n draws the lowest lies near -ln ln n."""
    logs = gumbel_softmax(
        torch.zeros(1, 200_000, dtype=torch.float64), generator=torch.Generator().manual_seed(0)
    ).log()
    median = -math.log(math.log(2))
    assert abs(float(logs.min() - logs.median()) - (-math.log(math.log(200_000)) - median)) < 0.2


# ------------------------------------------------------------------------------------------------ options and shapes


def test_masks_are_no_options_and_options_are_given_once():
    mask = causal_mask(6)
    for ask in (
        lambda: Mechanism.of("scaled_dot", visible=mask),
        lambda: Mechanism.of("online", bias=mask.double()),
        lambda: Mechanism.of("online", visible=None),
    ):
        with pytest.raises(InputError, match=r"is no option: it goes with a query and a key"):
            ask()
    chosen = Mechanism.of("top_k", k=1)
    assert Mechanism.of(chosen) is chosen and repr(chosen) == "Mechanism.of('top_k', k=1)"
    for options in ({"k": 3}, {"nonsense": 3}):
        with pytest.raises(InputError, match="has its options already"):
            Mechanism.of(chosen, **options)
    with pytest.raises(InputError, match=r"'hard' has no option 'causal'; known: \(none\)"):
        Mechanism.of("hard", causal=True)
    with pytest.raises(InputError, match="here it is 'favor'"):
        Mechanism.of("Performer")
    with pytest.raises(InputError, match=r"Mechanism.of\('scaled_dot', normalizer='sparsemax'\)"):
        Mechanism.of("sparsemax")


def test_the_error_to_full_attention_heeds_a_mask():
    query, key, value = inputs("")
    assert error_to_full("online", query, key, value, visible=causal_mask(6))["weights_max"] < 1e-12
    both = error_to_full("uniform", query, key, value, visible=causal_mask(6))["weights_max"]
    full = torch.softmax((query @ key.T / 2).masked_fill(~causal_mask(6), -torch.inf), -1)
    even = causal_mask(6).double() / torch.arange(1, 7)[:, None]
    assert abs(both - float((full - even).abs().max())) < 1e-12
    with pytest.raises(InputError, match="has its options already"):
        error_to_full(Mechanism.of("favor"), query, key, value, n_features=8)


@pytest.mark.parametrize("name", NAMES)
def test_one_value_a_key_is_needed_and_one_key_or_more(name: str):
    query, key, value = inputs(name)
    mechanism = Mechanism.of(name)
    for wrong in (value[:5], torch.cat([value, value[:1]])):
        with pytest.raises(InputError, match="one value a key is needed"):
            mechanism.z(query, key, wrong)
    with pytest.raises(InputError, match="one key or more"):
        mechanism.weights(query[:0] if name == "lsh" else query, key[:0])


def test_rows_of_compressed_memories_sum_to_what_their_options_say():
    sums = {"one": {}, "at_most_one": {"causal": True}, "any": {"kernel": torch.ones(3)}}
    assert {Mechanism.of("memory_compressed", **options).row_sum: options for options in sums.values()} == sums


def test_a_layout_of_blocks_is_boolean():
    with pytest.raises(InputError, match="a layout is boolean"):
        block_mask(torch.ones(2, 2, dtype=torch.uint8), 2)


@pytest.mark.parametrize("given", ["ab", "1", True, [True], [0.5], 1.0])
def test_what_is_no_number_of_a_head_is_refused(given):
    with pytest.raises(InputError, match="a head is a whole number, several in a list, None for all heads"):
        numbers(given, "head")


def test_no_head_at_all_is_refused():
    with pytest.raises(InputError, match="got no head"):
        numbers([], "head")
