"""swapped(): an edit that puts another attention mechanism in the place of a model's own.

What a site shows of the model's own attention (scores = c q·k + b, hidden keys out; weights = normalizer(scores)):

    change of the weights       what it does to a row of scores s             needs
    temperature  (T)            normalizer(s / T), sinks too                  the scores, so it works on every route;
    top_k        (k)            normalizer(s, all but the k largest cut)      where there are none, log(weights)
    local_window (width)        normalizer(s, keys with |i - j| >= width cut)
    hard, sparsemax, entmax15, sigmoid, softmax_plus_one                      in the normalizer's place
    uniform                     the row's mass on all visible keys alike      the mask alone

    any mechanism of `attnprobe.attention.mechanisms`, on query, key and mask:
    q' = c sqrt(d) q, so that q'·k / sqrt(d) = c q·k keeps the model's own scale; bias = b where it takes one

z is weights @ value: what is captured is what the model went on with, and gradients reach the weights.
"""

import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnprobe.attention import normalizers
from attnprobe.attention.indices import Index, heads_of, numbers
from attnprobe.attention.mechanism_names import unknown_mechanism
from attnprobe.attention.mechanisms import Mechanism, mechanisms
from attnprobe.attention.remaking import Remade
from attnprobe.errors import CaptureError, EditError, InputError
from attnprobe.intervention import Intervention
from attnprobe.intervention import uniform as uniform_weights
from attnprobe.registry import Registry
from attnprobe.site import SOFTMAX, Kind, Normalizer, Site

# A change: a function of a site (and options) to its new weights [batch head query key], all heads.
changes = Registry("change of attention", None)

# Part of the largest score below which what c q·k leaves of the scores is rounding, and no bias.
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
# Normalizers that need the scores themselves; to the others log(weights), off by a constant a row, is as good.
NEED_SCORES = ("sigmoid", "softmax_plus_one")


def swapped(
    mechanism: Any,
    *,
    layers: Index = None,
    heads: Index = None,
    stack: str | None = None,
    kind: Kind | None = None,
    **options: Any,
) -> Intervention:
    """Another mechanism in the place of a model's own attention, the mask and the scale of the scores kept.

    mechanism: "temperature", "top_k", "local_window", "hard", "uniform", "sparsemax", "entmax15", "sigmoid" or
    "softmax_plus_one" (changes of the weights, on every route); the name of any other mechanism, or a `Mechanism`, or a
    function of its form (on query and key). options: of the mechanism. causal=True is chosen where the mask is causal
    and the mechanism takes no other. What the model adds to its scores (positions, a soft cap) and the mechanism cannot
    take is dropped with a warning.
    Errors: `InputError` for a name or an option that does not exist; while it runs, `EditError` where the site has no
    query or key, or a mask that the mechanism cannot keep.
    """
    name, weights_of = _find(mechanism, options)
    title, where = _title(name, options), numbers(layers, "layer")
    numbers(heads, "head")

    def swap_weights(site: Site) -> Tensor:
        try:
            new = weights_of(site)
        except CaptureError:  # the model changes weights behind its softmax, so no scores lead there
            new = weights_of(dataclasses.replace(site, scores=None))
        old, index = site.need("weights"), heads_of(heads, site).to(site.device)
        return old.index_copy(1, index, new[:, index].to(old.dtype))

    def change(site: Site) -> Site:
        new = swap_weights(site)
        # What hides keys afterwards asks the mechanism again.
        again = Remade.of(site.normalizer, site, swap_weights, new)
        return dataclasses.replace(site.replace(weights=new), normalizer=again)

    return Intervention(title, change, where, stack, kind)


def _title(name: str, options: dict[str, Any]) -> str:
    """The name with the options that were given: "top_k (k=2)", "temperature=2.0"."""
    given = [f"{key}={value}" for key, value in options.items() if not isinstance(value, Tensor)]
    return given[0] if list(options) == [name] and given else f"{name} ({', '.join(given)})" if given else name


def _find(mechanism: Any, options: dict[str, Any]) -> tuple[str, Callable[[Site], Tensor]]:
    """The name of a mechanism, and what makes its weights of a site; a name that a change has is the change."""
    if isinstance(mechanism, Mechanism) and options:
        raise InputError(f"the mechanism '{mechanism.entry.name}' has its options already, got {', '.join(options)}")
    if isinstance(mechanism, str) and mechanism in changes:
        return mechanism, partial(changes[mechanism].function, **changes[mechanism].check_options(options))
    if isinstance(mechanism, str) and mechanism not in mechanisms:
        raise unknown_mechanism(mechanism, [*changes, *mechanisms])
    chosen = Mechanism.of(mechanism, **options)
    return chosen.entry.name, partial(mechanism_weights, mechanism=chosen)


# ---------------------------------------------------------------- changes of the weights


def own_scores(site: Site) -> Tensor:
    """The site's scores; of a site that shows none, log(weights), of which softmax makes the weights again."""
    if site.scores is not None:
        return site.scores
    weights = site.need("weights")
    if bool((weights < 0).any()):
        raise EditError(
            f"{site.place}: there are no scores here, and weights below 0 are made of none; of the changes 'uniform' "
            "alone runs here"
        )
    # No log of 0: its gradient would be no number.
    return torch.where(weights > 0, weights, 1.0).log().masked_fill(weights <= 0, -torch.inf)


def _normalize(site: Site, scores: Tensor, normalizer: Normalizer | None = None) -> Tensor:
    """Weights of scores by the site's normalizer; of log(weights) by softmax unless told, the row's mass kept."""
    if site.scores is not None:
        return (normalizer or site.normalizer)(scores)
    return (normalizer or SOFTMAX)(scores) * site.need("weights").sum(-1, keepdim=True)


def _cut(site: Site, kept: Tensor) -> Tensor:
    """Weights when only the kept pairs [batch head query key] may look, besides the mask."""
    return _normalize(site, own_scores(site).masked_fill(~kept, -torch.inf))


@changes.add(family="sharpness", source="Hinton et al. 2015, section 2")
def temperature(site: Site, *, temperature: float = 1.0) -> Tensor:
    """Scores divided by a temperature: below 1 sharper, above 1 flatter."""
    divisor, sinks, scores = normalizers.above_zero(temperature), site.normalizer.sinks, own_scores(site)
    cooler = None if sinks is None else dataclasses.replace(site.normalizer, sinks=sinks / divisor)
    # Hidden keys keep their score: the lowest number divided by less than 1 would be -inf, and a blind row NaN.
    spread = scores / divisor if site.visible is None else torch.where(site.visible, scores / divisor, scores)
    return _normalize(site, spread, cooler)


@changes.add(family="selection", source="Zhao et al. 2019, Explicit Sparse Transformer")
def top_k(site: Site, *, k: int = 4) -> Tensor:
    """The k largest scores of each query; all others cut."""
    if k < 1:
        raise InputError(f"top_k keeps at least 1 key, got k = {k}")
    scores = own_scores(site)
    best = scores.sort(dim=-1, descending=True, stable=True).indices[..., :k]  # of equal scores the first
    return _cut(site, torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True))


@changes.add(family="selection", source="Beltagy et al. 2020, Longformer, section 3.1")
def local_window(site: Site, *, width: int = 4) -> Tensor:
    """Keys less than `width` positions away, on both sides where the mask allows it; all others cut."""
    weights = site.need("weights")
    if width < 1 or site.place.kind != "self":
        raise EditError(
            f"{site.place}: a window is 1 or wider, around a query's own position; got width = {width} in "
            f"{site.place.kind}-attention" + ("; say kind='self'" if site.place.kind != "self" else "")
        )
    n_queries, n_keys = weights.shape[-2:]
    own = torch.arange(n_keys - n_queries, n_keys, device=weights.device)[:, None]
    near = ((torch.arange(n_keys, device=weights.device) - own).abs() < width).expand_as(weights)
    seen = near if site.visible is None else near & site.visible
    before = torch.ones_like(seen) if site.visible is None else site.visible.expand_as(seen)
    if bool((before.any(-1) & ~seen.any(-1)).any()):
        raise EditError(f"{site.place}: a window of width {width} leaves a query with nothing to look at; widen it")
    return _cut(site, near)


@changes.add(family="selection", source="the mean, for comparison")
def uniform(site: Site) -> Tensor:
    """The same weight on every visible key; the mass of each row stays what it was."""
    return uniform_weights()(site).need("weights")


def _by_normalizer(name: str) -> None:
    """Register a normalizer of `attnprobe.attention.normalizers` as a change of attention."""
    other = normalizers.NORMALIZERS[name]

    def change(site: Site) -> Tensor:
        # Sinks take part in it as they did in softmax, and what the model sets to 0 afterwards stays 0.
        if name in NEED_SCORES:
            site.need("scores")
        own = dataclasses.replace(site.normalizer, name=other.name, function=other.function)
        scores = own_scores(site) if site.visible is None else own_scores(site).masked_fill(~site.visible, -torch.inf)
        return _normalize(site, scores, own)

    change.__name__ = change.__qualname__ = name
    change.__doc__ = f"{name} of the model's own scores in the place of its normalizer."
    changes.add(family="normalizer", source="attnprobe.attention.normalizers")(change)


for _name in ("hard", "sparsemax", "entmax15", "sigmoid", "softmax_plus_one"):
    _by_normalizer(_name)


# ---------------------------------------------------------------- mechanisms on query and key


def mechanism_weights(site: Site, mechanism: Mechanism) -> Tensor:
    """The map [batch head query key] of a mechanism on the site's query and key, under the site's mask."""
    name = mechanism.entry.name
    missing = [tensor for tensor in ("query", "key") if getattr(site, tensor) is None]
    if missing:
        raise EditError(
            f"{site.place}: '{name}' needs query and key, and there is no {' and no '.join(missing)} here; "
            f"these need none: {', '.join(changes)}"
        )
    query, key = (_wide(site.need(tensor)) for tensor in ("query", "key"))
    shared = bool(mechanism.entry.facts.get("shared"))
    if shared and (site.place.kind == "cross" or query.shape[-2] != key.shape[-2]):
        raise EditError(
            f"{site.place}: in '{name}' keys are the queries, and here {query.shape[-2]} queries look at "
            f"{key.shape[-2]} keys of others; it goes with self-attention without a cache (kind='self')"
        )
    visible, mechanism = _mask(site, mechanism)
    scale, bias = own_scale(site)
    if bias is not None and "bias" not in mechanism.entry.options:
        _warn(site, f"'{name}' takes no bias on scores: what the model adds to q·k (positions, a cap) is dropped")
        bias = None
    if site.normalizer.sinks is not None:
        _warn(site, f"'{name}' has no sinks: those of the model are dropped")
    if shared:
        _warn(site, f"in '{name}' keys are the queries: those of the model are not used")
    query = query * (scale * query.shape[-1] ** 0.5)
    return mechanism.weights(query, query if shared else key, visible, bias)


def own_scale(site: Site) -> tuple[float, Tensor | None]:
    """The c and b of a site's scores = c q·k + b: b is None where c q·k is all there is, and 0 at hidden keys.

    c by least squares. Where there is a bias it is uncertain, and 1 / sqrt(d) or 1 is taken if one is within a factor
    of 2. Without scores 1 / sqrt(d).
    """
    query, key = _wide(site.need("query")), _wide(site.need("key"))
    usual = query.shape[-1] ** -0.5
    if site.scores is None:
        return usual, None
    with torch.no_grad():
        products, scores = query @ key.mT, _wide(site.scores)
        seen = torch.ones_like(scores, dtype=torch.bool) if site.visible is None else site.visible.expand_as(scores)
        size = max(1.0, float(scores[seen].abs().max())) if bool(seen.any()) else 1.0
        slope = _slope(products[seen], scores[seen])
        for scale in (usual, 1.0, slope):
            if float((scores - scale * products)[seen].abs().max()) <= ROUNDING[site.scores.dtype] * size:
                return scale, None  # what is left is rounding
        scale = next((known for known in (usual, 1.0) if known / 2 < slope < known * 2), slope)
    bias = _wide(site.scores) - scale * (query @ key.mT)
    return scale, torch.where(seen, bias, 0.0)


def _slope(x: Tensor, y: Tensor) -> float:
    """Least squares of y = c x + constant; 1 where x does not vary."""
    x, y = x.double() - x.double().mean(), y.double() - y.double().mean()
    square = float(x @ x)
    return float(x @ y) / square if square > 0 else 1.0


def _mask(site: Site, mechanism: Mechanism) -> tuple[Tensor | None, Mechanism]:
    """The mask to hand on and the mechanism to hand it to; `EditError` where the mask would be lost."""
    visible, entry = site.visible, mechanism.entry
    try:
        mechanism, left = mechanism.under(visible, *site.need("weights").shape[-2:])
        return left, mechanism
    except InputError:
        able = [name for name in mechanisms if "visible" in mechanisms[name].options]
        takes = "takes no mask but a causal one" if "causal" in entry.options else "takes no mask"
        hidden = "" if visible is None else f"{int((~visible).sum())} of {visible.numel()} pairs"
        raise EditError(
            f"{site.place}: '{entry.name}' {takes}, and {hidden} of a query and a key are hidden here; a mask goes "
            f"with {', '.join(dict.fromkeys([*able, *changes]))}"
        ) from None


def _wide(tensor: Tensor) -> Tensor:
    """In float32 at least: half precision has steps larger than the differences that count."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _warn(site: Site, message: str) -> None:
    warnings.warn(f"{site.place}: {message}", stacklevel=2)
