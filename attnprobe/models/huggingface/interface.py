"""The route: transformers asks a registry for its attention function; while we listen, it gets ours.

Nothing of the model is changed. The registry's `get_interface` is wrapped for the time of the block
(counted, under a lock); without a running tape in the current context the wrapper hands through. A model on
"eager" or "sdpa" stays on it. One on another kernel (flash, flex, paged), which keeps its mask to itself, is
put on "eager" for the block, and put back.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

from attnprobe.attention.seam import running
from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.fused import HALF
from attnprobe.models.huggingface.numerics import additive_mask, delegate, in_float32, own

Attention = Callable[..., tuple[Tensor, Tensor | None]]
NUMERICS = {"delegate": delegate, "own": own}
EXPLICIT = (None, "eager", "sdpa")

_attending: ContextVar[bool] = ContextVar("attnprobe_attending", default=False)


@dataclass
class _Installation:
    """What is changed in transformers while blocks are open, and how it was before."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    blocks: int = 0
    original: Callable[..., Attention] = AttentionInterface.get_interface
    switched: dict[int, tuple[PretrainedConfig, str | None, int]] = field(default_factory=dict)

    def open(self, model: nn.Module) -> list[PretrainedConfig]:
        """Put the wrapper in place for the first block; put hidden-mask kernels of the model on "eager"."""
        with self.lock:
            if self.blocks == 0:
                self.original = AttentionInterface.get_interface
                setattr(AttentionInterface, "get_interface", _get_interface)  # noqa: B010 (a method, for the type checker)
            self.blocks += 1
            configs = [c for c in _configs(model) if c._attn_implementation not in EXPLICIT or id(c) in self.switched]
            for config in configs:
                _, before, users = self.switched.get(id(config), (config, config._attn_implementation, 0))
                self.switched[id(config)] = (config, before, users + 1)
                config._attn_implementation_internal = "eager"
            return configs

    def close(self, configs: list[PretrainedConfig]) -> None:
        """Undo what `open` did, when the last block that needs it ends."""
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                setattr(AttentionInterface, "get_interface", self.original)  # noqa: B010
            for config in configs:
                _, before, users = self.switched.pop(id(config))
                if users > 1:
                    self.switched[id(config)] = (config, before, users - 1)
                else:
                    config._attn_implementation_internal = before


def _configs(model: nn.Module) -> list[PretrainedConfig]:
    """Every configuration of the model and its parts, once."""
    found: dict[int, PretrainedConfig] = {}
    for part in model.modules():
        config = getattr(part, "config", None)
        if isinstance(config, PretrainedConfig):
            found[id(config)] = config
    return list(found.values())


_installation = _Installation()


@contextmanager
def routed(model: nn.Module) -> Iterator[None]:
    """Within the block, every attention of the registry passes the seam of the running tape."""
    configs = _installation.open(model)
    try:
        yield
    finally:
        _installation.close(configs)


def _get_interface(self: AttentionInterface, implementation: str, default: Attention) -> Attention:
    kernel = _installation.original(self, implementation, default)
    if running() is None:
        return kernel
    return partial(_attend, default, kernel)


def attending() -> bool:
    """Whether one of our attention functions is at work in this context."""
    return _attending.get()


@contextmanager
def at_work() -> Iterator[None]:
    """Within the block, what torch is asked for is ours and no attention of the model."""
    token = _attending.set(True)
    try:
        yield
    finally:
        _attending.reset(token)


def _attend(
    eager: Attention,
    kernel: Attention,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """One attention of the model: the site is built beside the model's own kernel, which makes z unless edited."""
    tape = running()
    if tape is None:
        return kernel(module, query, key, value, attention_mask, **options)
    place = tape.enter(module, cross=key.shape[2] != query.shape[2], route="registry")
    with at_work():
        if not tape.wants(place):
            return kernel(module, query, key, value, attention_mask, **options)
        if module.training and options.get("dropout", 0.0) > 0:
            raise CaptureError(f"{place}: in training mode the weights are after dropout; call model.eval()")
        scaled = tape.scaled(place, query.shape[1], value)
        if scaled is not None:
            return kernel(module, query, key, scaled, attention_mask, **options)
        mask = attention_mask if kernel is eager else additive_mask(module, query, key, attention_mask, options)
        numerics = NUMERICS[tape.numerics]
        if kernel is not eager and query.dtype in HALF:
            numerics = in_float32(numerics)
        site = numerics(eager, place, module, query, key, value, mask, options)
        if kernel is not eager and not tape.differentiable and not tape.edits_here(place):
            # The model goes on with its own kernel's numbers; the site says how far weights @ value is from them.
            z, _ = kernel(module, query, key, value, attention_mask, **options)
            tape.observe(replace(site, z=z.transpose(1, 2)))
            return z, None
        seen = tape.observe(site)
        # What the model's own function would give beside z, for a model that hands its weights on.
        weights = seen.weights if kernel is eager else None
        return seen.need("z").transpose(1, 2).contiguous(), weights
