"""Patches of a picture as vectors: what the projection of the pixels gives, and others put in its place."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import silent
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.places import word_embedding
from attnprobe.models.modes import evaluating

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel


class _Enough(Exception):  # noqa: N818  (no error: the rest of the pass is not needed)
    """Ends a pass whose first output was all that was asked for."""


def patch_vectors(model: "HuggingFaceModel", example: Example) -> Float[Tensor, "token d_model"]:
    """What the projection of the pixels gives for each patch; zeros for the special tokens, which are no patches.

    Errors: `InputError` for a model without one projection that gives a vector for each patch of the example.
    """
    found: list[Tensor | None] = []

    def note(output: Any) -> Any:
        found.append(_vectors(output))
        raise _Enough

    device = next(model.module.parameters()).device
    inputs = {n: v.to(device) if isinstance(v, Tensor) else v for n, v in example.inputs.items()}
    watching = _watching(_projection(model, example), note)
    with torch.no_grad(), evaluating(model.module), silent(), watching, suppress(_Enough):
        model.module(**inputs)
    special = [index for index, special in enumerate(example.is_special) if special]
    vectors = found[0][0] if found and found[0] is not None and len(found[0]) == 1 else None
    leading = special == list(range(len(special)))
    if vectors is None or not leading or len(special) + len(vectors) != example.n_tokens:
        raise InputError(f"{_refusal(model)}: its projection does not give one vector for each patch")
    return torch.cat([vectors.new_zeros(len(special), vectors.shape[1]), vectors])


def patch_fillers(model: "HuggingFaceModel", example: Example) -> dict[str, Tensor]:
    """A patch of nothing but 0, the mean colour of most image processors ("mask"), and the vector "zero".

    There is no "mean" beside it, since it would be the same vector: a projection is linear, so that the mean vector of
    all patches is that of the mean patch, which is 0 where a processor subtracts the mean of the pictures it was made
    for. Where one subtracts 0.5 instead, what that mean is stands nowhere in the model.
    """
    blank = {n: torch.zeros_like(v) if n == "pixel_values" else v for n, v in example.inputs.items()}
    vector = patch_vectors(model, replace(example, inputs=blank))[-1]
    return {"mask": vector, "zero": torch.zeros_like(vector)}


@contextmanager
def patches_override(model: "HuggingFaceModel", embeddings: Float[Tensor, "row token d_model"]) -> Iterator[None]:
    """Within the block, of one pass: the patches are these vectors; those of special tokens are not used."""
    used: list[bool] = []

    def put(output: Any) -> Any:
        used.append(True)
        first = output[0] if isinstance(output, tuple) else output
        vectors = _vectors(output)
        if vectors is None or vectors.shape[0] != len(embeddings) or vectors.shape[1] > embeddings.shape[1]:
            raise InputError(f"{_refusal(model)}: its projection does not keep its pictures apart")
        new = embeddings[:, -vectors.shape[1] :].to(first.dtype)
        new = new if first.ndim == 3 else new.transpose(1, 2).reshape(first.shape)
        return (new, *output[1:]) if isinstance(output, tuple) else new

    with _watching(_projection(model, None), put):
        yield
    if len(used) != 1:
        raise CaptureError(f"{model.name}: the vectors given were used {len(used)} times, once was expected")


@contextmanager
def _watching(part: nn.Module, change: Callable[[Any], Any]) -> Iterator[None]:
    owner = threading.get_ident()

    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        return change(output) if threading.get_ident() == owner else None

    handle = part.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _projection(model: "HuggingFaceModel", example: Example | None) -> nn.Module:
    part = word_embedding(model.module)
    pictures = example is None or "pixel_values" in example.inputs
    if part is None or isinstance(part, nn.Embedding) or not pictures:
        raise InputError(f"{_refusal(model)}: no projection of patches was found")
    return part


def _vectors(output: Any) -> Float[Tensor, "picture patch d_model"] | None:
    """The vectors in what a projection gives out, [picture patch d_model] or [picture d_model row column]."""
    first = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(first, Tensor) or first.ndim not in (3, 4):
        return None
    return first if first.ndim == 3 else first.flatten(2).transpose(1, 2)


def _refusal(model: "HuggingFaceModel") -> str:
    return f"{model.name}: this method needs a vector for each token or patch; on this input only attention methods run"
