"""Attention that selects: the one best key, the k best, or all alike.

hard     z_i = v_j, j = argmax_j s_ij                         map: one-hot (Xu et al. 2015, at its most likely draw)
top_k    z_i = sum_{j in top} exp(s_ij) v_j / sum_{j in top} exp(s_ij)     top: the k largest scores of row i
uniform  z_i = mean of the v_j that query i may look at       no scores: what attention adds shows against this

s_ij = q_i·k_j / sqrt(d) + bias_ij. query [*batch query d], key [*batch key d], value [*batch key d_value]
-> z [*batch query d_value]. Of equal scores the first counts. A query that may look at nothing gets zeros.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention import normalizers
from attnprobe.attention.masks import fitting_mask
from attnprobe.attention.mechanisms import mechanisms
from attnprobe.attention.scores import full_scores
from attnprobe.errors import InputError


def hard_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """One-hot at the best key; its gradient is softmax's (straight-through)."""
    return normalizers.hard(full_scores(query, key, visible=visible, bias=bias))


@mechanisms.add(
    family="selection",
    source="Xu et al. 2015, section 4.1",
    weights=hard_weights,
    cost="n²",
    formula="v_argmax(q·k)",
    meaning="1 on the key that was chosen",
)
def hard(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Each query takes the value of its best key; queries and keys learn as if it had been softmax."""
    return hard_weights(query, key, visible=visible, bias=bias) @ value


def top_k_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    k: int = 4,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """Softmax over the k best keys of each query, 0 elsewhere; all keys where there are no more than k."""
    if k < 1:
        raise InputError(f"top_k keeps at least 1 key, got k = {k}")
    scores = full_scores(query, key, visible=visible, bias=bias)
    ranked, order = scores.sort(dim=-1, descending=True, stable=True)  # topk takes any of equal scores
    weights = normalizers.softmax(ranked[..., :k])
    return torch.zeros_like(scores).scatter(-1, order[..., :k], weights)


@mechanisms.add(
    family="selection",
    source="Zhao et al. 2019, Explicit Sparse Transformer",
    weights=top_k_weights,
    cost="n²",
    formula="softmax over the k largest q·k/√d, times V",
    meaning="share among the k best keys; 0: not among them",
)
def top_k(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    k: int = 4,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Each query averages the values of its k best keys."""
    return top_k_weights(query, key, k=k, visible=visible, bias=bias) @ value


def uniform_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """The same weight on every key that the query may look at."""
    shape = (*query.shape[:-1], key.shape[-2])
    mask = fitting_mask(visible, shape)
    seen = query.new_ones(shape) if mask is None else mask.to(query.dtype).expand(shape)
    return seen / seen.sum(-1, keepdim=True).clamp(min=1)


@mechanisms.add(
    family="selection",
    source="the mean, for comparison",
    weights=uniform_weights,
    cost="n",
    formula="mean of V",
    meaning="1/n: nothing was chosen",
)
def uniform(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Each query averages all values that it may look at, whatever it asks for."""
    if visible is None:
        return value.mean(-2, keepdim=True).expand(*query.shape[:-1], value.shape[-1]).clone()
    return uniform_weights(query, key, visible=visible) @ value
