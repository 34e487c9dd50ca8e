"""Which modules of a model are running, and how often each has begun."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn


def is_attention(module: nn.Module) -> bool:
    """Whether a module calls itself attention."""
    name = type(module).__name__.lower()
    return "attention" in name or "attn" in name


def attention_modules(module: nn.Module) -> list[str]:
    """Paths of the modules that call themselves attention, with their class."""
    return [f"{path} ({type(part).__name__})" for path, part in module.named_modules() if is_attention(part)]


@dataclass(frozen=True, eq=False)
class Running:
    """A module in the middle of a run. n_seen: sites that had been seen when it began."""

    module: nn.Module
    path: str
    n_seen: int = 0


@dataclass
class Runs:
    """The modules that are running in this thread, outermost first.

    begun: is told of every run that begins, and says how many sites were seen so far. ended: is told of every end.
    """

    module: nn.Module
    begun: Callable[[nn.Module], int]
    ended: Callable[[Running], None] = lambda _: None
    active: list[Running] = field(default_factory=list)
    _owner: int = field(default_factory=threading.get_ident)

    @property
    def innermost(self) -> Running:
        """The module that is computing now; the model itself where none of its parts is."""
        return self.active[-1] if self.active else Running(self.module, "")

    @property
    def attending(self) -> Running | None:
        """The innermost running module that calls itself attention, if any."""
        return next((running for running in reversed(self.active) if is_attention(running.module)), None)

    @contextmanager
    def watching(self, parts: dict[str, nn.Module]) -> Iterator["Runs"]:
        """Within the block, runs of these modules (by path) are followed; runs in other threads are not ours."""
        handles: list[Any] = []
        for path, part in parts.items():
            handles.append(part.register_forward_pre_hook(partial(self._begin, path)))
            handles.append(part.register_forward_hook(self._end, always_call=True))
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, path: str, module: nn.Module, *_: Any) -> None:
        if threading.get_ident() == self._owner:
            self.active.append(Running(module, path, self.begun(module)))

    def _end(self, module: nn.Module, *_: Any) -> None:
        if threading.get_ident() != self._owner or not any(running.module is module for running in self.active):
            return
        while (running := self.active.pop()).module is not module:  # an error left inner runs open
            pass
        self.ended(running)


def computing(module: nn.Module) -> dict[str, nn.Module]:
    """Every part that may own an attention, by path: what calls itself so, and what holds parts with parameters."""
    return {
        path: part
        for path, part in module.named_modules()
        if is_attention(part)
        or (next(part.children(), None) is not None and next(part.parameters(), None) is not None)
        or {name for name, _ in part.named_parameters(recurse=False)} - {"weight", "bias"}
    }
