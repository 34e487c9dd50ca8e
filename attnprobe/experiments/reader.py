"""Reader: a classifier with one attention on top of an encoder, as in Jain & Wallace 2019, and how it is trained.

    h_j     bi-LSTM of the words ("recurrent"), or tanh(W x_j + b), which knows no context ("average")
    α       softmax over j of u·tanh(V h_j), or equal on all words ("uniform")
    logits  W_o Σ_j α_j h_j

The attention passes the seam, so a trained reader is a model like any other: methods, edits and experiments run on it.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnprobe.attention.seam import observe
from attnprobe.errors import InputError, nearest
from attnprobe.experiments.cues import LABELS, VOCABULARY, CueText, draw, encode
from attnprobe.models.modes import evaluating
from attnprobe.models.own import OwnModel
from attnprobe.models.randomness import seeded
from attnprobe.models.tasks.training import fit
from attnprobe.site import SOFTMAX, Place, Site

Encoder = Literal["recurrent", "average"]
Looks = Literal["learned", "uniform"]


class Pooling(nn.Module):
    """One learned query over the states: scores u·tanh(V h_j), or 0 for all where it looks uniformly."""

    def __init__(self, d_state: int, d_hidden: int, looks: Looks) -> None:
        super().__init__()
        self.looks = looks
        self.key = nn.Linear(d_state, d_hidden)
        self.direction = nn.Parameter(torch.randn(d_hidden) / d_hidden**0.5)

    def weights(
        self, states: Float[Tensor, "batch token d_state"], is_token: Bool[Tensor, "batch token"]
    ) -> tuple[Tensor, Tensor]:
        """Scores and weights [batch token]; 0 on what is no token."""
        free = torch.tanh(self.key(states)) @ self.direction
        scores = (free if self.looks == "learned" else torch.zeros_like(free)).masked_fill(~is_token, -torch.inf)
        return scores, SOFTMAX(scores)

    def forward(
        self,
        states: Float[Tensor, "batch token d_state"],
        is_token: Bool[Tensor, "batch token"],
        given: Float[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch d_state"]:
        """The mean of the states by the weights, or by those that are given."""
        scores, weights = self.weights(states, is_token)
        weights = weights if given is None else given

        def site(place: Place) -> Site:
            value, row = states[:, None], weights[:, None, None]
            query = self.direction.expand(len(states), 1, 1, -1)
            key = torch.tanh(self.key(states))[:, None]
            return Site(
                place, query, key, value, scores[:, None, None], row, row @ value, is_token[:, None, None], SOFTMAX
            )

        return observe(self, site, fallback=lambda: (weights[:, None] @ states)[:, None])[:, 0, 0]


class Reader(nn.Module):
    """Embeddings, an encoder, one attention, a linear classifier."""

    axis = "source"

    def __init__(self, encoder: str, looks: str, d_embedding: int = 24, d_state: int = 32) -> None:
        super().__init__()
        for name, given, known in (("encoder", encoder, get_args(Encoder)), ("looks", looks, get_args(Looks))):
            if given not in known:
                raise InputError(f"{name} is one of {', '.join(known)}, got '{given}'; {nearest(given, known)}")
        self.token_embedding = nn.Embedding(len(VOCABULARY.tokens), d_embedding)
        self.recurrent = (
            nn.LSTM(d_embedding, d_state // 2, batch_first=True, bidirectional=True) if encoder == "recurrent" else None
        )
        self.plain = nn.Linear(d_embedding, d_state) if encoder == "average" else None
        self.pooling = Pooling(d_state, d_state, looks)  # type: ignore[arg-type]
        self.classifier = nn.Linear(d_state, len(LABELS))

    def states(
        self, embeddings: Float[Tensor, "batch token d_embedding"], is_token: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token d_state"]:
        """h of each token."""
        if self.plain is not None:
            return torch.tanh(self.plain(embeddings))
        lengths = is_token.sum(-1).clamp(min=1).cpu()
        packed = pack_padded_sequence(embeddings, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.recurrent(packed)[0], batch_first=True, total_length=embeddings.shape[1])[0]  # type: ignore[misc]

    def forward(
        self,
        embeddings: Float[Tensor, "batch token d_embedding"],
        is_token: Bool[Tensor, "batch token"] | None = None,
        given: Float[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch label"]:
        """Logits of the labels; given: weights to use in the place of its own."""
        everyone = torch.ones(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)
        is_token = everyone if is_token is None else is_token
        return self.classifier(self.pooling(self.states(embeddings, is_token), is_token, given))


class Read(NamedTuple):
    """What a reader says of a batch: probabilities [text label] and weights [text token]."""

    probabilities: Float[Tensor, "text label"]
    weights: Float[Tensor, "text token"]


def read(network: Reader, ids: Tensor, is_token: Tensor) -> Read:
    """Probabilities and weights of a batch, gradients kept."""
    states = network.states(network.token_embedding(ids), is_token)
    weights = network.pooling.weights(states, is_token)[1]
    return Read(network.classifier((weights[:, None] @ states)[:, 0]).softmax(-1), weights)


def read_texts(network: Reader, texts: Sequence[CueText]) -> Read:
    """Probabilities and weights of texts, without gradients."""
    ids, is_token, _ = encode(texts)
    with evaluating(network), torch.no_grad():
        return read(network, ids, is_token)


BATCH, RATE = 64, 5e-3
Loss = Callable[[Sequence[CueText]], Tensor]


def trained(network: nn.Module, loss_on: Loss, *, n_steps: int, seed: int, n_train: int) -> list[float]:
    """Fit a network to batches of the texts that are learned from; the loss of each step."""
    texts = draw(n_train, seed)
    generator = torch.Generator().manual_seed(seed)

    def batch_loss() -> Tensor:
        chosen = torch.randint(len(texts), (BATCH,), generator=generator).tolist()
        return loss_on([texts[index] for index in chosen])

    network.train()
    losses = fit(network, batch_loss, n_steps=n_steps, rate=RATE)
    network.eval()
    return losses


def train_reader(
    encoder: str = "recurrent",
    looks: str = "learned",
    *,
    n_steps: int = 250,
    seed: int = 0,
    n_train: int = 2000,
) -> Reader:
    """A reader that learned the task of `cues`, some seconds on a CPU."""
    with seeded(seed):
        network = Reader(encoder, looks)

        def loss_on(texts: Sequence[CueText]) -> Tensor:
            ids, is_token, labels = encode(texts)
            return nn.functional.nll_loss(read(network, ids, is_token).probabilities.clamp(min=1e-9).log(), labels)

        trained(network, loss_on, n_steps=n_steps, seed=seed, n_train=n_train)
    return network


def as_model(network: Reader, name: str = "reader") -> OwnModel:
    """The reader as a `Model` that reads words."""
    return OwnModel(network, VOCABULARY, name=name, labels=LABELS)
