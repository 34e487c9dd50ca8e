"""Reach against walks counted by hand, shortest paths of scipy, and the gradients of attention that really runs."""

import itertools

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from attnprobe.attention.masks import causal_mask, padding_mask
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.patterns import adjacency_mask, edge_mask, global_mask, local_mask, strided_mask
from attnprobe.attention.reach import distances, layers_until_reached, reach
from attnprobe.errors import InputError

N = 7


def some_mask(share: float = 0.25) -> Tensor:
    return torch.rand(N, N) < share


def walks(masks: list[Tensor], residual: bool) -> Tensor:
    """Whether some chain of positions leads from an input through all layers, chain by chain."""
    found = torch.zeros(N, N, dtype=torch.bool)
    for chain in itertools.product(range(N), repeat=len(masks) + 1):
        if all(mask[to, at] or (residual and to == at) for mask, at, to in zip(masks, chain, chain[1:], strict=False)):
            found[chain[-1], chain[0]] = True
    return found


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_reach_is_whether_a_chain_of_positions_leads_through_all_layers(n_layers: int, residual: bool):
    masks = [some_mask() for _ in range(n_layers)]
    assert torch.equal(reach(masks, residual=residual), walks(masks, residual))


@pytest.mark.parametrize("residual", [True, False])
def test_outputs_have_a_gradient_exactly_where_reach_says_so(residual: bool):
    masks = [some_mask(0.3) | torch.eye(N, dtype=torch.bool).roll(2, 0) for _ in range(3)]  # no query is blind
    layers = [MultiHeadAttention(4, 2).double() for _ in masks]

    def run(x: Tensor) -> Tensor:
        for layer, mask in zip(layers, masks, strict=True):
            # Queries alone would carry the own position on without a residual: here they come from elsewhere.
            query = x if residual else torch.ones_like(x)
            z = layer(query, x, visible=mask)
            x = x + z if residual else z
        return x

    x = torch.randn(1, N, 4, dtype=torch.float64)
    size = torch.autograd.functional.jacobian(run, x)[0, :, :, 0].abs().amax((1, 3))
    assert torch.equal(size > 0, reach(masks, residual=residual))
    assert size[size > 0].min() > 1e-9  # not rounding


@pytest.mark.parametrize("width", [2, 3, 5])
def test_layers_of_a_window_reach_their_number_times_what_one_adds(width: int):
    offset = torch.arange(20) - torch.arange(20)[:, None]
    for n_layers in (1, 2, 4):
        assert torch.equal(reach([local_mask(20, width)] * n_layers), offset.abs() <= n_layers * (width - 1))
    assert layers_until_reached(local_mask(20, width)) == -(-19 // (width - 1))
    assert layers_until_reached(local_mask(20, width, causal=True)) is None
    assert layers_until_reached(local_mask(20, width, causal=True), causal_mask(20)) == -(-19 // (width - 1))


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_a_window_and_a_stride_reach_everything_before_in_two_layers_in_either_order(stride: int):
    window, columns = local_mask(13, stride, causal=True), strided_mask(13, stride)
    assert torch.equal(reach([window, columns]), causal_mask(13))
    assert torch.equal(reach([columns, window]), causal_mask(13))
    assert layers_until_reached(window | columns, causal_mask(13)) == 2


def test_one_global_position_joins_all_in_two_layers():
    assert layers_until_reached(global_mask(30, [11])) == 2
    assert layers_until_reached(torch.ones(4, 4, dtype=torch.bool)) == 1


def test_distances_are_the_shortest_paths_of_the_graph():
    for share in (0.05, 0.15, 0.3):
        graph = torch.rand(25, 25) < share
        assert np.array_equal(distances(graph).numpy(), shortest_path(graph.numpy().astype(float), unweighted=True))


def test_a_graph_in_two_pieces_is_never_joined():
    pieces = edge_mask(5, [(0, 1), (1, 2), (3, 4)])
    assert layers_until_reached(pieces) is None
    assert layers_until_reached(pieces, reach([pieces] * 5)) == 2
    assert distances(pieces)[0].tolist() == [0, 1, 2, np.inf, np.inf]


@pytest.mark.parametrize("n", [3, 4, 6])
def test_without_a_residual_it_may_take_as_long_as_wielandt_says_or_for_ever(n: int):
    """Wielandt 1950: of all graphs whose powers fill up, a ring with one short cut is slowest: (n − 1)² + 1."""
    ring = torch.eye(n, dtype=torch.bool).roll(1, 1)
    assert layers_until_reached(ring, residual=False) is None
    assert layers_until_reached(ring) == n - 1
    ring[n - 1, 1] = True
    assert layers_until_reached(adjacency_mask(ring, loops=False), residual=False) == (n - 1) ** 2 + 1


def test_heads_join_and_rows_stay_apart():
    heads = torch.stack([local_mask(6, 2), strided_mask(6, 3, causal=False)])
    assert torch.equal(reach([heads[None]] * 2)[0], reach([heads[0] | heads[1]] * 2))
    rows = torch.stack([local_mask(6, 2), local_mask(6, 3)])
    assert torch.equal(reach([rows, local_mask(6, 2)])[1], reach([local_mask(6, 3), local_mask(6, 2)]))
    is_token = torch.tensor([[True, True, False], [True, True, True]])
    assert reach(padding_mask(is_token), residual=False).int().tolist() == [[[1, 1, 0]] * 3, [[1, 1, 1]] * 3]
    assert distances(padding_mask(is_token))[0].tolist() == [[0, 1, np.inf], [1, 0, np.inf], [1, 1, 0]]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: reach([]), "at least one layer"),
        (lambda: reach(torch.ones(3, 3)), "boolean"),
        (lambda: reach(torch.ones(2, 3, dtype=torch.bool)), "as many queries as keys"),
        (lambda: reach([causal_mask(3), causal_mask(4)]), "masks of 3 and 4"),
    ],
)
def test_what_is_no_mask_of_self_attention_is_refused(ask, words: str):
    with pytest.raises(InputError, match=words):
        ask()
