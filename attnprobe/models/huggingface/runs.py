"""Which modules of a model are running, and how often each has begun."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    """A module in the middle of a run."""

    module: nn.Module
    path: str


@dataclass
class Runs:
    """The modules that are running in this thread, outermost first. ended: is told of every run that ends."""

    module: nn.Module
    begun: Callable[[nn.Module], None]
    ended: Callable[[Running], None] = lambda _: None
    active: list[Running] = field(default_factory=list)
    _owner: int = field(default_factory=threading.get_ident)

    @property
    def innermost(self) -> Running:
        """The module that is computing now; the model itself where none of its parts is."""
        return self.active[-1] if self.active else Running(self.module, "")

    @property
    def attending(self) -> str | None:
        """Path of the innermost running module that calls itself attention, if any."""
        return next((r.path for r in reversed(self.active) if is_attention(r.module)), None)

    @contextmanager
    def watching(self, parts: dict[str, nn.Module]) -> Iterator["Runs"]:
        """Within the block, runs of these modules (by path) are followed; runs in other threads are not ours."""
        handles: list[Any] = []
        for path, part in parts.items():
            running = Running(part, path)
            handles.append(part.register_forward_pre_hook(lambda *_, r=running: self._begin(r)))
            handles.append(part.register_forward_hook(lambda *_, r=running: self._end(r), always_call=True))
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, running: Running) -> None:
        if threading.get_ident() == self._owner:
            self.active.append(running)
            self.begun(running.module)

    def _end(self, running: Running) -> None:
        if threading.get_ident() == self._owner and running in self.active:
            while self.active.pop() is not running:  # an error left inner runs open
                pass
            self.ended(running)


def with_parameters(module: nn.Module) -> dict[str, nn.Module]:
    """Every part but linear maps and their like that holds parameters, by path: what may own an attention."""
    return {
        path: part
        for path, part in module.named_modules()
        if (next(part.children(), None) is not None or is_attention(part)) and next(part.parameters(), None) is not None
    }
