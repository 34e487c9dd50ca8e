"""One attention head that puts each word of a sentence together from the others, on 16 sentences of 1948.

The worked example of an attention map in small: trained in seconds, wholly in view, and open to every method of
attnprobe. `stored_head()` is the one that comes with the package, `train(seed)` makes another, `as_model(network)` asks
it, and `word_at(example, position)` is the question: how likely is the true word at its place?
"""

from attnprobe.models.declaration.corpus import SENTENCES, VOCABULARY, words
from attnprobe.models.declaration.head import DeclarationNetwork, as_model, untrained, word_at
from attnprobe.models.declaration.seeds import CLAIMS, claims, over_roundings, over_seeds
from attnprobe.models.declaration.stored import stored_head
from attnprobe.models.declaration.training import Trained, train

__all__ = [
    "CLAIMS",
    "SENTENCES",
    "VOCABULARY",
    "DeclarationNetwork",
    "Trained",
    "as_model",
    "claims",
    "over_roundings",
    "over_seeds",
    "stored_head",
    "train",
    "untrained",
    "word_at",
    "words",
]
