"""Masks: which keys a query may look at. Boolean, True = may look; combine them with `&`.

A mask is [query key], [batch query key] or [batch head query key], and may have 1 where it is the same for all.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import InputError


class BlindRowsWarning(UserWarning):
    """A query may look at no key at all: its weights and its z are zeros."""


_expected: ContextVar[bool] = ContextVar("attnprobe_blind_rows_expected", default=False)


def causal_mask(
    n_queries: int, n_keys: int | None = None, *, device: torch.device | None = None
) -> Bool[Tensor, "query key"]:
    """A query may look at its own position and at those before it; the last query is at the last key.

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    >>> causal_mask(1, 3).int().tolist()
    [[1, 1, 1]]
    """
    n_keys = n_queries if n_keys is None else n_keys
    if n_keys < n_queries:
        raise InputError(
            f"a causal mask needs at least as many keys as queries, got {n_keys} keys and {n_queries} queries"
        )
    query_index = torch.arange(n_keys - n_queries, n_keys, device=device)
    return torch.arange(n_keys, device=device) <= query_index[:, None]


def padding_mask(is_token: Tensor) -> Bool[Tensor, "batch 1 1 key"]:
    """Nobody may look at padding; `is_token` [batch key] is True (or 1) at tokens, False (or 0) at padding.

    >>> padding_mask(torch.tensor([[1, 1, 0]])).int().tolist()
    [[[[1, 1, 0]]]]
    """
    if is_token.ndim != 2:
        raise InputError(f"padding is said as [batch key], got {is_token.ndim} axes {tuple(is_token.shape)}")
    return is_token.bool()[:, None, None, :]


def blind_rows(visible: Bool[Tensor, "*batch query key"]) -> Bool[Tensor, "*batch query"]:
    """Queries that may look at no key: no distribution is defined there, and weights and z are zeros.

    >>> blind_rows(torch.tensor([[True, False], [False, False]])).tolist()
    [False, True]
    """
    return ~visible.any(-1)


def mask_scores(scores: Float[Tensor, "*batch query key"], visible: Tensor | None) -> Float[Tensor, "*batch query key"]:
    """Scores with -inf where a query may not look; None: it may look everywhere.

    >>> mask_scores(torch.zeros(1, 2), torch.tensor([[True, False]])).tolist()
    [[0.0, -inf]]
    """
    return scores if visible is None else scores.masked_fill(~visible, -torch.inf)


def fitting_mask(mask: Tensor | None, shape: torch.Size | tuple[int, ...]) -> Tensor | None:
    """A mask that broadcasts to scores of `shape`; of three axes beside four it is [batch query key], of all heads.

    Errors: `InputError` for a mask that is not boolean, or that does not fit.

    >>> fitting_mask(torch.ones(2, 5, 5, dtype=torch.bool), (2, 2, 5, 5)).shape
    torch.Size([2, 1, 5, 5])
    """
    if mask is None:
        return None
    if mask.dtype is not torch.bool:
        raise InputError(f"a mask is boolean (True = may look), got {mask.dtype}; numbers to be added go to bias")
    whole = mask[None] if mask.ndim == 1 else mask[:, None] if mask.ndim == 3 and len(shape) == 4 else mask
    if not _broadcasts(whole, shape):
        raise InputError(f"a mask (visible) of {tuple(mask.shape)} does not broadcast to scores of {tuple(shape)}")
    return whole


def fitting_bias(bias: Tensor | None, shape: torch.Size | tuple[int, ...]) -> Tensor | None:
    """A bias that broadcasts to scores of `shape`, checked; of three axes beside four it is [head query key].

    Errors: `InputError` for one that does not fit, and where as many heads as batch rows leave open which is meant.
    """
    if bias is None:
        return None
    whole = bias[None] if bias.ndim == 1 else bias
    if whole.ndim == 3 and len(shape) == 4 and whole.shape[0] == shape[0] == shape[1] > 1:
        raise InputError(
            f"a bias of {tuple(bias.shape)} beside scores of {tuple(shape)} [batch head query key] may be of heads or "
            "of batch rows; say which: bias[None] is [1 head query key], bias[:, None] is [batch 1 query key]"
        )
    if not _broadcasts(whole, shape):
        raise InputError(f"a bias of {tuple(bias.shape)} does not broadcast to scores of {tuple(shape)}")
    return whole


def _broadcasts(tensor: Tensor, shape: torch.Size | tuple[int, ...]) -> bool:
    pairs = zip(reversed(tensor.shape), reversed(shape), strict=False)
    return tensor.ndim <= len(shape) and all(got in (1, want) for got, want in pairs)


def to_visible(mask: Tensor | None, shape: tuple[int, int, int, int]) -> Bool[Tensor, "#batch #head #query key"] | None:
    """A mask with all four axes, checked against `shape` (batch, head, query, key).

    Errors: `InputError` for a mask that is not boolean (0 and -inf are scores, not a mask) or does not fit.
    """
    if mask is None:
        return None
    if mask.dtype is not torch.bool:
        raise InputError(f"a mask is boolean (True = may look), got {mask.dtype}; additive numbers go to score_bias")
    full = {2: lambda m: m[None, None], 3: lambda m: m[:, None], 4: lambda m: m}.get(mask.ndim)
    sizes = None if full is None else full(mask).shape
    if full is None or sizes is None or any(got not in (1, want) for got, want in zip(sizes, shape, strict=True)):
        raise InputError(f"a mask {tuple(mask.shape)} does not fit scores (batch, head, query, key) = {shape}")
    return full(mask).expand(-1, -1, -1, shape[-1])


def warn_blind_rows(visible: Bool[Tensor, "*batch query key"] | None) -> None:
    """Say how many queries may look at nothing, unless that was asked for (`expecting_blind_rows`)."""
    if visible is None or _expected.get():
        return
    n_blind = int(blind_rows(visible).sum())
    if n_blind:
        message = f"{n_blind} of {visible[..., 0].numel()} query rows of the mask may look at no key"
        hint = "their weights and z are zeros; blind_rows(visible) says which"
        warnings.warn(f"{message}; {hint}", BlindRowsWarning, stacklevel=3)


@contextmanager
def expecting_blind_rows() -> Iterator[None]:
    """Within the block nobody is warned: rows that may look at nothing are what was asked for."""
    token = _expected.set(True)
    try:
        yield
    finally:
        _expected.reset(token)
