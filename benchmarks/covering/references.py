"""What captured weights and edits are compared with: the model's own maps, its own eager functions, its projections."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from attnprobe.site import Site
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


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear map: nn.Linear, transformers' Conv1D, a convolution of width 1."""
    weight = getattr(module, "weight", None)
    if isinstance(module, (nn.Conv1d, nn.Conv2d)):
        return all(size == 1 for size in module.kernel_size)
    return isinstance(weight, Tensor) and weight.ndim == 2 and not isinstance(module, nn.Embedding)


def merged(z: Tensor) -> Tensor:
    """z [row head query d_value] as the input of a projection: [row query head*d_value]."""
    return z.transpose(1, 2).flatten(2)


def _orders(z: Tensor) -> Iterator[Tensor]:
    """z as a projection may read it: heads merged, the query first, or the width before the query (convolutions)."""
    yield merged(z)
    yield merged(z).transpose(0, 1)
    yield merged(z).transpose(1, 2)


def projection_of(built: Built, z: Tensor) -> tuple[nn.Module, int, int] | None:
    """The linear map that reads z, which of its runs does, and in which order of axes; None where none reads it whole."""
    found: list[tuple[nn.Module, int, int]] = []
    runs: dict[int, int] = {}

    def look(module: nn.Module, args: tuple[Any, ...]) -> None:
        run = runs.get(id(module), 0)
        runs[id(module)] = run + 1
        if args and isinstance(args[0], Tensor) and args[0].numel() == z.numel():
            flat = args[0].reshape(-1)
            for order, laid in enumerate(_orders(z)):
                if torch.equal(flat, laid.reshape(-1)):
                    found.append((module, run, order))
                    return

    handles = [part.register_forward_pre_hook(look) for part in built.module.modules() if is_linear(part)]
    try:
        with torch.no_grad():
            built.module(**built.inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def without_head(built: Built, projection: tuple[nn.Module, int, int], site: Site, head: int) -> list[Tensor]:
    """Outputs of the plain model with one head's part of a projection's input set to zero."""
    module, wanted, order = projection
    runs = [0]

    def cut(_: nn.Module, args: tuple[Any, ...]) -> Any:
        runs[0] += 1
        if runs[0] - 1 != wanted:
            return None
        z = torch.ones_like(site.z)
        z[:, head] = 0
        mask = list(_orders(z))[order].reshape(args[0].shape)
        return (args[0] * mask, *args[1:])

    handle = module.register_forward_pre_hook(cut)
    try:
        with torch.no_grad():
            return list(tensors(built.module(**built.inputs)))
    finally:
        handle.remove()
