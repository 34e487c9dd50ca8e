"""What a model's output says: the logits, whatever form the output has."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import InputError

# Looked for in this order, before any other tensor of floats.
PAIRS = ("image", "video", "audio", "speech")
COMPARED = (*(f"logits_per_{kind}" for kind in PAIRS), *(f"logits_{kind}_text" for kind in PAIRS))
NAMED = ("logits", "prediction_logits", *COMPARED, "last_hidden_state")


def answer_of(output: Any, n_rows: int | None = None) -> Tensor:
    """The logits of a model's output, whatever its form, [row ...]; of question answering [row token 2], start and end.

    A tensor of floats is an answer as it is; else what is called logits, else the last hidden states, else the first
    tensor of floats that the output holds. Of a model that compares every picture with every text of a batch the
    answer of a row is that of its own picture and texts, [row text].
    n_rows: how many rows went in, where that is known; an answer without the axis of the rows gets it.
    Errors: `InputError` for an output without a tensor of floats.
    """
    found = _found(output)
    if found is None:
        raise InputError(
            f"the model returned {_described(output)}; attnprobe needs a tensor of floats, or an output that holds one"
        )
    if n_rows is None:
        return found
    compared = any(found is _entry(output, name) for name in COMPARED)
    return _own_pairs(found, n_rows) if compared else _by_row(found, n_rows)


def _found(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output if output.is_floating_point() else None
    start, end = (_entry(output, name) for name in ("start_logits", "end_logits"))
    if start is not None and end is not None:
        return torch.stack([start, end], dim=-1)
    named = [entry for entry in (_entry(output, name) for name in NAMED) if entry is not None]
    return named[0] if named else _first(output)


def _entry(output: Any, name: str) -> Tensor | None:
    """A tensor of floats that an output has under a name."""
    found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
    return found if isinstance(found, Tensor) and found.is_floating_point() else None


def _first(output: Any) -> Tensor | None:
    """The first tensor of floats inside; a single number, such as a loss, only where there is nothing else."""
    inside = [found for found in _tensors(output) if found.is_floating_point()]
    return next((found for found in inside if found.ndim), next(iter(inside), None))


def _tensors(output: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists, mappings and dataclasses, in their order."""
    if isinstance(output, Tensor):
        yield output
        return
    for _, inside in _fields(output):
        yield from _tensors(inside)


def _fields(output: Any) -> list[tuple[str, Any]]:
    if isinstance(output, Mapping):
        return [(str(name), inside) for name, inside in output.items()]
    if isinstance(output, tuple | list):
        return [(str(index), inside) for index, inside in enumerate(output)]
    if is_dataclass(output) and not isinstance(output, type):
        return [(field.name, getattr(output, field.name)) for field in fields(output)]
    return []


def _described(output: Any) -> str:
    """The class of an output and its fields, in words."""
    if isinstance(output, Tensor):
        return f"a tensor of {str(output.dtype).removeprefix('torch.')}"
    named = ", ".join(f"{name}: {type(inside).__name__}" for name, inside in _fields(output))
    return f"{type(output).__name__} with {named}" if named else type(output).__name__


def _own_pairs(every: Tensor, n_rows: int) -> Tensor:
    """Of the scores [picture text] of a batch those of each row's own pictures and texts, [row text]."""
    if every.ndim != 2 or every.shape[0] != n_rows or every.shape[1] % n_rows:
        return _by_row(every, n_rows)
    rows = torch.arange(n_rows, device=every.device)
    return every.reshape(n_rows, n_rows, -1)[rows, rows]


def _by_row(found: Tensor, n_rows: int) -> Tensor:
    """The answer with one entry a row on its first axis; models of packed pictures lay the rows end to end."""
    if found.ndim and found.shape[0] == n_rows:
        return found
    if found.ndim > 1 and found.shape[0] == 1:
        found = found[0]  # all rows in one
    if found.ndim == 0 and n_rows == 1:
        return found[None]
    if found.ndim == 0 or found.shape[0] % n_rows:
        raise InputError(f"the model answered {list(found.shape)} to {n_rows} rows; run them one at a time")
    return found.reshape(n_rows, -1, *found.shape[1:])
