"""Fused attention that a model calls itself: `scaled_dot_product_attention`, `multi_head_attention_forward`.

The first is rebuilt from its formula beside the kernel. The second is torch's own code run with its look at function
modes switched off, so that what it calls inside is seen.
"""

from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# A mask hides a key by a very negative number: the smallest of the type, -inf, or -1e4; a bias is never so large.
HIDDEN = -1e3
HALF = (torch.float16, torch.bfloat16)
SDPA = functional.scaled_dot_product_attention
MULTI_HEAD = functional.multi_head_attention_forward
# Kernels that torch's own layers choose where no function mode listens; with one they take the plain way.
CLOSED = frozenset((torch._native_multi_head_attention, torch._transformer_encoder_layer_fwd))

open_multi_head = FunctionType(
    MULTI_HEAD.__code__,
    {**vars(functional), "has_torch_function": lambda _: False},
    MULTI_HEAD.__name__,
    MULTI_HEAD.__defaults__,
    MULTI_HEAD.__closure__,
)
open_multi_head.__kwdefaults__ = MULTI_HEAD.__kwdefaults__


@dataclass(frozen=True, eq=False)
class Fused:
    """The arguments of one scaled_dot_product_attention, [lead… token d_head]; the mask as given."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    causal: bool
    scale: float | None
    grouped: bool

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Fused":
        """From a call."""
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return cls(
            given["query"],
            given["key"],
            given["value"],
            given.get("attn_mask"),
            given.get("dropout_p") or 0.0,
            bool(given.get("is_causal")),
            given.get("scale"),
            bool(given.get("enable_gqa")),
        )

    @property
    def lead(self) -> tuple[int, ...]:
        """Sizes of the leading axes."""
        pairs = (self.query, self.expanded(self.key), self.expanded(self.value))
        return tuple(torch.broadcast_shapes(*(t.shape[:-2] for t in pairs)))

    def expanded(self, tensor: Tensor) -> Tensor:
        """Grouped keys or values, one copy for each query head of the group."""
        if not self.grouped or tensor.shape[-3] == self.query.shape[-3]:
            return tensor
        return tensor.repeat_interleave(self.query.shape[-3] // tensor.shape[-3], dim=-3)

    @property
    def visible(self) -> Tensor | None:
        """Which keys a query may look at, [lead… query key] as far as the mask says; None for all."""
        n_queries, n_keys = self.query.shape[-2], self.key.shape[-2]
        if self.causal:
            return torch.ones(n_queries, n_keys, dtype=torch.bool, device=self.query.device).tril()
        if self.mask is None:
            return None
        return self.mask if self.mask.dtype == torch.bool else self.mask > HIDDEN

    @property
    def scores(self) -> Tensor:
        """Scores with scale and mask, as the formula has them."""
        scale = self.query.shape[-1] ** -0.5 if self.scale is None else self.scale
        # The kernel keeps its scores in float32 where the model is in half precision.
        query, key = (t.float() if t.dtype in HALF else t for t in (self.query, self.expanded(self.key)))
        scores = query @ key.transpose(-1, -2) * scale
        if self.mask is not None and self.mask.dtype != torch.bool:
            return scores + self.mask
        visible = self.visible
        return scores if visible is None else scores.masked_fill(~visible, -torch.inf)
