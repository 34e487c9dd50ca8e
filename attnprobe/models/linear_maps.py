"""The linear maps of a network, watched in one pass: what went into each and what came out of it.

Nothing is looked up by name. So that no two columns of a pass are alike by accident (a weight of zeros, a token
that is there twice), whatever a map or a table of embeddings gives is passed on with noise of its own size.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from attnprobe.errors import CaptureError

# Functions through which a module uses a weight that belongs to no module of its own.
WEIGHT_OUT_FIRST = (functional.linear,)
WEIGHT_IN_FIRST = (
    *(torch.addmm, torch.Tensor.addmm, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__),
    *(torch.mm, torch.Tensor.mm),
)
PLAIN = {torch.float16: 2e-2, torch.bfloat16: 5e-2, torch.float32: 1e-4, torch.float64: 1e-8}


@dataclass(frozen=True)
class Source:
    """A tensor of a network by its full name; view: the size, strides and offset of the part of it that is meant."""

    name: str
    view: tuple[tuple[int, ...], tuple[int, ...], int] | None = None

    def read(self, root: nn.Module) -> Tensor:
        """The tensor as it is now, sharing its memory; `CaptureError` where it holds no plain numbers."""
        path, _, attribute = self.name.rpartition(".")
        tensor = getattr(root.get_submodule(path), attribute)
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.dtype not in PLAIN:
            raise CaptureError(
                f"'{self.name}' is a {type(tensor).__name__} of {str(tensor.dtype).removeprefix('torch.')}, not a "
                "plain floating tensor; load the model in float32, bfloat16 or float16"
            )
        if tensor.device.type == "meta":
            raise CaptureError(f"'{self.name}' is not in memory (it is offloaded); load the whole model on a device")
        return tensor.detach() if self.view is None else tensor.detach().as_strided(*self.view)


@dataclass(frozen=True)
class LinearMap:
    """x W + b somewhere in a network; path: the module, or the parameter where no module stands for the map."""

    path: str
    weight: Source
    bias: Source | None
    in_first: bool

    def read(self, root: nn.Module) -> tuple[Float[Tensor, "d_in d_out"], Float[Tensor, " d_out"] | None]:
        """W and b as they are now, as views; `CaptureError` where the weight holds no plain numbers."""
        weight = self.weight.read(root)
        return weight if self.in_first else weight.T, None if self.bias is None else self.bias.read(root)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a part of a network: its input and output by token, and the output before the noise was added.

    linear: the map that the part seems to be, None for a part that is none (a norm).
    """

    path: str
    part: str
    x: Float[Tensor, "row_in d_in"]
    y: Float[Tensor, "row d_out"]
    before: Float[Tensor, "row d_out"]
    linear: LinearMap | None

    def __str__(self) -> str:
        return f"'{self.path}' ({self.part})"

    @property
    def widths(self) -> tuple[int, int]:
        """d_in and d_out."""
        return self.x.shape[1], self.y.shape[1]

    def check(self, root: nn.Module) -> None:
        """Raise `CaptureError` unless the output is x W + b with the weight and bias of this very map."""
        if self.linear is None:
            raise CaptureError(f"{self} is no linear map")
        weight, bias = self.linear.read(root)
        expected = None
        if weight.shape == (self.x.shape[1], self.before.shape[1]):
            x = self.x.to(weight)
            expected = functional.linear(x, weight.T, None if bias is None else bias.to(weight)).cpu()
        error = torch.inf if expected is None else float((expected - self.before).abs().max())
        if not error <= PLAIN[weight.dtype] * max(1.0, float(self.before.abs().max())):
            raise CaptureError(
                f"{self} computes something else than x W + b with its own weight (off by {error:.1e}): it scales, "
                "gates or adds something; an adapter can be merged into the weight"
            )


@contextmanager
def watched(root: nn.Module) -> Iterator[list[Call]]:
    """Every call of a linear map, or of another innermost part, that this thread makes within the block, in order."""
    watch = _Watch(root)
    try:
        for path, part in root.named_modules():
            if part is not root:
                watch.attach(path, part)
        with watch:
            yield watch.calls
    finally:
        for handle in watch.handles:
            handle.remove()


class _Watch(TorchFunctionMode):
    """Notes the calls: by hooks on modules that hold a matrix, and by the functions that use a parameter directly."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.handles: list[RemovableHandle] = []
        self.inside = 0  # how many modules that hold a matrix are running
        self.owner = threading.get_ident()  # other threads may run the same module meanwhile
        self.generator = torch.Generator().manual_seed(0)
        plain = [
            (name, p) for name, p in root.named_parameters() if type(p) is nn.Parameter and p.device.type != "meta"
        ]
        self.names = {p.untyped_storage().data_ptr(): name for name, p in plain if p.numel()}

    def attach(self, path: str, part: nn.Module) -> None:
        """Hooks on one part, if it holds a matrix or nothing but itself."""
        weight = getattr(part, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2:
            handle = part.register_forward_pre_hook(lambda *_: self._enter())
            self.handles.append(handle)
            self._hook(path, part, map_of(path, part), matrix=True)
        elif not any(part.children()):
            self._hook(path, part, None, matrix=False)

    def _hook(self, path: str, part: nn.Module, linear: LinearMap | None, *, matrix: bool) -> None:
        def leave(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Tensor | None:
            if threading.get_ident() != self.owner:
                return None
            self.inside -= matrix
            x = next(iter((*args, *kwargs.values())), None)
            if self.inside or not isinstance(x, Tensor) or not isinstance(output, Tensor):
                return None
            return self._note(path, type(part).__name__, x, output, linear, noise=matrix)

        self.handles.append(part.register_forward_hook(leave, with_kwargs=True, always_call=True))

    def _enter(self) -> None:
        if threading.get_ident() == self.owner:
            self.inside += 1

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.inside or func not in (*WEIGHT_OUT_FIRST, *WEIGHT_IN_FIRST):
            return out
        given = [t for t in (*args, *(kwargs or {}).values()) if isinstance(t, Tensor)]
        sources = [self._source(t) for t in given]
        x = [t for t, source in zip(given, sources, strict=True) if source is None]
        weights = [s for t, s in zip(given, sources, strict=True) if s is not None and t.ndim == 2]
        bias = next((s for t, s in zip(given, sources, strict=True) if s is not None and t.ndim == 1), None)
        if len(x) != 1 or len(weights) != 1:
            return out
        linear = LinearMap(weights[0].name, weights[0], bias, in_first=func in WEIGHT_IN_FIRST)
        return self._note(linear.path, "a parameter", x[0], out, linear, noise=True)

    def _source(self, tensor: Tensor) -> Source | None:
        """The parameter that a tensor is, or is a part of; None for one that the pass has made."""
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.device.type == "meta":
            return None
        name = self.names.get(tensor.untyped_storage().data_ptr())
        view = (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
        return None if name is None else Source(name, view)

    def _note(self, path: str, part: str, x: Tensor, out: Tensor, linear: LinearMap | None, *, noise: bool) -> Tensor:
        passed_on = self._noisy(out) if noise else out
        if x.ndim > 1 and out.ndim > 1 and x.is_floating_point() and out.is_floating_point():
            self.calls.append(Call(path, part, _rows(x), _rows(passed_on), _rows(out), linear))
        return passed_on

    def _noisy(self, out: Tensor) -> Tensor:
        """The output with noise of its own size; as it is where it is no real number, or not finite (a mask)."""
        if (
            out.dtype not in PLAIN
            or not out.numel()
            or not bool(torch.isfinite(size := out.double().std(correction=0)))
        ):
            return out
        draw = torch.randn(out.shape, generator=self.generator, dtype=torch.float64)
        return out + (draw.to(out.device) * (size if size > 0 else 1.0)).to(out.dtype)


def map_of(path: str, part: nn.Module) -> LinearMap | None:
    """The map that a module with a matrix is: a table of embeddings is none; transformers' Conv1D has `nf`."""
    if isinstance(part, nn.Embedding):
        return None
    bias = Source(f"{path}.bias") if isinstance(getattr(part, "bias", None), Tensor) else None
    return LinearMap(path, Source(f"{path}.weight"), bias, in_first=hasattr(part, "nf"))


def _rows(tensor: Tensor) -> Tensor:
    """A copy on the CPU, all but the last axis in one: later changes in place do not reach it."""
    return tensor.detach().to("cpu", copy=True).flatten(0, -2)
