"""Sinusoidal positions (Vaswani et al. 2017, section 3.5): a fixed table [token d_model] added to the embeddings.

PE(p)_{2i}   = sin(p ω_i)       ω_i = base^(−2i / d_model), i = 0 … d_model/2 − 1
PE(p)_{2i+1} = cos(p ω_i)

A shift by k is a rotation R_k of each pair, whatever p is: PE(p + k) = R_k PE(p); so PE(p)·PE(p') depends on p − p'
alone, and a linear map can look k positions back. The table has no end.
"""

from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.positions import Positions, at_least
from attnprobe.errors import InputError, nearest

Layout = Literal["interleaved", "halves"]


def frequencies(d_model: int, base: float = 10_000.0) -> Float[Tensor, " pair"]:
    """ω_i = base^(−2i / d_model) of each pair, from 1 down, in float64.

    >>> frequencies(4, base=100.0).tolist()
    [1.0, 0.1]
    """
    at_least("the width of positions", d_model, 2)
    if d_model % 2:
        raise InputError(f"positions turn pairs of numbers, so their width is even, got {d_model}")
    if base <= 0:
        raise InputError(f"base is a number above 0, got {base}")
    return base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)


def check_layout(layout: str) -> None:
    """Refuse a layout of pairs that is not known."""
    if layout not in get_args(Layout):
        raise InputError(f"pairs lie 'interleaved' or in 'halves', got '{layout}'; {nearest(layout, get_args(Layout))}")


def sinusoidal_table(
    n_tokens: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    layout: str = "interleaved",
    start: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "token d_model"]:
    """The positions start, start + 1, …, one a row.

    layout: "interleaved" as in the paper (sin, cos, sin, cos, …), "halves" as often in code (all sines, all cosines).

    >>> sinusoidal_table(2, 2)[0].tolist()
    [0.0, 1.0]
    """
    at_least("n_tokens", n_tokens, 1)
    check_layout(layout)
    angles = torch.arange(start, start + n_tokens, dtype=torch.float64)[:, None] * frequencies(d_model, base)
    sines, cosines = angles.sin().to(dtype), angles.cos().to(dtype)
    if layout == "halves":
        return torch.cat([sines, cosines], -1)
    return torch.stack([sines, cosines], -1).flatten(-2)


def shift_matrix(k: int, d_model: int, *, base: float = 10_000.0) -> Float[Tensor, "d_model d_model"]:
    """R_k with PE(p + k) = R_k PE(p) for every p (interleaved): a rotation by k ω_i in each pair, in float64.

    >>> torch.equal(shift_matrix(0, 4), torch.eye(4, dtype=torch.float64))
    True
    """
    angles = k * frequencies(d_model, base)
    turns = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], -1).unflatten(-1, (2, 2))
    return torch.block_diag(*turns)


def sinusoidal(d_model: int, *, base: float = 10_000.0, layout: str = "interleaved") -> Positions:
    """The scheme: the table, as long as the input, added to embeddings."""
    frequencies(d_model, base)
    check_layout(layout)
    return Positions("sinusoidal", table=partial(sinusoidal_table, d_model=d_model, base=base, layout=layout))
