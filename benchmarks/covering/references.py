"""What captured weights and edits are compared with: the model's own maps, its own eager functions, its projections."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface

from attnprobe.models.huggingface.fused import MULTI_HEAD, open_multi_head
from attnprobe.models.huggingface.traces import MOVES, TOLD, name_of
from benchmarks.tiny_models.built import Built
from benchmarks.tiny_models.outputs import tensors

ATTENTIONS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions", "vision_attentions")


def own_maps(built: Built) -> list[Tensor]:
    """Everything that the model gives out as attention weights: 4 axes, rows that sum to 1 or less; [] for none."""
    parameters = {**built.inputs, "output_attentions": True}
    try:
        with torch.no_grad():
            output = built.module(**parameters)
    except Exception:  # a model that does not know the option, or fails on it
        return []
    return [found for found in _named_maps(output) if _is_map(found)]


def _named_maps(output: Any) -> Iterator[Tensor]:
    for name, value in output.items() if isinstance(output, dict) else ():
        if "attentions" in name and value is not None:
            yield from tensors(value)
        elif isinstance(value, dict):
            yield from _named_maps(value)


def _is_map(found: Tensor) -> bool:
    if found.ndim != 4 or not found.is_floating_point() or not bool(torch.isfinite(found).all()):
        return False
    if found.shape[1] > 1 and torch.equal(found[:, 1:], found[:, :1].expand_as(found[:, 1:])):
        return False  # the mean of the heads, repeated
    return bool((found >= 0).all()) and float(found.sum(-1).max()) < 1 + 1e-4


@contextmanager
def own_functions() -> Iterator[list[Tensor]]:
    """Within the block, the weights that the models' own eager functions return, call by call (the registry alone)."""
    weights: list[Tensor] = []
    before = AttentionInterface.get_interface

    def get_interface(self: Any, implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        kernel = before(self, implementation, default)

        def attend(*args: Any, **kwargs: Any) -> Any:
            out = kernel(*args, **kwargs)
            if isinstance(out, tuple) and len(out) > 1 and isinstance(out[1], Tensor):
                weights.append(out[1].detach())
            return out

        return attend

    AttentionInterface.get_interface = get_interface  # type: ignore[method-assign]
    try:
        yield weights
    finally:
        AttentionInterface.get_interface = before  # type: ignore[method-assign]


def largest_difference(given: Tensor, expected: Tensor) -> float:
    """Largest difference of two tensors; infinite where one is not finite or the shapes differ."""
    if given.shape != expected.shape:
        return float("inf")
    if given.numel() == 0:
        return 0.0
    difference = float((given.double() - expected.double()).abs().max())
    return difference if difference == difference else float("inf")


def nearest_map(weights: Tensor, maps: list[Tensor]) -> float:
    """The difference of weights to the nearest of the maps of their size."""
    sizes = [found for found in maps if found.numel() == weights.numel()]
    return min((largest_difference(weights.flatten(), found.flatten()) for found in sizes), default=float("inf"))


def merged(z: Tensor) -> Tensor:
    """z [row head query d_value] as the input of a projection: [row query head*d_value]."""
    return z.transpose(1, 2).flatten(2)


def _orders(z: Tensor) -> Iterator[Tensor]:
    """z as it may be read: by head, heads merged, the query first, or the width before the query (convolutions)."""
    yield z
    yield merged(z)
    yield merged(z).transpose(0, 1)
    yield merged(z).transpose(1, 2)


# (number of the call, place of the argument, order of its axes)
Reading = tuple[int, int, int]


@dataclass
class _Readers(TorchFunctionMode):
    """Counts the calls of torch that compute with a tensor which holds z, whatever its axes; may cut a head out there.

    cut: calls in which a head's part of z is set to zero. found: the calls that read z, where nothing is to be cut.
    """

    z: Tensor
    head: int = 0
    cut: dict[int, tuple[int, int]] = field(default_factory=dict)
    found: list[Reading] = field(default_factory=list)
    n_calls: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is MULTI_HEAD:
            with self:
                return open_multi_head(*args, **(kwargs or {}))
        if name_of(func) in (*MOVES, *TOLD, "contiguous", "clone", "to", "copy_", "expand"):
            return func(*args, **(kwargs or {}))
        number, self.n_calls = self.n_calls, self.n_calls + 1
        if number in self.cut:
            place, order = self.cut[number]
            args = (*args[:place], args[place] * self._mask(args[place], order), *args[place + 1 :])
        elif not self.cut:
            self._look(number, args)
        return func(*args, **(kwargs or {}))

    def _look(self, number: int, args: tuple) -> None:
        for place, given in enumerate(args):
            if isinstance(given, Tensor) and given.numel() == self.z.numel() and given.dtype == self.z.dtype:
                flat = given.reshape(-1)
                orders = [i for i, laid in enumerate(_orders(self.z)) if torch.equal(flat, laid.reshape(-1))]
                if orders:
                    self.found.append((number, place, orders[0]))
                    return

    def _mask(self, given: Tensor, order: int) -> Tensor:
        ones = torch.ones_like(self.z)
        ones[:, self.head] = 0
        return list(_orders(ones))[order].reshape(given.shape)


def readers_of(built: Built, z: Tensor) -> list[Reading]:
    """The calls of torch that read z in a plain pass: the projection as a rule, a norm before it; [] for none."""
    with torch.no_grad(), _Readers(z) as reading:
        built.module(**built.inputs)
    return reading.found


def without_head(built: Built, readers: list[Reading], z: Tensor, head: int) -> list[Tensor]:
    """Outputs of the plain model with one head's part of what those calls read set to zero."""
    with torch.no_grad(), _Readers(z, head, {number: (place, order) for number, place, order in readers}):
        return list(tensors(built.module(**built.inputs)))
