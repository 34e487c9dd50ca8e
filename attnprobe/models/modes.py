"""A module's parts, and its mode, borrowed and given back."""

import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn

_lock = threading.Lock()
# Modules in evaluation for somebody: how many blocks are open, and which parts were in training before the first.
_borrowed: dict[int, tuple[int, list[nn.Module]]] = {}


def parts_of(module: nn.Module) -> list[nn.Module]:
    """The module and every part of it, once each: what `modules()` gives, in a third of its time.

    It is asked several times a pass, and a pass of a small model takes milliseconds.
    """
    found: dict[int, nn.Module] = {}
    _walk(module, found)
    return list(found.values())


def _walk(part: nn.Module, found: dict[int, nn.Module]) -> None:
    if id(part) in found:
        return
    found[id(part)] = part
    for child in part._modules.values():
        if child is not None:
            _walk(child, found)


def parameters_of(module: nn.Module) -> list[nn.Parameter]:
    """The parameters of a module and all of its parts; one that is shared by several comes several times."""
    return [p for part in parts_of(module) for p in part._parameters.values() if p is not None]


# What the parameters of a module were when they were last looked at, and how often they have changed. They are held, so
# that the id of one that was replaced is not another's.
_looked_at: WeakKeyDictionary[nn.Module, tuple[list[nn.Parameter], list[int], int]] = WeakKeyDictionary()


def version_of(module: nn.Module) -> int:
    """Grows whenever a parameter was changed in place or replaced, so that nothing of before is taken for what is now.

    Changes of `parameter.data` are hidden from torch, and from this.
    """
    now = parameters_of(module)
    versions = [0 if p.is_inference() else p._version for p in now]
    before, known, number = _looked_at.get(module, ([], [], 0))
    if len(before) == len(now) and known == versions and all(map(operator.is_, before, now)):
        return number
    _looked_at[module] = (now, versions, number + 1)
    return number + 1


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Dropout off within the block; every part is back in its mode when the last block of any thread ends."""
    with _lock:
        users, training = _borrowed.get(id(module), (0, []))
        training = training if users else [part for part in parts_of(module) if part.training]
        _borrowed[id(module)] = (users + 1, training)
        for part in training:
            part.training = False
    try:
        yield
    finally:
        with _lock:
            users, training = _borrowed.pop(id(module))
            if users > 1:
                _borrowed[id(module)] = (users - 1, training)
            else:
                for part in training:
                    part.training = True
