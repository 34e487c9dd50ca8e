"""A module's parts, and its mode, borrowed and given back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
