"""Rows that edit the attention of one example, run from the first edited attention on.

What lies below an edit is the same in every row, so one recorded pass of the example stands in for it: layers before
the edited one give what they gave, and within its layer the maps before the attention do. Behind the last attention
every part of a network acts on each position for itself, so it is run where the answer is read, and nowhere else.

None of this is taken on trust. Both shortcuts are tried on a strongly edited row before they are used; batches carry
the row without edits along where it costs little; every pass must have the attention of the recorded one, numbered
alike. Where an answer is not that of the plain pass, the rows run plainly.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import NOTHING
from attnprobe.errors import AttnprobeError
from attnprobe.example import Example
from attnprobe.intervention import Intervention
from attnprobe.models.evaluator import (
    count,
    edits_of,
    logits,
    out_of_memory,
    refuse_unseen,
)
from attnprobe.models.model import Model
from attnprobe.models.modes import version_of
from attnprobe.models.recorded import Pass, ResumableTape, recorded
from attnprobe.models.replay import Replay
from attnprobe.models.rows import Row
from attnprobe.models.shortcuts import by_shortcut
from attnprobe.site import Place, Site
from attnprobe.target import ResolvedTarget

# How far the answer of a row may be from that of the plain pass, of the largest logit; coarser types run plainly.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
# A row of fewer multiplications (parameters of the layers times tokens) costs less than it takes to resume it.
LEAST_WORK = 30_000_000
# The recorded pass and the proof cost some passes: fewer rows are not worth them.
LEAST_ROWS = 8
FROM_THE_EDIT = "from the edit on"
# In the place of a number: the row is the recorded example.
WHOLE = -1
# What a network says of a batch, or of positions, that it cannot be given in this way.
FAILURES = (AttnprobeError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError)


@dataclass(eq=False)
class Resumption:
    """The shortcut for one question: rows of one example and one target, of a model that stays as it is.

    always: also where it saves no time. used: what was found, "" before the first question; "plain" with the reason,
    or what is spared.
    """

    model: Model
    example: Example
    target: Callable[[Tensor], Tensor]
    always: bool = False
    used: str = ""
    _known: "_Known | None" = None
    _version: int = -1

    def starts(self, model: Model, rows: Sequence[Row], target: Callable[[Tensor], Tensor]) -> list[int | None]:
        """The number of the attention from which on each row can be run; None for rows that must run plainly."""
        if not self._applies(model, target, rows):
            return [None] * len(rows)
        version = version_of(model.module)
        if self._version != version:
            self._version, self._known, self.used = version, None, ""
            self._known = self._learn()
        return [None if self._known is None else self._known.start(row) for row in rows]

    def answers(self, rows: Sequence[Row], start: int) -> Float[Tensor, " row"]:
        """The target of rows that start at one attention; of the example as it is, behind all."""
        if start == WHOLE and self._known is not None:
            count(reused=len(rows))
            return self._known.plain.expand(len(rows))
        count(forward=len(rows))
        while self._known is not None:
            try:
                found = self._known.targets(rows, start)
            except FAILURES as error:
                if out_of_memory(error):
                    raise
                if self._known.position is None:
                    self._give_up(f"{type(error).__name__}: {error}")
                else:  # several rows may ask for more than the one that the proof ran
                    self._known.position, self.used = None, FROM_THE_EDIT
            else:
                if self._known.is_plain(found[len(rows) :]):
                    return found[: len(rows)]
                self._give_up("an answer without edits was not that of the plain pass")
        count(forward=-len(rows))
        return self.target(logits(self.model, rows))

    def _applies(self, model: Model, target: Callable[[Tensor], Tensor], rows: Sequence[Row]) -> bool:
        if model is not self.model or target != self.target or self.used.startswith("plain"):
            return False
        mine = sum(row.example is self.example and bool(row.edits) for row in rows)
        return self.always or mine >= LEAST_ROWS

    def _give_up(self, reason: str) -> None:
        self._known, self.used = None, f"plain ({reason})"

    def _learn(self) -> "_Known | None":
        """One recorded pass, and the strongest shortcut that is proven on it; None where there is none."""
        try:
            known = _Known.of(self.model, self.example, self.target)
            if not self.always and known.work < LEAST_WORK:
                self.used = "plain (a pass costs less than resuming one)"
                return None
            self.used = known.prove()
        except FAILURES as error:
            if out_of_memory(error):
                raise
            self._give_up(f"{type(error).__name__}: {error}")
            return None
        return known


@contextmanager
def resumed(
    model: Model, example: Example, target: Callable[[Tensor], Tensor], *, always: bool = False
) -> Iterator[Resumption]:
    """Within the block, `targets` of this example under edits of attention runs each row from its first edit on.

    For the time of one question: what is recorded is forgotten behind the block, or when a parameter was changed in
    place. Answers are those of plain passes within `TOLERANCE`; a model for which that does not hold runs plainly.
    always: also where a pass is so small, or rows are so few, that nothing is gained.
    """
    shortcut = Resumption(model, example, target, always)
    with by_shortcut(shortcut):
        yield shortcut


@dataclass(eq=False)
class _Known:
    """A recorded pass with what it answered. position: where alone the parts behind the last attention run."""

    model: Model
    example: Example
    target: Callable[[Tensor], Tensor]
    record: Pass
    plain: Float[Tensor, " 1"]
    size: float
    position: int | None = None

    @classmethod
    def of(cls, model: Model, example: Example, target: Callable[[Tensor], Tensor]) -> "_Known":
        """Run the example once, and remember what its parts gave."""
        record, answer = recorded(model, example)
        plain = target(answer)
        if plain.dtype not in TOLERANCE:
            raise AttnprobeError(f"numbers of {plain.dtype} are too coarse to prove anything with")
        largest = float(answer.abs().max())
        value = float(plain.abs().max())
        probability = isinstance(target, ResolvedTarget) and target.scale == "probability"
        size = value * max(1.0, largest) if probability else max(value, largest)
        return cls(model, example, target, record, plain, size)

    @property
    def work(self) -> int:
        """Multiplications of a row in the layers."""
        return self.record.n_parameters * self.example.n_tokens

    def start(self, row: Row) -> int | None:
        """The first attention that a row edits; None where the row changes more than attention."""
        if row.example is not self.example or not row.whole or row.embeddings is not None:
            return None
        if not row.edits:
            return WHOLE
        acting = (
            number
            for number, (_, place) in enumerate(self.record.sites)
            if any(getattr(edit, "acts_at", lambda _: True)(place) for edit in row.edits)
        )
        return next(acting, None)  # an edit that acts nowhere is refused by the plain pass

    def targets(self, rows: Sequence[Row], start: int, least: int | None = None) -> Float[Tensor, " row"]:
        """The target of the rows, and behind them that of the example without edits: so many times at least.

        least: None for once where it costs little, in the upper quarter. Where a model's own code is watched, as many
        rows as heads cannot be told from heads: then once more.
        """
        least = int(4 * start >= 3 * len(self.record.sites)) if least is None else least
        by_hand = [stack for stack in self.model.stacks if set(stack.routes) & {"softmax", "sdpa"}]
        taken = {n for stack in by_hand for n in stack.n_heads}
        n_witnesses = next(n for n in range(least, least + len(taken) + 1) if len(rows) + n not in taken)
        batch = [*rows, *[Row(self.example)] * n_witnesses]
        watch = any(place.route != "registry" for _, place in self.record.sites)
        tape = ResumableTape(**edits_of(batch), keep=NOTHING, check=False, watch=watch)
        with torch.no_grad(), Replay(self.record, tape, len(batch), start, self.position).replacing():
            answer = self.model.forward(batch, tape)
        refuse_unseen(self.model)
        return self.target(answer)

    def is_plain(self, found: Tensor, expected: Tensor | None = None) -> bool:
        """Whether answers are those of the plain pass."""
        expected = self.plain if expected is None else expected
        return bool(((found - expected).abs() <= TOLERANCE[found.dtype] * self.size).all())

    def prove(self) -> str:
        """Choose what is spared, by trying it with half of an early layer silent: all that follows runs resumed.

        Errors: `AttnprobeError` where nothing can be spared.
        """
        start = min(self.record.runs[0].last, len(self.record.sites) // 2)
        row = Row(self.example, edits=(silenced(self.record.sites[start][1]),))
        changed = self.target(logits(self.model, [row]))
        count(forward=1)
        for position in (*self._positions(), None):
            self.position = position
            try:
                found = self.targets([row], start, 0)
            except FAILURES as error:
                if position is None or out_of_memory(error):
                    raise
                continue
            count(forward=1)
            if self.is_plain(found[:1], changed):
                return FROM_THE_EDIT + ("" if position is None else f", in the end at position {position} alone")
        raise AttnprobeError("resumed passes answer something else than plain ones")

    def _positions(self) -> tuple[int, ...]:
        """Where the answer may be read, which is tried: the position that the target names, or else first and last."""
        length = self.record.length
        if length < 2:
            return ()
        if isinstance(self.target, ResolvedTarget) and self.target.position is not None:
            return (self.target.position,) if self.target.position < length else ()
        return (0, length - 1)


def silenced(place: Place) -> Intervention:
    """Half of the heads of one layer give 0, the last ones; a single head whole."""

    def change(site: Site) -> Site:
        z = site.need("z")
        n_kept = z.shape[1] // 2
        return site.replace(z=torch.cat([z[:, :n_kept], torch.zeros_like(z[:, n_kept:])], 1))

    return Intervention("silence half of a layer", change, (place.layer,), place.stack, place.kind)
