"""EditedModel: a model whose attention is edited in every pass, so that whatever is asked, the edited model answers.

The edits come first; those that a question brings along (a method that zeroes values, a row of a batch) act on what
they left. Nothing of the model itself is changed.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import NOTHING, Edit, Tape
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row


class EditedModel(Model):
    """A model and the edits that run in each of its passes."""

    def __init__(self, model: Model, edits: Sequence[Edit]) -> None:
        self.inner, self.edits = model, tuple(edits)
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
        """Paths of attention that ran outside of the seam, where no edit reaches it."""
        return self.inner.unseen

    @property
    def blank(self) -> tuple[str, ...]:  # type: ignore[override]
        """Paths of modules that call themselves attention and showed no weights."""
        return self.inner.blank

    def example(self, text: Any, pair: str | None = None, **options: Any) -> Example:
        """Read one input as the model does."""
        return self.inner.example(text, pair, **options)

    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """The embeddings that removal and gradients work on."""
        return self.inner.embed(example)

    def forward(self, rows: Sequence[Row], tape: Tape | None = None) -> Float[Tensor, " row *rest"]:
        """Logits of rows of one length, under the edits."""
        tape = Tape(keep=NOTHING, check=False, n_rows=len(rows)) if tape is None else tape
        return self.inner.forward(rows, self._with_edits(tape))

    def listening(self, tape: Tape) -> AbstractContextManager[Tape]:
        """Within the block, attention that runs in the module passes the tape, under the edits.

        Errors: `InputError` for edits of some layers: a part that runs alone does not know which layer it is.
        """
        for edit in self.edits:
            if getattr(edit, "layers", None) is not None:
                raise InputError(
                    f"{self.name} is edited in some layers ({edit}), and a layer that runs alone does not know its "
                    "number; use a method that runs the whole model"
                )
        return self.inner.listening(self._with_edits(tape))

    def describe(self) -> dict[str, Any]:
        """Facts for reports, the edits among them."""
        return {**self.inner.describe(), "edits": [str(edit) for edit in self.edits]}

    def _with_edits(self, tape: Tape) -> Tape:
        """The tape with these edits before its own; a tape that has them already is left as it is."""
        if tape.row_edits is not None:
            tape.row_edits = [self._before(edits) for edits in tape.row_edits]
        else:
            tape.edits = self._before(tape.edits)
        return tape

    def _before(self, edits: Sequence[Edit]) -> tuple[Edit, ...]:
        there = len(edits) >= len(self.edits) and all(a is b for a, b in zip(self.edits, edits, strict=False))
        return tuple(edits) if there else (*self.edits, *edits)
