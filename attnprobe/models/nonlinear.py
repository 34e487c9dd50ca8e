"""Where a pass is not linear between two inputs: watched, function by function, with the module that called it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnprobe.models.evaluator import logits
from attnprobe.models.model import Model
from attnprobe.models.rows import Row

# Functions of one tensor that are not linear in it, by the name that they are called by.
# fmt: off
CURVED = frozenset(
    (
        "softmax", "log_softmax", "_softmax", "sigmoid", "sigmoid_", "logsigmoid", "tanh", "tanh_", "relu", "relu_",
        "relu6", "elu", "selu", "celu", "leaky_relu", "prelu", "rrelu", "gelu", "silu", "mish", "glu", "softplus",
        "softsign", "hardtanh", "hardswish", "hardsigmoid", "threshold", "softmin", "gumbel_softmax", "layer_norm",
        "rms_norm", "group_norm", "batch_norm", "instance_norm", "local_response_norm", "normalize", "norm",
        "vector_norm", "var", "std", "var_mean", "std_mean", "rsqrt", "sqrt", "square", "pow", "pow_", "__pow__",
        "reciprocal", "exp", "expm1", "log", "log1p", "logsumexp", "erf", "sin", "cos", "abs", "clamp", "clamp_",
        "clamp_min", "clamp_max", "clip", "max", "amax", "min", "amin", "topk", "sort", "max_pool1d", "max_pool2d",
        "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "cosine_similarity", "round",
    )
)
# Functions that are linear in each of their tensors, but not where several of them change together.
PRODUCTS = frozenset(
    (
        "mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply", "matmul", "__matmul__", "__rmatmul__", "mm",
        "bmm", "baddbmm", "addmm", "einsum", "tensordot", "dot", "mv", "outer", "kron", "div", "div_", "__truediv__",
        "__rtruediv__", "true_divide", "divide", "addcmul", "addcdiv", "linear", "bilinear", "conv1d",
        "scaled_dot_product_attention", "multi_head_attention_forward", "where", "masked_fill", "maximum", "minimum",
    )
)
# fmt: on


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a function that may not be linear: its name, the module that called it, the tensors it was given."""

    function: str
    path: str
    module: nn.Module
    given: tuple[Tensor, ...]

    def __str__(self) -> str:
        both = " of tensors that both change" if self.function in PRODUCTS else ""
        return f"'{self.path or 'the model'}' ({type(self.module).__name__}) computes {self.function}{both}"

    def curves(self, other: "Call") -> bool:
        """Whether the function is not linear between what it was given here and in the same call of another pass."""
        changed = sum(not _same(a, b) for a, b in zip(self.given, other.given, strict=False))
        return changed > (0 if self.function in CURVED else 1)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one, other))


@dataclass(eq=False)
class _Watch(TorchFunctionMode):
    """Notes the calls of a pass, with the modules that are running."""

    root: nn.Module
    skip: tuple[type[nn.Module], ...]
    calls: list[Call] = field(default_factory=list)
    running: list[tuple[str, nn.Module]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._owner = threading.get_ident()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        path, module = self.running[-1] if self.running else ("", self.root)
        if (name in CURVED or name in PRODUCTS) and type(module) not in self.skip:
            given = tuple(t for t in _tensors((args, tuple(kwargs.values()))) if t.is_floating_point())
            self.calls.append(Call(name, path, module, tuple(t.detach() for t in given)))
        return func(*args, **kwargs)

    def begin(self, path: str, module: nn.Module, *_: Any) -> None:
        if threading.get_ident() == self._owner:
            self.running.append((path, module))
            if type(module) in self.skip:
                self.runs.append(path)

    def end(self, module: nn.Module, *_: Any) -> None:
        if threading.get_ident() == self._owner and any(known is module for _, known in self.running):
            while self.running.pop()[1] is not module:  # an error left inner runs open
                pass


def _tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, tuple | list):
        for part in given:
            yield from _tensors(part)


@contextmanager
def _watching(root: nn.Module, skip: Sequence[type[nn.Module]]) -> Iterator[_Watch]:
    watch, handles = _Watch(root, tuple(skip)), []
    for path, part in root.named_modules():
        handles.append(part.register_forward_pre_hook(partial(watch.begin, path)))
        handles.append(part.register_forward_hook(watch.end, always_call=True))
    try:
        with watch:
            yield watch
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, eq=False)
class Between:
    """Two passes side by side: the logits of each row, the first call that is not linear between them, modules that
    ran more than once (of those that were left out)."""

    logits: tuple[Tensor, Tensor]
    curved: str | None
    repeated: tuple[str, ...]


def between(model: Model, one: Row, other: Row, known: Sequence[type[nn.Module]]) -> Between:
    """What is not linear in the pass between two inputs, outside of modules of the `known` types; two passes."""
    answers, watches = [], []
    for row in (one, other):
        with torch.no_grad(), _watching(model.module, known) as watch:
            answers.append(logits(model, [row]))
        watches.append(watch)
    first, second = watches
    pairs = zip(first.calls, second.calls, strict=False)
    curved = next((str(a) for a, b in pairs if a.curves(b)), None)
    if curved is None and len(first.calls) != len(second.calls):
        curved = f"{model.name} takes another way for another input"
    repeated = tuple(dict.fromkeys(path for path in first.runs if first.runs.count(path) > 1))
    return Between((answers[0], answers[1]), curved, repeated)
