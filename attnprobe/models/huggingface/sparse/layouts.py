"""What a layout is given, what it gives back, and where layouts are found."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.errors import CaptureError
from attnprobe.site import RowSum


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a torch function within a run: its name, what it got, what it gave."""

    name: str
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    out: Any = field(repr=False)


@dataclass(frozen=True, eq=False)
class Run:
    """One run of an attention module: its inputs, its output, and the calls inside (softmax, products, exp, gather).

    children: outputs of its direct child modules by name, in the order in which they ran. n_tokens: how many tokens the
    model itself was given, None where that is not known; a layout cuts off what a model pads behind them.
    """

    module: nn.Module
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    output: Any = field(repr=False)
    calls: tuple[Call, ...] = field(default=(), repr=False)
    children: dict[str, list[Any]] = field(default_factory=dict, repr=False)
    n_tokens: int | None = None

    def named(self, *names: str) -> list[Call]:
        """The calls of the named functions, in order: run.named("softmax")."""
        return [call for call in self.calls if call.name in names]

    def call(self, index: int, *names: str) -> Call:
        """Call number `index` among those of the named functions; raises if there were fewer."""
        calls = self.named(*names)
        if not -len(calls) <= index < len(calls):
            called = f"{type(self.module).__name__} called {' or '.join(names)} {len(calls)} times"
            raise CaptureError(f"{called}, call {index} was expected; its layout knows another version of it")
        return calls[index]

    def given(self, name: str) -> Any:
        """The input of the module's forward with this name, or its default."""
        bound = inspect.signature(self.module.forward).bind(*self.args, **self.kwargs)
        bound.apply_defaults()
        if name not in bound.arguments:
            raise CaptureError(f"{type(self.module).__name__}.forward has no '{name}'; its layout expects one")
        return bound.arguments[name]

    def child(self, name: str, index: int = 0) -> Any:
        """What a child module gave in its run number `index`."""
        runs = self.children.get(name, [])
        if index >= len(runs):
            raise CaptureError(f"{type(self.module).__name__}.{name} ran {len(runs)} times, run {index} was expected")
        return runs[index]


@dataclass(frozen=True, eq=False)
class LaidOut:
    """Attention of one run as (query, key), with the way back.

    put: (output, z) -> output, the module's output as it is with another z. It changes this part's share of the output
    alone, so the parts of a run are put back one after the other. visible: which keys a query may look at. row_sum:
    what the rows of weights sum to; a row of zeros is a query that this part says nothing of. name: what this part is,
    where a run has several.
    """

    weights: Float[Tensor, "row head query key"]
    value: Float[Tensor, "row head key d_value"]
    z: Float[Tensor, "row head query d_value"]
    put: Callable[[Any, Tensor], Any] = field(repr=False)
    query: Tensor | None = None
    key: Tensor | None = None
    scores: Float[Tensor, "row head query key"] | None = None
    visible: Bool[Tensor, "#row #head query key"] | None = None
    row_sum: RowSum = "one"
    kind: str = "self"
    name: str = ""


Layout = Callable[[Run], Sequence[LaidOut]]
_layouts: dict[str, Layout] = {}


def layout(*classes: str) -> Callable[[Layout], Layout]:
    """Register a layout for the attention modules of these class names; `*` in a name stands for anything."""

    def add(function: Layout) -> Layout:
        _layouts.update(dict.fromkeys(classes, function))
        return function

    return add


def layout_of(module: nn.Module) -> Layout | None:
    """The layout for a module, by the name of its class or of one that it comes from; None where there is none."""
    return _layout_of(tuple(c.__name__ for c in type(module).__mro__))


@cache
def _layout_of(names: tuple[str, ...]) -> Layout | None:
    _scan()
    return next((_layouts[pattern] for name in names for pattern in _layouts if fnmatchcase(name, pattern)), None)


@cache
def _scan() -> None:
    package = importlib.import_module(__package__)
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{found.name}")
