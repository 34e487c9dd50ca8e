"""ALiBi (Press et al. 2022, section 3): scores fall in a straight line with distance, a slope a head, no parameters.

scores_ij = q_i · k_j / sqrt(d_head) − m_h |i − j|        m_h = 2^(−8h/H), h = 1 … H

With H no power of two: the slopes of the largest power of two below, then every second one of twice as many heads.
Without content, weights fall by e^(−m_h) a step, so a longer input changes little: the scheme has no end.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.positions import Positions, at_least, relative_positions


def alibi_slopes(n_heads: int, *, dtype: torch.dtype = torch.float64) -> Float[Tensor, " head"]:
    """m_h, how much a score falls a step, of each head.

    >>> alibi_slopes(2).tolist()
    [0.0625, 0.00390625]
    >>> alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    at_least("n_heads", n_heads, 1)
    power = 2 ** (n_heads.bit_length() - 1)
    first = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    others = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return torch.tensor((first + others)[:n_heads], dtype=dtype)


def alibi_bias(
    slopes: Float[Tensor, " head"], n_queries: int, n_keys: int | None = None
) -> Float[Tensor, "head query key"]:
    """−m_h |i − j| of each head and pair, the same in both directions; a causal mask hides one of them.

    >>> alibi_bias(torch.tensor([0.5]), 2, 3).tolist()
    [[[-0.5, 0.0, -0.5], [-1.0, -0.5, 0.0]]]
    """
    distance = relative_positions(n_queries, n_keys, device=slopes.device).abs()
    return 0.0 - slopes[:, None, None] * distance  # 0 − 0 is 0, where −(0) would be −0


def alibi(n_heads: int) -> Positions:
    """The scheme: the bias of `alibi_slopes`, added to scores; `scores(…).content` is without it."""
    return Positions("alibi", bias=partial(alibi_bias, alibi_slopes(n_heads)))
