"""The second route: attention that a model computes by hand is seen at its own softmax, and at fused kernels.

A function mode that lives only inside the block. It follows scores from q kᵀ to a softmax and weights from there to the
product with the values, where the site is complete: there the edits act, and the model goes on with z. Where nobody
asks, the model's own numbers pass through untouched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnprobe.attention.seam import Tape, running
from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.axes import (
    PRODUCTS,
    SOFTMAX_CALLS,
    Heads,
    Operands,
    n_heads_of,
    operands_of,
    product_of,
    softmax_axis,
)
from attnprobe.models.huggingface.fused import CLOSED, HIDDEN, MULTI_HEAD, SDPA, Fused, open_multi_head
from attnprobe.models.huggingface.interface import attending
from attnprobe.models.huggingface.runs import Running, Runs
from attnprobe.models.huggingface.sparse.recording import Recorder
from attnprobe.models.huggingface.traces import Origin, Scored, Traces, Weighed, name_of
from attnprobe.site import Normalizer, Place, Site, softmax


@dataclass
class ByHand(TorchFunctionMode):
    """Sees softmax, products and fused attention outside of the registry. unseen: attention that it could not follow.

    used: whether anything passed here at all, so that a model without attention of this kind needs no mode again.
    """

    tape: Tape
    runs: Runs
    recorder: Recorder
    unseen: list[str] = field(default_factory=list)
    used: bool = False
    _scores: Traces[Scored] = field(default_factory=Traces)
    _weights: Traces[Weighed] = field(default_factory=Traces)
    _open: list[tuple[Running, Origin]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.runs.ended = self._end_of_run

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if attending() or running() is not self.tape:
            return func(*args, **kwargs)
        if self.recorder.active:
            return self.recorder.record(func, args, kwargs)
        if func in SOFTMAX_CALLS:
            return self._softmax(func, args, kwargs)
        if func in PRODUCTS:
            return self._product(func, args, kwargs)
        if func is SDPA:
            return self._fused(args, kwargs)
        if func is MULTI_HEAD:
            with self:
                return open_multi_head(*args, **kwargs)
        out = func(*args, **kwargs)
        if func in CLOSED:
            self.unseen.append(self.runs.innermost.path or "the model itself")
        elif self._scores or self._weights:
            self._follow(func, args, kwargs, out)
        return out

    def _follow(self, func: Any, args: tuple, kwargs: dict, out: Any) -> None:
        name = name_of(func)
        if self._weights:
            self._weights.follow(name, func, args, kwargs, out)
        if self._scores:
            self._scores.follow(name, func, args, kwargs, out)

    def _softmax(self, func: Any, args: tuple, kwargs: dict) -> Tensor:
        out = func(*args, **kwargs)
        scores, axis = args[0], softmax_axis(func, args, kwargs)
        if scores.ndim < 3 or axis is None:
            return out
        origin = Origin(self.runs.attending)
        self._open.append((self.runs.innermost, origin))
        trace = Weighed(scores, kwargs.get("dtype"), axis, origin, self._scores.of(scores))
        self._weights.set(out, trace)
        return out

    def _product(self, func: Any, args: tuple, kwargs: dict) -> Tensor:
        given = operands_of(func, args, kwargs)
        if given is None:
            return func(*args, **kwargs)
        for left, factor, axis in ((True, given.left, given.left_axis), (False, given.right, given.right_axis)):
            trace = self._weights.of(factor)
            if trace is not None and trace.axis == axis:
                return self._attention(func(*args, **kwargs), given, left, trace)
        out = func(*args, **kwargs)
        if given.left.ndim > 2 or given.right.ndim > 2:
            self._scores.set(out, Scored(given.left, given.right, given.equation))
        return out

    def _attention(self, out: Tensor, given: Operands, left: bool, trace: Weighed) -> Tensor:
        """The product of weights and value: the site is complete."""
        self.used = True
        trace.origin.n_uses += 1
        owner = self.runs.innermost
        if trace.origin.n_uses > 1:
            self._refuse_second_use(owner, trace)
            return out
        weights, value = (given.left, given.right) if left else (given.right, given.left)
        way = product_of(given, left)
        weights, value, z = way.weights(weights), way.value(value), way.z(out)
        heads = Heads.of(tuple(z.shape[:-2]), self._n_heads(), self.tape.n_rows)
        place = self.tape.enter(owner.module, cross=weights.shape[-1] != weights.shape[-2], route="softmax")
        if not self.tape.wants(place):
            return out
        self._refuse_training(owner, place)
        moved = partial(_in_form, trace, way.weights, heads, weights.shape)
        scores = moved(trace.scores)
        site = Site(
            place,
            **_factors(trace.scored, heads, weights.shape),
            value=heads.split(value),
            scores=scores,
            weights=heads.split(weights),
            z=heads.split(z),
        )
        return self._passed(_told(site, trace), out, lambda new: way.back(heads.merge(new)))

    def _fused(self, args: tuple, kwargs: dict) -> Tensor:
        """One call of scaled_dot_product_attention: the site beside the kernel, whose z stays unless edited."""
        self.used = True
        given, owner = Fused.of(args, kwargs), self.runs.innermost
        place = self.tape.enter(owner.module, cross=given.query.shape[-2] != given.key.shape[-2], route="sdpa")
        out = SDPA(*args, **kwargs)
        if not self.tape.wants(place):
            return out
        if given.dropout > 0:
            raise CaptureError(f"{place}: in training mode the weights are after dropout; call model.eval()")
        heads = Heads.of(given.lead, self._n_heads(), self.tape.n_rows)
        scores, visible = heads.split(given.scores), given.visible
        if visible is not None:
            visible = heads.split(visible.expand(*given.lead, *scores.shape[-2:]))
        key, value = (heads.split(given.expanded(tensor)) for tensor in (given.key, given.value))
        site = Site(place, heads.split(given.query), key, value, scores, softmax(scores), heads.split(out), visible)
        return self._passed(site, out, heads.merge)

    def _passed(self, site: Site, out: Tensor, back: Callable[[Tensor], Tensor]) -> Tensor:
        """The site through the seam; the model's own numbers where nothing was changed."""
        if self.tape.differentiable:
            # Gradients reach the weights only where z is made of these very tensors.
            proven = site.scores is not None and site.normalizer.name != UNKNOWN
            site = site.replace(scores=site.scores) if proven else site.replace(weights=site.need("weights"))
        seen = self.tape.observe(site)
        if seen.need("z") is site.z and not self.tape.differentiable:
            return out
        return back(seen.need("z").to(out.dtype)).contiguous()

    def _n_heads(self) -> int | None:
        """How many heads the running modules say they have, the innermost first, at most three of them."""
        for running_module in list(reversed(self.runs.active))[:3]:
            count = n_heads_of(running_module.module)
            if count is not None:
                return count
        return None

    def _refuse_training(self, owner: Running, place: Place) -> None:
        if owner.module.training:
            raise CaptureError(f"{place}: in training mode the weights are after dropout; call model.eval()")

    def _refuse_second_use(self, owner: Running, trace: Weighed) -> None:
        """Weights that go into two products: seeing is right, but an edit or a gradient would reach the first alone."""
        if trace.cut or self.tape.differentiable or self.tape.all_edits():
            raise CaptureError(
                f"{owner.path} uses its weights in more than one product, and attnprobe knows no layout for "
                f"{type(owner.module).__name__}: edits and gradients would be incomplete"
            )

    def _end_of_run(self, ended: Running) -> None:
        """Weights that no product used, in a module that calls itself attention, were attention that was not seen."""
        mine = [origin for owner, origin in self._open if owner is ended]
        self._open = [(owner, origin) for owner, origin in self._open if owner is not ended]
        self.unseen += [origin.path for origin in mine if origin.path is not None and origin.n_uses == 0]
        if not self._open:
            self._weights.clear()
        self._scores.clear()


UNKNOWN = "unknown"


def _in_form(
    trace: Weighed, move: Callable[[Tensor], Tensor], heads: Heads, shape: torch.Size, tensor: Tensor
) -> Tensor | None:
    """A tensor of the softmax's shape as [row head query key]; None where its moves do not say how."""
    moved = move(trace.moved(tensor))
    return heads.split(moved) if moved.shape == shape else None


def _factors(scored: Scored | None, heads: Heads, shape: torch.Size) -> dict[str, Tensor | None]:
    """Query and key [row head token d_head], as the product that made the scores had them; None where unknown."""
    nothing: dict[str, Tensor | None] = {"query": None, "key": None}
    if scored is None:
        return nothing
    way = _scored_form(scored)
    if way is None:
        return nothing
    query, key = way
    *lead, n_queries, n_keys = shape
    fits = query.shape[-2] == n_queries and key.shape[-2] == n_keys and query.shape[-1] == key.shape[-1]
    size = query.shape[-2] * query.shape[-1]
    n = int(torch.tensor(lead).prod()) if lead else 1
    if not fits or query.numel() != n * size or n % heads.n:
        return nothing
    split = [_rows(t, tuple(lead), heads) for t in (query, key)]
    return {"query": split[0], "key": split[1]} if all(t is not None for t in split) else nothing


def _rows(tensor: Tensor, lead: tuple[int, ...], heads: Heads) -> Tensor | None:
    if tuple(tensor.shape[:-2]) == lead:
        return heads.split(tensor)
    if tensor.numel() == int(torch.tensor(lead).prod()) * tensor.shape[-1] * tensor.shape[-2]:
        return heads.split(tensor.reshape(*lead, *tensor.shape[-2:]))
    return None


def _scored_form(scored: Scored) -> tuple[Tensor, Tensor] | None:
    """Query [lead… query d_head] and key [lead… key d_head] of the product that made the scores."""
    if scored.equation is None:
        return scored.left, scored.right.transpose(-1, -2)
    inputs, out = scored.equation.split("->")
    left, right = inputs.split(",")
    width = [label for label in left if label in right and label not in out]
    query = [label for label in left if label not in right]
    key = [label for label in right if label not in left]
    lead = [label for label in out if label in left and label in right]
    if len(width) != 1 or len(query) != 1 or len(key) != 1:
        return None
    return (
        scored.left.permute([left.index(label) for label in (*lead, *query, *width)]),
        scored.right.permute([right.index(label) for label in (*lead, *key, *width)]),
    )


def _told(site: Site, trace: Weighed) -> Site:
    """The site with what its scores and weights tell: hidden keys, and how scores become weights."""
    weights = site.need("weights")
    if trace.cut:
        return replace(site, normalizer=_unknown(site.place, "at_most_one"))
    if site.scores is None:
        return replace(site, normalizer=_unknown(site.place, "one"))
    visible = site.scores > HIDDEN
    made = softmax(site.scores.to(trace.dtype or site.scores.dtype)).to(weights.dtype)
    dropped = (weights == 0) & (made != 0)
    hidden = dropped if bool(dropped.any()) else None
    if hidden is not None:
        visible, made = visible & ~hidden, made.masked_fill(hidden, 0.0)
    row_sum = "one" if hidden is None else "at_most_one"
    if not torch.allclose(made, weights, rtol=1e-3, atol=1e-5, equal_nan=True):
        return replace(site, visible=visible, normalizer=_unknown(site.place, "any"))

    def normalize(scores: Tensor) -> Tensor:
        return softmax(scores.to(trace.dtype or scores.dtype)).to(weights.dtype)

    normalizer = Normalizer("softmax", normalize, row_sum, hidden=hidden)  # type: ignore[arg-type]
    return replace(site, visible=None if bool(visible.all()) else visible, normalizer=normalizer)


def _unknown(place: Place, row_sum: Any) -> Normalizer:
    """The normalizer of weights that were changed after their softmax in a way that cannot be told."""

    def refuse(scores: Tensor) -> Tensor:
        raise CaptureError(f"{place} changes its weights after the softmax; edit weights, value or z instead of scores")

    return Normalizer(UNKNOWN, refuse, row_sum)
