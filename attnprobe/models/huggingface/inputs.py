"""Rows to a batch of the model's own inputs, with embeddings put in at the embedding module."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.encodings import is_along_tokens
from attnprobe.models.huggingface.patches import patches_override
from attnprobe.models.huggingface.places import unwrapped, word_embedding
from attnprobe.models.rows import Row, fill, stand_in

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel


def model_inputs(model: "HuggingFaceModel", rows: Sequence[Row]) -> tuple[dict[str, Any], Tensor | None]:
    """The batch of inputs, and the embeddings [row token d_model] to use, None where the ids say it all."""
    looked_up: dict[int, Tensor] = {}

    def embed(example: Example) -> Tensor:
        if id(example) not in looked_up:
            looked_up[id(example)] = model.embed(example)
        return looked_up[id(example)]

    # Once a batch: whether they still hold is asked of every parameter.
    fillers = model.fillers if any(row.fills for row in rows) else {}
    real = [_real(model, row, embed, fillers) for row in rows]
    inputs = _alike([_inputs(row) for row in real])
    _check_mask(model, inputs[0])
    device = input_device(model.module)
    batch = {name: _together(name, [given[name] for given in inputs], device) for name in inputs[0]}
    if _may_cache(model.module):
        batch["use_cache"] = False
    if all(row.embeddings is None for row in real):
        return batch, None
    vectors = [embed(row.example) if row.embeddings is None else row.embeddings for row in real]
    return batch, torch.stack(vectors)


def _may_cache(module: nn.Module) -> bool:
    """Whether a model keeps keys and values for the next token unless told not to; a layer run again would add to them.

    Models of pictures and text often pass the word on to their decoder under `**kwargs`.
    """
    parameters, inner = inspect.signature(module.forward).parameters, unwrapped(module)
    if "use_cache" in parameters or not isinstance(inner, PreTrainedModel):
        return "use_cache" in parameters
    if _says_use_cache(type(inner)):  # type: ignore[arg-type]
        return False
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    decoder: Any = inner.config.get_text_config(decoder=True)
    return passes_on and decoder is not inner.config and bool(getattr(decoder, "use_cache", False))


@lru_cache
def _says_use_cache(kind: type) -> bool:
    """Whether the forward of a class tells its decoder itself; source is slow to read, so it is read once."""
    return "use_cache=" in inspect.getsource(kind.forward)  # type: ignore[attr-defined]


def input_device(module: nn.Module) -> torch.device:
    """Where inputs go: where a spread model says that it runs, else where its embedding is, else its first parameter.

    A part that lies on disk is on "meta", which says nothing.
    """
    hook = getattr(unwrapped(module), "_hf_hook", None)
    hooks = (hook, *getattr(hook, "hooks", ()))
    named = next((d for h in hooks if (d := getattr(h, "execution_device", None)) is not None), None)
    if named is not None:
        return torch.device(named)
    parts = [part for part in (word_embedding(module), module) if part is not None]
    devices = (parameter.device for part in parts for parameter in part.parameters())
    return next((device for device in devices if device.type != "meta"), torch.device("cpu"))


def _together(name: str, values: list[Any], device: torch.device) -> Any:
    """One input of several rows: tensors and lists one after another, anything else as it is, alike in every row."""
    first = values[0]
    if isinstance(first, Tensor) and first.ndim:
        across = 1 if name == "position_ids" and first.ndim == 3 else 0  # [axis row token] in models of pictures
        return torch.cat(values, dim=across).to(device)
    if isinstance(first, list):
        return [entry for value in values for entry in value]
    if any(not _equal(value, first) for value in values[1:]):
        raise InputError(f"rows of one pass have the same {name}, got {first!r} and others; run them one at a time")
    return first.to(device) if isinstance(first, Tensor) else first


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def _alike(inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same names for every row: a row without a mask gets one that hides nothing."""
    names = {name for given in inputs for name in given}
    for given in inputs:
        missing = names - set(given)
        never = missing if "input_ids" not in given else missing - {"attention_mask"}
        if never:
            raise InputError(f"rows of one pass have the same inputs; one has no {min(never)}")
        if missing:
            given["attention_mask"] = torch.ones_like(given["input_ids"])
    return inputs


def _check_mask(model: "HuggingFaceModel", inputs: dict[str, Any]) -> None:
    mask = inputs.get("attention_mask")
    eager = getattr(model.config, "_attn_implementation", None) in (None, "eager")
    if mask is not None and mask.ndim == 4 and not mask.is_floating_point() and eager:
        raise InputError(
            "eager attention would add this mask of rank 4 as 0 and 1, which hides nothing; give an additive float "
            "mask (0 and a very negative number)"
        )


def _real(
    model: "HuggingFaceModel", row: Row, embed: Callable[[Example], Tensor], fillers: Mapping[str, Tensor]
) -> Row:
    """A removal that fills becomes embeddings, so that ids (positions, padding) stay as they were."""
    row.need_inputs()
    if not row.fills:
        return row
    embeddings = embed(row.example) if row.embeddings is None else row.embeddings
    return fill(row, embeddings, stand_in(row, fillers, model.name))


def _inputs(row: Row) -> dict[str, Any]:
    inputs = dict(row.example.inputs)
    if row.kept is None or (row.whole and "input_ids" not in inputs):
        return inputs
    if "input_ids" not in inputs:
        raise InputError(
            f"'{row.operator}' takes tokens of a text away; this input has no token ids ({', '.join(inputs)})"
        )
    kept = row.kept.cpu()
    if row.operator == "delete":
        cut = {n: v[:, kept] if is_along_tokens(n, v) else v for n, v in inputs.items()}
        mask = inputs.get("attention_mask")
        if mask is not None and mask.ndim == 4:  # [1 head query key]
            cut["attention_mask"] = mask[..., kept, :][..., kept]
        return cut
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    # A mask of rank 4 [1 head query key] hides a key in every row.
    hidden = torch.finfo(mask.dtype).min if mask.is_floating_point() else 0
    inputs["attention_mask"] = mask.masked_fill(~kept, hidden)
    return inputs


def _padded(given: Any, ids: Tensor | None) -> bool:
    """Whether what is looked up are the ids with more behind them."""
    if ids is None or not isinstance(given, Tensor) or given.ndim != 2 or ids.ndim != 2:
        return False
    return given.shape[1] > ids.shape[1] and torch.equal(given[:, : ids.shape[1]], ids)


def _turned(given: Any, ids: Tensor | None) -> bool:
    """Whether what is looked up are the ids with tokens and rows exchanged."""
    if ids is None or not isinstance(given, Tensor) or ids.ndim != 2 or given.shape != ids.T.shape:
        return False
    return not torch.equal(given, ids) and torch.equal(given, ids.T)


# The embeddings that this context puts in; other threads that run the same module meanwhile have none.
_override: ContextVar[Tensor | None] = ContextVar("attnprobe_embeddings", default=None)


@contextmanager
def embedding_override(
    model: "HuggingFaceModel", embeddings: Tensor | None, ids: Tensor | None = None
) -> Iterator[None]:
    """Within the block, the first look-up of a batch of this shape gives `embeddings` instead."""
    if embeddings is None:
        yield
        return
    if ids is None:
        with patches_override(model, embeddings):
            yield
        return
    used: list[bool] = []

    def hook(part: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        if used or _override.get() is not embeddings:
            return output
        if output.shape[:2] == embeddings.shape[:2] and not (args and _turned(args[0], ids)):
            used.append(True)
            return embeddings.to(output.dtype)
        n_tokens = embeddings.shape[1]
        if args and _padded(args[0], ids):  # to whole windows (Longformer)
            used.append(True)
            return torch.cat([embeddings.to(output.dtype), output[:, n_tokens:]], dim=1)
        if args and _turned(args[0], ids):  # the tokens first (XLNet)
            used.append(True)
            return embeddings.transpose(0, 1).to(output.dtype)
        return output

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
