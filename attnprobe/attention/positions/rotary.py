"""Rotary positions, RoPE (Su et al. 2021, section 3.2): queries and keys are turned by angles that grow with position.

(x_a, x_b) -> (x_a cos pω − x_b sin pω,  x_b cos pω + x_a sin pω)      ω_i = base^(−2i / n_rotated), pair i

R(i) q · R(j) k = q · R(j − i) k: scores depend on distances alone, lengths are kept, values carry no position.
Which numbers make a pair is the layout: "interleaved" (2i, 2i+1), as in the paper and GPT-J, or "halves"
(i, i + n/2), as in GPT-NeoX and Llama. The two differ by a permutation of the width (`to_halves`).
Partial rotation (GPT-J, GPT-NeoX, Phi) turns the first n_rotated numbers and leaves the rest alone.
"""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.attention.positions import Positions, at_least
from attnprobe.attention.positions.sinusoidal import check_layout, frequencies
from attnprobe.errors import InputError


def rotary_angles(
    positions: Int[Tensor, "*where"], n_rotated: int, *, base: float = 10_000.0
) -> Float[Tensor, "*where pair"]:
    """p ω_i, by how much each pair is turned at each position, in float64.

    >>> rotary_angles(torch.tensor([0, 3]), 4, base=100.0).round(decimals=6).tolist()
    [[0.0, 0.0], [3.0, 0.3]]
    """
    return positions[..., None].double() * frequencies(n_rotated, base).to(positions.device)


def rotate(
    x: Float[Tensor, "*batch token d_head"],
    positions: Tensor | None = None,
    *,
    base: float = 10_000.0,
    layout: str = "halves",
    n_rotated: int | None = None,
) -> Float[Tensor, "*batch token d_head"]:
    """Queries or keys, each turned by its position.

    positions: whole numbers, [token] or broadcast to x without its width; None: 0, 1, ….
    n_rotated: how many of the first numbers are turned (None: all).

    >>> rotate(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).tolist()
    [[1.0, 0.0]]
    """
    check_layout(layout)
    n_rotated = x.shape[-1] if n_rotated is None else n_rotated
    if n_rotated > x.shape[-1]:
        raise InputError(f"queries and keys have {x.shape[-1]} numbers, n_rotated is at most that, got {n_rotated}")
    positions = torch.arange(x.shape[-2], device=x.device) if positions is None else positions
    _check_positions(positions, x)
    angles = rotary_angles(positions, n_rotated, base=base)
    cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    turned, rest = x[..., :n_rotated], x[..., n_rotated:]
    first, second = _pairs(turned, layout)
    pair = [first * cosines - second * sines, second * cosines + first * sines]
    turned = torch.cat(pair, -1) if layout == "halves" else torch.stack(pair, -1).flatten(-2)
    return torch.cat([turned, rest], -1)


def _pairs(x: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    if layout == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    first, second = x.chunk(2, -1)
    return first, second


def _check_positions(positions: Tensor, x: Tensor) -> None:
    sizes = [1] * (x.ndim - 1 - positions.ndim) + list(positions.shape)
    fits = len(sizes) == x.ndim - 1 and all(n in (1, m) for n, m in zip(sizes, x.shape[:-1], strict=True))
    if positions.is_floating_point() or not fits:
        raise InputError(
            f"positions are whole numbers that fit {tuple(x.shape[:-1])}, got {positions.dtype} "
            f"{tuple(positions.shape)}; for one sequence give [token]"
        )


def to_halves(d_head: int) -> Int[Tensor, " d_head"]:
    """The order that turns one layout into the other: rotate(x, interleaved)[…, p] = rotate(x[…, p], halves).

    >>> to_halves(6).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    at_least("d_head", d_head, 2)
    return torch.cat([torch.arange(0, d_head, 2), torch.arange(1, d_head, 2)])


def rotary(*, base: float = 10_000.0, layout: str = "halves", n_rotated: int | None = None) -> Positions:
    """The scheme: queries and keys are turned before they meet; `scores(…).content` is without any turn."""
    check_layout(layout)
    return Positions("rotary", rotate=partial(rotate, base=base, layout=layout, n_rotated=n_rotated))
