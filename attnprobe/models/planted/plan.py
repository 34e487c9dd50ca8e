"""The plan of a planted model, and the network built from it.

    scores = x W_Q (x W_K)^T + B        B: the same whatever the tokens say; log p gives the weights p
    h      = x + sum_h A_h x W_V^h      then, where there is one, h + relu(h M_1 + b_1) M_2 + b_2
    y      = w · h_0                    read at the first token

Dimensions of the residual stream have names; W_V = {("val", "out"): 2} is 2 E_{val,out}. All in float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.attention.masks import padding_mask
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.models.own import OwnModel, Vocabulary

Entries = Mapping[tuple[str, str], float]
Probabilities = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Head:
    """One head: the weights that its bias B gives (a row a query; one row: for all), its W_V, and its query and key.

    query_dim and key_dim: the one dimension that W_Q and W_K read (None: they are zero).
    """

    probabilities: Probabilities
    value: Entries
    query_dim: str | None = None
    key_dim: str | None = None


@dataclass(frozen=True)
class Unit:
    """One ReLU of the MLP: reads relu(sum of weights * dimensions + bias), writes it times `out`."""

    weights: Mapping[str, float]
    bias: float
    out: float


@dataclass(frozen=True)
class Layer:
    """Heads side by side, then an MLP that writes sum of units + offset into one dimension (no units: no MLP)."""

    heads: tuple[Head, ...]
    units: tuple[Unit, ...] = ()
    offset: float = 0.0
    writes: str = "out"


@dataclass(frozen=True)
class Plan:
    """Everything about a planted model, in numbers and in words.

    truth: what each token's content does to y, its exact Shapley value against zero contents, which is the
    known mechanism where tokens act one by one. other_truth: a second reading that is right too, by name.
    """

    name: str
    story: str
    tokens: tuple[str, ...]
    dims: tuple[str, ...]
    contents: Mapping[str, Mapping[str, float]]
    layers: tuple[Layer, ...]
    answer: float
    truth: tuple[float, ...]
    readout: str = "out"
    other_truth: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PlantedModel:
    """A planted model, the example it was planted for, its y there, and the truth about every token."""

    name: str
    model: OwnModel
    example: Example
    answer: float
    truth: Float[Tensor, " token"]
    story: str
    other_truth: Mapping[str, Float[Tensor, " token"]]


class PlantedBlock(nn.Module):
    """One layer of a plan: attention with planted biases, residual, and the MLP where there is one."""

    def __init__(self, layer: Layer, dims: tuple[str, ...], n_tokens: int) -> None:
        super().__init__()
        d, n_heads = len(dims), len(layer.heads)
        # One query and key dimension a head, scale 1: the scores are as the plan says, with no 1/sqrt(d_head).
        self.attention = MultiHeadAttention(d, n_heads, d_head=1, d_value=d, bias=False, scale=1.0).double()
        rows = [head.probabilities * (n_tokens if len(head.probabilities) == 1 else 1) for head in layer.heads]
        self.register_buffer("score_bias", torch.tensor(rows, dtype=torch.float64).log())
        self.mlp = _mlp(layer, dims) if layer.units else None
        at = {name: _one_hot(name, dims) for name in dims} | {None: torch.zeros(d, dtype=torch.float64)}
        with torch.no_grad():
            self.attention.query.weight.copy_(torch.stack([at[head.query_dim] for head in layer.heads]))
            self.attention.key.weight.copy_(torch.stack([at[head.key_dim] for head in layer.heads]))
            self.attention.value.weight.copy_(torch.cat([_matrix(head.value, dims).T for head in layer.heads]))
            self.attention.output.weight.copy_(torch.eye(d).repeat(1, n_heads))

    def forward(
        self, x: Float[Tensor, "batch token d_model"], visible: Tensor | None
    ) -> Float[Tensor, "batch token d_model"]:
        """The residual stream after this layer."""
        h = x + self.attention(x, visible=visible, score_bias=self.score_bias)
        return h if self.mlp is None else h + self.mlp(h)


class PlantedNetwork(nn.Module):
    """The network of a plan: contents as embeddings, blocks, y read at the first token."""

    stack = "encoder"

    def __init__(self, plan: Plan, vocabulary: tuple[str, ...]) -> None:
        super().__init__()
        contents = [[plan.contents.get(token, {}).get(dim, 0.0) for dim in plan.dims] for token in vocabulary]
        self.fixed_length = len(plan.tokens)
        self.token_embedding = nn.Embedding.from_pretrained(torch.tensor(contents, dtype=torch.float64), freeze=False)
        self.blocks = nn.ModuleList(PlantedBlock(layer, plan.dims, len(plan.tokens)) for layer in plan.layers)
        self.readout = nn.Linear(len(plan.dims), 1, bias=False).double()
        with torch.no_grad():
            self.readout.weight.copy_(_one_hot(plan.readout, plan.dims)[None])

    def forward(
        self, embeddings: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch 1"]:
        """y of each row; is_token: False at tokens that nobody may look at."""
        visible = None if is_token is None else padding_mask(is_token)
        x = embeddings
        for block in self.blocks:
            x = block(x, visible)
        return self.readout(x[:, 0])


def build(plan: Plan) -> PlantedModel:
    """The plan made real: float64 on the CPU, "zero" as the only filler."""
    vocabulary = Vocabulary(
        tuple(dict.fromkeys((*plan.tokens, *plan.contents))), begin=None, pattern=r"\S+", lowercase=False
    )
    # Layers draw their first parameters at random; the plan overwrites them, and the caller's seed is kept.
    with torch.random.fork_rng(devices=[]):
        network = PlantedNetwork(plan, vocabulary.tokens)
    zero = {"zero": torch.zeros(len(plan.dims), dtype=torch.float64)}
    model = OwnModel(network, vocabulary, name=plan.name, labels=("y",), fillers=zero)
    example = model.example(list(plan.tokens))
    # Every token may carry content here, [CLS] and [BOS] too, so every token is explained and may be taken away.
    n = example.n_tokens
    example = replace(example, is_special=(False,) * n, words=tuple(range(n)))
    truths = {name: torch.tensor(values, dtype=torch.float64) for name, values in plan.other_truth.items()}
    truth = torch.tensor(plan.truth, dtype=torch.float64)
    return PlantedModel(plan.name, model, example, plan.answer, truth, plan.story, truths)


def _one_hot(dim: str, dims: tuple[str, ...]) -> Float[Tensor, " d_model"]:
    if dim not in dims:
        raise InputError(f"a plan names the dimension '{dim}'; {nearest(dim, dims)}")
    return torch.eye(len(dims), dtype=torch.float64)[dims.index(dim)]


def _matrix(entries: Entries, dims: tuple[str, ...]) -> Float[Tensor, "d_model d_model"]:
    matrix = torch.zeros(len(dims), len(dims), dtype=torch.float64)
    for (source, target), number in entries.items():
        matrix += number * torch.outer(_one_hot(source, dims), _one_hot(target, dims))
    return matrix


def _mlp(layer: Layer, dims: tuple[str, ...]) -> nn.Sequential:
    first, second = nn.Linear(len(dims), len(layer.units)).double(), nn.Linear(len(layer.units), len(dims)).double()
    out = _one_hot(layer.writes, dims)
    weights = [[unit.weights.get(dim, 0.0) for dim in dims] for unit in layer.units]
    with torch.no_grad():
        first.weight.copy_(torch.tensor(weights, dtype=torch.float64))
        first.bias.copy_(torch.tensor([unit.bias for unit in layer.units], dtype=torch.float64))
        second.weight.copy_(torch.outer(out, torch.tensor([unit.out for unit in layer.units], dtype=torch.float64)))
        second.bias.copy_(out * layer.offset)
    return nn.Sequential(first, nn.ReLU(), second)
