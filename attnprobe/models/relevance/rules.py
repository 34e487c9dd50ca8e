"""What rules of relevance have to say, and the means to hand back something else than a gradient."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnprobe.models.anatomy import Norm
from attnprobe.models.relevance.calls import Call
from attnprobe.site import Place

Function = Callable[[Tensor], Tensor]


class HandedBack(torch.autograd.Function):
    """Numbers that were computed already, whose backward pass is given: from what comes back to that of each state."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, back: Callable[[Tensor], tuple[Tensor, ...]], *states: Tensor) -> Tensor:
        ctx.back = back
        return value.clone()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.back(above)


def handed_back(value: Tensor, back: Callable[[Tensor], tuple[Tensor, ...]], *states: Tensor) -> Tensor:
    """The value, as a function of the states that hands back what `back` says."""
    with torch.enable_grad():
        out: Tensor = HandedBack.apply(value.detach(), back, *states)  # type: ignore[no-untyped-call]
    return out


def through(call: Call, given: dict[int, Tensor], above: Tensor) -> list[Tensor]:
    """What plain gradients hand back of `above` through a call with these states."""
    leaves = {index: state.detach().requires_grad_() for index, state in given.items()}
    with torch.enable_grad():
        (out,) = call.outputs(leaves)
        return list(torch.autograd.grad(out, list(leaves.values()), above.to(out.dtype)))


class Rules(ABC):
    """What each kind of function hands back. Every method gives what the function gives, to go on with.

    absorbed: what constants and the like kept for themselves, by (kind, module), filled in on the way back. starts:
    tensors beside the embeddings that the way back must reach.
    """

    frozen: bool = False  # whether softmax and attention weights are constants

    def __init__(self) -> None:
        self.absorbed: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.starts: list[Tensor] = []

    def start(self, constant: Tensor) -> Tensor:
        """A constant as a state, which the way back reaches like the embeddings."""
        self.starts.append(constant.detach().clone().requires_grad_())
        with torch.enable_grad():
            return self.starts[-1].clone()

    @abstractmethod
    def affine(self, call: Call, path: str, *, copy: bool) -> Any:
        """A map that is linear but for a constant; copy: one that only moves entries."""

    @abstractmethod
    def product(self, call: Call, path: str) -> Any:
        """A product of two states."""

    @abstractmethod
    def activation(self, function: Function, x: Tensor) -> Tensor:
        """A function of each entry that is 0 at 0."""

    @abstractmethod
    def norm(self, norm: Norm, value: Tensor, x: Tensor, path: str) -> Tensor:
        """A norm, whose value this is."""

    @abstractmethod
    def softmax(self, function: Function, x: Tensor, path: str) -> Tensor | None:
        """A softmax of scores; None where it is held fast."""

    def mixing(self, place: Place, weights: Tensor) -> Tensor:
        """The weights of an attention, made of its scores under these rules; a constant where there is no way back."""
        return weights
