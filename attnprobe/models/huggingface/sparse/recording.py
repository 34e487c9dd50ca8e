"""Runs of modules that have a layout: recorded while they run, laid out and passed through the seam when they end."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from attnprobe.attention.seam import Tape, running
from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.interface import at_work
from attnprobe.models.huggingface.sparse.layouts import Call, LaidOut, Layout, Run, layout_of
from attnprobe.models.huggingface.traces import name_of
from attnprobe.site import Normalizer, Site

# What layouts ask for; the rest is not kept, for memory's sake.
NOTED = frozenset((
    "softmax", "matmul", "__matmul__", "bmm", "baddbmm", "einsum", "exp", "logsumexp", "gather", "grid_sample", "sum",
    "topk", "reshape", "scaled_dot_product_attention",
))  # fmt: skip


@dataclass
class _Open:
    module: nn.Module
    layout: Layout
    calls: list[Call] = field(default_factory=list)
    children: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Recorder:
    """Records the runs of modules with a layout.

    active: the runs that are open, innermost last. n_tokens: how many tokens the model was given, where it was ids.
    """

    module: nn.Module
    tape: Tape
    active: list[_Open] = field(default_factory=list)
    n_tokens: int | None = None

    def record(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """One call of torch inside an open run, noted and passed on."""
        out = func(*args, **kwargs)
        name = name_of(func)
        if name in NOTED:
            self.active[-1].calls.append(Call(name, args, kwargs, out))
        return out

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block, every module with a layout is recorded."""
        handles: list[Any] = []
        for part in self.module.modules():
            found = layout_of(part)
            if found is not None:
                handles += self._hooks(part, found)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hooks(self, part: nn.Module, found: Layout) -> list[Any]:
        def begin(*_: Any) -> None:
            if running() is self.tape:
                self.active.append(_Open(part, found))

        def end(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> Any:
            if running() is not self.tape or not self.active or self.active[-1].module is not part:
                return None
            return self._ended(self.active.pop(), args, kwargs, output)

        def note(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                if running() is self.tape and self.active and self.active[-1].module is part:
                    self.active[-1].children[name].append(output)

            return hook

        children = [child.register_forward_hook(note(name)) for name, child in part.named_children()]
        return [part.register_forward_pre_hook(begin), part.register_forward_hook(end, with_kwargs=True), *children]

    def _ended(self, open_run: _Open, args: tuple, kwargs: dict, output: Any) -> Any:
        if not (self.tape.keep.anything or self.tape.all_edits()):  # to lay out costs n^2 a head
            self.tape.enter(open_run.module, cross=False, route="layout")
            return output
        children = dict(open_run.children)
        run = Run(open_run.module, args, kwargs, output, tuple(open_run.calls), children, self.n_tokens)
        with at_work():
            for part in open_run.layout(run):
                output = self._passed(run.module, part, output)
        return output

    def _passed(self, module: nn.Module, part: LaidOut, output: Any) -> Any:
        place = self.tape.enter(module, cross=part.kind == "cross", route="layout", name=part.name)
        if not self.tape.wants(place):
            return output
        site = Site(
            place,
            part.query,
            part.key,
            part.value,
            part.scores,
            part.weights,
            part.z,
            part.visible,
            Normalizer("laid out", _refuse, part.row_sum),
        )
        if self.tape.differentiable:
            site = site.replace(weights=part.weights)
        seen = self.tape.observe(site)
        if seen.need("z") is part.z:
            return output
        return part.put(output, seen.need("z"))


def _refuse(scores: Tensor) -> Tensor:
    raise CaptureError(
        "this attention is laid out from blocks or samples; edit its weights, value or z, not its scores"
    )
