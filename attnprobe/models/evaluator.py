"""Rows in, targets out: the one place that loops over forward passes.

Batches rows of equal length, computes equal rows once, halves the batch when memory runs out, counts
passes, shows progress on long work.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.attention.seam import NOTHING, Keep, Tape
from attnprobe.capture import finite
from attnprobe.errors import AttnprobeError, CaptureError, InputError
from attnprobe.models.model import Model
from attnprobe.models.modes import version_of
from attnprobe.models.rows import Row
from attnprobe.models.shortcuts import Ask, asking, starts_of
from attnprobe.models.value_removal import with_edits
from attnprobe.target import ResolvedTarget

T = TypeVar("T")

# Tokens a batch: beyond this a CPU gains nothing more, and memory stays small.
BATCH_TOKENS = 2304


@dataclass
class Meter:
    """Counts single-row passes made while it is open."""

    forward: int = 0
    backward: int = 0
    reused: int = 0
    seconds: float = 0.0
    _started: float = field(default=0.0, repr=False)
    _token: object = field(default=None, repr=False)

    def __enter__(self) -> "Meter":
        self._started = time.perf_counter()
        self._token = _meters.set((*_meters.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._started
        _meters.reset(self._token)  # type: ignore[arg-type]


_meters: ContextVar[tuple[Meter, ...]] = ContextVar("attnprobe_meters", default=())
_memory: ContextVar[dict[object, Tensor] | None] = ContextVar("attnprobe_memory", default=None)
_batch_rows: ContextVar[int | None] = ContextVar("attnprobe_batch_rows", default=None)


def count(forward: int = 0, backward: int = 0, reused: int = 0) -> None:
    """Add passes to every open meter."""
    for meter in _meters.get():
        meter.forward += forward
        meter.backward += backward
        meter.reused += reused


@contextmanager
def remembering() -> Iterator[None]:
    """Within the block, a row that was evaluated once is not evaluated again."""
    token = _memory.set({})
    try:
        yield
    finally:
        _memory.reset(token)


@contextmanager
def batch_rows(n: int | None) -> Iterator[None]:
    """Within the block, at most `n` rows run at once (None: chosen by length)."""
    if n is not None and (not isinstance(n, Integral) or isinstance(n, bool) or n < 1):
        raise InputError(f"the rows of a batch are a whole number of at least 1, got {n!r}")
    token = _batch_rows.set(n)
    try:
        yield
    finally:
        _batch_rows.reset(token)


def batch_size(length: int) -> int:
    """Rows to run at once for inputs of this many tokens."""
    return _batch_rows.get() or max(1, BATCH_TOKENS // max(1, length))


def even_batches(total: int, size: int) -> int:
    """Rows a batch when `total` rows go in as few batches as `size` allows, all nearly of one length.

    >>> even_batches(50, 18), even_batches(3, 18), even_batches(64, 18)
    (17, 3, 16)
    """
    return math.ceil(total / max(1, math.ceil(total / size)))


def targets(
    model: Model, rows: Sequence[Row], target: Callable[[Tensor], Tensor], *, progress: str | None = None
) -> Float[Tensor, " row"]:
    """`target` of the logits of each row, without gradients, on the CPU, in the order given.

    Errors: `NumericsError` where an answer is not finite; `InputError` where not even one row fits in memory.
    """
    memory = _memory.get()
    known: dict[object, Tensor] = {} if memory is None else memory
    # The callables and examples stay in the key, so that an id cannot be given to another object meanwhile.
    version = version_of(model.module)
    keys = [(id(model), version, target, row.example, row.edits, row.key()) for row in rows]
    wanted = {key: row for key, row in zip(keys, rows, strict=True) if key not in known}
    count(reused=len(rows) - len(wanted))
    bar = tqdm(
        total=len(wanted), desc=progress, delay=1.0, leave=False, disable=None if progress else True, unit="pass"
    )
    with bar, torch.no_grad():
        groups: dict[tuple[int, int | None, object, int | None], list[tuple[object, Row]]] = {}
        for (key, row), start in zip(wanted.items(), starts_of(model, list(wanted.values()), target), strict=True):
            groups.setdefault((row.length, _position(row, target), _shapes(row), start), []).append((key, row))
        for (length, position, _, start), group in sorted(groups.items(), key=lambda item: item[0][0]):
            moved = replace(target, position=position) if isinstance(target, ResolvedTarget) else target
            ask = asking(start, partial(_ask, model, moved))
            _fill(group, ask, known, even_batches(len(group), batch_size(length)), bar)
    if not rows:
        return torch.zeros(0)
    return torch.stack([known[key] for key in keys])


def _shapes(row: Row) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Names and shapes of the inputs: only rows that are alike go through the model together."""
    return tuple(sorted((name, tuple(getattr(given, "shape", ()))) for name, given in row.example.inputs.items()))


def _position(row: Row, target: Callable[[Tensor], Tensor]) -> int | None:
    """Where the target's position lies in a row, which deletion may have moved."""
    position = target.position if isinstance(target, ResolvedTarget) else None
    if position is None or row.kept is None or row.operator != "delete":
        return position
    if "decoder_input_ids" in row.example.inputs:  # a step of the answer, which loses no token
        return position
    if position >= len(row.kept) or not bool(row.kept[position]):
        raise InputError(
            f"'delete' would take away position {position}, which is explained; use another operator, such as mean"
        )
    return int(row.kept[:position].sum())


def _fill(group: list, ask: Ask, known: dict, size: int, bar: tqdm) -> None:
    start = 0
    while start < len(group):
        part = group[start : start + size]
        answers = halving(partial(_first, ask, [row for _, row in part]), len(part), "rows")
        values = finite(
            "the model's output", answers.float().cpu() if answers.dtype != torch.float64 else answers.cpu()
        )
        known.update({key: value for (key, _), value in zip(part, values, strict=False)})
        size = min(size, len(values)) if len(values) < len(part) else size
        start += len(values)
        bar.update(len(values))


def _first(ask: Ask, rows: Sequence[Row], n: int) -> Tensor:
    return ask(rows[:n])


def _ask(model: Model, target: Callable[[Tensor], Tensor], rows: Sequence[Row]) -> Tensor:
    return target(logits(model, rows))


def of_each(
    model: Model, rows: Sequence[Row], read: Callable[[Tensor, Sequence[Row]], Sequence[T]], *, progress: str
) -> list[T]:
    """What `read` makes of the logits of a batch of rows, one thing a row; no gradients, in the order given."""
    found: dict[int, T] = {}
    groups: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.length, []).append(number)
    bar = tqdm(total=len(rows), desc=progress, delay=1.0, leave=False, disable=None, unit="pass")
    with bar, torch.no_grad():
        for length, left in groups.items():
            size = even_batches(len(left), batch_size(length))
            while left:
                part = [rows[number] for number in left[:size]]
                made = halving(partial(_read, model, part, read), len(part), "rows")
                found.update(zip(left, made, strict=False))
                bar.update(len(made))
                size, left = min(size, len(made)), left[len(made) :]
    return [found[number] for number in range(len(rows))]


def _read(
    model: Model, part: Sequence[Row], read: Callable[[Tensor, Sequence[Row]], Sequence[T]], n: int
) -> Sequence[T]:
    return read(logits(model, part[:n]), part[:n])


def logits(model: Model, rows: Sequence[Row]) -> Float[Tensor, " row *rest"]:
    """Logits of rows of one length in one pass; edits run at the seam, each for its own row."""
    count(forward=len(rows))
    rows = with_edits(model, rows)
    if not any(row.edits for row in rows):
        return model.forward(rows)
    answer = model.forward(rows, Tape(**edits_of(rows), keep=NOTHING, check=False))
    refuse_unseen(model)
    return answer


def edits_of(rows: Sequence[Row]) -> dict[str, Any]:
    """A tape's settings for rows that each carry their own edits."""
    return {"row_edits": [row.edits for row in rows], "n_rows": len(rows)}


def refuse_unseen(model: Model) -> None:
    """`CaptureError` where this model computes attention outside of the seam, which no edit or gradient would reach."""
    if model.unseen:
        raise CaptureError(
            f"{model.name}: attention outside of the seam at {', '.join(model.unseen)}; its edits and gradients would "
            "be incomplete"
        )


def differentiable(
    model: Model, rows: Sequence[Row], keep: Keep = NOTHING, *, required: bool = True
) -> tuple[Float[Tensor, " row *rest"], Tape | None]:
    """Logits that gradients flow through, and the tape with live tensors where `keep` asks for some.

    required: raise `InputError` where no gradient reaches the logits.
    """
    count(forward=len(rows), backward=len(rows))
    rows = with_edits(model, rows)
    with torch.enable_grad():
        if keep is NOTHING and not any(row.edits for row in rows):
            return _with_a_graph(model, model.forward(rows), required), None
        tape = Tape(**edits_of(rows), keep=keep, differentiable=True, check=False)
        answer = model.forward(rows, tape)
    refuse_unseen(model)
    return _with_a_graph(model, answer, required), tape


def _with_a_graph(model: Model, answer: Tensor, required: bool) -> Tensor:
    if answer.requires_grad or not required:
        return answer
    raise InputError(
        f"no gradient reaches the answer of {model.name} (quantized maps, or parts that run without gradients); "
        "use a method without gradients"
    )


def halving(run: Callable[[int], T], size: int, noun: str) -> T:
    """`run(size)`; when memory runs out, again with half the size, down to 1."""
    while True:
        try:
            return run(size)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if isinstance(error, AttnprobeError) or not out_of_memory(error):
                raise
            if size == 1:
                raise InputError(
                    f"not even 1 of the {noun} fits in memory; use a shorter input or a smaller model"
                ) from error
            size = max(1, size // 2)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    return (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "not enough memory" in str(error)
        or "can't allocate memory" in str(error)
    )
