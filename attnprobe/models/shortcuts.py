"""A cheaper way to the targets of some rows, which the evaluator takes within a block."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from attnprobe.models.model import Model
from attnprobe.models.rows import Row

Ask = Callable[[Sequence[Row]], Tensor]


@runtime_checkable
class Shortcut(Protocol):
    """A way to the targets of rows that need not run as a whole."""

    def starts(self, model: Model, rows: Sequence[Row], target: Callable[[Tensor], Tensor]) -> list[int | None]:
        """Which rows go together, by a number; None for those that run plainly."""
        ...

    def answers(self, rows: Sequence[Row], start: int) -> Float[Tensor, " row"]:
        """The targets of rows of one number."""
        ...


_running: ContextVar[Shortcut | None] = ContextVar("attnprobe_shortcut", default=None)


@contextmanager
def by_shortcut(shortcut: Shortcut) -> Iterator[None]:
    """Within the block, `targets` takes this way where it can."""
    token = _running.set(shortcut)
    try:
        yield
    finally:
        _running.reset(token)


def starts_of(model: Model, rows: Sequence[Row], target: Callable[[Tensor], Tensor]) -> list[int | None]:
    """Which rows go together, by the running shortcut; None for those that run plainly."""
    shortcut = _running.get()
    return [None] * len(rows) if shortcut is None or not rows else shortcut.starts(model, rows, target)


def asking(start: int | None, plainly: Ask) -> Ask:
    """How rows of one number are asked."""
    shortcut = _running.get()
    return plainly if shortcut is None or start is None else lambda rows: shortcut.answers(rows, start)
