"""A plan made real: the network, its example, its truth; and the same in another basis or with noise on its weights."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import InputError
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted.network import EXACT, PlantedBlock, PlantedNetwork
from attnprobe.models.planted.plan import Plan, PlantedModel, as_tensor, shapley
from attnprobe.models.rows import Row
from attnprobe.target import Target

# Coalitions are enumerated: 2 ^ 12 rows at most.
MOST_PLAYERS = 12


def build(
    plan: Plan,
    *,
    rotation: int | None = None,
    noise: float = 0.0,
    seed: int = 0,
    variant: Mapping[str, object] | None = None,
) -> PlantedModel:
    """The plan made real: float64 on the CPU, "zero" as the only filler.

    rotation: seed of a random orthogonal matrix that turns the residual stream: the same function of the tokens in
    another basis. noise: every weight w becomes w (1 + noise · N(0, 1)), drawn from `seed`; what was zero stays zero,
    so tokens without influence stay so, and y and the truth of the others are computed anew from all coalitions.
    """
    if noise < 0:
        raise InputError(f"noise is a share of each weight, 0 or more, got {noise}")
    # Layers draw their first parameters at random; the plan overwrites them, and the caller's seed is kept.
    with torch.random.fork_rng(devices=[]):
        network = PlantedNetwork(plan)
    if noise:
        _add_noise(network, noise, torch.Generator().manual_seed(seed))
    if rotation is not None:
        _rotate(network, orthogonal(len(plan.dims), rotation))
    vocabulary = Vocabulary(plan.vocabulary, begin=None, pattern=r"\S+", lowercase=False)
    zero = {"zero": torch.zeros(len(plan.dims), dtype=EXACT)}
    labels = None if plan.causal else tuple(plan.readout)
    model = OwnModel(network, vocabulary, name=plan.name, labels=labels, fillers=zero)
    example = model.example(list(plan.tokens))
    # Every token may carry content here, [CLS] and [BOS] too, so every token is explained and may be taken away.
    n = example.n_tokens
    example = replace(example, is_special=(False,) * n, words=tuple(range(n)))
    made = PlantedModel(
        plan.name,
        model,
        example,
        Target(plan.label, position=plan.read if plan.causal else None),
        plan.answer,
        as_tensor(plan.truth),
        {name: as_tensor(values) for name, values in plan.other_truth.items()},
        plan,
        dict(variant or {}),
    )
    return made if not noise else _with_its_own_truth(made)


def worths(made: PlantedModel, players: tuple[int, ...]) -> dict[tuple[bool, ...], float]:
    """The explained number for each coalition of the players; contents of the others stay, absent players are zero."""
    coalitions = list(product((False, True), repeat=len(players)))
    kept = torch.ones(len(coalitions), made.example.n_tokens, dtype=torch.bool)
    kept[:, list(players)] = torch.tensor(coalitions, dtype=torch.bool)
    rows = [Row(made.example, kept=one, operator="zero") for one in kept]
    found = made.model.targets(rows, made.model.resolve(made.example, made.target)).tolist()
    return dict(zip(coalitions, found, strict=True))


def acts_one_by_one(made: PlantedModel) -> bool:
    """Whether every coalition gives the sum of what its tokens give: then no definition of truth is a choice."""
    worth = worths(made, made.plan.players)
    truth = made.truth[list(made.plan.players)]
    nothing = worth[(False,) * len(truth)]
    return all(
        abs(value - nothing - float(truth @ as_tensor(present))) < 1e-9 * (1 + abs(value))
        for present, value in worth.items()
    )


def _with_its_own_truth(made: PlantedModel) -> PlantedModel:
    """y and Shapley values of the network as it is now. A second truth of the plan is of the plan, and falls away."""
    players = made.plan.players
    if len(players) > MOST_PLAYERS:
        raise InputError(f"{made.name} has {len(players)} tokens with influence; noise takes at most {MOST_PLAYERS}")
    worth = worths(made, players)
    truth = torch.zeros(made.example.n_tokens, dtype=EXACT)
    truth[list(players)] = as_tensor(shapley(lambda *present: worth[present], len(players)))
    return replace(made, truth=truth, answer=worth[(True,) * len(players)], other_truth={})


def orthogonal(size: int, seed: int) -> Float[Tensor, "size size"]:
    """A random rotation or reflection, evenly distributed: the signs of R belong to Q, or it is not."""
    draw = torch.randn(size, size, dtype=EXACT, generator=torch.Generator().manual_seed(seed))
    q, r = torch.linalg.qr(draw)
    return q * r.diagonal().sign()


def _tensors(network: nn.Module) -> list[Tensor]:
    """Parameters, biases of scores and positions, each once."""
    return [*network.parameters(), *(buffer for buffer in network.buffers() if buffer.numel())]


@torch.no_grad()
def _add_noise(network: PlantedNetwork, noise: float, generator: torch.Generator) -> None:
    for tensor in _tensors(network):
        tensor.mul_(1 + noise * torch.randn(tensor.shape, dtype=EXACT, generator=generator))


@torch.no_grad()
def _rotate(network: PlantedNetwork, turn: Float[Tensor, "d_model d_model"]) -> None:
    """The network of x Q in place of x: maps that read turn back first, maps that write turn last."""
    for rows in (network.token_embedding.weight, network.get_buffer("positions"), network.get_buffer("steps")):
        rows.copy_(rows @ turn)
    reads, writes = [network.readout], list[nn.Linear]()
    for block in network.modules():  # each once, also one that runs several times
        if isinstance(block, PlantedBlock):
            more = block.maps()
            reads, writes = reads + more[0], writes + more[1]
    for reading in reads:
        reading.weight.copy_(reading.weight @ turn)
    for writing in writes:
        writing.weight.copy_(turn.T @ writing.weight)
        if writing.bias is not None:
            writing.bias.copy_(writing.bias @ turn)
