"""Two small tasks and readers trained on them: one attention over a recurrent or a context-free encoder.

    counting   w3 good1 w8 bad0 good2 w1      -> positive: there are more good words (like sentiment; order is nothing)
    order      good2 w1 however w0 bad1       -> negative: the cue behind "however" decides (`experiments.cues`)

The encoder without context ("average") can learn the first, and is right in three of four texts of the second.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor, nn

from attnprobe.experiments.cues import CUES, FILLERS, HELD_OUT, LABELS, CueText, encode
from attnprobe.experiments.cues import draw as draw_order
from attnprobe.experiments.reader import BATCH, RATE, Reader, as_model, read, read_texts
from attnprobe.models.own import OwnModel
from attnprobe.models.randomness import seeded
from attnprobe.models.tasks.training import fit
from benchmarks.published.keeping import kept

ENCODERS = ("recurrent", "average")
N_STEPS, N_TRAIN = 300, 4000
SHORTEST, LONGEST, N_CUES = 12, 24, (3, 5)


def draw_counting(n: int, seed: int) -> list[CueText]:
    """Texts with 3 or 5 cues among 12 to 24 words; the label is what most of them say. No single word decides.

    >>> one = draw_counting(1, 0)[0]
    >>> sum(word[:4] == "good" for word in one.text.split()) > sum(word[:3] == "bad" for word in one.text.split())
    True
    >>> LABELS[one.label]
    'positive'
    """
    return list(islice(_counting(random.Random(seed)), n))


def _counting(rng: random.Random) -> Iterator[CueText]:
    while True:
        signs = [rng.randrange(2) for _ in range(rng.choice(N_CUES))]
        words = rng.choices(FILLERS, k=rng.randint(SHORTEST, LONGEST))
        for place, sign in zip(rng.sample(range(len(words)), len(signs)), signs, strict=True):
            words[place] = rng.choice(CUES[LABELS[sign]])
        yield CueText(" ".join(words), int(2 * sum(signs) > len(signs)), -1, -1, -1)


TASKS: dict[str, Callable[[int, int], list[CueText]]] = {"counting": draw_counting, "order": draw_order}


def held_out(task: str, n: int) -> list[CueText]:
    """Texts that no reader learned from."""
    return TASKS[task](n, HELD_OUT)


def reader(task: str, encoder: str, seed: int, looks: str = "learned") -> Reader:
    """A reader of this task, trained or read; looks: "learned", or "uniform" where it may not choose."""

    def fresh() -> Reader:
        with seeded(seed):
            return Reader(encoder, looks)

    return kept(f"{task}-{encoder}-{looks}-{seed}-{N_STEPS}", fresh, lambda: train(fresh(), TASKS[task], seed))


def train(network: Reader, draw: Callable[[int, int], list[CueText]], seed: int, n_steps: int = N_STEPS) -> Reader:
    """Fit a reader to texts of a task."""
    texts, generator = draw(N_TRAIN, seed), torch.Generator().manual_seed(seed)

    def batch_loss() -> Tensor:
        chosen = torch.randint(len(texts), (BATCH,), generator=generator).tolist()
        ids, is_token, labels = encode([texts[index] for index in chosen])
        return nn.functional.nll_loss(read(network, ids, is_token).probabilities.clamp(min=1e-9).log(), labels)

    network.train()
    fit(network, batch_loss, n_steps=n_steps, rate=RATE)
    return network.eval()


def accuracy(network: Reader, texts: Sequence[CueText]) -> float:
    """Share of the texts whose label is right."""
    labels = torch.tensor([one.label for one in texts])
    return float((read_texts(network, texts).probabilities.argmax(-1) == labels).float().mean())


def model_of(task: str, encoder: str, seed: int) -> OwnModel:
    """A trained reader as a `Model`."""
    return as_model(reader(task, encoder, seed), f"{task}, {encoder}, seed {seed}")
