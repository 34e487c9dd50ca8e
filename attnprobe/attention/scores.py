"""Scores, and attention from scratch: how well query i fits key j, made into weights, which average the values.

scores_ij  = score(q_i, k_j) + bias_ij     -inf where query i may not look at key j
weights_i  = normalizer(scores_i)          softmax: sums to 1 over the keys
z_i        = sum_j weights_ij v_j

score(q, k) is a function of query and key alone, to [*batch query key]:
    scaled_dot   q·k / sqrt(d)             Vaswani et al. 2017, section 3.2.1
    dot          q·k                       Luong et al. 2015, section 3.1
`attnprobe.attention.learned_scores` has those with parameters of their own: general, location, additive.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.masks import fitting_bias, fitting_mask, mask_scores
from attnprobe.site import SOFTMAX, Normalizer

Score = Callable[[Tensor, Tensor], Tensor]


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

    >>> import torch
    >>> scaled_dot_scores(torch.ones(1, 4), torch.ones(2, 4)).tolist()
    [[2.0, 2.0]]
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return (query * scale) @ key.mT  # the query is the smallest thing to scale


def dot_scores(
    query: Float[Tensor, "*batch query d_head"], key: Float[Tensor, "*batch key d_head"]
) -> Float[Tensor, "*batch query key"]:
    """q·k as it is; its variance grows with d_head."""
    return query @ key.mT


SCORES: dict[str, Score] = {"scaled_dot": scaled_dot_scores, "dot": dot_scores}


def full_scores(
    query: Tensor,
    key: Tensor,
    *,
    score: Score = scaled_dot_scores,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """Scores with the bias added and -inf where `visible` (boolean, True = may look) is False.

    Errors: `InputError` for a mask that is not boolean, or a mask or bias that does not broadcast to the scores.
    """
    scores = score(query, key)
    visible, bias = fitting_mask(visible, scores.shape), fitting_bias(bias, scores.shape)
    return mask_scores(scores if bias is None else scores + bias, visible)


def attend(
    score: Score,
    query: Tensor,
    key: Tensor,
    value: Float[Tensor, "*batch key d_value"],
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    normalizer: Normalizer = SOFTMAX,
) -> Attended:
    """Attention with any score and any normalizer; visible, bias: as in `full_scores`.

    A query that may look at nothing gets zeros (`attnprobe.attention.masks.blind_rows` says which).
    This is the formula alone, unseen by the seam; `MultiHeadAttention` is what a model is made of.
    """
    scores = full_scores(query, key, score=score, visible=visible, bias=bias)
    weights = normalizer(scores)
    return Attended(scores, weights, weights @ value)


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
    """Each query's average of the values, weighted by how well it fits their keys; `attend` with the usual score.

    >>> import torch
    >>> one, two = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    >>> scaled_dot_product_attention(one, two, torch.tensor([[1.0], [3.0]])).z.tolist()
    [[2.0]]
    """
    score = partial(scaled_dot_scores, scale=scale)
    return attend(score, query, key, value, visible=visible, bias=bias, normalizer=normalizer)
