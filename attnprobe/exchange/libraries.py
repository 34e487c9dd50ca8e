"""Other tools, imported when they are needed."""

import importlib
from typing import Any

from attnprobe.errors import InputError


def library(name: str, what: str) -> Any:
    """A package by its name; `InputError` that says what needs it where it is not installed, or does not load.

    >>> library("no_such_package", "a picture")
    Traceback (most recent call last):
    attnprobe.errors.InputError: a picture needs no_such_package, which is not installed: pip install no_such_package
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise InputError(f"{what} needs {name}, which is not installed: pip install {name}") from error
        raise InputError(f"{what} needs {name}, which is installed and does not load: {error}") from error
