"""The second route: attention that a model computes by hand is seen at its own softmax, and at fused kernels.

A function mode that lives only inside the block. It follows scores from q kᵀ to a softmax and weights from there to the
product with the values, where the site is complete: there the edits act, and the model goes on with z. Where nobody
asks, the model's own numbers pass through untouched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnprobe.attention.seam import Tape, running
from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.assembling import UNKNOWN, site_of
from attnprobe.models.huggingface.axes import (
    PRODUCTS,
    SOFTMAX_CALLS,
    Heads,
    Operands,
    check_queries,
    n_heads_of,
    operands_of,
    product_of,
    scores_of,
    softmax_axis,
)
from attnprobe.models.huggingface.fused import CLOSED, MULTI_HEAD, SDPA, Fused, open_multi_head
from attnprobe.models.huggingface.interface import attending
from attnprobe.models.huggingface.mapless import mapless_layers
from attnprobe.models.huggingface.runs import Running, Runs, is_attention
from attnprobe.models.huggingface.sparse.layouts import layout_of
from attnprobe.models.huggingface.sparse.recording import Recorder
from attnprobe.models.huggingface.traces import Origin, Scored, Traces, Weighed, name_of
from attnprobe.site import Place, Site, softmax

# Their windows lie behind the heads.
HEADS_FIRST = ("HieraMaskUnitAttention",)


@dataclass
class ByHand(TorchFunctionMode):
    """Sees softmax, products and fused attention outside of the registry.

    unseen: paths of attention that it could not follow. blank: paths of modules that call themselves attention and
    showed no weights. beside: paths of modules that used their weights beside the product with the values.
    """

    tape: Tape
    runs: Runs
    recorder: Recorder
    unseen: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
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
            return self._multi_head(args, kwargs)
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

    def _multi_head(self, args: tuple, kwargs: dict) -> Any:
        """torch's own code, watched; what it does with the weights beside the product is to average them."""
        known = len(self._open)
        with self:
            out = open_multi_head(*args, **kwargs)
        for _, origin in self._open[known:]:
            origin.lost = origin.lost and origin.n_uses == 0
        return out

    def _softmax(self, func: Any, args: tuple, kwargs: dict) -> Tensor:
        out = func(*args, **kwargs)
        scores, axis = scores_of(args, kwargs), softmax_axis(func, args, kwargs)
        if scores.ndim < 3 or axis is None:
            return out
        # Keys lie on the last axis; a softmax over another one pools or routes, and is followed for the product alone.
        scored = self._scores.of(scores)
        attending = self.runs.attending or (self.runs.innermost if scored is not None else None)
        followed = axis == scores.ndim - 1 and attending is not None and not mapless_layers(attending.module)
        origin = Origin((attending.path or "the model itself") if followed and attending is not None else None)
        self._open.append((self.runs.innermost, origin))
        right = axis == scores.ndim - 1 if scored is None else scored.keys_are_right(axis, scores.ndim)
        trace = Weighed(scores, kwargs.get("dtype"), axis, origin, scored, keys_right=right)
        self._weights.set(out, trace)
        return out

    def _product(self, func: Any, args: tuple, kwargs: dict) -> Tensor:
        given = operands_of(func, args, kwargs)
        if given is None:
            out = func(*args, **kwargs)
            self._follow(func, args, kwargs, out)
            return out
        traces = [self._weights.of(factor) for factor in (given.left, given.right)]
        for left, axis in ((True, given.left_axis), (False, given.right_axis)):
            trace = traces[0 if left else 1]
            if (
                trace is not None and trace.axis == axis and None in traces
            ):  # weights times weights are no mix of values
                into = kwargs.get("out", args[0] if name_of(func).endswith("mm_") else None)
                return self._attention(func(*args, **kwargs), given, left, trace, into)
        for factor in (given.left, given.right):
            self._weights.lose(factor)
        out = func(*args, **kwargs)
        if given.left.ndim > 2 or given.right.ndim > 2:
            self._scores.set(out, Scored(given.left, given.right, given.equation))
        return out

    def _attention(
        self, out: Tensor, given: Operands, left: bool, trace: Weighed, into: Tensor | None = None
    ) -> Tensor:
        """The product of weights and value: the site is complete. into: where the product was written to, if given."""
        trace.origin.n_uses += 1
        owner = self.runs.innermost
        if trace.origin.n_uses > 1:
            self._refuse_second_use(owner, trace)
            return out
        weights, value = (given.left, given.right) if left else (given.right, given.left)
        if weights.numel() < trace.scores.numel() and not trace.cut:
            raise CaptureError(
                f"{owner.path} uses {weights.numel()} of its {trace.scores.numel()} weights in one product (heads or "
                f"queries one by one), and attnprobe knows no layout for {type(owner.module).__name__}"
            )
        way = product_of(given, left)
        weights, value, z = way.weights(weights), way.value(value), way.z(out)
        n_heads, first = self._n_heads(), type(owner.module).__name__ in HEADS_FIRST
        heads = Heads.of(tuple(weights.shape[:-2]), n_heads, self.tape.n_rows, heads_first=first)
        place = self.tape.enter(owner.module, cross=weights.shape[-1] != weights.shape[-2], route="softmax")
        check_queries(place, heads, tuple(weights.shape), n_heads)
        if not self.tape.wants(place):
            return out
        self._refuse_training(owner, place)
        site = site_of(place, trace, way, heads, weights, value, z)
        new = self._passed(site, out, lambda z: way.back(heads.merge(z)))
        return new if into is None or new is out else into.copy_(new)

    def _fused(self, args: tuple, kwargs: dict) -> Tensor:
        """One call of scaled_dot_product_attention: the site beside the kernel, whose z stays unless edited."""
        given, owner = Fused.of(args, kwargs), self.runs.innermost
        place = self.tape.enter(owner.module, cross=given.query.shape[-2] != given.key.shape[-2], route="sdpa")
        out = SDPA(*args, **kwargs)
        if not self.tape.wants(place):
            return out
        if given.dropout > 0:
            raise CaptureError(f"{place}: in training mode the weights are after dropout; call model.eval()")
        n_heads = self._n_heads()
        heads = Heads.of(given.lead, n_heads, self.tape.n_rows)
        check_queries(place, heads, (given.query.shape[-2], given.key.shape[-2]), n_heads)
        scores, visible = heads.split(given.scores), given.visible
        if visible is not None:
            visible = heads.split(visible.expand(*given.lead, *scores.shape[-2:]))
        key, value = (heads.split(given.expanded(tensor)) for tensor in (given.key, given.value))
        weights = softmax(scores).to(out.dtype)
        site = Site(place, heads.split(given.query), key, value, scores, weights, heads.split(out), visible)
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
        if trace.cut or self._changes:
            raise CaptureError(
                f"{owner.path} uses its weights in more than one product, and attnprobe knows no layout for "
                f"{type(owner.module).__name__}: edits and gradients would be incomplete"
            )

    def check_beside(self) -> None:
        """`CaptureError` where an edit or a gradient reached only a part of what the weights did."""
        if self.beside and self._changes:
            raise CaptureError(
                f"{self.beside[0]} also uses its weights beside the product with the values: an edit or a gradient "
                "would reach that product alone"
            )

    @property
    def _changes(self) -> bool:
        """Whether anything but looking is asked for."""
        return self.tape.differentiable or bool(self.tape.all_edits())

    def _end_of_run(self, ended: Running) -> None:
        """Weights that went where no product uses them, in what calls itself attention, were attention not seen.

        Weights that nothing has used yet may be used by the module around; weights that nothing uses are none.
        """
        mine = [origin for owner, origin in self._open if owner.module is ended.module]
        waiting = [(self.runs.innermost, o) for o in mine if o.n_uses == 0 and not o.lost and self.runs.active]
        self._open = [(owner, origin) for owner, origin in self._open if owner.module is not ended.module] + waiting
        self.unseen += [o.path for o in mine if o.path is not None and o.n_uses == 0 and o.lost]
        if any(o.n_uses and o.lost for o in mine) and running() is self.tape:
            self.beside.append(ended.path)
        if running() is self.tape and is_attention(ended.module) and ended.n_seen == len(self.tape.seen):
            self._note_blank(ended)
        if not self._open:
            self._weights.clear()
        self._scores.clear()

    def _note_blank(self, ended: Running) -> None:
        """The innermost of nested modules is named; one without weights by design is none of them."""
        inside = any(path.startswith(f"{ended.path}.") for path in (*self.blank, *self.unseen))
        laid_out = layout_of(ended.module) is not None  # its sites come when the run has ended
        if not inside and not laid_out and not mapless_layers(ended.module) and ended.path not in self.unseen:
            self.blank.append(ended.path)
