"""Training the head on the 16 sentences: every word is to be put together from the others, all sentences at once.

loss = −Σ log(p_true + 1e-12) / 16, Adam (rate 0.02), 4,000 steps. Two gradients go under that name:

    "guarded"         of the loss as it stands. A word with p_true far below 1e-12 has none: it stays lost, and each
                      costs −log 1e-12 / 206 = 0.134 of the loss a word.
    "cross_entropy"   p − onehot, what one writes by hand for a softmax and a logarithm, which forgets the 1e-12. It
                      pulls lost words back.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.errors import InputError, nearest
from attnprobe.models.declaration.corpus import SENTENCES, VOCABULARY, words
from attnprobe.models.declaration.head import DeclarationNetwork, as_model, untrained

GUARD = 1e-12
RATE, STEPS = 0.02, 4000


@dataclass(frozen=True)
class Trained:
    """A head and how it stands: loss a word (nats, with the guard), how many of the 206 words it names, and how many
    are lost (their probability is below the guard).

    roundings: how far the start was from the seed's own. weights: of the first sentence, a row a word that looks.
    loss_curve: loss a word before each step.
    """

    network: DeclarationNetwork = field(repr=False)
    seed: int
    gradient: str
    roundings: int
    loss_per_token: float
    n_right: int
    n_lost: int
    weights: Float[Tensor, "query key"] = field(repr=False)
    loss_curve: Float[Tensor, " step"] = field(repr=False)


@dataclass(frozen=True)
class Corpus:
    """All sentences side by side: ids [sentence token], padded; is_token: True at words."""

    ids: Int[Tensor, "sentence token"]
    is_token: Bool[Tensor, "sentence token"]

    @property
    def truth(self) -> Int[Tensor, " word"]:
        """Ids of the words, padding left out."""
        return self.ids[self.is_token]


def corpus() -> Corpus:
    """The sentences as ids of their words, padded behind the last."""
    rows = [[VOCABULARY.index(word) for word in words(sentence)] for sentence in SENTENCES]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return Corpus(ids, torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None])


def log_probabilities(network: DeclarationNetwork, data: Corpus) -> Float[Tensor, " word"]:
    """Of the true word, at every word of every sentence, in one pass."""
    logits = network(network.token_embedding(data.ids), data.is_token)[data.is_token]
    return logits.log_softmax(-1).gather(-1, data.truth[:, None])[:, 0]


def guarded(log_p: Float[Tensor, " word"]) -> Float[Tensor, " word"]:
    """−log(p + 1e-12): no word costs more than 27.6."""
    return -(log_p.exp() + GUARD).log()


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {"guarded": guarded, "cross_entropy": torch.neg}


def train(
    seed: int = 0,
    *,
    gradient: str = "cross_entropy",
    steps: int = STEPS,
    rate: float = RATE,
    roundings: int = 0,
    progress: bool = False,
) -> Trained:
    """A head trained from the parameters that `seed` draws; some 10 seconds of one core.

    gradient: "cross_entropy" or "guarded", see above. roundings: see `untrained`.
    Errors: `InputError` for a gradient or a seed that does not exist.
    """
    if gradient not in LOSSES:
        raise InputError(f"no gradient is named '{gradient}'; {nearest(gradient, LOSSES)}")
    if steps < 1 or not (rate > 0 and math.isfinite(rate)):
        raise InputError(f"training takes at least 1 step at a rate above 0, got steps={steps}, rate={rate}")
    network, data = untrained(seed, roundings=roundings), corpus()
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    curve = []
    for _ in tqdm(range(steps), desc="training", disable=None if progress else True, leave=False):
        with torch.enable_grad():
            log_p = log_probabilities(network, data)
            loss = LOSSES[gradient](log_p).sum() / len(SENTENCES)
        curve.append(guarded(log_p.detach()).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return measured(network, torch.stack(curve), seed=seed, gradient=gradient, roundings=roundings)


@torch.no_grad()
def measured(network: DeclarationNetwork, curve: Tensor, *, seed: int, gradient: str, roundings: int) -> Trained:
    """The network as it stands, in evaluation mode and in need of no gradients."""
    network.eval().requires_grad_(False)
    data = corpus()
    log_p = log_probabilities(network, data)
    logits = network(network.token_embedding(data.ids), data.is_token)[data.is_token]
    return Trained(
        network,
        seed,
        gradient,
        roundings,
        loss_per_token=float(guarded(log_p).mean()),
        n_right=int((logits.argmax(-1) == data.truth).sum()),
        n_lost=int((log_p < math.log(GUARD)).sum()),
        weights=first_weights(network),
        loss_curve=curve,
    )


def first_weights(network: DeclarationNetwork) -> Float[Tensor, "query key"]:
    """The head's weights on the first sentence, captured at the seam."""
    model = as_model(network)
    return model.capture(model.example(SENTENCES[0])).weights()[0][0].detach()
