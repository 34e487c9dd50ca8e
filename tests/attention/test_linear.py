"""Linear attention: matrix, running sums and recurrent steps are one; against loops written from the paper."""

import math

import pytest
import torch
from torch import Tensor

from attnprobe.attention.mechanisms.linear import elu_features, linear, linear_step, linear_weights
from attnprobe.errors import InputError, NumericsError

N_TOKENS = 9
PRECISE = {"rtol": 0, "atol": 1e-12}


def tensors(*batch: int, n_queries: int = N_TOKENS) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.randn(*batch, n_queries + 2 * N_TOKENS, 5, dtype=torch.float64)
    query, key, value = draw.split([n_queries, N_TOKENS, N_TOKENS], dim=-2)
    return query, key, value[..., :3].contiguous()


def phi(x: float) -> float:
    return x + 1 if x > 0 else math.exp(x)


def by_loops(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> tuple[list[list[float]], list[list[float]]]:
    """Equation 4 of the paper in plain numbers: the map, and z."""
    queries, keys, values = query.tolist(), key.tolist(), value.tolist()
    n_before = len(keys) - len(queries)
    weights, z = [], []
    for i, q in enumerate(queries):
        fits = [sum(phi(a) * phi(b) for a, b in zip(q, k, strict=True)) for k in keys]
        fits = [fit if not causal or j <= n_before + i else 0.0 for j, fit in enumerate(fits)]
        weights.append([fit / sum(fits) for fit in fits])
        z.append([sum(w * v[c] for w, v in zip(weights[-1], values, strict=True)) for c in range(len(values[0]))])
    return weights, z


@pytest.mark.parametrize("n_queries", [N_TOKENS, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_map_and_z_are_those_of_the_paper(causal: bool, n_queries: int):
    query, key, value = tensors(n_queries=n_queries)
    weights, z = by_loops(query, key, value, causal)
    torch.testing.assert_close(linear_weights(query, key, causal=causal), query.new_tensor(weights), **PRECISE)
    torch.testing.assert_close(linear(query, key, value, causal=causal), query.new_tensor(z), **PRECISE)


def test_features_are_positive_whatever_comes_in():
    x = torch.linspace(-200, 200, 1001, dtype=torch.float64)[:, None]
    assert elu_features(x).min() > 0
    torch.testing.assert_close(elu_features(x)[:, 0], x.new_tensor([phi(v) for v in x[:, 0].tolist()]), **PRECISE)


def test_the_recurrent_form_is_the_causal_one_token_by_token():
    query, key, value = tensors(2, 3)
    state, steps = None, []
    for token in range(N_TOKENS):
        z, state = linear_step(state, query[..., token, :], key[..., token, :], value[..., token, :])
        steps.append(z)
    torch.testing.assert_close(torch.stack(steps, -2), linear(query, key, value, causal=True), **PRECISE)
    assert state.mixed.shape == (2, 3, 5, 3) and state.mass.shape == (2, 3, 5), "the state does not grow"


def test_after_a_prefix_the_state_is_all_that_is_needed():
    query, key, value = tensors()
    state = None
    for token in range(6):
        _, state = linear_step(state, query[token], key[token], value[token])
    torch.testing.assert_close(state.mixed, elu_features(key[:6]).T @ value[:6], **PRECISE)
    torch.testing.assert_close(state.mass, elu_features(key[:6]).sum(0), **PRECISE)


@pytest.mark.parametrize("causal", [False, True])
def test_no_map_is_formed_on_the_way_to_z(causal: bool):
    n_tokens = 2048
    query, key, value = (torch.randn(n_tokens, 4) for _ in range(3))
    sizes: list[int] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            sizes.extend([found.numel()] if torch.is_tensor(found) else [])
            return found

    with Watch():
        linear(query, key, value, causal=causal)
    assert max(sizes) <= n_tokens * 64  # what queries and keys of one block make


@pytest.mark.parametrize("n_queries", [130, 64, 1])
def test_running_sums_do_not_depend_on_where_their_blocks_end(n_queries: int):
    query, key, value = (torch.randn(2, size, 5, dtype=torch.float64) for size in (n_queries, 130, 130))
    for i in (0, n_queries // 2, n_queries - 1):
        end = 130 - n_queries + i + 1
        alone = linear(query[:, i : i + 1], key[:, :end], value[:, :end])
        torch.testing.assert_close(linear(query, key, value, causal=True)[:, i : i + 1], alone, **PRECISE)


def test_it_is_flat_where_softmax_is_sharp():
    query = torch.full((1, 1), 30.0, dtype=torch.float64)
    key = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    assert torch.softmax(query @ key.T, -1)[0, 1] < 1e-12
    torch.testing.assert_close(linear_weights(query, key), query.new_tensor([[2 / 3, 1 / 3]]), **PRECISE)


def test_causal_needs_a_key_for_every_query():
    query, key, value = tensors(n_queries=N_TOKENS + 1)
    with pytest.raises(InputError, match="9 keys and 10 queries"):
        linear(query, key, value, causal=True)


def test_features_that_vanish_are_said_and_no_nan_comes_out():
    far = torch.full((2, 3), -200.0)
    with pytest.raises(NumericsError, match=r"2 queries .* 0, infinity or NaN in torch.float32"):
        linear(far, far, far)
