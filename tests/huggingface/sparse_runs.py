"""Runs a model under its layouts, without the rest of attnprobe: what they give, and what putting z back does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnprobe.models.huggingface.sparse import Call, LaidOut, Run, layout_of


class Watch(TorchFunctionMode):
    """Notes every call of torch while a run is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[nn.Module, list[Call], dict[str, list[Any]]]] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.open:
            self.open[-1][1].append(Call(getattr(func, "__name__", ""), args, kwargs or {}, out))
        return out


@dataclass
class Seen:
    """What one pass of a model showed: its output, each run with its parts, and the paths of the modules."""

    output: Any = None
    runs: list[tuple[str, Run, list[LaidOut]]] = field(default_factory=list)

    @property
    def parts(self) -> list[tuple[str, LaidOut]]:
        return [(path, part) for path, _, parts in self.runs for part in parts]


Change = Callable[[LaidOut], Tensor | None]


def run(module: nn.Module, inputs: dict[str, Any], change: Change | None = None) -> Seen:
    """One pass; `change` gives the z to put in the place of a part's z, None to leave it."""
    seen, watch = Seen(), Watch()
    first = next(v for name, v in inputs.items() if isinstance(v, Tensor))
    with _hooked(module, watch, seen, first.shape[1] if first.ndim == 2 else None, change or (lambda part: None)):
        seen.output = module(**inputs)
    return seen


@contextmanager
def _hooked(module: nn.Module, watch: Watch, seen: Seen, n_tokens: int | None, change: Change) -> Iterator[None]:
    handles = []

    def end(path: str, part: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        _, calls, children = watch.open.pop()
        noted = Run(part, args, kwargs, output, tuple(calls), children, n_tokens)
        parts = list(layout_of(part)(noted))
        seen.runs.append((path, noted, parts))
        for laid_out in parts:
            new = change(laid_out)
            output = output if new is None else laid_out.put(output, new)
        return output

    def child(name: str, output: Any) -> None:
        watch.open[-1][2].setdefault(name, []).append(output)

    for path, part in module.named_modules():
        if layout_of(part) is None:
            continue
        handles.append(part.register_forward_pre_hook(lambda m, _: watch.open.append((m, [], {}))))
        handles.append(
            part.register_forward_hook(lambda m, a, k, o, path=path: end(path, m, a, k, o), with_kwargs=True)
        )
        handles += [
            c.register_forward_hook(lambda m, a, o, name=name: child(name, o) if watch.open else None)
            for name, c in part.named_children()
        ]
    try:
        with watch:
            yield
    finally:
        for handle in handles:
            handle.remove()


def twice(inputs: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A batch of two examples."""
    return {k: torch.cat([v, other[k]]) if isinstance(v, Tensor) else v for k, v in inputs.items()}
