"""Notes of an example as JSON holds them, and back."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

_TUPLE = "__tuple__"


def _packed(value: Any) -> Any:
    """A value as JSON holds it; tuples are marked, since JSON has lists alone."""
    if isinstance(value, tuple):
        return {_TUPLE: [_packed(v) for v in value]}
    if isinstance(value, list):
        return [_packed(v) for v in value]
    return {k: _packed(v) for k, v in value.items()} if isinstance(value, dict) else value


def unpacked(value: Any) -> Any:
    """What `packed_notes` made, as it was."""
    if isinstance(value, list):
        return [unpacked(v) for v in value]
    if not isinstance(value, dict):
        return value
    return tuple(map(unpacked, value[_TUPLE])) if set(value) == {_TUPLE} else {k: unpacked(v) for k, v in value.items()}


def packed_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Notes that JSON can hold; the others are left out with a warning."""
    packed = {}
    for name, value in notes.items():
        try:
            json.dumps(_packed(value))
        except (TypeError, ValueError):
            warnings.warn(f"the note '{name}' ({type(value).__name__}) is not saved: JSON cannot hold it", stacklevel=3)
        else:
            packed[name] = _packed(value)
    return packed
