"""Passes in which a part of what was recorded stands in for what would run.

What can stand in is the output of a layer (an entry of a ModuleList that holds attention), and of innermost modules
with parameters that run within a layer before its attention. What a network is given of it cannot be changed in place,
so that it stays what it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from attnprobe.errors import CaptureError
from attnprobe.models.anatomy import Rule, replacing
from attnprobe.models.recorded import LeafRun, Pass, ResumableTape, has_numbers
from attnprobe.site import Place


def repeated(output: Any, n_rows: int) -> Any:
    """A recorded output for so many rows, in memory once: a network that changes it in place gets torch's error."""

    def repeat(tensor: Tensor) -> Tensor:
        batched = n_rows > 1 and tensor.ndim > 1 and tensor.shape[0] == 1
        return tensor.expand(n_rows, *tensor.shape[1:]) if batched else tensor.clone()

    return tree_map_only(Tensor, repeat, output)


def _number(place: Place) -> tuple[object, ...]:
    return place.stack, place.kind, place.layer, place.path, place.call, place.part


@dataclass(eq=False)
class Replay:
    """One pass of rows that are the recorded example up to the site `start`.

    position: where alone the innermost modules behind the last site run; what they give stands at every position, so
    that only the answer read there is right. Errors: `CaptureError` where the pass takes another course.
    """

    record: Pass
    tape: ResumableTape
    n_rows: int
    start: int
    position: int | None = None
    _number: int = 0
    _depth: int = 0
    _open: Iterator[LeafRun] | None = None

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Within the block, of one pass, what is known does not run."""
        blocks = {id(run.block): run.block for run in self.record.runs}.values()
        rules: dict[nn.Module, Rule] = {leaf: partial(self._leaf, leaf) for leaf in self.record.leaves}
        with replacing(rules | {block: partial(self._block, block) for block in blocks}):
            yield
        if [_number(place) for place in self.tape.seen] != [_number(place) for _, place in self.record.sites]:
            raise CaptureError("the resumed pass had other attention than the recorded one")

    def _block(self, block: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        if self._depth:
            return forward(*args, **kwargs)
        run, self._number = self.record.runs[self._number], self._number + 1
        if run.block is not block:
            raise CaptureError("the resumed pass ran its layers in another order than the recorded one")
        if run.last <= self.start:
            self.tape.pass_by(self.record.sites[run.first : run.last])
            return repeated(run.output, self.n_rows)
        self._depth, self._open = 1, iter(run.leaves) if run.first <= self.start else None
        try:
            return forward(*args, **kwargs)
        finally:
            self._depth, self._open = 0, None

    def _leaf(self, leaf: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        if self._open is not None and has_numbers(leaf):
            run = next(self._open, None)
            if run is None or run.n_seen > self.start:
                self._open = None  # from here on the rows differ
            elif run.leaf is not leaf:
                raise CaptureError("the resumed pass ran its modules in another order than the recorded one")
            elif run.output is not None:
                return repeated(run.output, self.n_rows)
        if self.position is not None and len(self.tape.seen) == len(self.record.sites):
            return self._in_the_end(self.position, forward, args, kwargs)
        return forward(*args, **kwargs)

    def _in_the_end(self, position: int, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module of each position for itself, run at one."""
        lead = (self.n_rows, self.record.length)

        def cut(given: Any) -> Any:
            states = isinstance(given, Tensor) and given.ndim == 3 and given.shape[:2] == lead
            return given[:, position : position + 1].contiguous() if states else given

        narrow, named = tuple(map(cut, args)), {name: cut(given) for name, given in kwargs.items()}
        if all(a is b for a, b in zip((*narrow, *named.values()), (*args, *kwargs.values()), strict=True)):
            return forward(*args, **kwargs)
        output = forward(*narrow, **named)
        if not isinstance(output, Tensor) or output.ndim != 3 or output.shape[:2] != (self.n_rows, 1):
            raise CaptureError("a module behind the last attention gives something else than a state a position")
        return output.expand(self.n_rows, self.record.length, -1)
