"""Key-value cache: keys and values of the tokens so far, so that a new token costs one row of attention, not all.

    append    K = [K; k_new],  V = [V; v_new]        [*batch kv_head kept width]
    attend    A_i = softmax(q_i K' / sqrt(d)),  z_i = A_i V        a query sees its own token and those before it

One step after the other gives what one causal pass over all tokens gives. Query heads may share keys and values:

    multi-head      n_kv_heads = n_heads     each query head has its own
    grouped-query   1 < n_kv_heads < n_heads head h reads key-value head h // (n_heads / n_kv_heads)
    multi-query     n_kv_heads = 1           all heads read the same

Weights stay per query head. A sliding cache keeps the last `window` tokens, and beside them the first `n_sinks`.
Shazeer 2019 (multi-query), Ainslie et al. 2023 (grouped-query), Beltagy et al. 2020 (window), Xiao et al. 2024 (sinks).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.attention.masks import fitting_mask
from attnprobe.attention.scores import scaled_dot_product_attention
from attnprobe.errors import InputError


class Read(NamedTuple):
    """What queries read: their weights on the keys, a map for each query head, and the mixed values z."""

    weights: Float[Tensor, "*batch head query key"]
    z: Float[Tensor, "*batch head query d_value"]


def grouped_query_attention(
    query: Float[Tensor, "*batch head query d_head"],
    key: Float[Tensor, "*batch kv_head key d_head"],
    value: Float[Tensor, "*batch kv_head key d_value"],
    *,
    visible: Tensor | None = None,
    scale: float | None = None,
) -> Read:
    """Attention in which n_heads / n_kv_heads query heads in a row share one head of keys and values.

    visible: boolean, [query key], [batch query key] or [*batch head query key]. Errors: `InputError` for heads that do
    not divide.
    """
    n_heads, n_shared = query.shape[-3], key.shape[-3]
    if n_heads % n_shared:
        raise InputError(
            f"{n_heads} query heads cannot share {n_shared} key-value heads evenly; n_kv_heads divides n_heads"
        )
    if query.shape[:-3] != key.shape[:-3] or query.shape[-1] != key.shape[-1] or key.shape[:-1] != value.shape[:-1]:
        raise InputError(f"query, key and value are [*batch head token width], got {_shapes(query, key, value)}")
    groups = query.unflatten(-3, (n_shared, n_heads // n_shared))
    key, value = (x.unsqueeze(-3).expand(*(-1,) * (x.ndim - 2), groups.shape[-3], -1, -1) for x in (key, value))
    mask = fitting_mask(visible, (*query.shape[:-1], key.shape[-2]))
    if mask is not None and mask.ndim > 2:
        mask = mask.unflatten(-3, (n_shared, -1)) if mask.shape[-3] == n_heads else mask.unsqueeze(-3)
    _, weights, z = scaled_dot_product_attention(groups, key, value, visible=mask, scale=scale)
    return Read(weights.flatten(-4, -3), z.flatten(-4, -3))


@dataclass(frozen=True, eq=False)
class KeyValueCache:
    """Keys and values of the tokens so far. `append` leaves this cache as it is and gives a new one.

    window: a query sees the last `window` tokens, its own among them (None: all); n_sinks: and the first few.
    position [kept]: which token each kept key is; n_seen: how many were appended; n_new: how many of them last.

    >>> cache = KeyValueCache().append(torch.zeros(1, 1, 2, 4), torch.tensor([[[[1.0], [3.0]]]]))
    >>> weights, z = cache.attend(torch.zeros(1, 2, 1, 4))
    >>> weights.tolist(), z.flatten().tolist()
    ([[[[0.5, 0.5]], [[0.5, 0.5]]]], [2.0, 2.0])
    """

    window: int | None = None
    n_sinks: int = 0
    key: Float[Tensor, "*batch kv_head kept d_head"] | None = None
    value: Float[Tensor, "*batch kv_head kept d_value"] | None = None
    position: Int[Tensor, " kept"] | None = None
    n_seen: int = 0
    n_new: int = 0

    def __post_init__(self) -> None:
        if (self.window is not None and self.window < 1) or self.n_sinks < 0:
            raise InputError(f"a window of 1 or more and 0 or more sinks are needed, got {self.window}, {self.n_sinks}")
        if self.n_sinks and self.window is None:
            raise InputError(f"a cache without a window keeps every token; give window=… with n_sinks={self.n_sinks}")

    def __repr__(self) -> str:
        """How many tokens it has seen and keeps, and how many numbers that is."""
        kept = 0 if self.position is None else len(self.position)
        window = "" if self.window is None else f", window={self.window}, n_sinks={self.n_sinks}"
        return f"KeyValueCache({self.n_seen} tokens seen, {kept} kept{window}, {self.n_numbers} numbers)"

    def append(
        self, key: Float[Tensor, "*batch kv_head new d_head"], value: Float[Tensor, "*batch kv_head new d_value"]
    ) -> "KeyValueCache":
        """A cache with one token or more behind those so far, less those that no new or later query can see."""
        if key.ndim < 3 or key.shape[:-1] != value.shape[:-1]:
            raise InputError(f"key and value are [*batch kv_head token width], got {_shapes(key, value)}")
        n_new = key.shape[-2]
        position = torch.arange(self.n_seen, self.n_seen + n_new, device=key.device)
        if self.key is not None and self.value is not None and self.position is not None:
            _check_fit(self.key, key)
            _check_fit(self.value, value)
            keep = self._reach(self.position, self.n_seen)
            key = torch.cat([self.key[..., keep, :], key], -2)
            value = torch.cat([self.value[..., keep, :], value], -2)
            position = torch.cat([self.position[keep], position])
        return replace(self, key=key, value=value, position=position, n_seen=self.n_seen + n_new, n_new=n_new)

    def attend(self, query: Float[Tensor, "*batch head query d_head"], *, scale: float | None = None) -> Read:
        """What the last tokens' queries read, each from its own token and those before it: weights and z.

        Weights are over the kept tokens (`position`); scale: default 1/sqrt(d_head).
        """
        if self.key is None or self.value is None or self.position is None:
            raise InputError(
                "the cache is empty; append the key and value of a token before its query attends. append gives a new "
                "cache and leaves this one as it is: cache = cache.append(key, value)"
            )
        n_queries, most = query.shape[-2], self.n_seen if self.window is None else self.n_new
        if n_queries > most:
            raise InputError(f"{n_queries} queries, but the keys of the last {most} tokens alone are sure to be here")
        at = torch.arange(self.n_seen - n_queries, self.n_seen, device=query.device)
        visible = (self.position <= at[:, None]) & self._reach(self.position, at[:, None])
        return grouped_query_attention(query, self.key, self.value, visible=visible, scale=scale)

    def spread(self, weights: Float[Tensor, "*batch head query kept"]) -> Float[Tensor, "*batch head query token"]:
        """Weights over all tokens that were ever appended; 0 on those that were dropped."""
        whole = weights.new_zeros((*weights.shape[:-1], self.n_seen))
        return whole if self.position is None else whole.index_copy(-1, self.position, weights)

    @property
    def n_numbers(self) -> int:
        """How many numbers the cache holds: what shared heads and a window save."""
        return sum(tensor.numel() for tensor in (self.key, self.value) if tensor is not None)

    def _reach(self, position: Tensor, at: Tensor | int) -> Tensor:
        """Whether a token is near enough to a query at `at`, or a sink."""
        if self.window is None:
            return torch.ones_like(position, dtype=torch.bool)
        return (position > at - self.window) | (position < self.n_sinks)


def _check_fit(old: Tensor, new: Tensor) -> None:
    if old.shape[:-2] != new.shape[:-2] or old.shape[-1] != new.shape[-1]:
        raise InputError(f"what is appended fits what is kept in all axes but the tokens, got {_shapes(old, new)}")


def _shapes(*tensors: Tensor) -> str:
    return " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
