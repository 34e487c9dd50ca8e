"""Looks for attention that does not pass the seam, so that nothing is missed in silence."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnprobe.models.huggingface.interface import attending
from attnprobe.models.huggingface.numerics import SOFTMAX_CALLS

FUSED = (
    functional.scaled_dot_product_attention,
    functional.multi_head_attention_forward,
    torch._native_multi_head_attention,
    torch._transformer_encoder_layer_fwd,
)


class _Watch(TorchFunctionMode):
    """Notes every softmax over keys and every fused attention that runs outside of our function."""

    def __init__(self, active: list[str], unseen: list[str]) -> None:
        super().__init__()
        self.active, self.unseen = active, unseen

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if not attending():
            over_keys = func in SOFTMAX_CALLS and self.active and args[0].ndim >= 3
            if over_keys or func in FUSED:
                self.unseen.append(self.active[-1] if self.active else "an unnamed module")
        return func(*args, **(kwargs or {}))


def is_attention(module: nn.Module) -> bool:
    """Whether a module calls itself attention."""
    name = type(module).__name__.lower()
    return "attention" in name or "attn" in name


@contextmanager
def unseen_attention(module: nn.Module) -> Iterator[list[str]]:
    """The paths of attention modules that computed a softmax within the block without passing the seam."""
    active: list[str] = []
    unseen: list[str] = []
    handles = []
    owner = threading.get_ident()  # other threads may run the same module meanwhile

    def enter(path: str) -> None:
        if threading.get_ident() == owner:
            active.append(path)

    def leave() -> None:
        if threading.get_ident() == owner and active:
            active.pop()

    for path, part in module.named_modules():
        if is_attention(part):
            handles.append(part.register_forward_pre_hook(lambda *_, path=path: enter(path)))
            handles.append(part.register_forward_hook(lambda *_: leave(), always_call=True))
    try:
        with _Watch(active, unseen):
            yield unseen
    finally:
        for handle in handles:
            handle.remove()


def attention_modules(module: nn.Module) -> list[str]:
    """Paths of the modules that call themselves attention, with their class."""
    return [f"{path} ({type(part).__name__})" for path, part in module.named_modules() if is_attention(part)]
