"""Memories of n tokens in fewer slots (`mechanisms.compressed`): the old tokens c to a slot, the recent one to a slot.

    slot_s = sum_p pooling_sp x_(s c + p)                  pooling [slot place]: 1/c for the mean, or a kernel
    weight of token s c + p = weight of slot s · pooling_sp

The second line is what makes a map over slots a map over tokens: the mixed values are the same under both.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.attention.masks import causal_mask
from attnprobe.errors import InputError


@dataclass(frozen=True, eq=False)
class Memory:
    """How n_tokens become slots: the first n_old by the pooling weights [slot place], the others one slot each."""

    n_tokens: int
    n_old: int
    pooling: Float[Tensor, "slot place"]

    def pool(self, x: Float[Tensor, "*batch token width"]) -> Float[Tensor, "*batch slot width"]:
        """Each slot the weighted sum of its tokens."""
        n_slots, factor = self.pooling.shape
        filled = torch.nn.functional.pad(x[..., : self.n_old, :], (0, 0, 0, n_slots * factor - self.n_old))
        slots = (filled.unflatten(-2, (n_slots, factor)) * self.pooling[..., None]).sum(-2)
        return torch.cat([slots, x[..., self.n_old :, :]], dim=-2)

    def spread(self, weights: Float[Tensor, "*batch query slot"]) -> Float[Tensor, "*batch query token"]:
        """A map over slots as a map over tokens."""
        n_slots = len(self.pooling)
        over_tokens = (weights[..., :n_slots, None] * self.pooling).flatten(-2)
        return torch.cat([over_tokens[..., : self.n_old], weights[..., n_slots:]], dim=-1)

    def visible(self, n_queries: int) -> Bool[Tensor, "query slot"]:
        """Causal: a slot is seen from its last token on."""
        n_slots, factor = self.pooling.shape
        last = (torch.arange(1, n_slots + 1) * factor - 1).clamp(max=self.n_old - 1)
        return causal_mask(n_queries, self.n_tokens)[:, torch.cat([last, torch.arange(self.n_old, self.n_tokens)])]


def memory_of(key: Tensor, factor: int, n_recent: int = 0, kernel: Tensor | None = None) -> Memory:
    """The memory of these keys: means, or a convolution with the kernel, of c = factor neighbours."""
    if factor < 1 or n_recent < 0 or (kernel is not None and kernel.shape != (factor,)):
        given = "no kernel" if kernel is None else f"a kernel {tuple(kernel.shape)}"
        raise InputError(
            f"compression takes factor >= 1, n_recent >= 0 and a kernel with one number for each of the factor places, "
            f"got factor = {factor}, n_recent = {n_recent}, {given}"
        )
    n_tokens = key.shape[-2]
    n_old = max(0, n_tokens - n_recent)
    n_slots = -(-n_old // factor)
    there = (torch.arange(n_slots * factor, device=key.device) < n_old).to(key).view(n_slots, factor)
    pooling = there / there.sum(-1, keepdim=True) if kernel is None else there * kernel.to(key)
    return Memory(n_tokens, n_old, pooling)
