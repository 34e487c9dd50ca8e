"""Subject-verb agreement as a small grammar: sentences up to the verb, and whether it is singular or plural.

    near the rivers , the old key that the boys hold           -> singular

Nouns between subject and verb, or in front of the subject, may have the other number ("attractors"), so that neither
the first noun nor the last one is right. A verb of a subject relative clause ("the keys that open ...") agrees too.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.attention.transformer import TransformerClassifier
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.randomness import seeded
from attnprobe.models.tasks.training import fit

LABELS = ("singular", "plural")
SINGULARS = (
    *("key", "cabinet", "boy", "river", "tree", "doctor"),
    *("window", "letter", "horse", "teacher", "ship", "road"),
)
NOUNS = tuple((noun, f"{noun}s") for noun in SINGULARS)
VERBS = tuple((f"{verb}s", verb) for verb in ("open", "admire", "hold", "follow", "paint", "help"))
ADJECTIVES = ("old", "small", "red", "quiet", "heavy", "new")
PREPOSITIONS = ("near", "behind", "beside", "under", "with")
WORDS = tuple(
    dict.fromkeys(
        ["the", "that", "when", ",", *(w for pair in (*NOUNS, *VERBS) for w in pair), *ADJECTIVES, *PREPOSITIONS]
    )
)
VOCABULARY = Vocabulary(("[PAD]", "[UNK]", "[CLS]", *WORDS))
HELD_OUT = 1_000_000  # added to the seed of what is never learned from
SIZES = {"d_model": 64, "n_heads": 8, "n_layers": 6, "d_mlp": 256, "max_length": 40}
N_STEPS, BATCH, RATE = 2000, 32, 2e-3
UNKNOWN = 0.1  # share of the words that are [UNK] in training, so that a blanked word is nothing new


@dataclass(frozen=True)
class Sentence:
    """A sentence up to its verb: the verb's number, where the subject is, and how many nouns have the other number."""

    words: tuple[str, ...]
    label: int
    subject: int
    n_attractors: int

    @property
    def text(self) -> str:
        """The words, apart."""
        return " ".join(self.words)


def draw(n: int, seed: int, *, shortest: int = 2) -> list[Sentence]:
    """Sentences of at least so many words.

    >>> [one.words[one.subject] in NOUNS[3] or one.n_attractors >= 0 for one in draw(2, 0)]
    [True, True]
    """
    return list(islice((one for one in _sentences(random.Random(seed)) if len(one.words) >= shortest), n))


def _sentences(rng: random.Random) -> Iterator[Sentence]:
    while True:
        front: list[str] = []
        nouns: list[int] = []
        if rng.random() < 0.5:
            number = rng.randrange(2)
            nouns.append(number)
            if rng.random() < 0.5:
                front = [rng.choice(PREPOSITIONS), *_noun(rng, number), ","]
            else:
                front = ["when", *_noun(rng, number), rng.choice(VERBS)[number], ","]
        label = rng.randrange(2)
        words = [*front, *_noun(rng, label)]
        subject = len(words) - 1
        for _ in range(rng.choice((0, 1, 1, 2))):
            words += _behind(rng, label, nouns)
        yield Sentence(tuple(words), label, subject, sum(number != label for number in nouns))


def _noun(rng: random.Random, number: int) -> list[str]:
    """A noun phrase; its last word is the noun."""
    adjective = [rng.choice(ADJECTIVES)] if rng.random() < 0.4 else []
    return ["the", *adjective, rng.choice(NOUNS)[number]]


def _behind(rng: random.Random, label: int, nouns: list[int]) -> list[str]:
    """What may stand behind the subject: a phrase, or a relative clause of which it is the object or the subject."""
    number, kind = rng.randrange(2), rng.randrange(4)
    nouns.append(number)
    if kind < 2:
        return [rng.choice(PREPOSITIONS), *_noun(rng, number)]
    if kind == 2:
        return ["that", *_noun(rng, number), rng.choice(VERBS)[number]]
    return ["that", rng.choice(VERBS)[label], *_noun(rng, number)]


def encode(
    sentences: Sequence[Sentence],
) -> tuple[Int[Tensor, "text token"], Bool[Tensor, "text token"], Int[Tensor, " text"]]:
    """Ids with [CLS] in front, padded on the right, which of them are tokens, and the labels."""
    rows = [torch.tensor(VOCABULARY.encode(one.text)[1]) for one in sentences]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    is_token = torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in rows])
    return ids, is_token, torch.tensor([one.label for one in sentences])


def fresh(seed: int) -> TransformerClassifier:
    """The network before training."""
    with seeded(seed):
        return TransformerClassifier(len(VOCABULARY.tokens), len(LABELS), **SIZES)


def train(seed: int, *, n_steps: int = N_STEPS) -> TransformerClassifier:
    """A transformer that learned the number of the verb."""
    network, rng = fresh(seed), _sentences(random.Random(seed))
    noise = torch.Generator().manual_seed(seed)

    def batch_loss() -> Float[Tensor, ""]:
        ids, is_token, labels = encode(list(islice(rng, BATCH)))
        gone = (torch.rand(ids.shape, generator=noise) < UNKNOWN) & (ids > VOCABULARY.ids["[CLS]"])
        ids = ids.masked_fill(gone, VOCABULARY.ids["[UNK]"])
        return nn.functional.cross_entropy(network(network.token_embedding(ids), is_token), labels)

    fit(network, batch_loss, n_steps=n_steps, rate=RATE)
    return network.eval()


@torch.no_grad()
def accuracy(network: TransformerClassifier, sentences: Sequence[Sentence]) -> float:
    """Share of the sentences whose verb has the right number."""
    ids, is_token, labels = encode(sentences)
    return float((network(network.token_embedding(ids), is_token).argmax(-1) == labels).float().mean())


def as_model(network: TransformerClassifier) -> OwnModel:
    """The network as a `Model` that reads words."""
    return OwnModel(network, VOCABULARY, name="agreement", labels=LABELS)
