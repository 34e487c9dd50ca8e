"""Online softmax against torch's own attention: the same z, gradients and weights, in memory linear in the tokens."""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attnprobe.attention.mechanisms import Mechanism, mechanisms
from attnprobe.attention.mechanisms.online import online, online_weights, rows_of_weights, stream
from attnprobe.errors import InputError

BLOCK_SIZES = [1, 2, 3, 5, 7, 64]
N_QUERIES, N_KEYS, D_HEAD, D_VALUE = 5, 7, 4, 3
EXACT = 1e-13


def tensors(n_queries: int = N_QUERIES, n_keys: int = N_KEYS, batch: tuple[int, ...] = (2, 3)) -> list[Tensor]:
    shapes = [(n_queries, D_HEAD), (n_keys, D_HEAD), (n_keys, D_VALUE)]
    return [torch.randn(*batch, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def visible_mask(*batch: int) -> Tensor:
    """Random, with one query that sees nothing and one that sees nothing in its first blocks."""
    visible = torch.rand(*batch, N_QUERIES, N_KEYS) < 0.6
    visible[..., 1, :] = False
    visible[..., 2, :] = torch.arange(N_KEYS) == N_KEYS - 1
    visible[..., [0, 3, 4], 0] = True
    return visible


def lower_right(n_queries: int, n_keys: int) -> Tensor:
    """Causal, with the last query at the last key."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)


def plain_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q k / sqrt(d) + mask), by loops over batch, query and key in Python numbers."""
    shape = (*query.shape[:-1], key.shape[-2])
    added = torch.zeros(shape) if mask is None else mask.broadcast_to(shape)
    out = torch.zeros(shape, dtype=torch.float64)
    for at in torch.cartesian_prod(*(torch.arange(size) for size in shape[:-1])).tolist():
        head, row = tuple(at[:-1]), at[-1]
        scores = [
            math.fsum((query[head][row] * key[head][j]).tolist()) / math.sqrt(D_HEAD) + float(added[head][row, j])
            for j in range(shape[-1])
        ]
        top = max(scores)
        parts = [0.0 if score == -math.inf else math.exp(score - top) for score in scores]
        total = math.fsum(parts)
        out[head][row] = torch.tensor([part / (total or 1.0) for part in parts], dtype=torch.float64)
    return out


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("causal", [False, True])
def test_z_is_that_of_torch_for_every_block_size(block_size: int, causal: bool):
    query, key, value = tensors()
    mask = lower_right(N_QUERIES, N_KEYS) if causal else None
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    found = online(query, key, value, causal=causal, block_size=block_size)
    assert (found - expected).abs().max() < EXACT


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_masks_and_biases_of_any_fitting_shape_are_read_as_torch_reads_them(block_size: int):
    query, key, value = tensors()
    for shape in [(2, 3, N_QUERIES, N_KEYS), (3, 1, N_KEYS), (2, 1, N_QUERIES, 1), (N_QUERIES, N_KEYS), (N_KEYS,)]:
        bias = torch.randn(shape, dtype=torch.float64)
        visible = torch.rand(2, 1, N_QUERIES, N_KEYS) < 0.6
        visible[..., 0] = True
        mask = bias.masked_fill(~visible, -torch.inf)
        expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        found = online(query, key, value, visible=visible, bias=bias, block_size=block_size)
        assert (found - expected).abs().max() < EXACT


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_weights_are_softmax_of_scores_and_a_blind_query_has_zeros_and_no_nan(block_size: int):
    query, key, value = tensors(batch=(2,))
    visible = visible_mask(2)
    expected = plain_weights(query, key, torch.zeros(visible.shape).masked_fill(~visible, -torch.inf))
    weights = online_weights(query, key, visible=visible, block_size=block_size)
    z, lse = stream(query, key, value, visible=visible, block_size=block_size)
    assert (weights - expected).abs().max() < EXACT
    assert (z - expected @ value).abs().max() < EXACT
    assert torch.isneginf(lse[:, 1]).all() and torch.isfinite(lse[:, [0, 2, 3, 4]]).all()
    assert z[:, 1].abs().max() == 0 and weights[:, 1].abs().max() == 0


def test_lse_is_the_log_of_the_sum_of_exponentials_also_of_large_scores():
    query, key, value = (1000 * x for x in tensors(batch=()))
    scores = query @ key.T / math.sqrt(D_HEAD)
    found = stream(query, key, value, block_size=2)
    assert scores.max() > 1e5  # beyond the range of exp
    assert torch.allclose(found.lse, torch.logsumexp(scores, -1), rtol=1e-14)
    assert torch.isfinite(found.z).all()


@pytest.mark.parametrize("rows", [3, [4, 0], slice(1, 4), torch.tensor([2])])
@pytest.mark.parametrize("causal", [False, True])
def test_any_rows_of_the_map_come_back_from_the_stored_lse(rows: Any, causal: bool):
    query, key, value = tensors(batch=(2,))
    bias = torch.randn(2, 1, N_KEYS, dtype=torch.float64)
    ahead = torch.zeros(N_QUERIES, N_KEYS).masked_fill(~lower_right(N_QUERIES, N_KEYS), -torch.inf)
    lse = stream(query, key, value, bias=bias, causal=causal, block_size=2).lse
    found = rows_of_weights(query, key, lse, rows, bias=bias, causal=causal)
    expected = plain_weights(query, key, bias + ahead if causal else bias)[:, [rows] if isinstance(rows, int) else rows]
    assert (found - expected).abs().max() < EXACT


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_torch_with_masks_biases_and_blind_queries(block_size: int, causal: bool):
    query, key, value = tensors()
    for shape in [(2, 3, N_QUERIES, N_KEYS), (3, 1, N_KEYS), (1, N_QUERIES, 1)]:
        bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        visible = visible_mask(2, 1)
        seen = visible & lower_right(N_QUERIES, N_KEYS) if causal else visible
        not_blind = seen.any(-1, keepdim=True)
        scores = (query @ key.mT / math.sqrt(D_HEAD) + bias).masked_fill(~seen & not_blind, -torch.inf)
        expected = (torch.softmax(scores, -1) @ value).masked_fill(~not_blind, 0.0)
        found = online(query, key, value, visible=visible, bias=bias, causal=causal, block_size=block_size)
        push = torch.randn_like(expected)
        given = (query, key, value, bias)
        pairs = zip(torch.autograd.grad(found, given, push), torch.autograd.grad(expected, given, push), strict=True)
        assert all((a - b).abs().max() < EXACT for a, b in pairs)


def test_gradients_of_z_and_lse_and_their_gradients_are_the_slopes_of_the_numbers():
    query, key, value = tensors(3, 4, batch=())
    bias = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def both(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(stream(query, key, value, bias=bias, causal=True, block_size=2))

    assert torch.autograd.gradcheck(both, (query, key, value, bias))
    assert torch.autograd.gradgradcheck(both, (query, key, value, bias))


def test_the_gradient_of_z_by_a_value_is_the_weight():
    query, key, value = tensors(batch=())
    jacobian = torch.func.jacrev(lambda v: online(query, key, v, causal=True, block_size=3))(value)
    expected = torch.einsum("ij,ab->iajb", online_weights(query, key, causal=True), torch.eye(D_VALUE).double())
    assert (jacobian - expected).abs().max() < EXACT


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_full_precision(dtype: torch.dtype):
    """4096 equal weights of 1/4096 on ones: summed in half precision the total would stop growing long before."""
    query, key = torch.zeros(1, 4, dtype=dtype), torch.zeros(4096, 4, dtype=dtype)
    z, lse = stream(query, key, torch.ones(4096, 1, dtype=dtype), block_size=1)
    assert z.dtype is dtype and z.item() == 1.0
    assert abs(lse.item() - math.log(4096)) < 1e-5


class Largest(TorchDispatchMode):
    """The most numbers that any tensor had that an operation gave back."""

    def __init__(self) -> None:
        super().__init__()
        self.n_numbers = 0

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.n_numbers = max(self.n_numbers, tensor.numel())
        return out


@contextmanager
def counting_saved() -> Iterator[list[int]]:
    """How many numbers each tensor has that is kept for the backward pass."""
    sizes: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield sizes


def footprint(attention: Callable[[Tensor, Tensor, Tensor], Tensor], n: int) -> tuple[int, int]:
    """The largest tensor of a forward and a backward pass, and all that was kept between them."""
    query, key, value = tensors(n, n, batch=())
    with Largest() as largest, counting_saved() as saved:
        torch.autograd.grad(attention(query, key, value).sum(), (query, key, value))
    return largest.n_numbers, sum(saved)


def softmax_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT / math.sqrt(D_HEAD), -1) @ value


@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_of_all_queries_and_all_keys_is_formed_forward_or_backward(causal: bool):
    n, block_size = 192, 16
    largest, saved = footprint(lambda q, k, v: online(q, k, v, causal=causal, block_size=block_size), n)
    assert largest <= n * max(D_HEAD, block_size)
    assert saved <= n * (2 * D_HEAD + 2 * D_VALUE + 1)  # query, key, value, z and lse
    assert footprint(softmax_attention, n)[0] >= n * n  # what the counter sees of the plain formula
    assert footprint(softmax_attention, n)[1] >= n * n


def test_a_row_of_the_map_costs_a_row():
    n = 192
    query, key, value = (x.detach() for x in tensors(n, n, batch=()))
    lse = stream(query, key, value, causal=True, block_size=16).lse
    with Largest() as largest:
        rows_of_weights(query, key, lse, [7, 100], causal=True)
    assert largest.n_numbers <= n * D_HEAD


def test_blocks_that_lie_ahead_are_not_read():
    """A NaN in a key that no query of a block may see spoils nothing: it is skipped, not multiplied by zero."""
    query, key, value = (x.detach() for x in tensors(4, 4, batch=()))
    value[3] = torch.nan
    z = online(query, key, value, causal=True, block_size=1)
    assert torch.isfinite(z[:3]).all() and torch.isnan(z[3]).all()


def test_it_is_a_mechanism_by_name():
    mechanism = Mechanism.of("online", causal=True, block_size=2)
    query, key, value = tensors(4, 4)
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert "online" in mechanisms
    assert (mechanism.z(query, key, value) - expected).abs().max() < EXACT
    assert (mechanism.weights(query, key) @ value - expected).abs().max() < EXACT


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"block_size": 0}, "1 or more, got 0"),
        ({"visible": torch.zeros(N_QUERIES, N_KEYS)}, "numbers to be added go to bias"),
        ({"visible": torch.ones(N_KEYS, N_QUERIES, dtype=torch.bool)}, "does not broadcast to scores"),
        ({"bias": torch.ones(4, 1, 1)}, "does not broadcast to scores"),
        ({"value": torch.ones(2, 3, N_KEYS + 1, D_VALUE).double()}, "one value a key"),
        ({"key": torch.ones(2, 3, N_KEYS, D_HEAD + 1).double()}, "alike but in their tokens"),
        ({"causal": True, "query": torch.ones(2, 3, N_KEYS + 1, D_HEAD).double()}, "7 keys and 8 queries"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], message: str):
    given = dict(zip(("query", "key", "value"), tensors(), strict=True)) | changed
    with pytest.raises(InputError, match=message):
        inspect.unwrap(stream)(given.pop("query"), given.pop("key"), given.pop("value"), **given)  # without jaxtyping


def test_rows_that_are_not_there_are_refused():
    query, key, value = tensors(batch=())
    with pytest.raises(InputError, match="queries 0 to 4"):
        rows_of_weights(query, key, stream(query, key, value).lse, 5)
