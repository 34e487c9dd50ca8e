"""What a model must not be while its attention is recorded, each with the sentence that says why and what to do.

`check_conditions` looks at every part, just before a recorded pass and in the state of that pass (mode, gradients).
What can be seen through is not refused: code that torch.compile made runs as it was written (`uncompiled`).
"""

import re
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from attnprobe.errors import CaptureError
from attnprobe.models.modes import parts_of

# Attention as the operators beneath torch's functions, which no route of ours is asked for.
IN_A_GRAPH = re.compile(r"aten(::|\.)_?(safe_)?(softmax|scaled_dot_product)")


@dataclass(frozen=True)
class Condition:
    """What a part of a model is or does (`holds`), in words that follow the part's name, and the way out."""

    holds: Callable[[nn.Module], bool]
    sentence: str


def _recomputes(part: nn.Module) -> bool:
    """Whether this pass would be run again during the backward pass, when nobody is listening any more."""
    if not torch.is_grad_enabled():
        return False
    # transformers recomputes in training only; torch's own wrapper does not ask for the mode.
    return (part.training and getattr(part, "gradient_checkpointing", False) is True) or _is_a(
        part, "CheckpointWrapper"
    )


def _sharded(part: nn.Module) -> bool:
    return _is_a(part, "FullyShardedDataParallel", "FSDPModule")


def _split_heads(part: nn.Module) -> bool:
    n_processes = part.__dict__.get("_tp_size")
    return isinstance(n_processes, int) and n_processes > 1


def _copied(part: nn.Module) -> bool:
    return isinstance(part, nn.DataParallel) and len(part.device_ids) > 1


def _scripted(part: nn.Module) -> bool:
    return isinstance(part, torch.jit.ScriptModule) and _attends(getattr(part, "inlined_graph", ""))


def _traced(part: nn.Module) -> bool:
    return isinstance(part, torch.fx.GraphModule) and _attends(part.graph)


def _attends(graph: Any) -> bool:
    return IN_A_GRAPH.search(str(graph)) is not None


def _is_a(part: nn.Module, *names: str) -> bool:
    """Whether a part is of a class of one of these names; the module that defines it need not be there."""
    return any(cls.__name__ in names for cls in type(part).__mro__)


CONDITIONS = (
    Condition(
        _recomputes,
        "is run a second time in the backward pass (gradient checkpointing), without the recording and its edits; "
        "call model.activation_checkpointing_disable(), or record in evaluation mode or under torch.no_grad()",
    ),
    Condition(
        _sharded,
        "is sharded by FSDP: a pass of this process alone would wait for the others; load the whole model in one "
        "process",
    ),
    Condition(
        _split_heads,
        "is split among processes (tensor parallel), so only a share of its heads is here; load it without tp_plan",
    ),
    Condition(_copied, "runs as copies on several devices, in threads of their own; give the module inside of it"),
    Condition(
        _scripted,
        "is a TorchScript module with attention in it, whose code cannot be watched; give the model that it was made "
        "from",
    ),
    Condition(
        _traced,
        "is an exported graph (torch.export) with attention in it, which calls operators beneath those that can be "
        "watched; give the model that it was made from",
    ),
)


# Classes whose parts are looked at closely; of others only what a part carries itself can be in the way.
SUSPECTS = (
    "CheckpointWrapper",
    "FullyShardedDataParallel",
    "FSDPModule",
    "DataParallel",
    "ScriptModule",
    "GraphModule",
)


def check_conditions(module: nn.Module) -> None:
    """Raise if the weights of a pass that begins now could not be shown, or not as the model uses them.

    Errors: `CaptureError` with the part, what it is, and what to do.
    """
    for part in parts_of(module):
        # This runs before every pass: parts of plain classes cost a look-up each.
        if part.training or "_tp_size" in part.__dict__ or _suspect(type(part)):  # type: ignore[arg-type]
            _check(module, part)


@lru_cache(maxsize=4096)
def _suspect(kind: Hashable) -> bool:
    return any(cls.__name__ in SUSPECTS for cls in getattr(kind, "__mro__", ()))


def _check(module: nn.Module, part: nn.Module) -> None:
    for condition in CONDITIONS:
        if condition.holds(part):
            path = next(path for path, one in module.named_modules() if one is part)
            named = f"'{path}' ({type(part).__name__})" if path else f"the model ({type(part).__name__})"
            raise CaptureError(f"{named} {condition.sentence}")


@dataclass
class _Stance:
    """The stance of torch.compile, which all threads share: ours while a block is open, the earlier one afterwards."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    blocks: int = 0
    taken: Any = None

    def open(self) -> None:
        with self.lock:
            if self.blocks == 0:
                self.taken = torch.compiler.set_stance("force_eager")  # taken at once, not on entering
            self.blocks += 1

    def close(self) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                self.taken.__exit__(None, None, None)


_stance = _Stance()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Within the block, code that torch.compile made runs as it was written, so that it can be watched.

    Blocks may nest and overlap. It holds for all threads: what others compiled is slower meanwhile, never wrong.
    """
    _stance.open()
    try:
        yield
    finally:
        _stance.close()
