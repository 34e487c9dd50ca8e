"""Rules that hand back gradients, coefficients held fast: AttnLRP (Achtibat et al. 2024), CP-LRP (Ali et al. 2022).

Relevance is then state times gradient. A function that is linear but for a constant hands back its gradient, and its
constant absorbs constant times gradient; an activation has the slope f(x) / x; a norm its σ as a constant.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnprobe.models.anatomy import Norm, slope
from attnprobe.models.relevance.calls import Call, is_state, numbers
from attnprobe.models.relevance.rules import Function, Rules, handed_back
from attnprobe.site import Place


class _Share(torch.autograd.Function):
    """A state of which a share of the gradient goes back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        ctx.share = share
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        return above * ctx.share, None


class GradientRules(Rules):
    """frozen: whether a softmax is a constant (CP-LRP), or hands back its gradient (AttnLRP)."""

    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.frozen = frozen

    def affine(self, call: Call, path: str, *, copy: bool) -> Any:
        """The gradient; the constant absorbs its share."""
        out = call.native()
        if not copy:
            self._constant(out, call.at_zero(), path)
        return out

    def product(self, call: Call, path: str) -> Any:
        """Half of the gradient to each factor."""
        with torch.enable_grad():
            halves = {index: _Share.apply(call.leaves[index], 0.5) for index in call.live}  # type: ignore[no-untyped-call]
        out = call.native(halves)
        self._constant(out, call.at_zero(), path)
        return out

    def activation(self, function: Function, x: Tensor) -> Tensor:
        """f(x) / x times what comes back, f'(0) where x is 0."""
        steep = slope(function, x.detach())
        return handed_back(function(x.detach()), lambda above: ((above * steep).to(x.dtype),), x)

    def norm(self, norm: Norm, value: Tensor, x: Tensor, path: str) -> Tensor:
        """The gradient with σ held fast."""

        def back(above: Tensor) -> tuple[Tensor]:
            self._absorb("norm shifts", path, above, norm.shift)
            scaled = above * norm.coefficient
            return ((scaled - scaled.mean(-1, keepdim=True) if norm.centred else scaled).to(x.dtype),)

        return handed_back(value, back, x)

    def softmax(self, function: Function, x: Tensor, path: str) -> Tensor | None:
        """Its gradient, where it is not held fast; weights that do not follow from the scores by it are absorbed."""
        if self.frozen:
            return None
        scores = x.detach()
        with torch.enable_grad():
            value = function(scores.clone().requires_grad_())
        if not value.requires_grad:  # one that chooses (the largest alone)
            return None

        def back(above: Tensor) -> tuple[Tensor]:
            with torch.enable_grad():
                leaf = scores.clone().requires_grad_()
                (found,) = torch.autograd.grad(function(leaf), leaf, above)
            self._absorb("softmax", path, above, value.detach())
            self._absorb("softmax", path, -found, scores)
            return (found,)

        return handed_back(value, back, x)

    def mixing(self, place: Place, weights: Tensor) -> Tensor:
        """Weights that are constants keep their half of the product with the values."""
        if is_state(weights):
            return weights
        state = self.start(weights)
        state.register_hook(lambda above: self._absorb("softmax", place.path, above, weights))
        return state

    def _constant(self, out: Any, at_zero: list[Tensor], path: str) -> None:
        """Note on the way back what the constants of a function absorb."""
        for tensor, constant in zip(numbers(out), at_zero, strict=True):
            if bool(constant.any()) and tensor.requires_grad:
                tensor.register_hook(self._absorbing(path, constant))

    def _absorbing(self, path: str, constant: Tensor) -> Callable[[Tensor], None]:
        return lambda above: self._absorb("constants", path, above, constant)

    def _absorb(self, kind: str, path: str, above: Tensor, what: Tensor) -> None:
        """Masks, which nothing comes back to, absorb nothing."""
        amount = torch.where(above == 0, 0.0, above.double() * what.detach().double())
        self.absorbed[kind, path] += float(amount.sum())
