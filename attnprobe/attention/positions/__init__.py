"""Positions: how attention, which treats its keys as a set, learns where they stand. One shape for every scheme.

scheme       enters at            formula                                              file
none         nowhere              order is seen through the mask alone                 here
sinusoidal   embeddings           x_p + PE(p), sines and cosines of p                  sinusoidal.py
learned      embeddings           x_p + P[p], a table with an end                      learned.py
Shaw         keys and values      q_i·(k_j + a^K_{j−i}), v_j + a^V_{j−i}               shaw.py
T5           scores               q_i·k_j + b[head, bucket(j − i)]                     buckets.py
ALiBi        scores               q_i·k_j − m_head |i − j|                             alibi.py
RoPE         queries and keys     R(i) q_i · R(j) k_j, a function of j − i             rotary.py

A `Positions` says at which of three places a scheme enters; the others stay empty. Shaw's alone reaches the values
too, and so has an attention of its own. Positions are counted so that the last query is at the last key.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.attention.scores import scaled_dot_scores
from attnprobe.errors import InputError


class PositionedScores(NamedTuple):
    """Scores with positions, and `content`: what they would be if the scheme did nothing; before any mask."""

    scores: Float[Tensor, "*batch query key"]
    content: Float[Tensor, "*batch query key"]

    @property
    def position(self) -> Float[Tensor, "*batch query key"]:
        """What positions alone changed: the bias itself (up to rounding) where the scheme adds one."""
        return self.scores - self.content


class Positions(nn.Module):
    """A scheme by where it enters; what it does not use is None. A module, so that tables of parameters are found.

    table: (n_tokens) -> [token d_model], added to embeddings. rotate: [*batch token d_head], positions -> the same
    turned. bias: (n_queries, n_keys) -> [head query key], added to the scaled scores.

    >>> NONE.embed(torch.ones(1, 2, 3)).sum().item()
    6.0
    """

    def __init__(
        self,
        name: str,
        *,
        table: Callable[[int], Tensor] | None = None,
        rotate: Callable[[Tensor, Tensor | None], Tensor] | None = None,
        bias: Callable[[int, int], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.name, self.table, self.rotate, self.bias = name, table, rotate, bias

    @property
    def inside(self) -> "Positions":
        """What of the scheme attention itself does: none of a table that was added to the embeddings already."""
        return NONE if self.table is not None and self.rotate is None and self.bias is None else self

    def embed(self, x: Float[Tensor, "*batch token d_model"]) -> Float[Tensor, "*batch token d_model"]:
        """Embeddings with their positions added, where the scheme does that."""
        return x if self.table is None else x + self.table(x.shape[-2]).to(x)

    def scores(
        self,
        query: Float[Tensor, "*batch query d_head"],
        key: Float[Tensor, "*batch key d_head"],
        *,
        scale: float | None = None,
    ) -> PositionedScores:
        """Scaled scores with and without this scheme; keys stand at 0, 1, …, and the last query at the last key.

        scale: default 1/sqrt(d_head); T5 takes 1. With a bias the axis before query is the heads.
        """
        n_queries, n_keys = query.shape[-2], key.shape[-2]
        content = scaled_dot_scores(query, key, scale)
        scores = content
        if self.rotate is not None:
            places = positions_of(n_queries, n_keys, device=key.device)
            scores = scaled_dot_scores(self.rotate(query, places), self.rotate(key, None), scale)
        if self.bias is not None:
            scores = scores + self.bias(n_queries, n_keys).to(scores)
        return PositionedScores(scores, content)


NONE = Positions("none")


def positions_of(
    n_queries: int, n_keys: int | None = None, *, device: torch.device | None = None
) -> Int[Tensor, " query"]:
    """Where the queries stand among the keys 0, 1, …: the last at the last key."""
    at_least("n_queries", n_queries, 1)
    n_keys = n_queries if n_keys is None else n_keys
    if n_keys < n_queries:
        raise InputError(f"queries stand among the keys, got {n_queries} queries and only {n_keys} keys")
    return torch.arange(n_keys - n_queries, n_keys, device=device)


def relative_positions(
    n_queries: int, n_keys: int | None = None, *, device: torch.device | None = None
) -> Int[Tensor, "query key"]:
    """How far behind each query a key stands: j − i, below 0 for keys before it.

    >>> relative_positions(2, 3).tolist()
    [[-1, 0, 1], [-2, -1, 0]]
    """
    n_keys = n_queries if n_keys is None else n_keys
    return torch.arange(n_keys, device=device) - positions_of(n_queries, n_keys, device=device)[:, None]


def at_least(name: str, value: int, least: int) -> None:
    """Refuse a count that is too small."""
    if value < least:
        raise InputError(f"{name} is a whole number of at least {least}, got {value}")
