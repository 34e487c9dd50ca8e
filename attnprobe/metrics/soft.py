"""Soft erasure: each number of a token's embedding is dropped by chance, the more likely the less (or more) it scores.

Scores of the units are brought to s, 0 to 1, by their smallest and largest (all equal: ½). Sufficiency keeps a number
with probability s, comprehensiveness with 1 − s; special tokens stay whole. That is the paper's text (keeps="score").
Its released code holds two versions that contradict each other: keeps="complement" is the other one.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import measured
from attnprobe.metrics.normalised import share_of_fall
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model
from attnprobe.models.removal import default_operator
from attnprobe.models.rows import FIXED, Row, filler

Keeps = Literal["score", "complement"]
SOURCE = "Zhao & Aletras 2023 (soft-NS, soft-NC)"


def scaled(scores: Float[Tensor, " unit"]) -> Float[Tensor, " unit"]:
    """Scores between their smallest (0) and largest (1); one half each where all are equal.

    >>> scaled(torch.tensor([-1.0, 0.0, 3.0])).tolist(), scaled(torch.tensor([2.0, 2.0])).tolist()
    ([0.0, 0.25, 1.0], [0.5, 0.5])
    """
    low, high = scores.min(), scores.max()
    return torch.full_like(scores, 0.5) if low == high else (scores - low) / (high - low)


def _stands_in(model: Model, operator: str | None) -> Tensor:
    """The embedding whose numbers stand in for dropped ones: 0, as in the paper, unless asked for another."""
    if operator is None:
        operator = "zero" if "zero" in model.fillers else default_operator(model)
    if operator not in FIXED:
        raise InputError(f"soft metrics drop single numbers of an embedding; operator is {FIXED}, got '{operator}'")
    return filler(model.fillers, operator, model.name)


def soft_rows(
    model: Model, attribution: Attribution, keep: Float[Tensor, " unit"], operator: str | None, n_draws: int, seed: int
) -> list[Row]:
    """A row a draw: each number of a unit's embedding kept with the unit's probability."""
    if n_draws < 1:
        raise InputError(f"n_draws is at least 1, got {n_draws}")
    embeddings = model.embed(attribution.example)
    stands_in = _stands_in(model, operator).to(embeddings)
    probability = torch.ones(attribution.example.n_tokens)
    probability[attribution.units] = keep.float()
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(n_draws, *embeddings.shape, generator=generator) < probability[:, None]
    return [Row(attribution.example, embeddings=embeddings.where(d.to(embeddings.device), stands_in)) for d in draws]


def _answers(
    model: Model,
    attribution: Attribution,
    keep: Callable[[Tensor], Tensor],
    operator: str | None,
    n_draws: int,
    seed: int,
) -> tuple[float, float, Float[Tensor, " draw"]]:
    """The measured number of the whole input, without any token, and in each draw."""
    if not bool(attribution.units.any()):
        raise InputError("the input has only special tokens; there is nothing to take away")
    probability = keep(scaled(attribution.scores[attribution.units]))
    empty = soft_rows(model, attribution, torch.zeros_like(probability), operator, 1, seed)
    drawn = soft_rows(model, attribution, probability, operator, n_draws, seed)
    found = targets(model, [Row(attribution.example), *empty, *drawn], measured(attribution.target)).double()
    return float(found[0]), float(found[1]), found[2:]


def _keeping(keeps: str, *, alone: bool) -> Callable[[Tensor], Tensor]:
    """From scaled scores to the probability of staying: s for sufficiency (`alone`), 1 − s for comprehensiveness."""
    if keeps not in ("score", "complement"):
        raise InputError(f"keeps is 'score' (the paper) or 'complement' (one version of its code), got '{keeps}'")
    return (lambda s: s) if alone == (keeps == "score") else (lambda s: 1 - s)


@faithfulness.add(family="faithfulness", source=SOURCE, low=-1, high=1, better="higher", default=False)
def soft_comprehensiveness(
    model: Model,
    attribution: Attribution,
    *,
    operator: str | None = None,
    keeps: Keeps = "score",
    n_draws: int = 20,
    seed: int = 0,
) -> float:
    """Fall of the label's probability with tokens softly dropped by score, mean; -1 to 1, higher is better.

    operator: the embedding that stands in for what is dropped (default: zero, as in the paper). keeps: see the top of
    the file. n_draws: draws of which the mean is taken. seed: of the draws.
    """
    whole, _, found = _answers(model, attribution, _keeping(keeps, alone=False), operator, n_draws, seed)
    return whole - float(found.mean())


@faithfulness.add(family="faithfulness", source=SOURCE, low=-1, high=1, better="lower", default=False)
def soft_sufficiency(
    model: Model,
    attribution: Attribution,
    *,
    operator: str | None = None,
    keeps: Keeps = "score",
    n_draws: int = 20,
    seed: int = 0,
) -> float:
    """Fall of the label's probability with tokens softly kept by score, mean; -1 to 1, lower is better.

    Options: as of soft_comprehensiveness.
    """
    whole, _, found = _answers(model, attribution, _keeping(keeps, alone=True), operator, n_draws, seed)
    return whole - float(found.mean())


@faithfulness.add(family="faithfulness", source=SOURCE, low=0, high=1, better="higher", default=False)
def soft_normalised_comprehensiveness(
    model: Model,
    attribution: Attribution,
    *,
    operator: str | None = None,
    keeps: Keeps = "score",
    n_draws: int = 20,
    seed: int = 0,
) -> float:
    """Share of the whole fall that softly dropping tokens by score brings (soft-NC), 0 to 1; higher is better.

    Options: as of soft_comprehensiveness. NaN where the label is as probable without any token as with all of them.
    """
    found = _answers(model, attribution, _keeping(keeps, alone=False), operator, n_draws, seed)
    return float(share_of_fall(*found).mean())


@faithfulness.add(family="faithfulness", source=SOURCE, low=0, high=1, better="higher", default=False)
def soft_normalised_sufficiency(
    model: Model,
    attribution: Attribution,
    *,
    operator: str | None = None,
    keeps: Keeps = "score",
    n_draws: int = 20,
    seed: int = 0,
) -> float:
    """Share of the whole fall that softly keeping tokens by score prevents (soft-NS), 0 to 1; higher is better.

    Options: as of soft_comprehensiveness. NaN where the label is as probable without any token as with all of them.
    """
    found = _answers(model, attribution, _keeping(keeps, alone=True), operator, n_draws, seed)
    return float((1 - share_of_fall(*found)).mean())
