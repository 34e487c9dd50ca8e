"""Padded batches of similar length, and the hiding of pieces behind [MASK]."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

PAD, UNK, CLS, SEP, MASK = range(5)  # the order of `vocabulary.SPECIAL`


def pad(rows: Sequence[list[int]]) -> Tensor:
    """Rows of token ids as one tensor, filled up with [PAD].

    >>> pad([[2, 9, 3], [2, 3]])
    tensor([[2, 9, 3],
            [2, 3, 0]])
    """
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


def batch_indices(lengths: Sequence[int], size: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Indices of one shuffled pass in batches; the members of a batch have similar lengths."""
    jitter = torch.rand(len(lengths), generator=generator) * 6
    keys = [length + float(extra) for length, extra in zip(lengths, jitter, strict=True)]
    order = sorted(range(len(lengths)), key=keys.__getitem__)
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    for which in torch.randperm(len(batches), generator=generator).tolist():
        yield batches[which]


def hide(ids: Tensor, share: float | Tensor, generator: torch.Generator) -> Tensor:
    """Ids in which each piece but [PAD], [CLS], [SEP] became [MASK] with probability `share`."""
    chosen = torch.rand(ids.shape, generator=generator) < share
    return ids.masked_fill(chosen & (ids > SEP), MASK)
