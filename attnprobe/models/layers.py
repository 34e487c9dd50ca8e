"""Run one layer again from the input that it had, with edits of its attention, without the layers around it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import NOTHING, Tape
from attnprobe.errors import InputError, RowsError
from attnprobe.example import Example
from attnprobe.models.evaluator import batch_size, count, edits_of, halving, refuse_unseen
from attnprobe.models.model import Model
from attnprobe.models.modes import evaluating
from attnprobe.models.rows import Row


@dataclass(frozen=True, eq=False)
class LayerCall:
    """One call of one layer (block) of a model: what went in and what came out, [1 token d_model]."""

    block: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Float[Tensor, "1 token d_model"]


def block_of(module: nn.Module, path: str, all_paths: Sequence[str]) -> nn.Module:
    """The layer around an attention module: the innermost entry of a ModuleList whose entries all hold attention.

    (T5 keeps its attention and feed-forward parts in a list of their own inside the block: that list is passed by.)
    """
    steps = path.split(".")
    found: list[str] = []
    for end in range(len(steps) - 1, 0, -1):
        parent = ".".join(steps[: end - 1])
        siblings = module.get_submodule(parent)
        if isinstance(siblings, nn.ModuleList):
            found.append(".".join(steps[:end]))
            if all(any(p.startswith(f"{parent}.{i}.") for p in all_paths) for i in range(len(siblings))):
                return module.get_submodule(found[-1])
    if not found:
        raise InputError(f"no layer was found around the attention at '{path}': it is in no ModuleList")
    return module.get_submodule(found[0])


def layer_calls(model: Model, example: Example, stack: str, kind: str = "self") -> list[LayerCall]:
    """One pass of the example; every call of every layer of a stack, in order."""
    found = next((s for s in model.stacks if (s.name, s.kind) == (stack, kind)), None)
    if found is None:
        raise InputError(f"{model.name} has no {kind}-attention stack '{stack}'")
    blocks = {id(b): b for b in (block_of(model.module, path, found.paths) for path in found.paths)}
    refuse_unseen(model)
    calls: list[LayerCall] = []
    owner = threading.get_ident()

    def note(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if threading.get_ident() != owner:  # another thread runs the same module
            return
        calls.append(LayerCall(block, args, kwargs, _states(output, 1).detach()))

    handles = [b.register_forward_hook(note, with_kwargs=True) for b in blocks.values()]
    try:
        with torch.no_grad():
            count(forward=1)
            model.forward([Row(example)])
    finally:
        for handle in handles:
            handle.remove()
    if len(calls) != found.n_layers:
        raise InputError(
            f"{model.name}: {found.n_layers} attention layers but {len(calls)} calls of the layers around them"
        )
    return calls


def rerun(model: Model, call: LayerCall, rows: Sequence[Row]) -> Float[Tensor, "row token d_model"]:
    """The output of one layer for each row's edits, from the input that the layer had."""
    outputs: list[Tensor] = []
    size = batch_size(call.output.shape[1])
    while len(outputs) < len(rows):
        part = rows[len(outputs) : len(outputs) + size]
        try:
            found = halving(partial(_run, model, call, part), len(part), "rows")
        except (RowsError, RuntimeError):
            if len(part) == 1:
                raise
            size = 1  # what the layer was given has the batch in an axis of its own (BLOOM's bias, XLNet's tokens)
            continue
        outputs.extend(found)
        size = min(size, len(found))
    return torch.stack(outputs)


def _run(model: Model, call: LayerCall, part: Sequence[Row], n: int) -> Tensor:
    rows = part[:n]
    args = tuple(_repeat(a, n) for a in call.args)
    kwargs = {name: _repeat(a, n) for name, a in call.kwargs.items()}
    tape = Tape(**edits_of(rows), keep=NOTHING, check=False)
    with torch.no_grad(), evaluating(model.module), model.listening(tape):
        output = call.block(*args, **kwargs)
    return _states(output, n)


def _states(output: Any, n_rows: int) -> Float[Tensor, "row token d_model"]:
    """The states that a layer gives out, the rows first; some models (XLNet) have the tokens first."""
    states: Tensor = output if isinstance(output, Tensor) else output[0]
    return states.transpose(0, 1) if states.shape[0] != n_rows == states.shape[1] else states


def _repeat(given: Any, n: int) -> Any:
    """Tensors of batch axis 1 repeated; tuples (rotary angles) one by one; the rest as it is."""
    if isinstance(given, Tensor):
        return given.expand(n, *given.shape[1:]) if given.ndim > 1 and given.shape[0] == 1 else given
    if isinstance(given, tuple):
        return tuple(_repeat(part, n) for part in given)
    return given
