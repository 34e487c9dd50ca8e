"""What checks types in tests: jaxtyping where a signature names a shape, beartype alone where it names none.

jaxtyping opens a scope for axes at each call of each function of the package, and has arguments checked once more with
what is returned. Where no shape is named there are no axes to compare: the types are checked all the same, and the
small functions that run a hundred thousand times in a test cost a fraction.
"""

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable
from typing import Any

import jaxtyping

_with_shapes = jaxtyping.jaxtyped
# What is not plain in an annotation: shapes, and names in quotes, however deep they stand.
_CLASS, _HARD = re.compile(r"<class '[\w.]+'>"), re.compile(r"jaxtyping\.|'|ForwardRef")
# What beartype calls the function that its wrapper stands for.
_INSIDE = "__beartype_func"


def install() -> None:
    """From here on; before the package is imported."""
    jaxtyping.jaxtyped = _checked


def _checked(*, typechecker: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Stands for `jaxtyping.jaxtyped` in the modules that its import hook reads."""

    def decorated(item: Any) -> Any:
        if inspect.isfunction(item) and (again := _made_again(item)) is not None:
            return again
        if _is_plain(item):
            return _first(item, typechecker)
        if dataclasses.is_dataclass(item) and _is_plain(item.__init__):
            item.__init__ = typechecker(item.__init__)
            return item
        return _with_shapes(item, typechecker=typechecker)

    return decorated


def _is_plain(function: Any) -> bool:
    """Whether its signature names no shape, and nothing that is yet to be defined (jaxtyping lets that pass)."""
    said = (getattr(function, "__annotations__", None) or {}).values()
    return inspect.isfunction(function) and not any(_HARD.search(_CLASS.sub("", repr(one))) for one in said)


# Wrappers of functions that are made within others, by their code: such a function is made again at each call of the
# one around it, and writing its wrapper anew takes longer than most of what it does.
_inner: dict[types.CodeType, Any] = {}


def _first(function: Any, typechecker: Callable[[Any], Any]) -> Any:
    """The wrapper of a function; of one within another it is kept."""
    if "<locals>" in function.__qualname__ and function.__annotations__:
        wrapper = typechecker(_hollow(function))
        if _INSIDE in (wrapper.__kwdefaults__ or {}):
            _inner[function.__code__] = wrapper
            return _made_again(function)
    return typechecker(function)


def _made_again(function: Any) -> Any:
    """The wrapper that was kept, around another function of the same code and signature; None: there is none."""
    known = _inner.get(function.__code__)
    if known is None or known.__annotations__ != function.__annotations__:
        return None
    again = types.FunctionType(known.__code__, known.__globals__, known.__name__, known.__defaults__, known.__closure__)
    again.__kwdefaults__ = known.__kwdefaults__ | {_INSIDE: function}
    return functools.update_wrapper(again, function)


def _hollow(function: Any) -> Any:
    """A function of the same code and signature that holds on to nothing from around it."""
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    empty = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells or None
    )
    empty.__kwdefaults__ = function.__kwdefaults__
    for name in ("__annotations__", "__qualname__", "__module__"):
        setattr(empty, name, getattr(function, name))
    return empty
