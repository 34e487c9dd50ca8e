"""Two ways to get the weights of one attention call of a transformers model.

delegate: call the model's own eager function and watch its softmax and its last matrix product, so that
biases, soft caps, sinks, windows and sparse top-k are the model's own. own: from the formula; it knows
fewer mechanisms, refuses what it does not know, and is the independent witness in the tests.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnprobe.errors import CaptureError, NumericsError
from attnprobe.models.huggingface.axes import MATMULS, SOFTMAX_CALLS
from attnprobe.models.huggingface.fused import HIDDEN
from attnprobe.site import Normalizer, Place, Site, softmax

TIMES = (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__)
# What the formula below takes into account, or what only tells a kernel what the mask says already.
KNOWN_TO_OWN = {"scaling", "dropout", "position_bias", "softcap", "s_aux", "is_causal", "sliding_window"}


def additive_mask(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Tensor | None:
    """A mask made for "sdpa" (boolean, or None for causal) as eager attention takes it: added to the scores."""
    lowest = torch.finfo(query.dtype).min
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    n_queries, n_keys = query.shape[2], key.shape[2]
    if mask is None and causal and n_queries > 1:
        mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=query.device).tril()[None, None]
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros((), dtype=query.dtype, device=query.device).where(mask, lowest)


def visible_keys(mask: Tensor | None) -> Tensor | None:
    """Which keys an additive mask leaves visible, None for all."""
    # Eager attention adds a boolean mask as 0 and 1, which hides nothing.
    return None if mask is None or not mask.is_floating_point() else mask > HIDDEN


@dataclass
class Interception(TorchFunctionMode):
    """Watches one eager attention: the input and output of its softmax, and the product of weights and value."""

    normalize: Callable[[Tensor], Tensor] | None = field(default=None)
    scores: Tensor | None = None
    weights: Tensor | None = None
    value: Tensor | None = None
    z: Tensor | None = None
    share: Tensor | None = None  # what each row of z was scaled by behind the product, where it was

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in SOFTMAX_CALLS:
            # Not the whole of args: the normalizer outlives the pass, and would keep the scores alive.
            self.scores, rest, options = args[0], args[1:], kwargs or {}
            self.normalize = lambda scores: func(scores, *rest, **options)
        elif func in MATMULS and self.scores is not None:
            self.weights, self.value, self.z = args[0], args[1], out
        elif func in TIMES and args[0] is self.z and isinstance(args[1], Tensor) and args[1].shape[-1:] == (1,):
            self.share, self.z = args[1], out
        return out


def delegate(
    eager: Callable[..., Any],
    place: Place,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    options: dict,
) -> Site:
    """The site as the model's own eager function computes it, watched."""
    with Interception() as seen:
        mixed, _ = eager(module, query, key, value, mask, **options)
    if seen.scores is None or seen.weights is None or seen.value is None or seen.z is None or seen.weights.ndim != 4:
        raise CaptureError(
            f"{place}: no softmax followed by weights @ value was seen in {eager.__module__}.{eager.__name__}"
        )
    if not bool(torch.isfinite(seen.z).all()):
        raise NumericsError(f"{place}: the attention output is not finite (NaN or overflow); try float32 or bfloat16")
    if mixed.shape != seen.z.transpose(1, 2).shape or not torch.equal(mixed, seen.z.transpose(1, 2)):
        raise CaptureError(
            f"{place}: {eager.__module__}.{eager.__name__} changes weights @ value before it hands it on"
        )
    n_heads, n_keys = seen.weights.shape[1], seen.weights.shape[3]
    return Site(
        place=place,
        query=query,
        key=expand(key, n_heads),
        value=seen.value,
        scores=seen.scores[..., :n_keys],
        weights=seen.weights if seen.share is None else seen.weights * seen.share,
        z=seen.z,
        visible=visible_keys(mask),
        normalizer=_watched_normalizer(seen, n_keys),
        n_kv_heads=key.shape[1],
    )


def _watched_normalizer(seen: Interception, n_keys: int) -> Normalizer:
    """The model's own softmax; scores beyond the keys are sinks. A row of nothing but -inf becomes zeros."""
    normalize, scores, weights = seen.normalize, seen.scores, seen.weights
    if normalize is None or scores is None or weights is None:
        raise CaptureError("no softmax was seen")

    dtype = weights.dtype

    def function(new: Tensor) -> Tensor:
        blind = torch.isneginf(new).all(-1, keepdim=True)
        return normalize(new.masked_fill(blind, 0.0)).masked_fill(blind, 0.0).to(dtype)

    sinks = scores[..., n_keys:].clone() if seen.share is None else _sink_of(scores, seen.share)
    if sinks.shape[-1] == 0:
        return Normalizer("softmax", function)
    return Normalizer("softmax with sinks", function, "at_most_one", sinks)


def _sink_of(scores: Tensor, share: Tensor) -> Tensor:
    """The score of the sink that leaves a row this share: share = 1 / (1 + exp(sink - logsumexp(scores)))."""
    return torch.logsumexp(scores.float(), dim=-1, keepdim=True) - torch.logit(share.float())


def own(
    eager: Callable[..., Any],
    place: Place,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    options: dict,
) -> Site:
    """The site from the formula: softmax(cap(q kᵀ scale) + bias + mask), with sinks where they are given."""
    named = set(inspect.signature(eager).parameters) | {"s_aux"}
    unknown = [name for name, given in options.items() if name in named - KNOWN_TO_OWN and given is not None]
    if unknown:
        raise CaptureError(f"{place}: the formula does not know the option '{unknown[0]}'; use numerics='delegate'")
    n_kv_heads = key.shape[1]
    key, value = expand(key, query.shape[1]), expand(value, query.shape[1])
    scaling = options.get("scaling")
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if (cap := options.get("softcap")) is not None:
        scores = torch.tanh(scores / cap) * cap
    for bias in (options.get("position_bias"), mask):
        scores = scores if bias is None else scores + bias
    normalizer = own_normalizer(options.get("s_aux"), scores)
    weights = normalizer(scores).to(query.dtype)
    visible = visible_keys(mask)
    return Site(place, query, key, value, scores, weights, weights @ value, visible, normalizer, n_kv_heads=n_kv_heads)


def in_float32(numerics: Callable[..., Site]) -> Callable[..., Site]:
    """The same beside a fused kernel in half precision: it keeps its scores in float32, and so does the site."""

    def wide(given: Any) -> Any:
        return given.float() if isinstance(given, Tensor) and given.is_floating_point() else given

    def function(
        eager: Callable[..., Any],
        place: Place,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        options: dict,
    ) -> Site:
        lowest = None if mask is None or not mask.is_floating_point() else mask == torch.finfo(mask.dtype).min
        mask = wide(mask)
        if lowest is not None and mask is not None:
            mask = mask.masked_fill(lowest, torch.finfo(torch.float32).min)
        options = {name: wide(given) for name, given in options.items()}
        site = numerics(eager, place, module, wide(query), wide(key), wide(value), mask, options)
        return _narrowed(site, query.dtype)

    return function


def _narrowed(site: Site, dtype: torch.dtype) -> Site:
    """All but the scores in the numbers of the model."""
    inner = site.normalizer.function
    normalizer = replace(site.normalizer, function=lambda scores: inner(scores).to(dtype))
    tensors = {name: getattr(site, name) for name in ("query", "key", "value", "weights", "z")}
    narrow: dict[str, Any] = {name: None if t is None else t.to(dtype) for name, t in tensors.items()}
    return replace(site, normalizer=normalizer, **narrow)


def own_normalizer(sinks: Tensor | None, scores: Tensor) -> Normalizer:
    """Softmax over the keys, and over one more score a head that is dropped again where there are sinks."""
    if sinks is None:
        return Normalizer("softmax", softmax)
    column = sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], -1)
    return Normalizer("softmax with sinks", softmax, "at_most_one", column)


def expand(tensor: Tensor, n_heads: int) -> Tensor:
    """Grouped key or value heads, one copy for each query head of the group."""
    return tensor if tensor.shape[1] == n_heads else tensor.repeat_interleave(n_heads // tensor.shape[1], dim=1)
