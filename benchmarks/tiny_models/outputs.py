"""The tensors in what a model gives back."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch


def tensors(output: Any) -> Iterator[torch.Tensor]:
    """Every tensor of an output, however nested; caches are left out."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from tensors(value)
