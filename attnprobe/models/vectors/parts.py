"""What a tensor is made of: a part for each source, and one for constants that belong to no source yet."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, NumericsError
from attnprobe.models.anatomy import ROUNDING

# One tensor with all its parts may take this much memory; several are alive at once.
BUDGET_GIB = 2.0
# Parts may be off by this many times the rounding of one step. Numbers as large as HIDING are masks, and no states.
TOLERANCE = 10.0
HIDING = 1e20


def apart(states: Float[Tensor, " *shape"], axis: int) -> Float[Tensor, " part *shape"]:
    """Every token as the only source of its own position: part k holds the state of token k, the last part is 0."""
    n = states.shape[axis]
    fit(n + 1, states.numel(), states)
    parts = states.new_zeros(n + 1, *states.shape)
    index = torch.arange(n, device=states.device)
    parts.movedim(axis + 1, 1)[index, index] = states.movedim(axis, 0)
    return parts


def fit(n_parts: int, size: int, like: Tensor) -> None:
    """`InputError` where a tensor with its parts would take more memory than is allowed."""
    needed = n_parts * size * like.element_size() / 2**30
    if needed > BUDGET_GIB:
        raise InputError(
            f"one tensor with its {n_parts - 1} parts would take {needed:.1f} GiB, and {BUDGET_GIB:g} GiB is the most; "
            "memory grows with the square of the number of tokens: use a shorter input, or a method without vectors"
        )


def share_out(parts: Float[Tensor, " part *shape"], *, entrywise: bool = False) -> Float[Tensor, " part *shape"]:
    """The constants (last part) shared over the sources, by |constant · part| of each (AbsDot); the last part is 0.

    The dot product is over the last axis (entrywise: each entry for itself). Where it is 0 for all sources they share
    by length, and where there is no source at all the constants stay.

    >>> share_out(torch.tensor([[1.0, 0.0], [3.0, 0.0], [8.0, 0.0]])).tolist()
    [[3.0, 0.0], [9.0, 0.0], [0.0, 0.0]]
    """
    sources, constant = parts[:-1], parts[-1]
    if not bool(constant.any()):
        return parts
    dots, lengths = sources * constant, sources
    if not entrywise:
        dots, lengths = dots.sum(-1, keepdim=True), sources.norm(dim=-1, keepdim=True)
    weights, lengths = dots.abs(), lengths.abs()
    weights = torch.where(weights.sum(0) > 0, weights, lengths)
    total = weights.sum(0)
    shared = sources + constant * weights / total.where(total > 0, 1.0)
    return torch.cat([shared, constant.where(total == 0, 0.0)[None]])


@dataclass(eq=False)
class Carried:
    """What is known of the parts of one tensor: how to make them (when somebody asks), or why they are lost.

    path: the module that made the tensor. mixed: whether it has been through attention. A lost tensor depends on the
    states, but not as a sum of what comes from each: it may be a factor, never a summand, unless it is `fixed`: a
    choice that is held fast, or the same whatever the states are. rounding: of the coarsest numbers on its way.
    """

    path: str
    make: Callable[[], Tensor] | None
    lost: str | None = None
    mixed: bool = False
    rounding: float = 0.0
    fixed: bool = False
    entrywise: bool = False
    version: int = 0
    _whole: "weakref.ref[Tensor] | None" = None
    _parts: Tensor | None = field(default=None, repr=False)
    _share: bool = False

    def of(self, whole: Tensor) -> "Carried":
        """The same, bound to its tensor as it is now."""
        self._whole, self.version = weakref.ref(whole), whole._version
        return self

    def share(self) -> None:
        """From now on the constants belong to the sources."""
        self._share = True

    def parts(self) -> Float[Tensor, " part *shape"]:
        """The parts, made once; what they were made from is let go."""
        if self._parts is None:
            if self.make is None:
                raise InputError(f"{self.path}: {self.lost}")
            self._parts, self.make = self.make(), None
        if self._share:
            self._parts, self._share = share_out(self._parts, entrywise=self.entrywise), False
        return self._parts

    def check(self) -> None:
        """`NumericsError` where the parts add up to something else than the tensor, beyond rounding."""
        whole = None if self._whole is None else self._whole()
        if whole is None or not whole.numel():
            return
        parts = self.parts()
        size = max(float(whole.abs().max()), float(parts.abs().max()))
        if not size < HIDING:
            return
        error = float((parts.sum(0) - whole).abs().max()) / max(size, 1e-30)
        if not error <= TOLERANCE * max(self.rounding, ROUNDING.get(whole.dtype, 1e-4)):
            raise NumericsError(
                f"{self.path or 'the model'}: the parts of its output add up to something else than the output (off by "
                f"{error:.1e} of the largest number); this module cannot be decomposed"
            )
