"""The diagnostic network: do a model's weights help one without context? (Wiegreffe & Pinter 2019, sec. 3.4)

A network that sees each word alone (embedding, tanh, linear) classifies by the weighted mean of its words. The weights
are equal ("uniform"), those of a trained reader ("trained"), of its twin ("adversarial"), or its own ("learned").
If the trained ones make it better than equal ones, they carry what matters, wherever else they might have come from; if
the adversarial ones do not, the twin's attention is an explanation that does not travel.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from attnprobe.experiments.cues import HELD_OUT, CueText, draw, encode, mass_on
from attnprobe.experiments.outcome import Outcome, values_frame
from attnprobe.experiments.reader import Reader, read, train_reader, trained
from attnprobe.experiments.twins import train_twin
from attnprobe.models.modes import evaluating
from attnprobe.models.randomness import seeded

OWN_MEASURES = {
    "right": "1 where the label is right, else 0",
    "gain": "right − right under uniform weights, −1 to 1; paired by text",
    "mass_on_deciding": "weight on the word that decides, 0 to 1",
}
WEIGHTS = ("uniform", "trained", "learned", "adversarial")


@dataclass(frozen=True, eq=False)
class Diagnostic(Outcome):
    """What `diagnostic_network` found; variant: whose weights. networks: by the same name."""

    networks: Mapping[str, Reader] = field(default_factory=dict, repr=False)


def diagnostic_network(
    base: Reader | None = None,
    twin: Reader | None = None,
    *,
    weight: float = 0.1,
    n_steps: int = 250,
    n_texts: int = 200,
    seed: int = 0,
    n_resamples: int = 1000,
) -> Diagnostic:
    """Train the diagnostic network once under each set of weights, and compare on held-out texts.

    base: a trained reader; twin: another with the same predictions (None: trained here; weight: its λ).
    """
    started = time.perf_counter()
    base = train_reader("recurrent", n_steps=n_steps, seed=seed) if base is None else base
    twin = train_twin(base, weight, "recurrent", n_steps=n_steps, seed=seed + 2) if twin is None else twin
    sources = {"uniform": None, "trained": base, "learned": None, "adversarial": twin}
    texts = draw(n_texts, seed + HELD_OUT)
    networks: dict[str, Reader] = {}
    rows = []
    even: Tensor | None = None
    for name in tqdm(WEIGHTS, desc="diagnostic network", delay=1.0, leave=False, disable=None):
        networks[name] = _trained(name, sources[name], n_steps, seed)
        right, weights = _answers(networks[name], sources[name], texts)
        even = right if even is None else even
        measured = {"right": right, "gain": right - even, "mass_on_deciding": mass_on(weights, texts).double()}
        rows += [
            (index, "encoder", "self", "0", "0", name, measure, value)
            for measure, values in measured.items()
            for index, value in enumerate(values.tolist())
        ]
    return Diagnostic(
        "diagnostic_network",
        "reader without context",
        ("label of the text",),
        values_frame(rows),
        OWN_MEASURES,
        {"weight": weight, "n_steps": n_steps, "n_texts": n_texts},
        seed,
        seconds=time.perf_counter() - started,
        notes=("The intervals are over texts; the networks are one run each.",),
        n_resamples=n_resamples,
        networks=networks,
    )


def _trained(name: str, source: Reader | None, n_steps: int, seed: int) -> Reader:
    with seeded(seed):
        network = Reader("average", "learned" if name == "learned" else "uniform")

        def loss_on(texts: Sequence[CueText]) -> Tensor:
            ids, is_token, labels = encode(texts)
            logits = network(network.token_embedding(ids), is_token, _given(source, ids, is_token))
            return nn.functional.cross_entropy(logits, labels)

        trained(network, loss_on, n_steps=n_steps, seed=seed, n_train=2000)
    return network


def _given(source: Reader | None, ids: Tensor, is_token: Tensor) -> Tensor | None:
    """The weights of another reader, fixed; None for the network's own."""
    if source is None:
        return None
    with torch.no_grad():
        return read(source, ids, is_token).weights


def _answers(network: Reader, source: Reader | None, texts: Sequence[CueText]) -> tuple[Tensor, Tensor]:
    """Whether each text's label is right, and the weights used."""
    ids, is_token, labels = encode(texts)
    with evaluating(network), torch.no_grad():
        given = _given(source, ids, is_token)
        logits = network(network.token_embedding(ids), is_token, given)
        weights = read(network, ids, is_token).weights if given is None else given
    return (logits.argmax(-1) == labels).double(), weights
