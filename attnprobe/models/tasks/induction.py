"""A B … A -> B: a small decoder learns to repeat what it saw, and shows with which head.

Run: python -m attnprobe.models.tasks.induction

A text is a block of random tokens, again and again: a b c d a b c d a b. The block's length is another one in every
text, so no fixed distance helps: whoever predicts the second half must find the earlier A and look behind it (Elhage et
al. 2021; Olsson et al. 2022). No token comes twice in a block, so that there is one right answer.

prefix matching   mean over positions i of Σ_j α_ij [x_{j−1} = x_i, j <= i]   the induction head looks at the B
previous token    mean over positions i of α_{i,i−1}                          the head that it builds on
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.attention.positions.rotary import rotary
from attnprobe.attention.seam import NOTHING, Keep, Tape, recording
from attnprobe.attention.transformer import TransformerLanguageModel
from attnprobe.errors import InputError
from attnprobe.intervention import silence_head
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.tasks.training import arguments, at_least_one, fit, keep_network, progress

N_VOCABULARY, LENGTH, SHORTEST, LONGEST = 32, 48, 8, 24
N_STEPS, BATCH, HELD_OUT = 600, 64, 1_000_000


def repeated(n: int, generator: torch.Generator) -> tuple[Int[Tensor, "text token"], Int[Tensor, " text"]]:
    """Texts of random blocks, each repeated to the end, and how long the block of each is."""
    period = torch.randint(SHORTEST, LONGEST + 1, (n,), generator=generator)
    blocks = torch.rand(n, N_VOCABULARY, generator=generator).argsort(-1)
    place = torch.arange(LENGTH) % period[:, None]
    return blocks.gather(1, place), period


def predictable(period: Int[Tensor, " text"]) -> Bool[Tensor, "text position"]:
    """The positions whose next token follows from the text: those from the block's second run on."""
    return torch.arange(LENGTH - 1) >= period[:, None]


def loss_on(network: TransformerLanguageModel, ids: Tensor, period: Tensor) -> Float[Tensor, ""]:
    """Mean negative log-probability of the next token where it can be known."""
    logits, known = network(network.token_embedding(ids))[:, :-1], predictable(period)
    return torch.nn.functional.cross_entropy(logits[known], ids[:, 1:][known])


def train(
    *, n_steps: int = N_STEPS, n_layers: int = 2, seed: int = 0, report: bool = False
) -> TransformerLanguageModel:
    """A decoder that learned to repeat; report: prints progress."""
    if n_layers < 1 or n_steps < 0:
        raise InputError(f"a decoder has 1 layer or more and learns in 0 steps or more, got {n_layers} and {n_steps}")
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = TransformerLanguageModel(
            N_VOCABULARY, d_model=48, n_heads=4, n_layers=n_layers, max_length=LENGTH, positions=rotary()
        )
    fit(
        network,
        lambda: loss_on(network, *repeated(BATCH, generator)),
        n_steps=n_steps,
        rate=3e-3,
        report=progress if report else None,
    )
    return network.eval()


def as_model(network: TransformerLanguageModel) -> OwnModel:
    """The network as a `Model` that reads words: "t3 t17 t5 t3"."""
    words = tuple(f"t{number}" for number in range(N_VOCABULARY))
    return OwnModel(network, Vocabulary(words, begin=None), name="induction")


@torch.no_grad()
def accuracy(network: TransformerLanguageModel, ids: Tensor, period: Tensor) -> float:
    """Share of the tokens that can be known which are predicted."""
    right = network(network.token_embedding(ids))[:, :-1].argmax(-1) == ids[:, 1:]
    return float(right[predictable(period)].float().mean())


@dataclass(frozen=True)
class HeadReading:
    """One head: where it looks, and the accuracy of the network without what it passes on."""

    layer: int
    head: int
    prefix_matching: float
    previous_token: float
    accuracy_without: float


def prefix_matching(
    weights: Float[Tensor, "text head query key"], ids: Int[Tensor, "text token"]
) -> Float[Tensor, " head"]:
    """Mean weight on the tokens that follow an earlier copy of the query's token, over the queries that have one.

    >>> looks_behind_the_copy = torch.tensor([[[[1.0, 0, 0], [0, 1, 0], [0, 1, 0]]]])
    >>> prefix_matching(looks_behind_the_copy, torch.tensor([[7, 5, 7]])).tolist()
    [1.0]
    """
    n_tokens = ids.shape[1]
    follows = torch.zeros(len(ids), n_tokens, n_tokens, dtype=torch.bool)
    follows[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]
    follows &= torch.ones(n_tokens, n_tokens, dtype=torch.bool).tril()
    mass = (weights * follows[:, None]).sum(-1)
    return mass.transpose(0, 1)[:, follows.any(-1)].mean(-1)


@torch.no_grad()
def read_heads(network: TransformerLanguageModel, ids: Tensor, period: Tensor) -> list[HeadReading]:
    """Every head of the network, on the same texts."""
    with recording(Tape(keep=Keep.of("weights"))) as tape:
        network(network.token_embedding(ids))
    readings = []
    for site in tape.sites:
        weights = site.need("weights")
        matching, previous = prefix_matching(weights, ids), weights.diagonal(-1, -2, -1).mean((0, 2))
        for head in range(site.n_heads):
            without = accuracy_without(network, ids, period, site.layer, [head])
            readings.append(HeadReading(site.layer, head, float(matching[head]), float(previous[head]), without))
    return readings


def accuracy_without(
    network: TransformerLanguageModel, ids: Tensor, period: Tensor, layer: int, heads: Sequence[int]
) -> float:
    """The accuracy where some heads of a layer pass nothing on."""
    with recording(Tape([silence_head(layer, heads)], keep=NOTHING)):
        return accuracy(network, ids, period)


@torch.no_grad()
def accuracy_on_one_copy(network: TransformerLanguageModel, n: int, generator: torch.Generator) -> float:
    """Share right of texts unlike those learned from: different tokens, then one of them again."""
    tokens = torch.rand(n, N_VOCABULARY, generator=generator).argsort(-1)[:, : LONGEST + 1]
    place = torch.randint(LONGEST, (n, 1), generator=generator)
    ids = torch.cat([tokens, tokens.gather(1, place)], dim=1)
    predicted = network(network.token_embedding(ids))[:, -1].argmax(-1)
    return float((predicted == tokens.gather(1, place + 1)[:, 0]).float().mean())


def main() -> None:
    """Train, and print the accuracy and what each head does."""
    parser = arguments("Learn A B … A -> B, and say which head does it.", N_STEPS)
    parser.add_argument(
        "--layers", type=at_least_one, default=2, help="with 1, induction is out of reach (default %(default)s)"
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    network = train(n_steps=given.steps, n_layers=given.layers, seed=given.seed, report=True)
    keep_network(network, given.out)
    generator = torch.Generator().manual_seed(given.seed + HELD_OUT)
    ids, period = repeated(512, generator)
    print(
        f"repeated tokens that are predicted: {accuracy(network, ids, period):.1%} of {int(predictable(period).sum())}"
    )
    print(f"one copy among other tokens: {accuracy_on_one_copy(network, 512, generator):.1%} of 512")
    print("head   prefix matching   previous token   accuracy without it")
    readings = read_heads(network, ids, period)
    for r in readings:
        print(f"{r.layer}.{r.head} {r.prefix_matching:18.2f} {r.previous_token:16.2f} {r.accuracy_without:21.1%}")
    print(*induction_heads(network, readings, ids, period), sep="\n")


def induction_heads(
    network: TransformerLanguageModel, readings: Sequence[HeadReading], ids: Tensor, period: Tensor
) -> list[str]:
    """A sentence for each layer with heads that put most of their weight behind the earlier copy."""
    sentences = []
    for layer in sorted({r.layer for r in readings}):
        heads = [r.head for r in readings if r.layer == layer and r.prefix_matching > 0.5]
        if heads:
            without = accuracy_without(network, ids, period, layer, heads)
            sentences.append(f"induction: heads {heads} of layer {layer}; without all of them {without:.1%} are right")
    return sentences or ["induction: no head puts most of its weight behind the earlier copy"]


if __name__ == "__main__":
    main()
