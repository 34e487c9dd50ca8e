"""Attention of trained readers, permuted, replaced, compared with gradients and with what removal does.

Jain & Wallace 2019 (sec. 4.1, 4.2) and Serrano & Smith 2019 (sec. 4, 5), each on two tasks, two encoders, some seeds.
"""

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnprobe.attributing import attribute
from attnprobe.experiments.counterfactual import counterfactual_attention
from attnprobe.experiments.outcome import Outcome
from attnprobe.experiments.permuted import permuted_attention
from attnprobe.experiments.searching import Search
from attnprobe.experiments.top_weight import top_weight_removal
from attnprobe.intervention import Intervention
from attnprobe.metrics.ranks import kendall_tau
from attnprobe.models.edited import EditedModel
from attnprobe.models.model import Model
from attnprobe.site import Site
from attnprobe.target import Target
from benchmarks.published.readers import ENCODERS, TASKS, accuracy, held_out, model_of, reader

PROBABILITY = Target(scale="probability")
EPS = 0.01
# Fewer and longer steps than the authors' 5 starts x 500 steps of 0.01; a search that finds less finds too little.
SEARCH = Search(n_starts=3, n_steps=150, rate=0.05)


def held(site: Site) -> Site:
    """The weights as they are, but no gradient passes through them."""
    return site.replace(weights=site.need("weights").detach())


HELD = Intervention("attention held", held)


def by_gradient(model: Model, text: str) -> Float[Tensor, " token"]:
    """|Σ_d E ∂p/∂E| of each token with the attention held, as the authors do."""
    return attribute(EditedModel(model, [HELD]), text, "input_x_gradient", PROBABILITY).scores.abs()


def by_removal(model: Model, text: str) -> Float[Tensor, " token"]:
    """|Δp| where a token is deleted."""
    return attribute(model, text, "leave_one_out", PROBABILITY, operator="delete").scores.abs()


def agreement(model: Model, texts: list[str]) -> pd.DataFrame:
    """Kendall's τ of attention with the gradient and with removal, a row a text and measure."""
    rows = []
    for index, text in enumerate(texts):
        weights = attribute(model, text, "raw_attention", PROBABILITY).scores.double()
        rows.append((index, "", "tau_gradient", kendall_tau(weights, by_gradient(model, text).double())))
        rows.append((index, "", "tau_removal", kendall_tau(weights, by_removal(model, text).double())))
    return pd.DataFrame(rows, columns=["example_index", "variant", "measure", "value"])


def short(outcome: Outcome) -> pd.DataFrame:
    """The values of an outcome that has one place."""
    return outcome.values[["example_index", "variant", "measure", "value"]]


def measure(seed: int, n_texts: int, n_searched: int) -> pd.DataFrame:
    """All of it for one seed: task, encoder, experiment, example_index, variant, measure, value."""
    parts = []
    for task in TASKS:
        for encoder in ENCODERS:
            texts, model = held_out(task, n_texts), model_of(task, encoder, seed)
            words = [one.text for one in texts]
            found = {
                "agreement": agreement(model, words),
                "permuted": short(permuted_attention(model, words, seed=seed)),
                "counterfactual": short(
                    counterfactual_attention(model, words[:n_searched], eps=EPS, how=SEARCH, seed=seed)
                ),
                "top weight": short(top_weight_removal(model, words, seed=seed)),
            }
            right = accuracy(reader(task, encoder, seed), held_out(task, 1000))
            found["accuracy"] = pd.DataFrame(
                [(-1, "", "right", right)], columns=["example_index", "variant", "measure", "value"]
            )
            parts += [table.assign(task=task, encoder=encoder, experiment=name) for name, table in found.items()]
    return pd.concat(parts, ignore_index=True)
