"""Rows to a batch of the model's own inputs, with embeddings put in at the embedding module."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.reading import TOKEN_AXIS
from attnprobe.models.rows import RENORMALISING, Row, fill, filler

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel


def model_inputs(model: "HuggingFaceModel", rows: Sequence[Row]) -> tuple[dict[str, Any], Tensor | None]:
    """The batch of inputs, and the embeddings [row token d_model] to use, None where the ids say it all."""
    looked_up: dict[int, Tensor] = {}

    def embed(example: Example) -> Tensor:
        if id(example) not in looked_up:
            looked_up[id(example)] = model.embed(example)
        return looked_up[id(example)]

    real = [_real(model, row, embed) for row in rows]
    inputs = _alike([_inputs(row) for row in real])
    _check_mask(model, inputs[0])
    batch: dict[str, Any] = {name: torch.cat([i[name] for i in inputs]).to(model._device) for name in inputs[0]}
    if "use_cache" in inspect.signature(model.module.forward).parameters:
        batch["use_cache"] = False
    if all(row.embeddings is None for row in real):
        return batch, None
    vectors = [embed(row.example) if row.embeddings is None else row.embeddings for row in real]
    return batch, torch.stack(vectors)


def _alike(inputs: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """The same names for every row: a row without a mask gets one that hides nothing."""
    names = {name for given in inputs for name in given}
    for given in inputs:
        missing = names - set(given)
        if missing - {"attention_mask"}:
            raise InputError(f"rows of one pass have the same inputs; one has no {min(missing - {'attention_mask'})}")
        if missing:
            given["attention_mask"] = torch.ones_like(given["input_ids"])
    return inputs


def _check_mask(model: "HuggingFaceModel", inputs: dict[str, Tensor]) -> None:
    mask = inputs.get("attention_mask")
    eager = getattr(model.config, "_attn_implementation", None) in (None, "eager")
    if mask is not None and mask.ndim == 4 and not mask.is_floating_point() and eager:
        raise InputError(
            "eager attention would add this mask of rank 4 as 0 and 1, which hides nothing; give an additive float "
            "mask (0 and a very negative number)"
        )


def _real(model: "HuggingFaceModel", row: Row, embed: Callable[[Example], Tensor]) -> Row:
    """A content removal becomes embeddings, so that ids (positions, padding) stay as they were."""
    if row.whole or row.operator in RENORMALISING:
        return row
    embeddings = embed(row.example) if row.embeddings is None else row.embeddings
    return fill(row, embeddings, filler(model.fillers, row.operator, model.name))


def _inputs(row: Row) -> dict[str, Tensor]:
    inputs = dict(row.example.inputs)
    if row.kept is None:
        return inputs
    kept = row.kept.cpu()
    if row.operator == "delete":
        cut = {n: v[:, kept] if n in TOKEN_AXIS and v.ndim == 2 else v for n, v in inputs.items()}
        mask = inputs.get("attention_mask")
        if mask is not None and mask.ndim == 4:  # [1 head query key]
            cut["attention_mask"] = mask[..., kept, :][..., kept]
        return cut
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    # A mask of rank 4 [1 head query key] hides a key in every row.
    hidden = torch.finfo(mask.dtype).min if mask.is_floating_point() else 0
    inputs["attention_mask"] = mask.masked_fill(~kept, hidden)
    return inputs


# The embeddings that this context puts in; other threads that run the same module meanwhile have none.
_override: ContextVar[Tensor | None] = ContextVar("attnprobe_embeddings", default=None)


@contextmanager
def embedding_override(model: "HuggingFaceModel", embeddings: Tensor | None) -> Iterator[None]:
    """Within the block, the first look-up of a batch of this shape gives `embeddings` instead."""
    if embeddings is None:
        yield
        return
    used: list[bool] = []

    def hook(part: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        if used or _override.get() is not embeddings or output.shape[:2] != embeddings.shape[:2]:
            return output
        used.append(True)
        return embeddings.to(output.dtype)

    weight = getattr(model.embedding, "weight", None)
    shared = [p for p in model.module.modules() if isinstance(p, nn.Embedding) and p.weight is weight]
    token = _override.set(embeddings)
    handles = [part.register_forward_hook(hook) for part in shared]
    try:
        yield
        if not used:
            raise CaptureError(
                f"{model.name}: the embeddings given were never used; its embedding is {type(model.embedding).__name__}"
            )
    finally:
        for handle in handles:
            handle.remove()
        _override.reset(token)
