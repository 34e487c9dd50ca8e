"""What the tasks' trainings share: a loop with a warm-up, a clipped gradient and a rate that falls to zero."""

import argparse
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn


def share_of_rate(step: int, n_steps: int, n_warm: int = 100) -> float:
    """Share of the highest rate at a step: up in a line, down in half a cosine to 0.

    >>> [round(share_of_rate(step, 20, 2), 2) for step in (0, 1, 2, 11, 20)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    n_warm = max(1, min(n_warm, n_steps // 10))
    if step < n_warm:
        return (step + 1) / n_warm
    return 0.5 * (1 + math.cos(math.pi * (step - n_warm) / (n_steps - n_warm)))


def fit(
    network: nn.Module,
    batch_loss: Callable[[], Tensor],
    *,
    n_steps: int,
    rate: float,
    report: Callable[[str], None] | None = None,
    every: int = 250,
) -> list[float]:
    """Adam on fresh batches; the loss of each step. batch_loss: draws a batch and gives the network's loss on it."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    losses: list[float] = []
    started = time.perf_counter()
    for step in range(n_steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * share_of_rate(step, n_steps)
        loss = batch_loss()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if report is not None and (step + 1) % every == 0:
            recent = losses[-every:]
            spent = time.perf_counter() - started
            report(f"{spent:5.0f} s  step {step + 1}: loss {sum(recent) / len(recent):.4f}")
    return losses


def progress(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def arguments(description: str, n_steps: int | None = None) -> argparse.ArgumentParser:
    """The part of a task's command line that all tasks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=n_steps, help="steps of the training")
    parser.add_argument("--threads", type=int, default=1, help="another number gives other last digits")
    return parser
