"""Scores with parameters of their own; each a plain function, and a module that holds what it learns.

general    s_ij = q_iᵀ W k_j                Luong et al. 2015, section 3.1
location   s_ij = (W q_i)_j                 the same: the query alone says where to look
additive   s_ij = u·tanh(W q_i + U k_j)     Bahdanau et al. 2015, appendix A.1.2

query [*batch query d_query], key [*batch key d_key] -> [*batch query key]. A module is a score like any other:

    attend(AdditiveScore(d_query=8, d_key=6, d_hidden=16), query, key, value).weights
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import InputError


def general_scores(
    query: Float[Tensor, "*batch query d_query"],
    key: Float[Tensor, "*batch key d_key"],
    weight: Float[Tensor, "d_query d_key"],
) -> Float[Tensor, "*batch query key"]:
    """qᵀ W k: a dot product that W may turn and stretch; query and key may differ in width."""
    return query @ weight @ key.mT


def location_scores(
    query: Float[Tensor, "*batch query d_query"],
    key: Float[Tensor, "*batch key d_key"],
    weight: Float[Tensor, "position d_query"],
) -> Float[Tensor, "*batch query key"]:
    """Row j of W times the query. Of the keys only their number counts, and W must have a row for each.

    >>> location_scores(torch.ones(1, 1), torch.zeros(2, 9), torch.tensor([[1.0], [2.0], [3.0]])).tolist()
    [[1.0, 2.0]]
    """
    n_keys, n_positions = key.shape[-2], weight.shape[0]
    if n_keys > n_positions:
        raise InputError(f"a location score for {n_positions} positions got {n_keys} keys; give W more rows")
    return query @ weight[:n_keys].mT


def additive_scores(
    query: Float[Tensor, "*batch query d_query"],
    key: Float[Tensor, "*batch key d_key"],
    query_map: Float[Tensor, "hidden d_query"],
    key_map: Float[Tensor, "hidden d_key"],
    direction: Float[Tensor, " hidden"],
) -> Float[Tensor, "*batch query key"]:
    """u·tanh(W q + U k): a small network on each pair, which takes query x key x hidden numbers of memory."""
    hidden = (query @ query_map.mT)[..., :, None, :] + (key @ key_map.mT)[..., None, :, :]
    return torch.tanh(hidden) @ direction


class GeneralScore(nn.Module):
    """qᵀ W k with a learned W."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_query, d_key) / (d_query * d_key) ** 0.5)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [*batch query key]."""
        return general_scores(query, key, self.weight)


class LocationScore(nn.Module):
    """W q with a learned row of W for each of n_positions keys; more keys are refused."""

    def __init__(self, d_query: int, n_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_positions, d_query) / d_query**0.5)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [*batch query key]."""
        return location_scores(query, key, self.weight)


class AdditiveScore(nn.Module):
    """u·tanh(W q + U k) with learned W, U and u."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query_map = nn.Parameter(torch.randn(d_hidden, d_query) / d_query**0.5)
        self.key_map = nn.Parameter(torch.randn(d_hidden, d_key) / d_key**0.5)
        self.direction = nn.Parameter(torch.randn(d_hidden) / d_hidden**0.5)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [*batch query key]."""
        return additive_scores(query, key, self.query_map, self.key_map, self.direction)


# A score with parameters is made first: LEARNED_SCORES["general"](d_query=8, d_key=6).
LEARNED_SCORES: dict[str, type[nn.Module]] = {
    "general": GeneralScore,
    "location": LocationScore,
    "additive": AdditiveScore,
}
