"""Decoders of one and of two layers learn to repeat; the probes are asked while they do."""

from collections.abc import Callable
from itertools import count

import pandas as pd
import torch
from torch import Tensor

from attnprobe.attention.positions.rotary import rotary
from attnprobe.attention.transformer import TransformerLanguageModel
from attnprobe.heads import probe_scores
from attnprobe.models.tasks.induction import BATCH, HELD_OUT, LENGTH, N_VOCABULARY, as_model, loss_on, repeated
from attnprobe.models.tasks.training import fit
from benchmarks.found.repeats import PROBES

# One layer gets twice the steps: nobody shall say that it had too few.
N_STEPS = {1: 1200, 2: 600}
EVERY, N_TEXTS, RATE = 25, 128, 3e-3
ASKED = {"length": 12, "repeats": 4, "n_samples": 4}


def learned(n_layers: int, seed: int, n_steps: int | None = None, every: int = EVERY) -> pd.DataFrame:
    """A row a measure and step: layers, seed, step, measure, value. Scores are those of the head that has the most.

    measures: the probes, and loss (nats, held-out texts, tokens that an earlier copy tells). The training is that of
    `attnprobe.models.tasks.induction`.
    """
    n_steps = N_STEPS[n_layers] if n_steps is None else n_steps
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = TransformerLanguageModel(
            N_VOCABULARY, d_model=48, n_heads=4, n_layers=n_layers, max_length=LENGTH, positions=rotary()
        )
    generator, rows, steps = torch.Generator().manual_seed(seed), list[tuple[int, str, float]](), count()
    measure = measuring(network, seed)

    def batch_loss() -> Tensor:
        if (step := next(steps)) % every == 0:
            rows.extend((step, name, value) for name, value in measure().items())
        return loss_on(network, *repeated(BATCH, generator))

    fit(network, batch_loss, n_steps=n_steps, rate=RATE)
    rows += [(n_steps, name, value) for name, value in measure().items()]
    table = pd.DataFrame(rows, columns=["step", "measure", "value"])
    return table.assign(layers=n_layers, seed=seed)[["layers", "seed", "step", "measure", "value"]]


def measuring(network: TransformerLanguageModel, seed: int) -> Callable[[], dict[str, float]]:
    """What is measured of the network as it is then: always on the same texts."""
    texts = repeated(N_TEXTS, torch.Generator().manual_seed(HELD_OUT + seed))

    @torch.no_grad()
    def measure() -> dict[str, float]:
        network.eval()
        model = as_model(network)
        found = {name: probe_scores[name].function(model, model.stacks[0], **ASKED) for name in PROBES}
        values = {name: float(scores.max()) for name, scores in found.items()}
        values["loss"] = float(loss_on(network, *texts))
        network.train()
        return values

    return measure


def at_the_end(table: pd.DataFrame) -> pd.DataFrame:
    """A row a training, a column a measure: what it had at its last step."""
    last = table[table.step == table.groupby(["layers", "seed"]).step.transform("max")]
    return last.pivot(index=["layers", "seed"], columns="measure", values="value").reset_index()


def crossing(table: pd.DataFrame, layers: int, score: str, level: float) -> list[int | None]:
    """For each training, the first measured step at which a score is above a level."""
    found: list[int | None] = []
    for _, part in table[(table.layers == layers) & (table.measure == score)].groupby("seed"):
        above = part[part.value > level].step
        found.append(int(above.min()) if len(above) else None)
    return found
