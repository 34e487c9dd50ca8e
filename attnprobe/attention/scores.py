"""Scaled dot-product attention, from scratch (Vaswani et al. 2017, section 3.2.1).

scores_ij = q_i · k_j / sqrt(d_head) + bias_ij      -inf where query i may not look at key j
weights_i = softmax(scores_i)                       sums to 1 over the keys
z_i       = sum_j weights_ij v_j
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.masks import mask_scores
from attnprobe.site import SOFTMAX, Normalizer


class Attended(NamedTuple):
    """What attention computes on its way: scores (mask and bias included), weights, and the mixed values z."""

    scores: Float[Tensor, "*batch query key"]
    weights: Float[Tensor, "*batch query key"]
    z: Float[Tensor, "*batch query d_value"]


def scaled_dot_scores(
    query: Float[Tensor, "*batch query d_head"], key: Float[Tensor, "*batch key d_head"], scale: float | None = None
) -> Float[Tensor, "*batch query key"]:
    """How well each query fits each key: q·k times `scale`.

    None: 1/sqrt(d_head), so that unit Gaussians score with variance 1.

    >>> scaled_dot_scores(torch.ones(1, 4), torch.ones(2, 4)).tolist()
    [[2.0, 2.0]]
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return query @ key.transpose(-2, -1) * scale


def scaled_dot_product_attention(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    normalizer: Normalizer = SOFTMAX,
) -> Attended:
    """Each query's average of the values, weighted by how well it fits their keys.

    visible: boolean, True = may look; bias: added to the scores; both broadcast to [*batch query key].
    A query that may look at nothing gets zeros (`attnprobe.attention.masks.blind_rows` says which).
    This is the formula alone, unseen by the seam; `MultiHeadAttention` is what a model is made of.

    >>> one, two = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    >>> scaled_dot_product_attention(one, two, torch.tensor([[1.0], [3.0]])).z.tolist()
    [[2.0]]
    """
    scores = scaled_dot_scores(query, key, scale)
    scores = mask_scores(scores if bias is None else scores + bias, visible)
    weights = normalizer(scores)
    return Attended(scores, weights, torch.matmul(weights, value))
