"""The states that go into a layer: read, and put in by others, whatever the layer is called."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.models.evaluator import logits
from attnprobe.models.layers import block_of
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LayerInput:
    """Where the states go into one layer: the module, and which of its runs in a pass (shared layers run often)."""

    block: nn.Module
    run: int
    n_tokens: int
    name: str

    @contextmanager
    def through(self, change: Change, n_rows: int) -> Iterator[None]:
        """Within the block, of one pass: `change` is given the states [row token d_model], and what it gives goes in.

        Errors: `InputError` for states without rows of their own, `CaptureError` where the layer did not run.
        """
        owner, runs, changed = threading.get_ident(), 0, False

        def hook(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal runs, changed
            if threading.get_ident() != owner:  # another thread runs the same module
                return None
            runs, changed = runs + 1, changed or runs == self.run
            return self._changed(change, n_rows, args, kwargs) if runs == self.run + 1 else None

        handle = self.block.register_forward_pre_hook(hook, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
        if not changed:
            raise CaptureError(f"{self.name} did not run, so its input could not be read")

    def _changed(self, change: Change, n_rows: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        place = next((index for index, value in enumerate(args) if _is_states(value)), None)
        name = next((name for name, value in kwargs.items() if _is_states(value)), None)
        if place is None and name is None:
            raise InputError(f"{self.name} is given no states [row token d_model]; use a method by removal")
        states = kwargs[name] if place is None else args[place]  # type: ignore[index]
        if states.shape[0] != n_rows != states.shape[1]:
            raise InputError(
                f"{self.name} is given states {list(states.shape)} for {n_rows} rows, which it lays out in its own "
                "way; use a method by removal"
            )
        turned = states.shape[0] != n_rows  # the tokens first (XLNet)
        states = states.transpose(0, 1) if turned else states
        if states.shape[1] != self.n_tokens:
            raise InputError(
                f"{self.name} is given {states.shape[1]} positions for {self.n_tokens} tokens, and it cannot be told "
                "which is whose; use a method on word embeddings"
            )
        new = change(states).transpose(0, 1) if turned else change(states)
        if place is None:
            return args, {**kwargs, str(name): new}
        return (*args[:place], new, *args[place + 1 :]), kwargs

    def read(
        self, model: Model, rows: Sequence[Row]
    ) -> tuple[Float[Tensor, " row *rest"], Float[Tensor, "row position d_model"]]:
        """One pass without gradients: the logits of the rows, and the states that go into this layer."""
        seen: list[Tensor] = []

        def note(states: Tensor) -> Tensor:
            seen.append(states.detach())
            return states

        with torch.no_grad(), self.through(note, len(rows)):
            answer = logits(model, rows)
        return answer, seen[0]


def _is_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3


def layer_input(model: Model, example: Example, layer: int = 0) -> LayerInput:
    """The input of a layer of the explained self-attention stack, of an encoder-decoder that of the encoder.

    layer: negative counts from the last. Errors: `InputError` for a layer that is not there.
    """
    stack = explained_stack(model, example, "self")
    if not -stack.n_layers <= layer < stack.n_layers:
        raise InputError(
            f"there is no layer {layer}; the stack has layers 0 to {stack.n_layers - 1} (or -1 for the last)"
        )
    number = layer % stack.n_layers
    path = stack.paths[number]
    block = block_of(model.module, path, stack.paths)
    run = sum(earlier == path for earlier in stack.paths[:number])
    return LayerInput(
        block, run, example.n_tokens, f"{model.name}: layer {number} of the {stack.name} ({type(block).__name__})"
    )
