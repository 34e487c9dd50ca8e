"""Model: what every model offers, ours or anybody's; a question needs nothing more."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import Edit, Keep, Tape
from attnprobe.capture import Capture
from attnprobe.example import Example
from attnprobe.models.rows import Row
from attnprobe.site import Kind
from attnprobe.target import Outputs, ResolvedTarget, as_target


@dataclass(frozen=True)
class Stack:
    """Layers of attention that are numbered together."""

    name: str
    kind: Kind
    n_heads: tuple[int, ...]
    paths: tuple[str, ...]

    @property
    def n_layers(self) -> int:
        """Number of layers (calls, where a layer is shared)."""
        return len(self.n_heads)


class Model(ABC):
    """A model whose attention can be seen and changed; its parameters are never touched."""

    name: str
    module: nn.Module
    outputs: Outputs
    unseen: tuple[str, ...] = ()  # paths of attention that ran outside of the seam

    @property
    @abstractmethod
    def stacks(self) -> tuple[Stack, ...]:
        """Stacks of attention with their layers and heads."""

    @property
    @abstractmethod
    def fillers(self) -> Mapping[str, Tensor]:
        """Embeddings [d_model] that can stand in for a removed token, by operator name, best first."""

    @abstractmethod
    def example(self, text: Any, pair: str | None = None, **options: Any) -> Example:
        """Read one input as this model does."""

    @abstractmethod
    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """The embeddings that removal and gradients work on, before positions are added."""

    @abstractmethod
    def forward(self, rows: Sequence[Row], tape: Tape | None = None) -> Float[Tensor, " row *rest"]:
        """Logits of rows of one length. Without a tape this is the model as if attnprobe were not there."""

    @abstractmethod
    def listening(self, tape: Tape) -> AbstractContextManager[Tape]:
        """Within the block, attention that runs in `module` (or a part of it) passes the tape."""

    def describe(self) -> dict[str, Any]:
        """Facts for reports: name, type, dtype, number of parameters."""
        return {"name": self.name}

    def capture(
        self,
        example: Example,
        *,
        edits: Sequence[Edit] = (),
        keep: Keep | None = None,
        check: str = "once",
        differentiable: bool = False,
    ) -> Capture:
        """One forward pass with its attention on record; see `attnprobe.models.capturing.capture`."""
        from attnprobe.models.capturing import capture

        return capture(self, example, edits=edits, keep=keep or Keep(), check=check, differentiable=differentiable)

    def resolve(self, example: Example, target: Any = None) -> ResolvedTarget:
        """A `Target`, or a label by name or number, with every choice made on this input: one forward pass."""
        from attnprobe.models.evaluator import logits

        answer = logits(self, [Row(example)])
        return as_target(target).resolve(answer, self.outputs, example)

    def targets(
        self, rows: Sequence[Row], target: ResolvedTarget, *, progress: str | None = None
    ) -> Float[Tensor, " row"]:
        """The explained number of each row, through the evaluator; no gradients."""
        from attnprobe.models.evaluator import targets

        return targets(self, rows, target, progress=progress)
