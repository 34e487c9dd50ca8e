"""Follows scores from the product that made them to the softmax, and weights from the softmax to the value.

A trace hangs on a tensor by weak reference. It is carried through operations that move axes or change entries one by
one, and is lost in anything else: what is lost is reported by whoever looks, never guessed.
"""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

# Operations that change entries one by one, and those that only move axes. fmt: off
ENTRYWISE = frozenset(
    (
        "dropout",
        "dropout_",
        "alpha_dropout",
        "to",
        "type",
        "type_as",
        "float",
        "half",
        "bfloat16",
        "double",
        "clone",
        "contiguous",
        "detach",
        "mul",
        "mul_",
        "__mul__",
        "__rmul__",
        "__imul__",
        "multiply",
        "div",
        "div_",
        "__truediv__",
        "__itruediv__",
        "masked_fill",
        "masked_fill_",
        "where",
        "nan_to_num",
        "nan_to_num_",
        "add",
        "__add__",
        "__radd__",
        "sub",
        "__sub__",
        "__rsub__",
        "requires_grad_",
    )
)
MOVES = frozenset(
    (
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "view_as",
        "__getitem__",
        "narrow",
        "select",
        "transpose",
        "swapaxes",
        "swapdims",
        "permute",
        "T",
        "mT",
        "movedim",
        "split",
        "chunk",
        "unbind",
        "roll",
    )
)
# What only tells something of a tensor.
TOLD = frozenset(
    (
        "shape",
        "size",
        "dim",
        "ndim",
        "device",
        "dtype",
        "requires_grad",
        "numel",
        "is_cuda",
        "layout",
        "stride",
        "__len__",
        "is_contiguous",
        "is_floating_point",
        "element_size",
        "data_ptr",
        "grad_fn",
        "grad",
        "is_complex",
        "is_sparse",
        "is_quantized",
        "is_meta",
        "is_mps",
        "is_xpu",
        "is_nested",
        "__repr__",
        "__format__",
    )
)
# fmt: on


@dataclass(eq=False)
class Origin:
    """One softmax: where it ran, how many products used its weights, whether they went where none could follow."""

    path: str | None
    n_uses: int = 0
    lost: bool = False


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores on their way to a softmax: the factors of the product that made them."""

    left: Tensor
    right: Tensor
    equation: str | None

    def keys_are_right(self, axis: int, n_axes: int) -> bool:
        """Whether the axis that a softmax runs over came from the right factor."""
        if self.equation is None:
            return axis == n_axes - 1
        inputs, out = self.equation.split("->")
        left = inputs.split(",")[0]
        return len(out) != n_axes or out[axis] not in left

    def carried(self, name: str, given: Tensor, out: Tensor, step: Callable[[Tensor], Tensor]) -> "Scored | None":
        """The trace of what an operation made of the scores: anything with as many entries."""
        return self if out.numel() == given.numel() else None


@dataclass(frozen=True, eq=False)
class Weighed:
    """Weights on their way to the value: the softmax that made them, the axis of the keys, and the moves since."""

    scores: Tensor
    dtype: torch.dtype | None
    axis: int
    origin: Origin
    scored: Scored | None = None
    steps: tuple[Callable[[Tensor], Tensor], ...] = ()
    cut: bool = False
    keys_right: bool = True  # the keys were on the last axis of the scores

    def carried(self, name: str, given: Tensor, out: Tensor, step: Callable[[Tensor], Tensor]) -> "Weighed | None":
        """The trace of what an operation made of the weights; None where the keys' axis is lost."""
        if name in ENTRYWISE and out.shape == given.shape:
            return self
        if name not in MOVES:
            return None
        moved = _axis_after(name, given, out, step, self.axis)
        if moved is None:
            return None
        cut = self.cut or out.shape[moved] != given.shape[self.axis]
        return replace(self, axis=moved, steps=(*self.steps, step), cut=cut)

    def moved(self, tensor: Tensor) -> Tensor:
        """A tensor of the softmax's shape as the moves since then leave it."""
        for step in self.steps:
            tensor = step(tensor)
        return tensor


def _axis_after(name: str, given: Tensor, out: Tensor, step: Callable[[Tensor], Tensor], axis: int) -> int | None:
    """Where an axis lies after a move."""
    if name in ("transpose", "swapaxes", "swapdims", "permute", "T", "mT", "movedim"):
        # A tensor without entries whose sizes tell the axes apart.
        marks = step(torch.empty([index + 2 for index in range(given.ndim)], device="meta"))
        return list(marks.shape).index(axis + 2)
    tail = given.shape[axis + 1 :]
    moved = out.ndim - 1 - len(tail)
    same_tail = len(tail) == 0 or tuple(out.shape[-len(tail) :]) == tuple(tail)
    if moved < 0 or not same_tail:
        return None
    if out.shape[moved] == given.shape[axis] or name in ("__getitem__", "narrow", "split", "chunk"):
        return moved
    return None


T = TypeVar("T", Scored, Weighed)


@dataclass
class Traces(Generic[T]):
    """Traces by tensor; a tensor that is gone takes its trace along."""

    _found: dict[int, tuple[weakref.ref[Tensor], T]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._found)

    def of(self, tensor: Any) -> T | None:
        """The trace of a tensor, if it has one."""
        found = self._found.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def set(self, tensor: Tensor, trace: T) -> None:
        """Hang a trace on a tensor."""
        self._found[id(tensor)] = (weakref.ref(tensor), trace)

    def clear(self) -> None:
        """Forget every trace."""
        self._found.clear()

    def follow(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Carry the trace of the first argument that has one over to what came out; say where it is lost."""
        place = next((i for i, arg in enumerate(args) if isinstance(arg, Tensor) and self.of(arg) is not None), None)
        if place is None:
            for tensor in _nested((args, kwargs)):  # in a list, or by name
                self.lose(tensor)
            return
        given: Tensor = args[place]
        trace = self.of(given)
        followed = name in TOLD and not isinstance(out, Tensor)
        for index, tensor in _tensors(out):
            step = partial(_again, func, args, kwargs, place, index)
            carried = None if trace is None else trace.carried(name, given, tensor, step)
            if carried is not None:
                followed = True
                if tensor is not given:
                    self.set(tensor, carried)  # type: ignore[arg-type]
        if not followed:
            self.lose(given)

    def lose(self, tensor: Any) -> None:
        """Note that what a trace hangs on went where it cannot be followed."""
        trace = self.of(tensor)
        if isinstance(trace, Weighed):
            trace.origin.lost = True


def _nested(given: Any) -> Iterator[Tensor]:
    """Every tensor in nested arguments."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, dict):
        yield from _nested(tuple(given.values()))
    elif isinstance(given, (tuple, list)):
        for part in given:
            yield from _nested(part)


def _again(func: Any, args: tuple, kwargs: dict, place: int, index: int | None, new: Tensor) -> Tensor:
    """The same call with another tensor in one place, and of several that come out the one wanted."""
    made = func(*args[:place], new, *args[place + 1 :], **kwargs)
    found: Tensor = made if index is None else made[index]
    return found


def _tensors(out: Any) -> Iterator[tuple[int | None, Tensor]]:
    if isinstance(out, Tensor):
        yield None, out
    elif isinstance(out, (tuple, list)):
        yield from ((index, part) for index, part in enumerate(out) if isinstance(part, Tensor))


def name_of(func: Any) -> str:
    """What a torch function is called; a property goes by its own name."""
    name = getattr(func, "__name__", "")
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name
