"""What layouts share: slots to keys, heads apart and together, outputs with one part exchanged."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.sparse.layouts import Call, Run


def spread(weights: Tensor, keys: Tensor, n_keys: int) -> Tensor:
    """Weights [row head query slot] -> [row head query key]; keys says the key of each slot, negative for none.

    Slots of the same key add up. keys is of any shape that expands to that of the weights.

    >>> spread(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([2, 0, 2]), 4).tolist()
    [0.25, 0.0, 0.75, 0.0]
    """
    # Slots of no key go to one more column, which is cut off.
    index = torch.where(keys < 0, n_keys, keys).expand_as(weights)
    dense = weights.new_zeros((*weights.shape[:-1], n_keys + 1)).scatter_add(-1, index, weights)
    return dense[..., :n_keys]


def shown(weights: Tensor) -> Tensor:
    """Which keys a query looks at: those of its pattern that no mask hides, where a softmax gives exactly 0."""
    return weights.detach() > 0


def split(merged: Tensor, n_heads: int) -> Tensor:
    """[row token head*d] -> [row head token d]."""
    return merged.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge(z: Tensor) -> Tensor:
    """[row head token d] -> [row token head*d]."""
    return z.transpose(1, 2).flatten(2).contiguous()  # as the modules have it, so that a product rounds alike


def refill(whole: Tensor, z: Tensor, first: int = 0) -> Tensor:
    """Merged z [row token head*d] with the tokens from `first` on replaced by z [row head token d]."""
    return torch.cat([whole[:, :first], merge(z), whole[:, first + z.shape[2] :]], dim=1)


def operands(call: Call) -> tuple[Tensor, Tensor]:
    """The two factors of a matmul, bmm or einsum."""
    given = [*call.args, *call.kwargs.values()]
    flat = [t for arg in given for t in (arg if isinstance(arg, tuple | list) else [arg]) if isinstance(t, Tensor)]
    if len(flat) != 2:
        raise CaptureError(f"{call.name} was called with {len(flat)} tensors, a product of two was expected")
    return flat[0], flat[1]


def first_of(output: Any) -> Tensor:
    """The tensor of an output, or the first of several."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, tuple | list):
        return output[0]
    return getattr(output, dataclasses.fields(output)[0].name)


def exchange(output: Any, new: Tensor, index: int = 0) -> Any:
    """An output with tensor number `index` replaced by `new`; the output itself stays as it is."""
    if isinstance(output, Tensor):
        return new
    if isinstance(output, tuple | list):
        parts = [*output[:index], new, *output[index + 1 :]]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    return dataclasses.replace(output, **{dataclasses.fields(output)[index].name: new})


def kept_tokens(run: Run, masked: Tensor, multiple: int) -> int:
    """How many positions are tokens, where the model pads its input up to a multiple behind them.

    masked: [row token], True where a mask hides a position. Without `run.n_tokens` the last positions that are masked
    in every row count as padding.
    """
    length = masked.shape[1]
    if run.n_tokens is not None and 0 <= length - run.n_tokens < multiple:
        return run.n_tokens
    trailing = int(masked.all(0).flip(0).long().cumprod(0).sum())
    return length - min(trailing, multiple - 1)
