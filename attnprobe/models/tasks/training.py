"""What the tasks' trainings share: a loop with a warm-up, a clipped gradient and a rate that falls to zero."""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_model
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


def at_least_one(text: str) -> int:
    """A whole number of 1 or more, of a command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of 1 or more is needed, got '{text}'")
    return int(text)


def arguments(description: str, n_steps: int | None = None, steps: str = "%(default)s") -> argparse.ArgumentParser:
    """The part of a task's command line that all tasks have; steps: what is said of the default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (default %(default)s)")
    parser.add_argument("--steps", type=at_least_one, default=n_steps, help=f"steps of the training (default {steps})")
    parser.add_argument(
        "--threads", type=at_least_one, default=1, help="another number than %(default)s gives other last digits"
    )
    parser.add_argument("--out", type=Path, help="a file for the parameters of the network (.safetensors)")
    return parser


def keep_network(network: nn.Module, out: Path | None) -> None:
    """Write the parameters to a file, if there is one, and say so."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        save_model(network, str(out))
        progress(f"the network is in {out}; safetensors.torch.load_model(network, file) reads it")
