"""From the axes that a model's own attention has to [row head query key], and back.

A product of weights and value comes as matmul, bmm or einsum, with any leading axes: [row head], heads merged into the
batch, windows or blocks beside the heads. `Product` brings its operands into one form, [lead… query key],
[lead… key d_value], [lead… query d_value]; `Heads` splits the leading axes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnprobe.errors import CaptureError, RowsError
from attnprobe.site import Place

Move = Callable[[Tensor], Tensor]

MATMULS = (
    torch.matmul,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.bmm,
    torch.Tensor.bmm,
)
ADDED = (torch.baddbmm, torch.Tensor.baddbmm, torch.Tensor.baddbmm_)
EINSUMS = (torch.einsum, torch.functional.einsum)
PRODUCTS = frozenset((*MATMULS, *ADDED, *EINSUMS))
# What the modules of the field call their number of heads. A hint alone: it must divide what is there.
HEAD_COUNTS = (
    "num_heads",
    "num_attention_heads",
    "n_heads",
    "n_head",
    "nhead",
    "nheads",
    "heads",
    "num_head",
    "num_attn_heads",
    "attention_heads",
)


@dataclass(frozen=True, eq=False)
class Operands:
    """The two factors of a product, and where each contracts: axes counted from the front."""

    left: Tensor
    right: Tensor
    left_axis: int
    right_axis: int
    equation: str | None = None


def operands_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operands | None:
    """The factors of a product of two tensors; None for anything else (more factors, vectors)."""
    if func in EINSUMS:
        return _einsum_operands(args)
    if func in ADDED:
        left, right = kwargs.get("batch1", args[1:2] and args[1]), kwargs.get("batch2", args[2:3] and args[2])
    else:
        left = args[0] if args else kwargs.get("input")
        right = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("mat2"))
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)) or left.ndim < 2 or right.ndim < 2:
        return None
    return Operands(left, right, left.ndim - 1, right.ndim - 2)


def _einsum_operands(args: tuple[Any, ...]) -> Operands | None:
    equation, *given = args
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = list(given[0])
    if not isinstance(equation, str) or len(given) != 2 or "->" not in equation:
        return None
    equation = _without_ellipsis(equation.replace(" ", ""), given[0].ndim, given[1].ndim)
    (left, right), out = equation.split("->")[0].split(","), equation.split("->")[1]
    contracted = [label for label in left if label in right and label not in out]
    if len(contracted) != 1:
        return None
    return Operands(given[0], given[1], left.index(contracted[0]), right.index(contracted[0]), equation)


def _without_ellipsis(equation: str, *n_axes: int) -> str:
    """An equation with "..." written out in labels that it does not use yet."""
    if "..." not in equation:
        return equation
    free = [chr(c) for c in range(ord("A"), ord("Z") + 1) if chr(c) not in equation]
    terms, out = equation.split("->")
    lengths = [n - len(term) + 3 for term, n in zip(terms.split(","), n_axes, strict=True) if "..." in term]
    labels = "".join(free[: max(lengths)])
    inputs = [
        term.replace("...", labels[len(labels) - (n - len(term) + 3) :])
        for term, n in zip(terms.split(","), n_axes, strict=True)
    ]
    return f"{','.join(inputs)}->{out.replace('...', labels)}"


@dataclass(frozen=True, eq=False)
class Product:
    """How a product of weights and value is brought into the form [lead… query key] @ [lead… key d_value]."""

    weights: Move
    value: Move
    z: Move
    back: Move = field(repr=False)


def product_of(given: Operands, weights_left: bool) -> Product:
    """The way into the common form, where the weights are the left (or the right) factor and the key is contracted."""
    if given.equation is not None:
        return _einsum_product(given.equation, weights_left)
    if weights_left:
        return Product(_same, _same, _same, _same)
    return Product(_turned, _turned, _turned, _turned)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _turned(tensor: Tensor) -> Tensor:
    return tensor.transpose(-1, -2)


def _einsum_product(equation: str, weights_left: bool) -> Product:
    """Leading axes are all of the weights but key and query, in the order that the weights have them in.

    The query is the last axis that the value has no part in; any before it are heads that share one value.
    """
    inputs, out = equation.split("->")
    weights, value = inputs.split(",") if weights_left else reversed(inputs.split(","))
    key = next(label for label in weights if label in value and label not in out)
    query = [label for label in weights if label not in value][-1:]
    lead = [label for label in weights if label not in (key, *query)]
    width = [label for label in value if label not in weights]
    whole = [*lead, *query, *width]
    return Product(
        lambda t: _grouped(t, weights, [lead, query, [key]]),
        lambda t: _grouped(t, value, [lead, [key], width]),
        lambda t: _grouped(t, out, [lead, query, width]),
        lambda t: t.reshape(_sizes(t, lead, query, width)).permute([whole.index(label) for label in out]),
    )


def _grouped(tensor: Tensor, labels: str, groups: list[list[str]]) -> Tensor:
    """Axes in the order of the groups; the first group stays apart, every other is merged into one axis.

    An axis that the tensor lacks has size 1.
    """
    first, *others = groups
    missing = [label for label in first if label not in labels]
    labels, tensor = labels + "".join(missing), tensor.reshape(*tensor.shape, *[1] * len(missing))
    moved = tensor.permute([labels.index(label) for group in groups for label in group])
    sizes = [math.prod(tensor.shape[labels.index(label)] for label in group) for group in others]
    return moved.reshape(*moved.shape[: len(first)], *sizes)


def _sizes(tensor: Tensor, lead: list[str], query: list[str], width: list[str]) -> tuple[int, ...]:
    if len(query) != 1 or len(width) != 1:
        raise ValueError("a product over several query axes has no way back")
    return tuple(tensor.shape)


@dataclass(frozen=True, eq=False)
class Heads:
    """How leading axes are split into batch rows and heads.

    axis: which of them holds the heads; n: how many heads. joined: heads lie on this axis and the next (groups of
    query heads beside the key heads that they share).
    """

    lead: tuple[int, ...]
    axis: int
    n: int
    joined: bool = False

    @classmethod
    def of(
        cls, lead: tuple[int, ...], n_heads: int | None, n_rows: int | None, *, heads_first: bool = False
    ) -> "Heads":
        """The axis as long as there are heads; else two that make them up; else one that batch and heads share.

        Behind the rows of the batch a single axis is the heads, whatever a module says. heads_first: windows lie behind
        the heads. Errors: `RowsError`, `CaptureError` where heads cannot be told from rows or windows.
        """
        if not lead:
            return cls(lead, 0, 1)
        if len(lead) == 2 and lead[0] == n_rows and not (n_rows > 1 and lead[1] == n_rows == n_heads):
            return cls(lead, 1, lead[1])
        if len(lead) == 2 and n_rows and n_rows > 1 and lead[0] == lead[1] == n_rows == n_heads:
            raise RowsError(f"{n_rows} inputs and as many heads cannot be told apart; give one input at a time")
        if n_heads:
            found = cls._said(lead, n_heads, n_rows, heads_first)
            if found is not None:
                return found
        if len(lead) == 1:
            return cls(lead, 0, lead[0] // n_rows if n_rows and lead[0] % n_rows == 0 else 1)
        return cls(lead, len(lead) - 1, lead[-1])

    @classmethod
    def _said(cls, lead: tuple[int, ...], n_heads: int, n_rows: int | None, heads_first: bool) -> "Heads | None":
        """Where as many heads as a module says are."""
        whole = [axis for axis, size in enumerate(lead) if size == n_heads]
        behind = [axis for axis in whole if axis > 0 or len(lead) == 1]
        if len(behind) > 1 and n_heads > 1 and not heads_first:
            raise CaptureError(
                f"attention over the axes {lead} has {n_heads} heads and as many windows or frames, which cannot be "
                "told apart; give an input of another size"
            )
        if whole:
            return cls(lead, (behind or whole)[0 if heads_first else -1], n_heads)
        pairs = [axis for axis in range(len(lead) - 1) if lead[axis] * lead[axis + 1] == n_heads and axis > 0]
        if pairs:
            return cls(lead, pairs[0], n_heads, joined=True)
        merged = [axis for axis, size in enumerate(lead) if size % n_heads == 0]
        return cls(lead, merged[0], n_heads) if merged else None

    def split(self, tensor: Tensor) -> Tensor:
        """[lead… a b] as [row head a b]; rows are all that is not a head, the first axis slowest."""
        a, b = tensor.shape[-2:]
        if not self.lead:
            return tensor.reshape(1, 1, a, b)
        tensor = tensor.expand(*self.lead, a, b) if tuple(tensor.shape[:-2]) != self.lead else tensor
        if self.joined:
            return tensor.flatten(self.axis, self.axis + 1).movedim(self.axis, -3).reshape(-1, self.n, a, b)
        rows = tensor.unflatten(self.axis, (self.lead[self.axis] // self.n, self.n))
        return rows.movedim(self.axis + 1, -3).reshape(-1, self.n, a, b)

    def merge(self, tensor: Tensor) -> Tensor:
        """[row head a b] as [lead… a b] again."""
        a, b = tensor.shape[-2:]
        if not self.lead:
            return tensor.reshape(a, b)
        if self.joined:
            around = (*self.lead[: self.axis], *self.lead[self.axis + 2 :])
            return tensor.reshape(*around, self.n, a, b).movedim(-3, self.axis).reshape(*self.lead, a, b)
        sizes = [*self.lead[: self.axis], self.lead[self.axis] // self.n, *self.lead[self.axis + 1 :]]
        return tensor.reshape(*sizes, self.n, a, b).movedim(-3, self.axis + 1).reshape(*self.lead, a, b)


def check_queries(place: Place, heads: Heads, shape: tuple[int, ...], n_heads: int | None) -> None:
    """`CaptureError` where heads look as if they were merged into the queries (keys that several heads share)."""
    n_queries, n_keys = shape[-2:]
    if n_heads and heads.n < n_heads and n_heads % heads.n == 0 and n_queries == n_keys * (n_heads // heads.n) > n_keys:
        raise CaptureError(
            f"{place}: {n_queries} queries for {n_keys} keys and {heads.n} of {n_heads} heads: heads seem to be merged "
            "into the queries, which attnprobe does not take apart"
        )


def n_heads_of(module: nn.Module) -> int | None:
    """How many heads a module says it has, itself or in its configuration; None where it does not say."""
    for said in (module, getattr(module, "config", None)):
        for name in HEAD_COUNTS:
            count = getattr(said, name, None)
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                return count
    return None


def softmax_axis(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The axis of a softmax counted from the front, None where it is not said."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return None if not isinstance(dim, int) else dim % max(1, scores_of(args, kwargs).ndim)


def scores_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a softmax was given."""
    given: Tensor = args[0] if args else kwargs["input"]
    return given


SOFTMAX_CALLS = frozenset((torch.softmax, torch.Tensor.softmax, functional.softmax, torch.special.softmax))
