"""A direct way along the residual stream, as a linear map: norms with their σ left out, and factors between them.

norm      x ↦ (x − m) gain      m is the mean (LayerNorm), or 0 (RMSNorm); what it is divided by and its shift are no
                                part of it
stretch   x ↦ x gain            a number for each entry; 1 for most
"""

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Step:
    """A norm (its path) or a stretch between norms (None)."""

    gain: Float[Tensor, " d_model"] = field(repr=False)
    centred: bool = False
    norm: str | None = None

    def forward(self, x: Float[Tensor, "*lead d_model"], *, scaled: bool = False) -> Float[Tensor, "*lead d_model"]:
        """What becomes of vectors; scaled: a norm divides each by its own length, as it does in a pass."""
        x = x - x.mean(-1, keepdim=True) if self.centred else x
        if scaled and self.norm is not None:
            x = x / x.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-30)
        return x * self.gain.to(x)

    def folded(self, weight: Float[Tensor, "*lead d_model d"]) -> Float[Tensor, "*lead d_model d"]:
        """The matrix that does to x what `weight` does behind this step."""
        weight = self.gain.to(weight)[:, None] * weight
        return weight - weight.mean(-2, keepdim=True) if self.centred else weight


@dataclass(frozen=True, eq=False)
class Way:
    """Steps in the order in which a vector takes them; without any, nothing happens to it."""

    steps: tuple[Step, ...] = ()

    @property
    def norms(self) -> tuple[str, ...]:
        """Paths of the norms on the way."""
        return tuple(step.norm for step in self.steps if step.norm is not None)

    def forward(self, x: Float[Tensor, "*lead d_model"], *, scaled: bool = False) -> Float[Tensor, "*lead d_model"]:
        """What becomes of vectors on the way; scaled: divided by their own lengths in each norm."""
        for step in self.steps:
            x = step.forward(x, scaled=scaled)
        return x

    def folded(self, weight: Float[Tensor, "*lead d_model d"]) -> Float[Tensor, "*lead d_model d"]:
        """A matrix that reads at the end, made to read at the beginning."""
        for step in reversed(self.steps):
            weight = step.folded(weight)
        return weight

    def behind(self, other: "Way") -> "Way":
        """What is left of this way once the other, which it begins with, was gone."""
        return Way(self.steps[len(other.steps) :])
