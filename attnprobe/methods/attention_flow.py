"""Attention as the capacity of a network: how much can flow from the answer to each token."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.attention import NO_ENCODER_DECODER, Heads, attention_maps
from attnprobe.methods.mixing import mixed
from attnprobe.models.model import Model
from attnprobe.models.reading import read_rows
from attnprobe.target import ResolvedTarget

# Capacities become whole numbers of this many parts; what flows back may be twice as much, which 32 bits just hold.
PARTS = 10**9


@methods.add(
    family="attention",
    source="Abnar & Zuidema 2020, sec. 3",
    formula="maximum flow from (L, r) to (0, j), capacities (1 − c) A^l + c I; c = identity; divided by the sum over j",
    cost="1 F, n maximum flows",
    signed=False,
    passes=lambda size, o: (1, 0),
    lacks={"seq2seq": NO_ENCODER_DECODER},
)
def attention_flow(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    identity: float = 0.5,
    heads: Heads = "mean",
    normalised: bool = True,
) -> Scores:
    """Largest flow through the layers' attention from the position read to each token, each token asked alone.

    identity and heads as in rollout, which it is at least as large as, and equal to with one layer. normalised: the
    flows divided by their sum, as the authors' code does; the paper's own are 0 to 1 each. Where the answer is read
    from many positions, the mean over them, at n flows each.
    """
    if not 0 <= identity <= 1:
        raise InputError(f"identity is a share from 0 to 1, got {identity}")
    maps = [mixed(layer.double(), identity) for layer in attention_maps(model, example, heads)]
    rows = read_rows(model, example, target)
    found = flows(maps, rows).mean(0)
    if normalised:
        found = found / found.sum().clamp(min=1e-12)
    return Scores(found, used={"read_rows": rows.tolist()[:8]})


def flows(capacities: Sequence[Float[Tensor, "query key"]], rows: Int[Tensor, " row"]) -> Float[Tensor, "row token"]:
    """The maximum flow from each of `rows` above the last layer to every token below the first; exact to 1e-8.

    >>> first, second = torch.tensor([[0.6, 0.4], [0.2, 0.8]]), torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    >>> flows([mixed(first, 0.5), mixed(second, 0.5)], torch.arange(2)).round(decimals=3).tolist()
    [[0.85, 0.45], [0.55, 0.75]]
    """
    n, n_layers = capacities[0].shape[-1], len(capacities)
    graph = _graph(capacities)
    found = torch.zeros(len(rows), n, dtype=torch.float64)
    pairs = [(index, int(row), token) for index, row in enumerate(rows.tolist()) for token in range(n)]
    for index, row, token in tqdm(pairs, desc="attention flow", delay=1.0, leave=False, unit="flow"):
        found[index, token] = maximum_flow(graph, n_layers * n + row, token).flow_value / PARTS
    return found


def _graph(capacities: Sequence[Float[Tensor, "query key"]]) -> csr_matrix:
    """Nodes (layer, token) at layer * n + token; an edge from each query to the keys of the layer below it."""
    n, n_layers = capacities[0].shape[-1], len(capacities)
    starts, ends, sizes = [], [], []
    for number, layer in enumerate(capacities):
        whole = np.rint(layer.detach().double().cpu().numpy() * PARTS).astype(np.int32)
        query, key = np.nonzero(whole)
        starts.append((number + 1) * n + query)
        ends.append(number * n + key)
        sizes.append(whole[query, key])
    shape = ((n_layers + 1) * n,) * 2
    return csr_matrix((np.concatenate(sizes), (np.concatenate(starts), np.concatenate(ends))), shape=shape)
