"""Attention as looking something up: a Hopfield memory that is asked several times, and the nearest neighbours.

hopfield   s_0 = q,  s_t = softmax(beta s_{t-1} Kᵀ) K      the query moves towards the keys that it resembles
           z = softmax(beta s_{n-1} Kᵀ) V                  n = n_steps; one step is attention with scale beta
nearest    z_i = mean of v_j over the k nearest keys       by q·k, or by distance |q - k|; no softmax, no shares

query [*batch query d], key [*batch key d], value [*batch key d_value] -> z [*batch query d_value]. Of equal keys the
first counts. A query that may look at nothing gets zeros. Energies and bounds: `attnprobe.attention.memory`.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.mechanisms import mechanisms
from attnprobe.attention.scores import full_scores, scaled_dot_scores
from attnprobe.errors import InputError, NumericsError
from attnprobe.site import softmax

By = Literal["dot", "distance"]


def hopfield_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    beta: float | None = None,
    n_steps: int = 2,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """Softmax over the keys at the last step, from where the query has moved to."""
    if n_steps < 1:
        raise InputError(f"n_steps is how often the memory is asked, 1 or more, got {n_steps}")
    if beta is not None and not (math.isfinite(beta) and beta > 0):
        raise InputError(f"beta says how sharp a look-up is, a number above 0, got {beta}; 'nearest' is its limit")

    def weights(state: Tensor) -> Tensor:
        score = scaled_dot_scores if beta is None else lambda q, k: scaled_dot_scores(q, k, beta)
        return softmax(full_scores(state, key, score=score, visible=visible))

    state = query
    for _ in range(n_steps - 1):
        state = weights(state) @ key
    return weights(state)


@mechanisms.add(
    family="memory",
    source="Ramsauer et al. 2021, section 2",
    weights=hopfield_weights,
    cost="n² · steps",
    formula="softmax(β s Kᵀ) V, s ← softmax(β s Kᵀ) K from s = q",
    meaning="share at the last step, of where the query has moved to, not of the query itself",
)
def hopfield(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    beta: float | None = None,
    n_steps: int = 2,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Each query moves towards the keys it resembles, then reads their values; beta None is 1/√d."""
    return hopfield_weights(query, key, beta=beta, n_steps=n_steps, visible=visible) @ value


def nearest_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    k: int = 4,
    by: By = "dot",
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """1/k on the k nearest keys of each query, 0 elsewhere; on all that it may look at where there are fewer."""
    if k < 1:
        raise InputError(f"nearest takes at least 1 neighbour, got k = {k}")
    if by not in ("dot", "distance"):
        raise InputError(f"by is 'dot' (q·k) or 'distance' (|q - k|), got {by!r}")
    # Which keys are near is no number that could have a slope.
    scores = full_scores(query.detach(), key.detach(), score=_products if by == "dot" else _closeness, visible=visible)
    if bool(scores.isnan().any()):
        raise NumericsError("a query or a key is NaN, and so near to nothing; look for where it came from")
    found = scores.argsort(dim=-1, descending=True, stable=True)[..., :k]
    chosen = torch.zeros_like(scores, dtype=query.dtype).scatter(-1, found, 1.0)
    chosen = chosen.masked_fill(torch.isneginf(scores), 0.0)
    return chosen / chosen.sum(-1, keepdim=True).clamp(min=1)


@mechanisms.add(
    family="memory",
    source="Cover & Hart 1967: nearest neighbours, one vote each",
    weights=nearest_weights,
    cost="n²",
    formula="mean of V over the k nearest keys",
    meaning="1/k on the k nearest keys, however near they are; 0: not among them",
)
def nearest(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    k: int = 4,
    by: By = "dot",
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Each query averages the values of its k nearest keys, all alike; no gradient reaches query and key."""
    return nearest_weights(query, key, k=k, by=by, visible=visible) @ value


def _products(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT


def _closeness(query: Tensor, key: Tensor) -> Tensor:
    """Minus the distance; not by way of products, which lose small distances of long vectors."""
    wide = query.float(), key.float()
    pair = wide if query.dtype in (torch.float16, torch.bfloat16) else (query, key)
    return -torch.cdist(*pair, compute_mode="donot_use_mm_for_euclid_dist")
