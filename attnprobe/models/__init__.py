"""Models: ours and anybody's, behind one interface."""

from pathlib import Path
from typing import Any

from attnprobe.errors import InputError
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row

__all__ = ["Model", "Row", "Stack", "load"]

BUNDLED = "attnprobe/sentiment"


def load(model: Any, tokenizer: Any = None, **options: Any) -> Model:
    """A `Model` from a Hub id or folder, a (model, tokenizer) pair, a transformers pipeline, or a
    network of ours and its `Vocabulary`.

    "attnprobe/sentiment" is the small English classifier that ships with the package. Options for names:
    dtype, device, numerics, and whatever from_pretrained takes.
    Errors: `InputError` when there is no such model, with the reason.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, str | Path):
        return _load_name(model, **options)
    if isinstance(model, tuple) and len(model) == 2:
        model, tokenizer = model
    if tokenizer is None and hasattr(model, "model") and hasattr(model, "tokenizer"):
        model, tokenizer = model.model, (model.tokenizer or getattr(model, "image_processor", None))
    from torch import nn

    from attnprobe.models.own import OwnModel, Vocabulary

    if isinstance(tokenizer, Vocabulary):
        return OwnModel(model, tokenizer, **options)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"load takes a name, a folder, a (model, tokenizer) pair, a pipeline or a model, got {type(model).__name__}"
        )
    from attnprobe.models.huggingface import from_pair

    return from_pair(model, tokenizer, **options)


def _load_name(name: str | Path, **options: Any) -> Model:
    from attnprobe.models.bundled import bundled_folder
    from attnprobe.models.huggingface import from_name

    if str(name) == BUNDLED:
        model = from_name(bundled_folder(), **options)
        model.name = BUNDLED
        return model
    return from_name(name, **options)
