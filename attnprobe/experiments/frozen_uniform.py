"""Training with attention frozen uniform: was attention needed at all? (Wiegreffe & Pinter 2019, sec. 3.2)

Where a model that was never allowed to choose where to look is as right as one that was, attention was not needed for
this task by this encoder, and no experiment on its weights can say whether they explain.
"""

import time
from collections.abc import Sequence

import torch
from tqdm.auto import tqdm

from attnprobe.experiments.cues import HELD_OUT, draw, mass_on
from attnprobe.experiments.outcome import Outcome, values_frame
from attnprobe.experiments.reader import read_texts, train_reader

OWN_MEASURES = {
    "right": "share of the seeds whose label is right, 0 to 1",
    "gain": "right with learned attention − right with uniform, −1 to 1; paired by text and seed",
    "mass_on_deciding": "weight on the word that decides, mean over seeds, 0 to 1",
}


def frozen_uniform_training(
    *,
    encoders: Sequence[str] = ("recurrent", "average"),
    n_seeds: int = 2,
    n_steps: int = 250,
    n_texts: int = 200,
    seed: int = 0,
    n_resamples: int = 1000,
) -> Outcome:
    """Train readers with learned and with uniform attention, and compare them on held-out texts.

    variant of the values: the encoder and how it looks ("recurrent, uniform"); of the gain, the encoder. Each value is
    a mean over seeds, the intervals are over texts.
    """
    started = time.perf_counter()
    texts = draw(n_texts, seed + HELD_OUT)
    labels = torch.tensor([one.label for one in texts])
    rows = []
    for encoder in tqdm(encoders, desc="uniform training", delay=1.0, leave=False, disable=None):
        found = {}
        for looks in ("learned", "uniform"):
            reads = [
                read_texts(train_reader(encoder, looks, n_steps=n_steps, seed=seed + number), texts)
                for number in range(n_seeds)
            ]
            found[looks] = torch.stack([one.probabilities.argmax(-1) == labels for one in reads]).double().mean(0)
            mass = torch.stack([mass_on(one.weights, texts) for one in reads]).double().mean(0)
            rows += _rows(f"{encoder}, {looks}", {"right": found[looks], "mass_on_deciding": mass})
        rows += _rows(encoder, {"gain": found["learned"] - found["uniform"]})
    return Outcome(
        "frozen_uniform_training",
        "reader",
        ("label of the text",),
        values_frame(rows),
        OWN_MEASURES,
        {"n_seeds": n_seeds, "n_steps": n_steps, "n_texts": n_texts},
        seed,
        seconds=time.perf_counter() - started,
        n_resamples=n_resamples,
    )


def _rows(variant: str, measured: dict[str, torch.Tensor]) -> list[tuple]:
    return [
        (index, "encoder", "self", "0", "0", variant, measure, value)
        for measure, values in measured.items()
        for index, value in enumerate(values.tolist())
    ]
