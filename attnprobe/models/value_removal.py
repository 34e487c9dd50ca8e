"""Value zeroing as a removal operator: a token that is gone keeps its weights and passes no value on, in any layer.

What goes past attention is not taken away: of a token that is read through the residual stream nothing changes.
"""

from collections.abc import Sequence

from attnprobe.example import Example
from attnprobe.intervention import zero_value
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import VALUE_ZERO, Row


def with_edits(model: Model, rows: Sequence[Row]) -> list[Row]:
    """The rows, with the removal of those that zero values written as edits of their attention."""
    return [_edited(model, row) if row.operator == VALUE_ZERO and not row.whole else row for row in rows]


def _edited(model: Model, row: Row) -> Row:
    gone = [token for token, kept in enumerate(() if row.kept is None else row.kept.tolist()) if not kept]
    edits = [zero_value(gone, stack=stack.name, kind=stack.kind) for stack in _stacks(model, row.example)]
    return Row(row.example, embeddings=row.embeddings, edits=(*row.edits, *edits))


def _stacks(model: Model, example: Example) -> list[Stack]:
    """Where the tokens are keys: the explained stack and, of an encoder-decoder, the encoder below it."""
    from attnprobe.models.reading import explained_stack  # which asks the evaluator, which asks for this

    stack = explained_stack(model, example)
    below = [s for s in model.stacks if stack.kind == "cross" and s.kind == "self" and s.name != stack.name]
    return [*below[:1], stack]
