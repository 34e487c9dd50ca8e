"""Registries: plain functions under their own names, one registry a signature.

A function is added with a decorator; its name is its name everywhere (Python, command line, tables,
report), the first line of its docstring is its description, its keyword-only arguments are its options.

>>> shapes = Registry("shape", module=None)
>>> @shapes.add(family="round", source="Euclid, book III")
... def circle(radius: float, *, digits: int = 2) -> float:
...     "Area of a circle."
...     return round(3.14159 * radius**2, digits)
>>> shapes["circle"].description, shapes["circle"].options
('Area of a circle.', {'digits': 2})
>>> shapes["circel"]
Traceback (most recent call last):
attnprobe.errors.InputError: no shape is named 'circel'; did you mean 'circle'?
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from attnprobe.errors import InputError, nearest

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """One registered function, with what people need to know about it."""

    name: str
    function: Callable[..., Any] = field(repr=False)
    family: str
    source: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]

    @property
    def options(self) -> dict[str, Any]:
        """The function's keyword-only arguments and their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def check_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options with the given ones filled in; an unknown one, or a value of a wrong type, is an `InputError`."""
        for name, value in given.items():
            if name not in self.options:
                raise InputError(f"'{self.name}' has no option '{name}'; {nearest(name, self.options or ['(none)'])}")
            hint = inspect.signature(self.function).parameters[name].annotation
            if value is not self.options[name] and not fits(value, hint):
                raise InputError(
                    f"option {name} of {self.name} is {in_words(hint)}, got {value!r} ({type(value).__name__})"
                    + (f"; {nearest(value, known)}" if (known := choices(hint)) and isinstance(value, str) else "")
                )
        options = {**self.options, **given}
        missing = [name for name, value in options.items() if value is inspect.Parameter.empty]
        if missing:
            raise InputError(
                f"'{self.name}' needs the option '{missing[0]}', which has no default; pass {missing[0]}=…"
            )
        return options


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; a hint that cannot be checked (a string, a type variable) lets all by.

    >>> fits(2, int), fits(True, int), fits(2, float), fits("5", int | None), fits("a", Literal["a", "b"] | int)
    (True, False, True, False, True)
    """
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if origin is Literal:
        return any(value == known and type(value) is type(known) for known in get_args(hint))
    if origin is Annotated:
        return fits(value, get_args(hint)[0])
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    kind = NoneType if hint is None else origin or hint
    return kind in (Any, inspect.Parameter.empty) or not isinstance(kind, type) or isinstance(value, kind)


def choices(hint: Any) -> list[Any]:
    """The values that an annotation names, those of its parts included."""
    parts = get_args(hint)
    return list(parts) if get_origin(hint) is Literal else [value for part in parts for value in choices(part)]


def in_words(hint: Any) -> str:
    """An annotation as people say it.

    >>> in_words(Literal["mean", "max"] | int), in_words(str | None)
    ("'mean' or 'max' or a whole number", 'a text or None')
    """
    if get_origin(hint) in (Union, UnionType, Literal):
        return " or ".join(repr(p) if get_origin(hint) is Literal else in_words(p) for p in get_args(hint))
    known = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", NoneType: "None"}
    return known.get(hint) or str(getattr(hint, "__name__", hint))


class Registry(Mapping[str, Entry]):
    """Entries by name. The folder (a package's dotted name) is scanned when first asked."""

    def __init__(self, noun: str, module: str | None, facts: tuple[str, ...] = ()) -> None:
        self.noun = noun
        self._module = module
        self._facts = frozenset(facts)
        self._entries: dict[str, Entry] = {}

    def add(self, *, family: str, source: str, **facts: Any) -> Callable[[F], F]:
        """Decorator that registers a function under its own name; `facts` must be known to this registry."""
        unknown = set(facts) - self._facts
        if unknown:
            raise InputError(f"a {self.noun} has no fact '{min(unknown)}'; {nearest(min(unknown), self._facts)}")

        def register(function: F) -> F:
            self._put(Entry(function.__name__, function, family, source, facts))
            return function

        return register

    def get_entry(self, method: "str | Callable[..., Any] | Entry") -> Entry:
        """The entry of a name, of a registered function, or a new nameless-family entry for any other callable."""
        if isinstance(method, Entry):
            return method
        if isinstance(method, str):
            return self[method]
        if not callable(method):
            raise InputError(f"the {self.noun} is a name or a function, got {type(method).__name__} {method!r}")
        name = getattr(method, "__name__", type(method).__name__)
        self._scan()
        known = self._entries.get(name)
        return (
            known
            if known is not None and known.function is method
            else Entry(name, method, "own", "given by the caller")
        )

    def _put(self, entry: Entry) -> None:
        old = self._entries.get(entry.name)
        here = (entry.function.__module__, entry.function.__qualname__)
        # A cell that is run twice in a notebook replaces its function; two functions with one name are a mistake.
        if old is not None and (old.function.__module__, old.function.__qualname__) != here:
            raise InputError(f"a {self.noun} named '{entry.name}' exists already (in {old.function.__module__})")
        self._entries[entry.name] = entry

    def _scan(self) -> None:
        if self._module is None:
            return
        name, self._module = self._module, None  # first, since the files that are imported ask this registry
        try:
            package = importlib.import_module(name)
            for found in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{name}.{found.name}")
        except BaseException:
            self._module = name  # a registry that lacks entries would be silent about it
            raise

    def __getitem__(self, name: str) -> Entry:
        self._scan()
        if name not in self._entries:
            raise InputError(f"no {self.noun} is named '{name}'; {nearest(name, self._entries)}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        self._scan()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._scan()
        return iter(sorted(self._entries, key=lambda n: (self._entries[n].family, n)))

    def __len__(self) -> int:
        self._scan()
        return len(self._entries)
