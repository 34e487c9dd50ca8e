"""The seam: the one place where attention is seen and changed.

Whoever computes attention asks `enter(module)` whether somebody is listening; if so, it builds a `Site`
and hands it to `Tape.observe`, which checks it, applies the running edits in order, records what was asked
for, and gives back the z to go on with. The running tape is a ContextVar: blocks nest, threads do not mix.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from attnprobe.attention.proof import SiteProof
from attnprobe.errors import CaptureError, EditError, InputError, nearest
from attnprobe.site import TENSORS, Kind, Place, Site

Locate = Callable[[nn.Module, bool], tuple[str, Kind, str]]


@runtime_checkable
class Edit(Protocol):
    """An intervention: a function from site to site."""

    def __call__(self, site: Site) -> Site: ...


@dataclass(frozen=True)
class Keep:
    """What a recording keeps: which tensors, of which layers, heads, stack and kind (None: all).

    reduce: instead of tensors, a function of the site whose named results are kept (statistics only).
    """

    tensors: frozenset[str] = frozenset({"weights"})
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    stack: str | None = None
    kind: Kind | None = None
    reduce: Callable[[Site], dict[str, Tensor]] | None = None

    def __post_init__(self) -> None:
        tensors = {self.tensors} if isinstance(self.tensors, str) else self.tensors
        object.__setattr__(self, "tensors", frozenset(tensors))
        object.__setattr__(self, "layers", _numbers(self.layers))
        object.__setattr__(self, "heads", _numbers(self.heads))
        for name in self.tensors:
            if name not in TENSORS:
                raise InputError(f"a site has no tensor '{name}'; {nearest(name, TENSORS)}")
        for name, chosen in (("layers", self.layers), ("heads", self.heads)):
            if chosen is not None and not chosen:
                raise InputError(f"{name} is empty, so nothing would be kept; leave it out for all")

    @classmethod
    def of(
        cls,
        *tensors: str,
        layers: int | Sequence[int] | None = None,
        heads: int | Sequence[int] | None = None,
        **where: object,
    ) -> "Keep":
        """Keep the named tensors (weights, scores, query, key, value, z); one number or a list of layers and heads."""
        kept = frozenset(tensors or ("weights",))
        return cls(kept, _numbers(layers), _numbers(heads), **where)  # type: ignore[arg-type]

    def wants(self, place: Place) -> bool:
        """Whether anything of this place is to be kept."""
        return (
            (bool(self.tensors) or self.reduce is not None)
            and (self.layers is None or place.layer in self.layers)
            and (self.stack is None or place.stack == self.stack)
            and (self.kind is None or place.kind == self.kind)
        )


def _numbers(given: int | Sequence[int] | None) -> tuple[int, ...] | None:
    return given if given is None else (given,) if isinstance(given, int) else tuple(given)


NOTHING = Keep(frozenset())


@dataclass
class Tape:
    """One recording: the edits that run, what is kept, and what was seen.

    edits: run on every batch row, in order. row_edits: instead, the edits of each batch row. n_rows: how many batch
    rows the input has, checked where it is given. differentiable: z must be computed from the recorded weights, so
    that gradients reach them. numerics: how a route that has the choice computes the weights ("delegate": the model's
    own eager function; "own": from the formula).
    """

    edits: Sequence[Edit] = ()
    row_edits: Sequence[Sequence[Edit]] | None = None
    n_rows: int | None = None
    keep: Keep = field(default_factory=Keep)
    locate: Locate = lambda module, cross: ("model", "cross" if cross else "self", "")
    differentiable: bool = False
    check: bool = True
    numerics: str = "delegate"
    sites: list[Site] = field(default_factory=list)
    reduced: list[tuple[Place, dict[str, Tensor]]] = field(default_factory=list)
    proofs: list[SiteProof] = field(default_factory=list)
    seen: list[Place] = field(default_factory=list)
    step: int = 0
    _fired: set[int] = field(default_factory=set)
    _layers: Counter[tuple[str, str]] = field(default_factory=Counter)
    _calls: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for edit in self.all_edits():
            if not callable(edit):
                raise EditError(f"an edit is a function from Site to Site, got {type(edit).__name__} {edit!r}")

    def all_edits(self) -> list[Edit]:
        """Every edit once, in order."""
        rows = [self.edits] if self.row_edits is None else self.row_edits
        return list({id(edit): edit for edits in rows for edit in edits}.values())

    def start_pass(self) -> None:
        """A new forward pass of the whole model begins: layers are numbered from 0 again."""
        if any(place.step == self.step for place in self.seen):
            self.step += 1
        self._layers.clear()
        self._calls.clear()

    def enter(self, module: nn.Module, cross: bool) -> Place:
        """Number the call of an attention module and say where it is."""
        stack, kind, path = self.locate(module, cross)
        place = Place(stack, kind, self._layers[stack, kind], path, self._calls[id(module)], self.step)
        self._layers[stack, kind] += 1
        self._calls[id(module)] += 1
        self.seen.append(place)
        return place

    def wants(self, place: Place) -> bool:
        """Whether a site is needed here; if not, the model's own kernel may run alone."""
        return self.keep.wants(place) or self.edits_here(place)

    def edits_here(self, place: Place) -> bool:
        """Whether an edit may act here; an edit that does not say where it acts may act everywhere."""
        return any(_acts(edit, place) for edit in self.all_edits())

    def observe(self, site: Site) -> Site:
        """Check the site as the model made it, apply the edits, record; the model goes on with the result's z."""
        if self.n_rows is not None and site.n_rows != self.n_rows:
            raise CaptureError(
                f"{site.place}: {site.n_rows} batch rows for {self.n_rows} inputs; this attention keeps windows or "
                "pictures in its batch axis, which attnprobe does not tell apart yet"
            )
        site = _with_gradient(site) if self.differentiable else site
        if self.check:
            self.proofs.append(SiteProof.of(site))
        site = self._edited(site)
        if self.keep.wants(site.place):
            self._record(site)
        return site

    def _edited(self, site: Site) -> Site:
        """The site with each batch row under its own edits, in their order; rows with the same edits go together."""
        if self.row_edits is None:
            return self._apply(self.edits, site)
        groups: dict[tuple[int, ...], tuple[Sequence[Edit], list[int]]] = {}
        for row, edits in enumerate(self.row_edits):
            here = [edit for edit in edits if _acts(edit, site.place)]
            groups.setdefault(tuple(map(id, here)), (here, []))[1].append(row)
        if len(groups) == 1:
            ((edits, _),) = groups.values()
            return self._apply(edits, site)
        parts = []
        for edits, rows in groups.values():
            index = torch.tensor(rows, device=site.device)
            parts.append((index, self._apply(edits, site.rows(index))))
        return site.merge(parts)

    def _apply(self, edits: Sequence[Edit], site: Site) -> Site:
        for edit in edits:
            if _acts(edit, site.place):
                with silent():  # what an edit asks of the model is no part of the recording
                    changed = _checked(edit, site, edit(site))
                if changed is not site:
                    self._fired.add(id(edit))
                site = changed
        return site

    def _record(self, site: Site) -> None:
        if self.keep.reduce is not None:
            self.reduced.append((site.place, self.keep.reduce(site)))
            return
        wrong = [head for head in self.keep.heads or () if not 0 <= head < site.n_heads]
        if wrong:
            raise InputError(f"{site.place} has heads 0 to {site.n_heads - 1}, got head {wrong[0]}")
        kept = site.only(self.keep.tensors, self.keep.heads)
        self.sites.append(kept if self.differentiable else kept.map(Tensor.detach))

    def check_complete(self) -> None:
        """Raise if an edit never fired, or a layer that was asked for was never seen."""
        for edit in self.all_edits():
            if id(edit) not in self._fired:
                raise EditError(f"the edit {edit} never fired; this pass had {self.summary()}")
        if self.keep.layers is not None and self.seen:
            missing = sorted(set(self.keep.layers) - {place.layer for place in self.seen})
            if missing:
                raise InputError(f"there is no layer {missing[0]}; this pass had {self.summary()}")

    def summary(self) -> str:
        """The stacks that were seen, in words."""
        counts = Counter((p.stack, p.kind) for p in self.seen if p.step == self.step)
        return (
            ", ".join(f"{stack} {kind}-attention layers 0 to {n - 1}" for (stack, kind), n in counts.items())
            or "no attention"
        )


def _acts(edit: Edit, place: Place) -> bool:
    return bool(getattr(edit, "acts_at", lambda _: True)(place))


def _with_gradient(site: Site) -> Site:
    """The site with its scores (or weights) as the start of a gradient, where nothing before it asked for one."""
    if site.weights is None or site.weights.requires_grad:
        return site
    if site.scores is not None:
        return site.replace(scores=site.scores.detach().requires_grad_())
    return site.replace(weights=site.weights.detach().requires_grad_())


def _checked(edit: Edit, before: Site, after: object) -> Site:
    """What an edit gave back, or an `EditError` where the model could not go on with it."""
    if not isinstance(after, Site):
        raise EditError(f"an edit takes a Site and returns a Site; {edit} returned {type(after).__name__}")
    z, old = after.z, before.z
    if z is None or (old is not None and (z.shape != old.shape or z.dtype != old.dtype)):
        got = "no z" if z is None else f"z of {tuple(z.shape)} {z.dtype}"
        expected = "" if old is None else f", expected {tuple(old.shape)} {old.dtype}"
        raise EditError(f"{before.place}: the edit {edit} gave {got}{expected}")
    return after


_running: ContextVar[Tape | None] = ContextVar("attnprobe_tape", default=None)


def running() -> Tape | None:
    """The tape that is recording in this context, if any."""
    return _running.get()


@contextmanager
def recording(tape: Tape) -> Iterator[Tape]:
    """Run the block under a tape; complain afterwards about edits that never fired and layers never seen."""
    token = _running.set(tape)
    try:
        yield tape
        tape.check_complete()
    finally:
        _running.reset(token)


@contextmanager
def silent() -> Iterator[None]:
    """Run the block as if nobody were listening."""
    token = _running.set(None)
    try:
        yield
    finally:
        _running.reset(token)


def observe(
    module: nn.Module,
    build: Callable[[Place], Site],
    *,
    cross: bool = False,
    fallback: Callable[[], Tensor] | None = None,
) -> Tensor:
    """The z to go on with at this attention; `build` makes the site only where somebody asks for it.

    fallback: computes z alone where nobody asks (default: the site's z).
    """
    tape = _running.get()
    place = Place("model", "self", 0, "") if tape is None else tape.enter(module, cross)
    if tape is None or not tape.wants(place):
        return fallback() if fallback is not None else build(place).need("z")
    return tape.observe(build(place)).need("z")
