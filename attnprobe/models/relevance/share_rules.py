"""Rules that hand back relevance in shares of what each input added (Chefer et al. 2021a, sec. 3; α = 1, β = 0)."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.models.anatomy import Norm
from attnprobe.models.relevance.calls import Call, is_state
from attnprobe.models.relevance.rules import Function, Rules, handed_back, through
from attnprobe.site import Place

# Maps that add up products of states and parameters, which the positive products share. Named, as a sum of one number
# (a scale) cannot be told from a scale.
MAPS = (
    "linear",
    "addmm",
    "matmul",
    "__matmul__",
    "__rmatmul__",
    "mm",
    "bmm",
    "einsum",
    "conv1d",
    "conv2d",
    "tensordot",
)
SMALL = 1e-9


def quotient(relevance: Tensor, total: Tensor) -> Tensor:
    """relevance / total, kept from dividing by 0 as the authors do: total + 1e-9, and 0 where the total is 0."""
    return torch.where(total == 0, 0.0, relevance / torch.where(total + SMALL == 0, SMALL, total + SMALL))


class ShareRules(Rules):
    """Relevance in the place of gradients. weights: that of the attention weights, by place, after the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[Place, Tensor] = {}

    def affine(self, call: Call, path: str, *, copy: bool) -> Any:
        """In shares of positive products (maps), of what each summand adds (sums), or whole (what moves entries)."""
        if copy:
            return call.native()
        with torch.no_grad():
            found = call.outputs({})
        if len(found) != 1:
            raise InputError(f"'{path}' computes {call.name}, of whose outputs relevance cannot be shared out")
        if len(call.live) > 1:
            rule = _of_summands
        else:
            rule = _of_positive_products if call.name in MAPS and call.constants() else _of_entries
        states = [call.leaves[index] for index in call.live]
        return handed_back(found[0], lambda above: tuple(rule(call, found[0], above)), *states)

    def product(self, call: Call, path: str) -> Any:
        """Half of the relevance to each factor."""
        with torch.no_grad():
            found = call.outputs({})
        states = [call.leaves[index] for index in call.live]
        return handed_back(found[0], lambda above: tuple(r / 2 for r in _of_entries(call, found[0], above)), *states)

    def activation(self, function: Function, x: Tensor) -> Tensor:
        """All of it."""
        return handed_back(function(x.detach()), lambda above: (above.to(x.dtype),), x)

    def norm(self, norm: Norm, value: Tensor, x: Tensor, path: str) -> Tensor:
        """All of it."""
        return handed_back(value, lambda above: (above.to(x.dtype),), x)

    def softmax(self, function: Function, x: Tensor, path: str) -> Tensor | None:
        """All of it."""
        return handed_back(function(x.detach()), lambda above: (above.to(x.dtype),), x)

    def mixing(self, place: Place, weights: Tensor) -> Tensor:
        """The weights as they are; what comes back to them is kept. Constant weights get relevance too."""
        weights = weights if is_state(weights) else self.start(weights)

        def back(above: Tensor) -> tuple[Tensor]:
            self.weights[place] = above.detach()
            return (above,)

        return handed_back(weights, back, weights)


def _of_entries(call: Call, out: Tensor, above: Tensor) -> list[Tensor]:
    """Each state's entries times what came back for 1 of the output: shares of what they added."""
    states = call.states()
    back = through(call, states, quotient(above, out))
    # Masks, which nothing comes back to, may be infinite.
    return [torch.where(share == 0, 0.0, state * share) for state, share in zip(states.values(), back, strict=True)]


def _of_summands(call: Call, out: Tensor, above: Tensor) -> list[Tensor]:
    """A sum of states: shares of what each added, scaled so that all of it goes back (eq. 10 of the paper)."""
    found = _of_entries(call, out, above)
    sizes = torch.stack([share.sum().abs() for share in found])
    whole = [quotient(size, sizes.sum()) * above.sum() for size in sizes]
    return [share * quotient(part, share.sum()) for share, part in zip(found, whole, strict=True)]


def _of_positive_products(call: Call, out: Tensor, above: Tensor) -> list[Tensor]:
    """A map: shares of the products of state and parameter that are positive; its constant gets none."""
    ((index, x),) = call.states().items()
    made = [_signed(call, sign) for sign in (1, -1)]
    halves = [x.clamp(min=0), x.clamp(max=0)]
    with torch.no_grad():
        parts = [m.outputs({index: half})[0] - m.at_zero()[0] for m, half in zip(made, halves, strict=True)]
    share = quotient(above, parts[0] + parts[1])
    back = [through(m, {index: half}, share)[0] for m, half in zip(made, halves, strict=True)]
    return [halves[0] * back[0] + halves[1] * back[1]]


def _signed(call: Call, sign: int) -> Call:
    """The call with the positive (1) or negative (-1) part of its parameters alone."""
    leaves = list(call.leaves)
    for index in call.constants():
        leaves[index] = leaves[index].detach().clamp(min=0) if sign > 0 else leaves[index].detach().clamp(max=0)
    return Call(call.func, leaves, call.spec, call.live, call.in_place, call.name)
