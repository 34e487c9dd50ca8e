"""A small task of texts whose truth is known: the cue behind "however" decides, the one before it does not.

    w3 w8 good2 w1 however w0 bad1 w5     -> negative

Counting cues without knowing where they stand is right in three of four texts: half of them agree. So a network that
may not look behind the marker, or that looks everywhere alike without knowing the context, stays near 75 %.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.models.own import Vocabulary

LABELS = ("negative", "positive")
MARKER = "however"
CUES = {"negative": tuple(f"bad{n}" for n in range(4)), "positive": tuple(f"good{n}" for n in range(4))}
FILLERS = tuple(f"w{n}" for n in range(20))
VOCABULARY = Vocabulary(("[PAD]", MARKER, *CUES["negative"], *CUES["positive"], *FILLERS), begin=None)
HELD_OUT = 1_000_000  # added to the seed of what is never learned from


@dataclass(frozen=True)
class CueText:
    """A text, its label, and the places of the cue that decides, of the one that does not, and of the marker."""

    text: str
    label: int
    deciding: int
    other: int
    marker: int


def draw(n: int, seed: int, *, shortest: int = 3, longest: int = 6) -> list[CueText]:
    """Texts of two parts, each a cue among `shortest` to `longest` words (the cue included).

    >>> one = draw(1, 0)[0]
    >>> one.text.split()[one.marker], one.text.split()[one.deciding][:-1] in ("good", "bad")
    ('however', True)
    """
    return list(islice(_texts(random.Random(seed), shortest, longest), n))


def _texts(rng: random.Random, shortest: int, longest: int) -> Iterator[CueText]:
    while True:
        labels = [rng.randrange(2), rng.randrange(2)]
        words: list[str] = []
        places = []
        for label in labels:
            part = rng.choices(FILLERS, k=rng.randint(shortest, longest))
            place = rng.randrange(len(part))
            part[place] = rng.choice(CUES[LABELS[label]])
            places.append(len(words) + place)
            words += [*part, MARKER] if not words else part
        yield CueText(" ".join(words), labels[1], places[1], places[0], words.index(MARKER))


def encode(
    texts: Sequence[CueText],
) -> tuple[Int[Tensor, "text token"], Bool[Tensor, "text token"], Int[Tensor, " text"]]:
    """Ids, padded on the right, which of them are tokens, and the labels."""
    rows = [torch.tensor(VOCABULARY.encode(one.text)[1]) for one in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    is_token = torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in rows])
    return ids, is_token, torch.tensor([one.label for one in texts])


def mass_on(
    weights: Float[Tensor, "text token"], texts: Sequence[CueText], part: str = "deciding"
) -> Float[Tensor, " text"]:
    """The weight of each text on one of its places: "deciding", "other" or "marker"."""
    return weights[torch.arange(len(texts)), torch.tensor([getattr(one, part) for one in texts])]
