"""Counterfactual attention of the bundled transformer, searched at the seam: in one layer, and in all at once."""

import random

import pandas as pd

from attnprobe import load
from attnprobe.experiments.counterfactual import counterfactual_attention
from attnprobe.experiments.searching import Search
from attnprobe.models.model import Model

SUBJECTS = ("the film", "the story", "this actor", "the ending", "her second book", "the music")
JUDGEMENTS = (
    "is wonderful and never dull",
    "was a terrible waste of time",
    "is not very good",
    "was surprisingly funny",
    "has no heart at all",
    "is the best of the year",
    "was boring until the last scene",
)
TAILS = ("", "and the rest is not bad", "but the beginning was awful", "although my friends were not happy with it")
SEARCH = Search(n_starts=2, n_steps=80, rate=0.1)
EPS = (0.01, 0.1)


def sentences(n: int, seed: int) -> list[str]:
    """Short judgements made of parts, each another one.

    >>> sentences(1, 0)[0].split()[0] in ("the", "this", "her")
    True
    """
    whole = [f"{a} {b} {c}".strip() for a in SUBJECTS for b in JUDGEMENTS for c in TAILS]
    return random.Random(seed).sample(whole, n)


def measure(n_texts: int, seed: int) -> pd.DataFrame:
    """The search of each layer, of the row that is read in the last, and of all: place, eps, example_index, measure,
    value."""
    model: Model = load("attnprobe/sentiment")
    texts, parts, n_layers = sentences(n_texts, seed), [], model.stacks[0].n_layers
    places: dict[str, tuple[int | str, str]] = {str(layer + 1): (layer, "all") for layer in range(n_layers)}
    places |= {f"{n_layers}, read row": (n_layers - 1, "read"), "all": ("all", "all")}
    for eps in EPS:
        for place, (layer, rows) in places.items():
            found = counterfactual_attention(
                model, texts, eps=eps, layers=layer, rows=rows, how=SEARCH, seed=seed, same_output_too=False
            )
            parts.append(found.values[["example_index", "measure", "value"]].assign(place=place, eps=eps))
    return pd.concat(parts, ignore_index=True)
