"""While its tests run, the package's functions are called with what their signatures say, shapes included."""

import importlib
import inspect
import sys

import jaxtyping
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import TypeCheckError

from attnprobe.attention.scores import dot_scores
from attnprobe.errors import nearest

PACKAGE = "attnprobe."


def functions():
    """Functions and methods of the modules that are loaded, with what each is annotated with."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(PACKAGE)]
    classes = [one for module in modules for one in vars(module).values() if inspect.isclass(one)]
    for owner in (*modules, *classes):
        for one in vars(owner).values():
            if inspect.isfunction(one) and (one.__module__ or "").startswith(PACKAGE) and not made(one):
                yield one, inspect.unwrap(one).__annotations__


def made(function):
    """Whether a dataclass, a tuple with names or the like wrote it."""
    return not inspect.unwrap(function).__code__.co_filename.endswith(".py")


def test_every_function_with_annotations_is_checked():
    importlib.import_module("attnprobe.comparison")  # and with it much of the package
    found = list(functions())
    assert len(found) > 100
    plain = [one for one, said in found if said and not hasattr(one, "__wrapped__")]
    assert [
        f"{one.__module__}.{one.__qualname__}" for one in plain if beartype(one) is not one
    ] == []  # nothing to check


def test_axes_of_one_name_are_compared():
    query, key = torch.zeros(2, 3, 4), torch.zeros(2, 5, 4)
    assert dot_scores(query, key).shape == (2, 3, 5)
    with pytest.raises(TypeCheckError, match="dot_scores"):
        dot_scores(query, torch.zeros(2, 5, 6))


def test_types_are_compared_where_no_shape_is_named():
    assert "rollout" in nearest("rolout", ["rollout"])
    with pytest.raises(BeartypeCallHintViolation, match="nearest"):
        nearest("rolout", 1)


def maker(number: int):
    """What the import hook makes of a function within a function."""

    def inner(given: int, more: int = 0) -> int:
        return given + more + number if given >= 0 else "no number"

    return jaxtyping.jaxtyped(typechecker=beartype)(inner)


def test_functions_within_functions_are_checked_each_time_they_are_made():
    one, other = maker(1), maker(10)
    assert (one(1), other(1), one(2, more=3), other(2, more=3)) == (2, 11, 6, 15)
    assert list(inspect.signature(other).parameters) == ["given", "more"]
    for made_again in (one, other):
        for wrong in (lambda f=made_again: f("a"), lambda f=made_again: f(1, more="a"), lambda f=made_again: f(-1)):
            with pytest.raises(BeartypeCallHintViolation):
                wrong()
