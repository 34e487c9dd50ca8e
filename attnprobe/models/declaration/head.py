"""One attention head that puts a word together from the others of its sentence, seen by the seam.

Q = X W_Q, K = X W_K, V = X W_V     X: embeddings of the words; no positions, no biases
weights = softmax(Q Kᵀ / √d)        the diagonal is masked: no word looks at itself
logits = (weights V) W_O            for each word of the sentence, one logit a word of the vocabulary

Masked is only the *value* of a word. Its query is made from the word itself, so what is to be guessed decides where the
head looks: a weight can be the name that training gave to a word, and need not be a kinship between two words.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.attention.scores import scaled_dot_product_attention
from attnprobe.attention.seam import observe
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.declaration.corpus import LETTERS, VOCABULARY
from attnprobe.models.own import OwnModel, OwnOutputs, Vocabulary
from attnprobe.site import Place, Site
from attnprobe.target import Target

D_MODEL = 24
# The distance between 1 and the next float64.
ROUNDING = 2.0**-52


class OthersOnlyHead(nn.Module):
    """The head alone: each word's mixture of the other words' values, [batch token d_model]."""

    def __init__(self, d_model: int = D_MODEL) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self, x: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch token d_model"]:
        """z of every word. is_token: False where nobody may look."""
        query, key, value = (projection(x)[:, None] for projection in (self.query, self.key, self.value))
        visible = others(x.shape[1], is_token, x.device)

        def build(place: Place) -> Site:
            scores, weights, z = scaled_dot_product_attention(query, key, value, visible=visible)
            return Site(place, query, key, value, scores, weights, z, visible)

        return observe(self, build)[:, 0]


def others(
    n_tokens: int, is_token: Bool[Tensor, "batch token"] | None = None, device: torch.device | None = None
) -> Bool[Tensor, "#batch 1 token token"]:
    """Every word may look at every word but itself (and at no padding).

    >>> others(3)[0, 0].int().tolist()
    [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    visible = ~torch.eye(n_tokens, dtype=torch.bool, device=device)[None, None]
    return visible if is_token is None else visible & is_token[:, None, None, :]


class OneHeadLayer(nn.Module):
    """A layer that is nothing but the head: no residual stream, no MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = OthersOnlyHead()

    def forward(
        self, x: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch token d_model"]:
        """What the head gives on."""
        return self.attention(x, is_token)


class DeclarationNetwork(nn.Module):
    """Embeddings, the head, and the read-out to the vocabulary; float64."""

    stack = "encoder"

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(len(VOCABULARY), D_MODEL)
        self.blocks = nn.ModuleList([OneHeadLayer()])
        self.output = nn.Linear(D_MODEL, len(VOCABULARY), bias=False)
        self.double()

    def forward(
        self, embeddings: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch token word"]:
        """Logits of the vocabulary at every word of the sentence."""
        return self.output(self.blocks[0](embeddings, is_token))

    def matrices(self) -> tuple[nn.Parameter, ...]:
        """Its parameters in the order in which they are drawn: E, W_Qᵀ, W_Kᵀ, W_Vᵀ, W_Oᵀ."""
        return tuple(self.parameters())


def untrained(seed: int = 0, *, roundings: int = 0) -> DeclarationNetwork:
    """The network before training: 0.1 times NumPy's standard normal numbers of that seed, in the order of `matrices`.

    roundings: each embedding times 1 + roundings · ROUNDING · (−1, 0 or 1, by the seed), which is what another order of
    summation could do. The caller's random numbers are not touched.
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"NumPy's generator takes seeds from 0 to 2³² − 1, got {seed}")
    draw = np.random.RandomState(seed)
    with torch.random.fork_rng(devices=[]):  # nn.Linear and nn.Embedding draw first, in vain
        network = DeclarationNetwork()
    with torch.no_grad():
        for number, matrix in enumerate(network.matrices()):
            shape = matrix.shape if number == 0 else matrix.T.shape
            drawn = torch.from_numpy(0.1 * draw.randn(*shape))
            matrix.copy_(drawn if number == 0 else drawn.T)
        if roundings:
            sign = torch.from_numpy(draw.randint(-1, 2, (len(VOCABULARY), D_MODEL))).double()  # else float32
            network.token_embedding.weight.mul_(1 + roundings * ROUNDING * sign)
    return network


@dataclass(frozen=True)
class WordsOfASentence(OwnOutputs):
    """Words of the vocabulary at every position; an answer depends on words on both sides."""

    @property
    def causal(self) -> bool:
        """An answer can depend on words behind it."""
        return False


def as_model(network: DeclarationNetwork, name: str = "declaration") -> OwnModel:
    """The network as a `Model` that reads sentences of its 98 words; the answer at a position is the word there."""
    model = OwnModel(network, Vocabulary(VOCABULARY, begin=None, pattern=LETTERS), name=name)
    model.outputs = WordsOfASentence(name, None, VOCABULARY)
    return model


def word_at(example: Example, position: int) -> Target:
    """The question to attribute: the log-probability of the word that stands at this position.

    >>> example = as_model(untrained()).example("All are equal before the law")
    >>> word_at(example, 2).label
    'equal'
    """
    if not 0 <= position < example.n_tokens:
        raise InputError(f"the sentence has words 0 to {example.n_tokens - 1}, got {position}")
    return Target(label=example.tokens[position], position=position, scale="log_probability")
