"""Monotonicity, of which there are two: of the curve while tokens are added, and of effects against scores."""

import math

import torch

from attnprobe.attribution import Attribution
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import answers, draws, measured
from attnprobe.metrics.ranks import spearman
from attnprobe.models.model import Model

# A step down of less than this is rounding.
LEVEL = 1e-6


@faithfulness.add(
    family="faithfulness",
    source="Luss et al. 2019; Arya et al. 2019 (AIX360)",
    low=0,
    high=1,
    better="higher",
    default=False,
)
def adding_monotonicity(model: Model, attribution: Attribution, *, operator: str | None = None) -> float:
    """Share of steps that do not lower the label's probability, tokens added smallest first; 0 to 1, higher is better.

    By the size of scores; equal ones in the order of the text. A fall below one in a million is no fall. NaN where
    there is no token.
    """
    units = attribution.units.nonzero().flatten()
    if len(units) == 0:
        return math.nan
    order = units[torch.argsort(attribution.scores[units].abs(), stable=True)]
    staying = (~attribution.units).repeat(len(order) + 1, 1)
    for step, token in enumerate(order.tolist(), 1):
        staying[step:, token] = True
    _, curve = answers(model, attribution, staying, operator)
    return float((curve.diff() >= -LEVEL).double().mean())


@faithfulness.add(
    family="faithfulness",
    source="Nguyen & Martínez 2020 (monotonicity)",
    low=-1,
    high=1,
    better="higher",
    default=False,
)
def effect_monotonicity(model: Model, attribution: Attribution, *, operator: str | None = None) -> float:
    """Spearman of the sizes of scores and of each token's effect alone; -1 to 1, higher is better; NaN if constant.

    Effect: mean over draws of (p(whole) − p(without the token))², one draw unless the operator draws ("resample").
    Blind to redundancy, where no token has an effect alone.
    """
    units = attribution.units.nonzero().flatten()
    staying = torch.ones(len(units) + 1, attribution.example.n_tokens, dtype=torch.bool)
    staying[torch.arange(len(units)) + 1, units] = False
    found = draws(model, attribution, staying, operator, measured(attribution.target))
    effects = ((found[1:] - found[:1]) ** 2).mean(1)
    return spearman(attribution.scores[units].abs(), effects)
