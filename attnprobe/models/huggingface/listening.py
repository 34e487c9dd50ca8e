"""The block in which attention passes a tape on every route; nothing is left changed behind it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from attnprobe.attention.seam import Tape, recording, running
from attnprobe.models.huggingface.by_hand import ByHand
from attnprobe.models.huggingface.conditions import check_conditions, uncompiled
from attnprobe.models.huggingface.interface import routed
from attnprobe.models.huggingface.runs import Runs, computing
from attnprobe.models.huggingface.sparse.recording import Recorder


@contextmanager
def listening(module: nn.Module, tape: Tape) -> Iterator[ByHand]:
    """Within the block, attention of the module passes the tape, whether it goes through the registry or not."""
    tape.start_pass()

    def next_pass(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        if running() is tape:
            if tape.watch:
                check_conditions(module)
            ids = given.get("input_ids", args[0] if args else None)
            recorder.n_tokens = ids.shape[1] if isinstance(ids, Tensor) and ids.ndim == 2 else None

    outermost: set[int] = set()

    def begun(part: nn.Module) -> int:
        if running() is not tape:
            return len(tape.seen)
        if not runs.active:  # generation calls the model, or the language model inside of it, once a token
            if id(part) in outermost:
                tape.start_pass()
                outermost.clear()
            outermost.add(id(part))
        tape.begin_run(part)
        return len(tape.seen)

    runs, recorder = Runs(module, begun), Recorder(module, tape)
    by_hand = ByHand(tape, runs, recorder)
    handle = module.register_forward_pre_hook(next_pass, with_kwargs=True)
    try:
        block: list[AbstractContextManager[Any]] = [
            recording(tape),
            routed(module),
            runs.watching(computing(module)),
            recorder.watching(),
        ]
        block += [by_hand] if tape.watch else []
        with uncompiled(), ExitStack() as stack:
            for part in block:
                stack.enter_context(part)
            yield by_hand
            by_hand.check_beside()
    finally:
        handle.remove()
