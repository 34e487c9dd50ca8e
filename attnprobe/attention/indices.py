"""Heads, layers and positions by number: one, several, or None for all; what is no such number is refused by name."""

from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import EditError, InputError
from attnprobe.site import Place, Site

Index = int | Sequence[int] | None

_MANY = {"query": "queries"}


def numbers(index: Any, noun: str = "number") -> tuple[int, ...] | None:
    """The numbers that were given, None for all; `InputError` for what is none, as a text or True.

    >>> numbers(2), numbers([0, 3]), numbers(None)
    ((2,), (0, 3), None)
    """
    if index is None:
        return None
    many = _MANY.get(noun, f"{noun}s")
    given = index.tolist() if hasattr(index, "tolist") else index
    several = (given,) if isinstance(given, Integral) else given
    if isinstance(several, str) or not isinstance(several, Collection) or not all(map(_is_whole, several)):
        raise InputError(f"a {noun} is a whole number, several in a list, None for all {many}; got {index!r}")
    if not several:
        raise InputError(f"got no {noun}: {index!r}; give one, or None for all {many}")
    return tuple(map(int, several))


def _is_whole(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def positions(index: Index, n: int, noun: str, place: Place) -> Tensor:
    """The chosen numbers of 0 to n - 1 as a tensor; `EditError` for one that is not there."""
    check(index, n, noun, place)
    return torch.arange(n) if index is None else torch.tensor(numbers(index, noun))


def heads_of(heads: Index, site: Site) -> Tensor:
    """The chosen heads of a site."""
    return positions(heads, site.n_heads, "head", site.place)


def check(index: Index, n: int, noun: str, place: Place) -> None:
    """Raise for a number outside of 0 to n - 1."""
    for i in numbers(index, noun) or ():
        if not 0 <= i < n:
            raise EditError(f"{place} has {n} {_MANY.get(noun, f'{noun}s')} (0 to {n - 1}), got {noun} {i}")
