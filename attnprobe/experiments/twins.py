"""Trained twins: another model with the same predictions and other attention (Wiegreffe & Pinter 2019, sec. 4).

    loss of a batch   Σ TVD(p, p_base) − λ Σ KL(α_twin ‖ α_base)

The greater λ, the further attention moves and the worse the predictions are kept: the curve of TVD against JSD. A
counterfactual for one example is cheap; that one set of parameters gives other attention to all of them is the stronger
claim, and where the curve rises at once, attention is tied to the predictions of this model.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.experiments.cues import HELD_OUT, CueText, draw, encode
from attnprobe.experiments.outcome import Outcome, values_frame
from attnprobe.experiments.reader import Read, Reader, read, read_texts, train_reader, trained
from attnprobe.experiments.searching import jensen_shannon
from attnprobe.models.randomness import seeded

OWN_MEASURES = {
    "total_variation": "total variation of the two outputs, 0 to 1",
    "jsd": "Jensen-Shannon divergence of the two attentions, 0 to ln 2 = 0.693",
    "same_decision": "1 where both decide alike, else 0",
    "right": "1 where the twin's label is right, else 0",
    "top_changed": "1 where another token has the twin's largest weight, else 0",
}
LAMBDAS = (0.0, 1e-3, 1e-2, 0.1, 1.0)
SEED_ALONE = "another seed"


@dataclass(frozen=True, eq=False)
class Twins(Outcome):
    """What `trained_twins` found; variant: λ, or "another seed", the model of another seed that was told nothing.

    base: the model that was copied; twins: by λ.
    """

    base: Reader | None = field(default=None, repr=False)
    twins: dict[float, Reader] = field(default_factory=dict, repr=False)


def trained_twins(
    base: Reader | None = None,
    *,
    lambdas: Sequence[float] = LAMBDAS,
    encoder: str = "recurrent",
    n_steps: int = 250,
    n_texts: int = 200,
    seed: int = 0,
    n_resamples: int = 1000,
) -> Twins:
    """Train a twin of a reader for each λ, and compare them on held-out texts.

    base: a trained reader (None: one is trained, of this encoder). Beside the twins stands a reader of another seed,
    trained on the labels alone: how far attention strays by chance (ibid., sec. 3.3).
    """
    started = time.perf_counter()
    base = train_reader(encoder, n_steps=n_steps, seed=seed) if base is None else base
    encoder = "recurrent" if base.recurrent is not None else "average"
    texts = draw(n_texts, seed + HELD_OUT)
    other = train_reader(encoder, n_steps=n_steps, seed=seed + 1)
    twins: dict[float, Reader] = {}
    for weight in tqdm(lambdas, desc="trained twins", delay=1.0, leave=False, disable=None, unit="twin"):
        twins[weight] = train_twin(base, weight, encoder, n_steps=n_steps, seed=seed + 2)
    before, rows = read_texts(base, texts), []
    for name, twin in {SEED_ALONE: other, **{f"{weight:g}": twin for weight, twin in twins.items()}}.items():
        rows += _rows(name, before, read_texts(twin, texts), texts)
    return Twins(
        "trained_twins",
        f"reader ({encoder})",
        ("probability of each label",),
        values_frame(rows),
        OWN_MEASURES,
        {"encoder": encoder, "n_steps": n_steps, "n_texts": n_texts},
        seed,
        seconds=time.perf_counter() - started,
        notes=("The intervals are over texts; the models are one run each.",),
        n_resamples=n_resamples,
        base=base,
        twins=twins,
    )


def train_twin(base: Reader, weight: float, encoder: str, *, n_steps: int, seed: int, n_train: int = 2000) -> Reader:
    """A reader that starts anew and learns the predictions of the base, and not to look where it looks; weight: λ."""
    with seeded(seed):
        twin = Reader(encoder, "learned")

        def loss_on(texts: Sequence[CueText]) -> Tensor:
            ids, is_token, _ = encode(texts)
            with torch.no_grad():
                wanted = read(base, ids, is_token)
            got = read(twin, ids, is_token)
            return (_variation(wanted, got) - weight * _divergence(got.weights, wanted.weights)).mean()

        trained(twin, loss_on, n_steps=n_steps, seed=seed, n_train=n_train)
    return twin


def _variation(a: Read, b: Read) -> Float[Tensor, " text"]:
    return (a.probabilities - b.probabilities).abs().sum(-1) / 2


def _divergence(twin: Tensor, base: Tensor) -> Float[Tensor, " text"]:
    """KL(α_twin ‖ α_base) in nats, bounded where the base looks away: a weight of 1e-9 counts as that."""
    return (twin * (twin.clamp(min=1e-9).log() - base.clamp(min=1e-9).log())).sum(-1)


def _rows(name: str, before: Read, after: Read, texts: Sequence[CueText]) -> list[tuple[Any, ...]]:
    """Rows of one twin."""
    decided, labels = after.probabilities.argmax(-1), torch.tensor([one.label for one in texts])
    measured = {
        "total_variation": _variation(before, after),
        "jsd": jensen_shannon(before.weights.double(), after.weights.double()),
        "same_decision": decided == before.probabilities.argmax(-1),
        "right": decided == labels,
        "top_changed": before.weights.argmax(-1) != after.weights.argmax(-1),
    }
    return [
        (index, "encoder", "self", "0", "0", name, measure, value)
        for measure, values in measured.items()
        for index, value in enumerate(values.double().tolist())
    ]
