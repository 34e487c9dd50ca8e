"""Recipes: what single types and families need beyond the generic rules."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn

Tweak = Callable[[Any], None]
Inputs = Callable[[nn.Module, Any], dict[str, Any]]

_TWEAKS: dict[str, list[Tweak]] = {}
_INPUTS: dict[str, Inputs] = {}
_CLASSES: dict[str, str] = {}
_STARTS: dict[str, Callable[[], Any]] = {}
_PARTS: dict[str, tuple[str, str]] = {}
_KWARGS: dict[str, dict[str, Any]] = {}


def tweak(*model_types: str) -> Callable[[Tweak], Tweak]:
    """The function changes a shrunken config of these types, also where it is a part of another one."""

    def keep(function: Tweak) -> Tweak:
        for model_type in model_types:
            _TWEAKS.setdefault(model_type, []).append(function)
        return function

    return keep


def inputs(*model_types: str) -> Callable[[Inputs], Inputs]:
    """The function makes all keyword arguments of `forward` for models of these types, from model and config."""

    def keep(function: Inputs) -> Inputs:
        _INPUTS.update(dict.fromkeys(model_types, function))
        return function

    return keep


def settings(model_types: str, **values: Any) -> None:
    """Config fields of these types (separated by spaces), given to the constructor after the generic ones."""
    for model_type in model_types.split():
        _KWARGS.setdefault(model_type, {}).update(values)


def model_class(**names: str) -> None:
    """The class to build, by model type (an underscore for each dash)."""
    _CLASSES.update(names)


def start(model_type: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """The function makes the config to shrink, for types whose config class alone does not make one."""

    def keep(function: Callable[[], Any]) -> Callable[[], Any]:
        _STARTS[model_type] = function
        return function

    return keep


def part(model_type: str, field: str, name: str) -> None:
    """Builds a part in place of a whole without a forward: the class for the config in the field."""
    _PARTS[model_type] = (field, name)


@cache
def _recipes() -> None:
    package = importlib.import_module("benchmarks.tiny_models.recipes")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def tweaks_of(model_type: str) -> list[Tweak]:
    """The functions that change a config of this type."""
    _recipes()
    return _TWEAKS.get(model_type, [])


def inputs_of(model_type: str) -> Inputs | None:
    """The function that makes the inputs of this type, if it has one of its own."""
    _recipes()
    return _INPUTS.get(model_type)


def settings_of(model_type: str) -> dict[str, Any]:
    """Config fields that this type sets itself."""
    _recipes()
    return _KWARGS.get(model_type, {})


def class_of(model_type: str) -> str | None:
    """The class that a recipe names for this type."""
    _recipes()
    return _CLASSES.get(model_type.replace("-", "_"))


def start_of(model_type: str) -> Callable[[], Any] | None:
    """The function that makes the config to shrink, if the type has one of its own."""
    _recipes()
    return _STARTS.get(model_type)


def part_of(model_type: str) -> tuple[str, str] | None:
    """The field and the class to build in place of the whole."""
    _recipes()
    return _PARTS.get(model_type)
