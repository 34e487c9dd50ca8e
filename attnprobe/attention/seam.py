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
from attnprobe.errors import EditError, InputError, nearest
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
        for name in self.tensors:
            if name not in TENSORS:
                raise InputError(f"a site has no tensor '{name}'; {nearest(name, TENSORS)}")

    @classmethod
    def of(
        cls, *tensors: str, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None, **where: object
    ) -> "Keep":
        """Keep the named tensors; lists are accepted for layers and heads."""
        return cls(
            frozenset(tensors or ("weights",)),
            None if layers is None else tuple(layers),
            None if heads is None else tuple(heads),
            **where,  # type: ignore[arg-type]
        )

    def wants(self, place: Place) -> bool:
        """Whether anything of this place is to be kept."""
        return (
            (bool(self.tensors) or self.reduce is not None)
            and (self.layers is None or place.layer in self.layers)
            and (self.stack is None or place.stack == self.stack)
            and (self.kind is None or place.kind == self.kind)
        )


NOTHING = Keep(frozenset())


@dataclass
class Tape:
    """One recording: the edits that run, what is kept, and what was seen.

    edits: pairs of an edit and the batch rows it acts on (None: all). differentiable: z must be computed
    from the recorded weights, so that gradients reach them. numerics: how a route that has the choice computes
    the weights ("delegate": the model's own eager function; "own": from the formula).
    """

    edits: Sequence[tuple[Edit, Tensor | None]] = ()
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

    def start_pass(self) -> None:
        """A new forward pass of the whole model begins: layers are numbered from 0 again."""
        if self.seen:
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
        return any(_acts(edit, place) for edit, _ in self.edits)

    def observe(self, site: Site) -> Site:
        """Check the site as the model made it, apply the edits, record; the model goes on with the result's z."""
        if self.differentiable and site.weights is not None and not site.weights.requires_grad:
            # Where the parameters are frozen, nothing before this site asked for gradients.
            site = site.replace(weights=site.weights.detach().requires_grad_())
        if self.check:
            self.proofs.append(SiteProof.of(site))
        groups = self._groups(site)
        if len(groups) == 1:
            site = self._apply(next(iter(groups)), site)
        else:
            index = {numbers: torch.tensor(rows, device=site.device) for numbers, rows in groups.items()}
            site = site.merge([(rows, self._apply(numbers, site.rows(rows))) for numbers, rows in index.items()])
        if self.keep.wants(site.place):
            self._record(site)
        return site

    def _groups(self, site: Site) -> dict[tuple[int, ...], list[int]]:
        """The batch rows by the edits that act on them here; rows with the same edits go together."""
        here = [(n, rows) for n, (edit, rows) in enumerate(self.edits) if _acts(edit, site.place)]
        by_row: list[list[int]] = [[] for _ in range(site.n_rows)]
        for number, rows in here:
            for row in range(site.n_rows) if rows is None else rows.tolist():
                by_row[row].append(number)
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, numbers in enumerate(by_row):
            groups.setdefault(tuple(numbers), []).append(row)
        return groups

    def _apply(self, numbers: tuple[int, ...], site: Site) -> Site:
        for number in numbers:
            edit = self.edits[number][0]
            changed = edit(site)
            if not isinstance(changed, Site):
                raise EditError(f"an edit takes a Site and returns a Site; {edit} returned {type(changed).__name__}")
            if changed is not site:
                self._fired.add(number)
            site = changed
        return site

    def _record(self, site: Site) -> None:
        if self.keep.reduce is not None:
            self.reduced.append((site.place, self.keep.reduce(site)))
            return
        if self.keep.heads is not None and max(self.keep.heads) >= site.n_heads:
            raise InputError(f"{site.place} has heads 0 to {site.n_heads - 1}, got {max(self.keep.heads)}")
        kept = site.only(self.keep.tensors, self.keep.heads)
        self.sites.append(kept if self.differentiable else kept.map(Tensor.detach))

    def check_complete(self) -> None:
        """Raise if an edit never fired, or a layer that was asked for was never seen."""
        for number, (edit, _) in enumerate(self.edits):
            if number not in self._fired:
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
