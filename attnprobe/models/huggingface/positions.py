"""Inputs without token ids: what their positions are, seen in one pass, and what they are called."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import AttnprobeError, CaptureError, InputError
from attnprobe.example import Axis, Example
from attnprobe.models.rows import Row

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel

# What a model may raise on an input that it does not read.
REFUSALS = (ValueError, TypeError, RuntimeError, LookupError, AttributeError, ImportError)


@dataclass(frozen=True)
class Seen:
    """Sizes of the first attention of a pass: batch rows (more than 1 where it keeps windows there), queries, keys."""

    n_rows: int
    n_queries: int
    n_keys: int

    @property
    def windows(self) -> str:
        """What its batch rows are, in words."""
        return f"attention runs apart in {self.n_rows} groups (windows, channels) of {self.n_keys} keys"


@dataclass(frozen=True)
class Named:
    """Names of positions, the first `n_special` of them special; what the whole input is called."""

    tokens: tuple[str, ...]
    n_special: int = 0
    text: str = ""
    axis: Axis = "positions"
    notes: Mapping[str, str] = field(default_factory=dict)

    def example(self, inputs: Mapping[str, Any], picture: Any = None) -> Example:
        """An example of these positions; each that is not special is a word of its own."""
        n, special = len(self.tokens), self.n_special
        return Example(
            text=self.text,
            inputs=inputs,
            tokens=self.tokens,
            spans=(None,) * n,
            is_special=(*[True] * special, *[False] * (n - special)),
            words=(*[None] * special, *range(n - special)),
            axis=self.axis,
            picture=picture,
            notes=self.notes,
        )


def numbered(inputs: Mapping[str, Any], seen: Seen) -> Named:
    """Positions by number, where nothing better is known."""
    main = next((name for name, given in inputs.items() if isinstance(given, Tensor)), "input")
    notes = {} if seen.n_rows == 1 else {"positions": seen.windows}
    return Named(
        tuple(f"position {index}" for index in range(seen.n_keys)),
        text=f"{main} of {seen.n_keys} positions",
        notes=notes,
    )


def check_one(inputs: Mapping[str, Any]) -> None:
    """Raise unless the first tensor of floats is one input; packed pictures, with a grid beside them, always are."""
    if any("grid" in name for name in inputs):
        return
    floats = [(n, v) for n, v in inputs.items() if isinstance(v, Tensor) and v.is_floating_point()]
    first = next(((name, given) for name, given in floats if not name.endswith("mask")), None)
    if first is None:
        named = ", ".join(f"{name}: {type(given).__name__}" for name, given in inputs.items()) or "nothing"
        raise InputError(f"an encoding needs input_ids, or tensors of floats such as pixel_values, got {named}")
    name, given = first
    if given.ndim < 2 or given.shape[0] != 1:
        what = "a picture is one tensor [channel height width]" if name == "pixel_values" else f"{name} is of one input"
        raise InputError(f"{what}, got {list(given.shape)}; give one at a time")


def first_attention(model: "HuggingFaceModel", inputs: Mapping[str, Any]) -> Seen:
    """Sizes of the first attention on inputs of these shapes; one pass for each shape.

    Errors: `InputError` with the model's own words where it does not read them, `CaptureError` without attention.
    """
    known: dict[object, Seen] = model.__dict__.setdefault("_first_attention", {})
    key = tuple(sorted((name, str(getattr(given, "shape", given))) for name, given in inputs.items()))
    if key not in known:
        known[key] = _watch(model, inputs)
    return known[key]


def _watch(model: "HuggingFaceModel", inputs: Mapping[str, Any]) -> Seen:
    tape = Tape(keep=Keep(reduce=lambda site: {"sizes": torch.tensor(site.need("weights").shape)}), check=False)
    run(model, Named(("input",), text="input").example(inputs), tape)
    if not tape.reduced:
        raise CaptureError(f"{model.name} ran no attention on this input; there is no attention to look at")
    rows, _, queries, keys = tape.reduced[0][1]["sizes"].tolist()
    return Seen(rows, queries, keys)


def run(model: "HuggingFaceModel", example: Example, tape: Tape | None = None) -> Tensor:
    """One pass without gradients; what the model raises on an input that it does not read becomes an `InputError`."""
    try:
        with torch.no_grad():
            return model.forward([Row(example)], tape)
    except AttnprobeError:
        raise
    except REFUSALS as error:
        shapes = ", ".join(f"{n} {list(v.shape)}" for n, v in example.inputs.items() if isinstance(v, Tensor))
        pixels = example.inputs.get("pixel_values")
        only = len(example.inputs) == 1 and isinstance(pixels, Tensor)
        what = f"a picture of {list(pixels.shape[1:])}" if only and pixels is not None else shapes
        raise InputError(f"{model.name} does not read {what}: {str(error) or type(error).__name__}") from error


def with_notes(example: Example, notes: Mapping[str, Any]) -> Example:
    """The same example with more to say about it."""
    return replace(example, notes={**example.notes, **notes})
