"""Attention between words: over the sub-words of a key the sum, over those of a query the mean (Clark et al. 2019)."""

from bisect import bisect_right
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example

NO_WORD = -1


def word_map(weights: Float[Tensor, "head query key"], words: Sequence[int], n_words: int) -> Tensor:
    """Weights between words [head query key]; words: the number of each token's word, -1 of tokens of none.

    A word without tokens neither looks nor is looked at.

    >>> word_map(torch.tensor([[[0.2, 0.3, 0.5], [0.0, 0.4, 0.6], [0.1, 0.1, 0.8]]]), [0, 1, 1], 2).round(decimals=2)
    tensor([[[0.2000, 0.8000],
             [0.0500, 0.9500]]])
    """
    index = torch.tensor(list(words))
    if len(index) != weights.shape[-1] or len(index) != weights.shape[-2]:
        raise InputError(f"words has an entry a token: {tuple(weights.shape[1:])} weights, {len(index)} entries")
    member = torch.zeros(len(index), n_words, dtype=weights.dtype)
    known = (index != NO_WORD).nonzero()[:, 0]
    member[known, index[known]] = 1.0
    mean = member / member.sum(0).clamp(min=1)
    return mean.T @ weights @ member


def words_of_tokens(example: Example, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Number of the word that each token begins in, by character offsets of the words; -1 of special tokens.

    Byte-level tokens begin with the space before their word.
    """
    starts, found = [start for start, _ in spans], []
    for span, special in zip(example.spans, example.is_special, strict=True):
        if span is None or special:
            found.append(NO_WORD)
            continue
        piece = example.text[span[0] : span[1]]
        first = span[0] + len(piece) - len(piece.lstrip())
        word = bisect_right(starts, first) - 1
        found.append(word if piece.strip() and word >= 0 else NO_WORD)
    return found
