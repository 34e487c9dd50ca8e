"""What other tools' records are made of: a capture or attributions, and nothing else."""

from typing import Any

from attnprobe.attribution import Attribution
from attnprobe.capture import Capture
from attnprobe.errors import InputError

HOW = {
    Attribution: "an Attribution, as attnprobe.attribute(model, text, method) gives it",
    Capture: "a Capture, as model.capture(model.example(text)) gives it",
}


def a_capture(given: Any, function: str) -> Capture:
    """The capture itself; `InputError` that says what the function takes and what it got."""
    if not isinstance(given, Capture):
        raise _other(given, function, HOW[Capture])
    return given


def an_attribution(given: Any, function: str) -> Attribution:
    """The attribution itself; `InputError` that says what the function takes and what it got."""
    if not isinstance(given, Attribution):
        raise _other(given, function, HOW[Attribution])
    return given


def attributions(given: Any, function: str) -> list[Attribution]:
    """One attribution or several as a list; `InputError` for anything else, or among them."""
    several = list(given) if isinstance(given, list | tuple) else [given]
    return [an_attribution(one, function) for one in several]


def _other(given: Any, function: str, takes: str) -> InputError:
    return InputError(f"{function} takes {takes}; got {type(given).__name__}")
