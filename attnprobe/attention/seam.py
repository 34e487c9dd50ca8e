"""The seam: the one place where attention is seen and changed.

Whoever computes attention asks `enter(module)` whether somebody is listening; if so, it builds a `Site`
and hands it to `Tape.observe`, which checks it, applies the running edits in order, records what was asked
for, and gives back the z to go on with. The running tape is a ContextVar: blocks nest, threads do not mix.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from attnprobe.attention.edits import Edit, acts, checked
from attnprobe.attention.keep import NOTHING, Keep
from attnprobe.attention.proof import SiteProof
from attnprobe.attention.remaking import Remade
from attnprobe.attention.scaling import factors_of, scaled
from attnprobe.errors import CaptureError, EditError, InputError, RowsError, nearest
from attnprobe.site import Kind, Place, Site, parts_of

__all__ = ["NOTHING", "Edit", "Keep", "Tape", "observe", "recording", "running", "silent"]

Locate = Callable[[nn.Module, bool], tuple[str, Kind, str]]


@dataclass
class Tape:
    """One recording: the edits that run, what is kept, and what was seen.

    edits: run on every batch row, in order. row_edits: instead, the edits of each batch row. n_rows: how many batch
    rows the input has, checked where it is given. differentiable: z must be computed from the recorded weights, so
    that gradients reach them. numerics: how a route that has the choice computes the weights ("delegate": the model's
    own eager function; "own": from the formula). watch: whether the model is looked through for attention that it
    computes by hand and for what cannot be captured; not where a pass just before has shown that there is none.
    """

    edits: Sequence[Edit] = ()
    row_edits: Sequence[Sequence[Edit]] | None = None
    n_rows: int | None = None
    keep: Keep = field(default_factory=Keep)
    locate: Locate = lambda module, cross: ("model", "cross" if cross else "self", "")
    differentiable: bool = False
    check: bool = True
    numerics: str = "delegate"
    watch: bool = True
    sites: list[Site] = field(default_factory=list)
    reduced: list[tuple[Place, dict[str, Tensor]]] = field(default_factory=list)
    proofs: list[SiteProof] = field(default_factory=list)
    seen: list[Place] = field(default_factory=list)
    step: int = 0
    _fired: set[int] = field(default_factory=set)
    _factors: dict[object, Tensor | None] = field(default_factory=dict)
    _layers: Counter[tuple[str, str]] = field(default_factory=Counter)
    _calls: Counter[int] = field(default_factory=Counter)
    _runs: Counter[int] = field(default_factory=Counter)
    _last: dict[tuple[int, str, str], tuple[int, Place]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for edit in self.all_edits():
            if not callable(edit):
                raise EditError(f"an edit is a function from Site to Site, got {type(edit).__name__} {edit!r}")

    def all_edits(self) -> list[Edit]:
        """Every edit once, in order."""
        rows = [self.edits] if self.row_edits is None else self.row_edits
        return list({id(edit): edit for edits in rows for edit in edits}.values())

    def of_row(self, index: int) -> "Tape":
        """A tape for one row alone, with the edits that this one has for it."""
        edits = self.edits if self.row_edits is None else self.row_edits[index]
        kept = {name: getattr(self, name) for name in ("keep", "differentiable", "check", "numerics")}
        return Tape(edits, n_rows=1, **kept)

    def start_pass(self) -> None:
        """A new forward pass of the whole model begins: layers are numbered from 0 again."""
        if any(place.step == self.step for place in self.seen):
            self.step += 1
        for counts in (self._layers, self._calls, self._runs, self._last):
            counts.clear()

    def begin_run(self, module: nn.Module) -> None:
        """A module begins to run. What it attends to in one run is one layer: its images or windows are its parts."""
        self._runs[id(module)] += 1

    def enter(self, module: nn.Module, cross: bool, route: str = "seam", name: str = "") -> Place:
        """Number the call of an attention module and say where it is. A module whose runs nobody tells runs anew."""
        stack, kind, path = self.locate(module, cross)
        run, (last_run, last) = self._runs[id(module)], self._last.get((id(module), stack, kind), (0, None))
        if last is not None and run == last_run != 0:
            place = replace(last, part=last.part + 1, route=route, name=name)
        else:
            place = Place(
                stack, kind, self._layers[stack, kind], path, self._calls[id(module)], self.step, 0, route, name
            )
            self._layers[stack, kind] += 1
            self._calls[id(module)] += 1
        self._last[id(module), stack, kind] = (run, place)
        self.seen.append(place)
        return place

    def wants(self, place: Place) -> bool:
        """Whether a site is needed here; if not, the model's own kernel may run alone."""
        return self.keep.wants(place) or self.edits_here(place)

    def edits_here(self, place: Place) -> bool:
        """Whether an edit may act here; an edit that does not say where it acts may act everywhere."""
        return any(acts(edit, place) for edit in self.all_edits())

    def _here(self, place: Place) -> list[list[Edit]]:
        """The edits of each batch row that act at a place."""
        return [[edit for edit in edits if acts(edit, place)] for edits in self.row_edits or ()]

    def scaled(self, place: Place, n_heads: int, value: Tensor) -> Tensor | None:
        """The values [row head key d_head] times a factor a key, where nothing but that is asked at this place.

        The model's own kernel can go on with them: no map need be made. None where it is not all. n_heads: of queries,
        which may share values.
        """
        if self.keep.wants(place) or self.check or self.differentiable:
            return None
        here = self._here(place)
        # The layers of a stack mostly share one.
        key = (tuple(tuple(map(id, edits)) for edits in here), n_heads, value.shape, value.dtype, value.device)
        if key not in self._factors:
            self._factors[key] = factors_of(here, place, n_heads, value)
        factors = self._factors[key]
        if factors is None or factors.shape[1] > 1:  # heads that share values have factors of their own
            return None
        self._fired.update(id(edit) for edits in here for edit in edits)
        return value * factors[..., None]

    def observe(self, site: Site) -> Site:
        """Check the site as the model made it, apply the edits, record; the model goes on with the result's z."""
        site = replace(site, n_parts=self._n_parts(site))
        if self.differentiable and not torch.is_grad_enabled():
            raise CaptureError(
                f"{site.place} runs without gradients (reversible or frozen layers), so none reach its weights; "
                "use a method without gradients"
            )
        site = _with_gradient(site) if self.differentiable else site
        if self.check:
            self.proofs.append(SiteProof.of(site))
        site = self._edited(site)
        if self.keep.wants(site.place):
            self._record(site)
        return site

    def _n_parts(self, site: Site) -> int:
        """How many windows or images of one input lie in the batch axis of a site."""
        if self.n_rows is None or site.n_rows == self.n_rows:
            return 1
        if site.n_rows % self.n_rows == 0 and (self.n_rows == 1 or not self.all_edits()):
            return site.n_rows // self.n_rows
        raise RowsError(
            f"{site.place}: {site.n_rows} batch rows for {self.n_rows} inputs; this attention keeps windows or "
            "pictures in its batch axis: give one input at a time"
        )

    def _edited(self, site: Site) -> Site:
        """The site with each batch row under its own edits, in their order; rows with the same edits go together."""
        if self.row_edits is None or len(self.row_edits) == 1:
            return self._apply(self.edits if self.row_edits is None else self.row_edits[0], site)
        here = self._here(site.place)
        together = scaled(site, here)
        if together is not None:
            self._fired.update(id(edit) for edits in here for edit in edits)
            return together
        groups: dict[tuple[int, ...], tuple[list[Edit], list[int]]] = {}
        for row, edits in enumerate(here):
            groups.setdefault(tuple(map(id, edits)), (edits, []))[1].append(row)
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
            if acts(edit, site.place):
                with silent():  # what an edit asks of the model is no part of the recording
                    changed = checked(edit, site, edit(site))
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
        # Live tensors stay whole: gradients do not reach slices that z was not made of.
        for part in [site] if self.differentiable else parts_of(site):
            kept = part.only(self.keep.tensors, self.keep.heads)
            if isinstance(kept.normalizer, Remade):  # which holds the tensors that the weights were made of
                kept = replace(kept, normalizer=kept.normalizer.alone())
            self.sites.append(kept if self.differentiable else kept.map(Tensor.detach))

    def check_complete(self) -> None:
        """Raise if an edit never fired, or a layer that was asked for was never seen."""
        for edit in self.all_edits():
            if id(edit) not in self._fired:
                raise EditError(f"the edit {edit} never fired; this pass had {_summary(self)}")
        stacks = {place.stack for place in self.seen}
        if self.keep.stack is not None and self.seen and self.keep.stack not in stacks:
            raise InputError(f"there is no stack '{self.keep.stack}'; {nearest(self.keep.stack, stacks)}")
        if self.keep.layers is not None and self.seen:
            missing = sorted(set(self.keep.layers) - {place.layer for place in self.seen})
            if missing:
                raise InputError(f"there is no layer {missing[0]}; this pass had {_summary(self)}")


def _summary(tape: Tape) -> str:
    """The stacks that were seen, in words."""
    last = {(p.stack, p.kind): p.layer for p in tape.seen if p.step == tape.step}
    return ", ".join(f"{stack} {kind}-attention layers 0 to {n}" for (stack, kind), n in last.items()) or "no attention"


def _with_gradient(site: Site) -> Site:
    """The site with its scores (or weights) as the start of a gradient, where nothing before it asked for one."""
    if site.weights is None or site.weights.requires_grad:
        return site
    if site.scores is not None:
        return site.replace(scores=site.scores.detach().requires_grad_())
    return site.replace(weights=site.weights.detach().requires_grad_())


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
    name: str = "",
    fallback: Callable[[], Tensor] | None = None,
) -> Tensor:
    """The z to go on with at this attention; `build` makes the site only where somebody asks for it.

    cross: the keys are those of another sequence. name: what a part is, where one run of the module keeps several apart
    ("step", "window"): it is in the place of every part. fallback: computes z alone where nobody asks (default: the
    site's z).
    """
    tape = _running.get()
    kind: Kind = "cross" if cross else "self"
    place = Place("model", kind, 0, "", name=name) if tape is None else tape.enter(module, cross, name=name)
    if tape is None or not tape.wants(place):
        return fallback() if fallback is not None else build(place).need("z")
    return tape.observe(build(place)).need("z")
