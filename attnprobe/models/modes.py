"""A module's mode, borrowed and given back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_lock = threading.Lock()
# Modules in evaluation for somebody: how many blocks are open, and which parts were in training before the first.
_borrowed: dict[int, tuple[int, list[nn.Module]]] = {}


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Dropout off within the block; every part is back in its mode when the last block of any thread ends."""
    with _lock:
        users, training = _borrowed.get(id(module), (0, []))
        training = training if users else [part for part in module.modules() if part.training]
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
