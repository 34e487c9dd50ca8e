"""Relative positions in keys and values (Shaw et al. 2018, section 3.2): each distance has a vector of its own.

r_ij     = clip(j − i, −k, k)                   2k + 1 distances; further away is all the same
scores_ij = q_i · (k_j + a^K_{r_ij}) / sqrt(d_head)
z_i      = Σ_j weights_ij (v_j + a^V_{r_ij})    so weights @ value is *not* z

What query i gets from key j is v_j + a^V_ij: whoever weighs attention by the size of the values (norm-based scores,
value zeroing) must take `seen_values`, not `value`. a^K, a^V [query key d] are shared by rows and heads.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.attention.masks import fitting_mask, mask_scores
from attnprobe.attention.positions import PositionedScores, at_least, relative_positions
from attnprobe.attention.scores import Attended, scaled_dot_scores
from attnprobe.site import SOFTMAX


def clipped_distances(n_queries: int, n_keys: int | None = None, *, max_distance: int) -> Int[Tensor, "query key"]:
    """Rows of a table of 2 · max_distance + 1 vectors: clip(j − i) + max_distance.

    >>> clipped_distances(4, max_distance=1).tolist()
    [[1, 2, 2, 2], [0, 1, 2, 2], [0, 0, 1, 2], [0, 0, 0, 1]]
    """
    at_least("max_distance", max_distance, 0)
    return relative_positions(n_queries, n_keys).clamp(-max_distance, max_distance) + max_distance


class ShawPositions(nn.Module):
    """The tables of a^K and a^V, a row a distance from −max_distance to max_distance; of zeros: plain."""

    def __init__(self, max_distance: int, d_head: int, d_value: int | None = None, *, spread: float = 0.02) -> None:
        super().__init__()
        at_least("max_distance", max_distance, 0)
        self.max_distance = max_distance
        self.key_table = nn.Parameter(spread * torch.randn(2 * max_distance + 1, d_head))
        self.value_table = nn.Parameter(spread * torch.randn(2 * max_distance + 1, d_value or d_head))

    def forward(
        self, n_queries: int, n_keys: int | None = None
    ) -> tuple[Float[Tensor, "query key d_head"], Float[Tensor, "query key d_value"]]:
        """a^K and a^V of each pair."""
        rows = clipped_distances(n_queries, n_keys, max_distance=self.max_distance).to(self.key_table.device)
        return self.key_table[rows], self.value_table[rows]


def shaw_scores(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    key_relative: Float[Tensor, "query key d_head"],
    *,
    scale: float | None = None,
) -> PositionedScores:
    """Scaled scores with a^K, and those of content alone (q·k); scale: default 1/sqrt(d_head)."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    content = scaled_dot_scores(query, key, scale)
    position = torch.einsum("...id,ijd->...ij", query, key_relative) * scale
    return PositionedScores(content + position, content)


def shaw_attention(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    key_relative: Float[Tensor, "query key d_head"],
    value_relative: Float[Tensor, "query key d_value"],
    *,
    visible: Tensor | None = None,
    scale: float | None = None,
) -> Attended:
    """Scores, weights and z with relative keys and values; visible: boolean, True = may look."""
    scores = shaw_scores(query, key, key_relative, scale=scale).scores
    scores = mask_scores(scores, fitting_mask(visible, scores.shape))
    weights = SOFTMAX(scores)
    z = weights @ value + torch.einsum("...ij,ijd->...id", weights, value_relative)
    return Attended(scores, weights, z)


def seen_values(
    value: Float[Tensor, "*batch key d_value"], value_relative: Float[Tensor, "query key d_value"]
) -> Float[Tensor, "*batch query key d_value"]:
    """What each query gets from each key, before weighing: v_j + a^V_ij; z_i is its weighted sum over keys."""
    return value.unsqueeze(-3) + value_relative
