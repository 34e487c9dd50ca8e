"""Look-ups as mechanisms: the Hopfield memory step by step, the nearest neighbours by a slow search."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention import memory
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.errors import InputError

N_KEYS, WIDTH, D_VALUE = 6, 4, 3


def inputs(n_queries: int = 5, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((n_queries, WIDTH), (N_KEYS, WIDTH), (N_KEYS, D_VALUE))
    query, key, value = (torch.randn(*batch, *shape, dtype=torch.float64) for shape in shapes)
    return query, key, value


def slow_hopfield(query: list[float], key: list[list[float]], beta: float, n_steps: int) -> list[float]:
    """The weights of one query at its last step, in Python numbers."""
    state, weights = query, [0.0]
    for _ in range(n_steps):
        powers = [math.exp(beta * math.fsum(a * b for a, b in zip(one, state, strict=True))) for one in key]
        weights = [power / math.fsum(powers) for power in powers]
        state = [math.fsum(w * one[d] for w, one in zip(weights, key, strict=True)) for d in range(WIDTH)]
    return weights


@pytest.mark.parametrize("n_steps", [1, 2, 5])
@pytest.mark.parametrize("beta", [None, 0.3, 3.0])
def test_a_hopfield_map_is_the_slow_one(beta: float | None, n_steps: int):
    query, key, _ = inputs()
    found = Mechanism.of("hopfield", beta=beta, n_steps=n_steps).weights(query, key)
    expected = [slow_hopfield(q.tolist(), key.tolist(), beta or 0.5, n_steps) for q in query]  # 1/sqrt(4)
    assert (found - torch.tensor(expected, dtype=torch.float64)).abs().max() < 1e-13


def test_one_step_of_a_hopfield_memory_is_attention_and_by_default_there_are_more():
    query, key, value = inputs(5, 2, 3)
    found = Mechanism.of("hopfield", n_steps=1).z(query, key, value)
    assert (found - F.scaled_dot_product_attention(query, key, value)).abs().max() < 1e-13
    assert (Mechanism.of("hopfield").z(query, key, value) - found).abs().max() > 1e-3


@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_hopfield_memory_that_reads_its_own_patterns_is_the_recall_of_states(n_steps: int):
    query, key, _ = inputs()
    recalled = memory.hopfield(query, key, beta=1.5, n_steps=n_steps)
    mechanism = Mechanism.of("hopfield", beta=1.5, n_steps=n_steps)
    assert (mechanism.z(query, key, key) - recalled.state).abs().max() < 1e-13
    assert (mechanism.weights(query, key) - recalled.weights).abs().max() < 1e-13


def test_a_masked_hopfield_memory_is_one_that_holds_the_visible_keys_alone():
    query, key, value = inputs()
    visible = torch.tensor([True, False, True, True, False, True])
    mechanism = Mechanism.of("hopfield", n_steps=3, beta=1.0)
    found = mechanism.z(query, key, value, visible.expand(5, -1))
    assert (found - mechanism.z(query, key[visible], value[visible])).abs().max() < 1e-13


def slow_nearest(query: Tensor, key: Tensor, value: Tensor, k: int, by: str, seen: list[bool]) -> Tensor:
    """The mean value of the k nearest visible keys of one query, by sorting a list."""
    near = [float(query @ one) if by == "dot" else -math.dist(query.tolist(), one.tolist()) for one in key]
    order = sorted((j for j in range(len(key)) if seen[j]), key=lambda j: -near[j])[:k]
    return torch.stack([value[j] for j in order]).mean(0)


@pytest.mark.parametrize("by", ["dot", "distance"])
@pytest.mark.parametrize("k", [1, 3, 6, 9])
@pytest.mark.parametrize("masked", [False, True])
def test_neighbours_are_those_of_a_slow_search(k: int, by: str, masked: bool):
    query, key, value = inputs()
    visible = torch.rand(5, N_KEYS) < 0.6
    visible[:, 2] = True
    seen = visible if masked else torch.ones_like(visible)
    found = Mechanism.of("nearest", k=k, by=by).z(query, key, value, visible if masked else None)
    expected = [slow_nearest(q, key, value, k, by, row.tolist()) for q, row in zip(query, seen, strict=True)]
    assert (found - torch.stack(expected)).abs().max() < 1e-14


def test_neighbours_are_those_of_the_memory_and_of_equals_the_first():
    query, key, value = inputs(5, 2)
    assert torch.equal(Mechanism.of("nearest", k=2).weights(query, key), memory.nearest(query, key, value, k=2).weights)
    same = torch.ones(40, WIDTH)
    assert Mechanism.of("nearest", k=2).weights(same[:1], same).nonzero().tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_near_in_half_precision_is_measured_in_single(dtype: torch.dtype):
    key = torch.tensor([[100.0, 0.0], [101.0, 0.0], [0.0, 0.0]], dtype=dtype)
    weights = Mechanism.of("nearest", k=1, by="distance").weights(key[:2], key)
    assert weights.dtype == dtype
    assert weights.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hopfield", {"n_steps": 0}, "n_steps is how often"),
        ("hopfield", {"beta": 0.0}, "a number above 0, got 0.0; 'nearest' is its limit"),
        ("hopfield", {"beta": math.inf}, "a number above 0"),
        ("nearest", {"k": 0}, "at least 1 neighbour, got k = 0"),
        ("nearest", {"by": "cosine"}, "'dot' or 'distance'"),
    ],
)
def test_what_is_no_setting_is_refused(name: str, options: dict[str, object], message: str):
    query, key, value = inputs()
    with pytest.raises(InputError, match=message):
        Mechanism.of(name, **options).z(query, key, value)


@pytest.mark.parametrize("name", ["hopfield", "nearest"])
def test_heads_are_built_with_it_and_seen(name: str):
    attention, x = MultiHeadAttention(8, 2, mechanism=name).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    with recording(Tape(keep=Keep.of("query", "key", "weights", "value", "z"))) as tape:
        seen = attention(x)
    (site,) = tape.sites
    assert torch.equal(seen, attention(x))
    assert (site.weights @ site.value - site.z).abs().max() < 1e-12
    assert torch.equal(site.weights, Mechanism.of(name).weights(site.query, site.key))
