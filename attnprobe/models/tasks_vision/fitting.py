"""The training loop of both tasks: AdamW, a rate that warms up and falls to 0, and averaged weights."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tqdm.auto import tqdm

Batch = tuple[Float[Tensor, "row label"], Int[Tensor, " row"]]


@dataclass(frozen=True)
class Recipe:
    """How long and how fast; averaging: share of the averaged weights that a step keeps, late in training."""

    steps: int
    batch: int = 64
    rate: float = 2e-3
    decay: float = 0.05
    averaging: float = 0.99
    seed: int = 0
    progress: bool = True


def share_of_rate(step: int, steps: int) -> float:
    """Of the learning rate: up over the first tenth of the steps, then a cosine down to 0.

    >>> [round(share_of_rate(step, 20), 2) for step in (0, 1, 11, 20)]
    [0.5, 1.0, 0.5, 0.0]
    """
    warm = max(1, steps // 10)
    return (step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def fit(
    network: nn.Module, answers: Callable[[nn.Module, torch.Generator], Batch], recipe: Recipe
) -> tuple[nn.Module, list[float]]:
    """The network with its averaged weights, in evaluation mode, and the loss (nats) of every step.

    answers: draws a batch and gives the network's logits [row label] on it, and the right labels.
    """
    generator, losses = torch.Generator().manual_seed(recipe.seed), []
    averaged = copy.deepcopy(network).eval()
    options = {"lr": recipe.rate, "weight_decay": recipe.decay, "betas": (0.9, 0.98), "fused": True}
    optimizer = torch.optim.AdamW(network.parameters(), **options)  # type: ignore[arg-type]
    network.train()
    for step in tqdm(range(recipe.steps), desc="training", disable=None if recipe.progress else True, leave=False):
        optimizer.param_groups[0]["lr"] = recipe.rate * share_of_rate(step, recipe.steps)
        loss = cross_entropy(*answers(network, generator))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        _average(averaged, network, min(recipe.averaging, (step + 1) / (step + 10)))
        losses.append(loss.item())
    return averaged, losses


@torch.no_grad()
def _average(averaged: nn.Module, network: nn.Module, kept: float) -> None:
    for mean, new in zip(averaged.parameters(), network.parameters(), strict=True):
        mean.lerp_(new, 1 - kept)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block torch has one thread: these networks gain nothing from more, and the numbers stay the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
