"""From the first layer to the answer: what of a logit comes from each token (DecompX)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import CaptureError, InputError, NumericsError
from attnprobe.example import Example
from attnprobe.models.evaluator import count
from attnprobe.models.layers import block_of
from attnprobe.models.model import Model, Stack
from attnprobe.models.projections import projections
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row
from attnprobe.models.vectors.following import Follower
from attnprobe.target import ResolvedTarget

HeadBias = Literal["jointly", "by class"]


@dataclass(frozen=True, eq=False)
class Decomposed:
    """A number as a sum: `values` of the tokens, `constant` that no token took, both together are `total`.

    waiting: the maps whose biases were held back to the next norm. has_bias: whether the last map before the answer
    has a bias.
    """

    values: Float[Tensor, " token"]
    constant: float
    total: float
    waiting: tuple[str, ...]
    has_bias: bool


def decompose(model: Model, example: Example, target: ResolvedTarget, *, head_bias: HeadBias = "jointly") -> Decomposed:
    """The target as a sum over the tokens that go into the first layer.

    head_bias: the bias of the classifier is shared for all classes "jointly", or "by class".
    Errors: `InputError` for a target that is not linear in the logits, and for a network in which the states are not
    followed, with the module and the reason; `NumericsError` where the parts do not add up.
    """
    if target.function is None and target.scale != "logit":
        raise InputError(
            f"a {target.scale.replace('_', '-')} is no sum of what comes from each token; decompose the logit "
            "(Target(scale='logit'))"
        )
    stack = explained_stack(model, example, "self")
    head = _head(model, example, target)
    waiting = _waiting(model, stack)
    follower = follower_of(model, example, stack, waiting=waiting)
    try:
        return _run(model, example, target, follower, head, head_bias)
    except NumericsError:
        _run(model, example, target, replace(follower, checking=True), head, head_bias)  # names the first module
        raise


def follower_of(model: Model, example: Example, stack: Stack, kind: type[Follower] = Follower, **how: Any) -> Follower:
    """A follower for one pass of the example through the layers of a stack.

    Errors: `InputError` for a model with layers that mix positions without attention weights.
    """
    if model.mapless:
        raise InputError(
            f"{model.name} has layers that mix positions without attention weights ({model.mapless[0]}), and what they "
            "do to vectors of single tokens is not defined here"
        )
    blocks = frozenset(block_of(model.module, path, stack.paths) for path in stack.paths)
    return kind(model.module, example.n_tokens, blocks, attention=tuple(stack.paths), **how)


def refuse_unrun(model: Model, follower: Follower) -> None:
    """`InputError` where no layer ran as a module, so that no states could be taken as sources."""
    if follower.axis is None:
        raise InputError(
            f"{model.name} does not call its layers as modules, so the states that go into them are not seen"
        )


def _waiting(model: Model, stack: Stack) -> frozenset[str]:
    """The maps of values and outputs, whose biases the authors share out together, behind the residual."""
    try:
        found = projections(model, stack.name, stack.kind)
    except (InputError, CaptureError):
        return frozenset()
    return frozenset(path for layer in found for path in (layer.value_map, layer.output_map) if path is not None)


@torch.no_grad()
def _run(
    model: Model, example: Example, target: ResolvedTarget, follower: Follower, head: nn.Module | None, bias: HeadBias
) -> Decomposed:
    count(forward=example.n_tokens + 1)
    position = target.position if head is not None else None
    with _narrowed(head, position), follower.watching():
        logits = model.forward([Row(example)])
        refuse_unrun(model, follower)
        answer = follower.need(logits, "the answer")
        has_bias = follower.last_bias is not None and follower.last_bias[1][-1] == logits.shape[-1]
        if has_bias and follower.last_bias is not None:
            follower.last_bias[0].entrywise = bias == "by class"
        answer.share()
        y = (replace(target, position=0) if position is not None else target)(logits)
    found = follower.need(y, target.description)
    found.share()
    found.check()
    parts = found.parts()[:, 0].cpu()
    return Decomposed(parts[:-1], float(parts[-1]), float(y[0]), tuple(sorted(follower.waiting)), has_bias)


def _head(model: Model, example: Example, target: ResolvedTarget) -> nn.Module | None:
    """The map that gives the logits of every position, so that it can be run for one position alone; watched once."""
    if target.position is None:
        return None
    calls: list[tuple[nn.Module, tuple[int, ...]]] = []
    owner = threading.get_ident()

    def note(part: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        x = args[0] if args else None
        if not isinstance(x, Tensor) or not isinstance(output, Tensor) or not x.ndim == 3 == output.ndim:
            return
        # What makes nothing wider costs no more than a layer. Another thread may run the same module.
        if output.shape[-1] > x.shape[-1] and threading.get_ident() == owner:
            calls.append((part, (*x.shape[:2], output.shape[-1])))

    leaves = [part for part in model.module.modules() if next(part.children(), None) is None]
    handles = [part.register_forward_hook(note) for part in leaves]
    try:
        with torch.no_grad():
            count(forward=1)
            shape = tuple(model.forward([Row(example)]).shape)
    finally:
        for handle in handles:
            handle.remove()
    fitting = [part for part, size in calls if size == shape]
    return fitting[-1] if fitting and sum(part is fitting[-1] for part, _ in calls) == 1 else None


@contextmanager
def _narrowed(head: nn.Module | None, position: int | None) -> Iterator[None]:
    """Within the block the head sees one position alone: logits of all, with all their parts, take too much memory."""
    if head is None or position is None:
        yield
        return
    owner = threading.get_ident()

    def narrow(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0][:, position : position + 1], *args[1:]) if threading.get_ident() == owner else args

    handle = head.register_forward_pre_hook(narrow)
    try:
        yield
    finally:
        handle.remove()
