"""Infidelity: how well sums of scores foretell what the target loses with the tokens that they belong to."""

import math

import torch
from captum.metrics import infidelity as of_captum
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import answers
from attnprobe.models.model import Model


@faithfulness.add(
    family="faithfulness",
    source="Yeh et al. 2019; captum.metrics.infidelity",
    low=0,
    high=math.inf,
    better="lower",
    default=False,
)
def infidelity(
    model: Model,
    attribution: Attribution,
    *,
    operator: str | None = None,
    normalize: bool = True,
    share: float = 0.5,
    n_samples: int = 100,
    seed: int = 0,
) -> float:
    """Mean squared gap of the sum of random tokens' scores and the fall without them, from 0; lower is better.

    In squared units of the target as it is explained (not the label's probability). normalize: scores are scaled by the
    factor that fits best, since an attention weight is in no units of the target. share: chance of each token to be
    taken away (never none). n_samples: sets of tokens. seed: of the sets. NaN where there is no token.
    """
    if not 0 < share <= 1 or n_samples < 1:
        raise InputError(f"share is above 0 and at most 1, n_samples at least 1; got {share} and {n_samples}")
    n = int(attribution.units.sum())
    if n == 0:
        return math.nan
    generator = torch.Generator().manual_seed(seed)

    def without_some(present: Tensor) -> tuple[Tensor, Tensor]:
        gone = torch.rand(present.shape, generator=generator) < share
        gone[~gone.any(1), torch.randint(n, (1,), generator=generator)] = True
        return gone.double(), present - gone.double()

    def answer(present: Tensor) -> Tensor:
        staying = torch.ones(len(present), attribution.example.n_tokens, dtype=torch.bool)
        staying[:, attribution.units] = present > 0.5
        return answers(model, attribution, staying, operator, attribution.target)[1]

    scores = attribution.scores[attribution.units].double()[None]
    ones = torch.ones(1, n, dtype=torch.float64)
    found = of_captum(answer, without_some, ones, scores, n_perturb_samples=n_samples, normalize=normalize)
    # Of scores that foretell all, rounding leaves a difference that may be below 0.
    return max(0.0, float(found))
