"""Addresses of heads: how people write them, and which head of a model they mean.

`5.1`, `(5, 1)`, `5,1` and `L5H1` are layer 5, head 1 of the stack that is explained; `decoder.cross.5.1` names the
stack and its kind as well (or one of them: `decoder.5.1`, `cross.5.1`). Layers and heads count from 0.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import explained_stack
from attnprobe.site import Kind

_PAIR = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*\)?")  # (5, 1) as it is typed on a command line
_WRITTEN = re.compile(
    r"(?:(?P<where>[^\d.][^.]*(?:\.[^\d.][^.]*)*)\.)?(?:L(?P<l>\d+)H(?P<h>\d+)|(?P<layer>\d+)\.(?P<head>\d+))", re.I
)
FORMS = "5.1, (5, 1), L5H1 or decoder.cross.5.1"


@dataclass(frozen=True, order=True)
class Head:
    """One head of a model: where it is. Writes itself as `stack.kind.layer.head`; `short` leaves the stack out."""

    stack: str
    kind: Kind
    layer: int
    head: int

    @property
    def short(self) -> str:
        """`layer.head`, which is enough where one stack is spoken of."""
        return f"{self.layer}.{self.head}"

    @property
    def where(self) -> dict[str, Any]:
        """Stack and kind, for edits."""
        return {"stack": self.stack, "kind": self.kind}

    def __str__(self) -> str:
        return f"{self.stack}.{self.kind}.{self.short}"


def head_of(model: Model, address: Any) -> Head:
    """The head that an address means: a `Head`, a pair (layer, head), or a text.

    Errors: `InputError` for what is no address, and for a stack, layer or head that the model does not have.
    """
    if isinstance(address, Head):
        stack, layer, head = _stack(model, [address.stack, address.kind], address), address.layer, address.head
    elif isinstance(address, str):
        found = _WRITTEN.fullmatch(_PAIR.sub(r"\1.\2", address.strip(), count=1))
        if found is None:
            raise InputError(f"'{address}' names no head; write it as {FORMS}")
        where = found["where"].split(".") if found["where"] else []
        stack = _stack(model, where, address)
        layer, head = (int(a or b) for a, b in ((found["l"], found["layer"]), (found["h"], found["head"])))
    elif is_pair(address):
        stack, (layer, head) = _stack(model, [], address), (int(part) for part in address)
    else:
        raise InputError(f"{address!r} names no head; write it as {FORMS}")
    return _checked(stack, layer, head)


def heads_named(model: Model, addresses: Any) -> tuple[Head, ...]:
    """Every head that was named once, in order: one address or several."""
    one = isinstance(addresses, str | Head) or is_pair(addresses) or not isinstance(addresses, Iterable)
    given: Iterable[Any] = [addresses] if one else addresses
    return tuple(dict.fromkeys(head_of(model, address) for address in given))


def heads_of_stack(stack: Stack) -> tuple[Head, ...]:
    """Every head of a stack, layer by layer."""
    return tuple(
        Head(stack.name, stack.kind, layer, head) for layer, n in enumerate(stack.n_heads) for head in range(n)
    )


def is_pair(given: Any) -> bool:
    """Two whole numbers, also those of numpy, in a sequence or an array."""
    listed = isinstance(given, Sequence) or (isinstance(given, np.ndarray) and given.ndim > 0)
    return listed and len(given) == 2 and all(isinstance(n, Integral) and not isinstance(n, bool) for n in given)


def _stack(model: Model, where: Sequence[str], address: Any) -> Stack:
    """The only stack that fits the names; without any, the one that explains an answer (cross before self)."""
    stacks = model.stacks
    fitting = [s for s in stacks if _fits(s, where)]
    if not fitting or (where and not any(where == [s.name, s.kind] for s in fitting) and len(fitting) > 1):
        known = [f"{s.name}.{s.kind}" for s in stacks]
        named = ".".join(where)
        hint = (
            f"several are meant ({', '.join(f'{s.name}.{s.kind}' for s in fitting)}); name one"
            if fitting
            else nearest(named, known)
        )
        raise InputError(f"'{address}': no one stack of {model.name} is '{named}'; {hint}")
    exact = [s for s in fitting if where == [s.name, s.kind]]
    return exact[0] if exact else next((s for s in fitting if s.kind == "cross"), fitting[0])


def _fits(stack: Stack, where: Sequence[str]) -> bool:
    """Whether the names before the numbers are those of this stack: both, its own, or its kind."""
    return ".".join(where) in ("", stack.name, stack.kind, f"{stack.name}.{stack.kind}")


def _checked(stack: Stack, layer: int, head: int) -> Head:
    where = f"{stack.name} {stack.kind}-attention has layers 0 to {stack.n_layers - 1}"
    if not 0 <= layer < stack.n_layers:
        raise InputError(f"{where}, heads 0 to {max(stack.n_heads) - 1}; got layer {layer}, head {head}")
    if not 0 <= head < stack.n_heads[layer]:
        raise InputError(f"{where}, layer {layer} heads 0 to {stack.n_heads[layer] - 1}; got head {head}")
    return Head(stack.name, stack.kind, layer, head)


def stack_of(model: Model, example: Example, given: Stack | str | None) -> Stack:
    """The stack that is meant: itself, by name ("decoder", "cross", "decoder.cross"), or for None the explained one."""
    if isinstance(given, Stack):
        return given
    if given is None:
        return explained_stack(model, example)
    fitting = [s for s in model.stacks if given in (s.name, s.kind, f"{s.name}.{s.kind}")]
    if len(fitting) != 1:
        known = ", ".join(f"{s.name}.{s.kind}" for s in model.stacks)
        raise InputError(f"no one stack of {model.name} is '{given}'; it has {known}")
    return fitting[0]
