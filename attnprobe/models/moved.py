"""MovedModel: a model to which the embeddings of one example are others, for whatever is asked of it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Tape
from attnprobe.example import Example
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row


class MovedModel(Model):
    """A model, an example of it, and the embeddings that stand in the place of the example's own.

    Removal, gradients and captures of that example all work from there; other examples are read as ever. Nothing of the
    model itself is changed.
    """

    def __init__(self, model: Model, example: Example, embeddings: Float[Tensor, "token d_model"]) -> None:
        self.inner, self._moved, self._embeddings = model, example, embeddings
        self.name, self.module, self.outputs = model.name, model.module, model.outputs

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Those of the model."""
        return self.inner.stacks

    @property
    def fillers(self) -> Mapping[str, Tensor]:
        """Those of the model."""
        return self.inner.fillers

    @property
    def unseen(self) -> tuple[str, ...]:  # type: ignore[override]
        """Paths of attention that ran outside of the seam."""
        return self.inner.unseen

    @property
    def blank(self) -> tuple[str, ...]:  # type: ignore[override]
        """Paths of modules that call themselves attention and showed no weights."""
        return self.inner.blank

    def example(self, text: Any, pair: str | None = None, **options: Any) -> Example:
        """Read one input as the model does."""
        return self.inner.example(text, pair, **options)

    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """The embeddings that removal and gradients work on: the given ones of the moved example."""
        return self._embeddings if example is self._moved else self.inner.embed(example)

    def forward(self, rows: Sequence[Row], tape: Tape | None = None) -> Float[Tensor, " row *rest"]:
        """Logits of rows of one length; rows of the moved example start from its embeddings, removals included."""
        return self.inner.forward([self._placed(row) for row in rows], tape)

    def listening(self, tape: Tape) -> AbstractContextManager[Tape]:
        """Within the block, attention that runs in the module (or a part of it) passes the tape."""
        return self.inner.listening(tape)

    def describe(self) -> dict[str, Any]:
        """Facts for reports."""
        return self.inner.describe()

    def _placed(self, row: Row) -> Row:
        ours = row.example is self._moved and row.embeddings is None
        return replace(row, embeddings=self._embeddings) if ours else row

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not there yet
            raise AttributeError(name)
        return getattr(self.inner, name)
