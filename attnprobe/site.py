"""One attention operation in one forward pass, at the moment before its heads are mixed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import EditError

Kind = Literal["self", "cross"]
RowSum = Literal["one", "at_most_one", "any"]
TENSORS = ("query", "key", "value", "scores", "weights", "z")


@dataclass(frozen=True)
class Place:
    """Where a site is: `layer` counts the runs of modules within its stack and kind in one pass.

    `call` counts the runs of its module; `step` the passes within one recording (0 but for generation); `part` the
    images, windows or blocks that one run keeps apart, `name` says what such a part is. `route`: how it was reached
    ("registry", "softmax", "sdpa", "layout"; "seam" for models of ours).
    """

    stack: str
    kind: Kind
    layer: int
    path: str
    call: int = 0
    step: int = 0
    part: int = 0
    route: str = "seam"
    name: str = ""

    def __str__(self) -> str:
        name = f"{self.stack} {self.kind}-attention layer {self.layer} ({self.path or 'root'}"
        counts = "".join(f", {what} {n}" for what, n in (("call", self.call), ("part", self.part)) if n)
        return f"{name}{counts}{f', {self.name}' if self.name else ''})"


@dataclass(frozen=True, eq=False)
class Normalizer:
    """What turns scores into weights, and what its rows sum to.

    sinks: scores [batch head query sink] that take a share of the mass and are dropped again, if any. hidden: weights
    [batch head query key] that are set to 0 behind the function, if any.
    """

    name: str
    function: Callable[[Tensor], Tensor] = field(repr=False)
    row_sum: RowSum = "one"
    sinks: Tensor | None = field(default=None, repr=False)
    hidden: Tensor | None = field(default=None, repr=False)

    def __call__(self, scores: Tensor) -> Tensor:
        """Weights [batch head query key] of scores [batch head query key]."""
        whole = scores if self.sinks is None else torch.cat([scores, self.sinks.to(scores.dtype)], dim=-1)
        weights = self.function(whole)[..., : scores.shape[-1]]
        return weights if self.hidden is None else weights.masked_fill(self.hidden, 0.0)

    def rows(self, index: Tensor) -> "Normalizer":
        """The normalizer of the batch rows `index`."""
        sinks, hidden = (None if tensor is None else tensor[index] for tensor in (self.sinks, self.hidden))
        return replace(self, sinks=sinks, hidden=hidden)


def softmax(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """Softmax over keys; a row whose scores are all -inf (nothing to look at) becomes zeros, not NaN.

    >>> softmax(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]])).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    weights = torch.softmax(scores, dim=-1)
    if not _may_be_nan(weights):
        return weights
    blind = torch.isneginf(scores).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)


def _may_be_nan(weights: Tensor) -> bool:
    """Whether a row is NaN: one of nothing but -inf, or with a NaN in it. Under torch.func.vmap nobody can look."""
    try:
        return bool(weights[..., :1].isnan().any())
    except RuntimeError:
        return True


SOFTMAX = Normalizer("softmax", softmax)


@dataclass(frozen=True, eq=False)
class Site:
    """The tensors of one attention operation; batch axis first, heads not yet mixed.

    scores: what the normalizer gets: scale, bias, cap and mask included. weights: after the normalizer,
    before dropout. z = weights @ value, the input of the output projection. Grouped key and value heads are
    expanded to one a query head. visible: which keys a query may look at, None means all. heads: the numbers of the
    heads that were kept, None means all. n_parts: windows or images of one input that lie in the batch axis, the input
    slowest. n_kv_heads: how many different keys and values the heads share. A tensor is None where it was not kept, or
    no longer holds after an edit.
    """

    place: Place
    query: Float[Tensor, "batch head query d_head"] | None = None
    key: Float[Tensor, "batch head key d_head"] | None = None
    value: Float[Tensor, "batch head key d_value"] | None = None
    scores: Float[Tensor, "batch head query key"] | None = None
    weights: Float[Tensor, "batch head query key"] | None = None
    z: Float[Tensor, "batch head query d_value"] | None = None
    visible: Bool[Tensor, "#batch #head #query key"] | None = None
    normalizer: Normalizer = SOFTMAX
    heads: tuple[int, ...] | None = None
    n_parts: int = 1
    n_kv_heads: int | None = None

    @property
    def layer(self) -> int:
        """Number of the call within its stack and kind."""
        return self.place.layer

    @property
    def n_heads(self) -> int:
        """Number of (query) heads."""
        return self._any().shape[1]

    @property
    def n_rows(self) -> int:
        """Number of batch rows."""
        return self._any().shape[0]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self._any().device

    def replace(
        self,
        *,
        scores: Tensor | None = None,
        weights: Tensor | None = None,
        value: Tensor | None = None,
        z: Tensor | None = None,
    ) -> "Site":
        """A site with one tensor replaced; what lies downstream is recomputed, what no longer holds is None."""
        given = {"scores": scores, "weights": weights, "value": value, "z": z}
        named = [name for name, tensor in given.items() if tensor is not None]
        if len(named) != 1:
            raise EditError(f"replace one of scores, weights, value, z at a time, got {named or 'none'}")
        if z is not None:
            return replace(self, z=z, scores=None, weights=None, value=None)
        old = self.need("value")
        if value is not None:
            return replace(self, value=value, z=self.need("weights") @ value)
        if weights is not None:
            return replace(self, weights=weights, scores=None, z=weights @ old)
        weights = self.normalizer(self.need("scores") if scores is None else scores)
        return replace(self, scores=scores, weights=weights, z=weights.to(old.dtype) @ old)

    def need(self, name: str) -> Tensor:
        """A tensor of this site, or an `EditError` that says it is not there."""
        tensor: Tensor | None = getattr(self, name)
        if tensor is None:
            raise EditError(
                f"{self.place}: there is no '{name}' here; "
                "it was not kept, or an edit before this one replaced what it led to"
            )
        return tensor

    def rows(self, index: Tensor) -> "Site":
        """The batch rows `index` alone."""
        changes: dict[str, object] = {"normalizer": self.normalizer.rows(index)}
        for name in (*TENSORS, "visible"):
            tensor = getattr(self, name)
            if tensor is not None:
                one_for_all = tensor.shape[0] == 1 != self.n_rows  # learned queries, a mask
                changes[name] = tensor if one_for_all and name == "visible" else self._every(tensor)[index]
        return replace(self, **changes)  # type: ignore[arg-type]

    def merge(self, parts: Sequence[tuple[Tensor, "Site"]]) -> "Site":
        """This site with its batch rows put together from parts; a tensor that a part lacks is None."""
        order = torch.cat([rows for rows, _ in parts]).argsort()
        changes: dict[str, Tensor | None] = {}
        for name in TENSORS:
            tensors = [getattr(part, name) for _, part in parts]
            whole = all(tensor is not None for tensor in tensors)
            changes[name] = torch.cat(tensors)[order] if whole else None
        return replace(self, **changes)  # type: ignore[arg-type]

    def only(self, tensors: frozenset[str], heads: tuple[int, ...] | None = None) -> "Site":
        """The named tensors alone, of the named heads alone (all for None)."""
        changes: dict[str, Tensor | None] = {}
        for name in TENSORS:
            tensor = getattr(self, name) if name in tensors else None
            changes[name] = tensor if tensor is None or heads is None else tensor[:, list(heads)]
        return replace(self, heads=heads, **changes)  # type: ignore[arg-type]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Site":
        """Every tensor passed through `function`."""
        changes = {name: function(t) for name in (*TENSORS, "visible") if (t := getattr(self, name)) is not None}
        return replace(self, **changes)  # type: ignore[arg-type]

    def _every(self, tensor: Tensor) -> Tensor:
        return tensor.expand(self.n_rows, *tensor.shape[1:])

    def _any(self) -> Tensor:
        for name in ("weights", "z", "scores", "query", "value", "key"):
            tensor: Tensor | None = getattr(self, name)
            if tensor is not None:
                return tensor
        raise EditError(f"{self.place}: no tensor of this site was kept")


# Towers beside the text: of a model that reads both, its tokens are explained in the others.
BESIDE_TEXT = ("vision", "audio", "qformer", "resampler", "mask", "fusion")


def parts_of(site: Site) -> list[Site]:
    """A site for each window or image that lies in the batch axis, numbered in its place."""
    if site.n_parts == 1:
        return [site]
    found = []
    for part in range(site.n_parts):
        index = torch.arange(part, site.n_rows, site.n_parts, device=site.device)
        place = replace(site.place, part=site.place.part + part)
        found.append(replace(site.rows(index), place=place, n_parts=1))
    return found
