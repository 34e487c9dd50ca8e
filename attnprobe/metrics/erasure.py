"""Faithfulness by erasure: the prediction without the tokens that a method names, and with them alone."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.metrics import faithfulness
from attnprobe.models.draws import removal
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

# ERASER's shares of the tokens.
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
# Samek's and DecompX's.
TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

# Shares of the tokens, or "all": one token more each time, up to all of them.
Bins = Sequence[float] | Literal["all"]


def measured(target: ResolvedTarget) -> ResolvedTarget:
    """The number that erasure is judged by: the label's probability, or the target itself where there is none."""
    if target.function is not None or math.isnan(target.label_probability):
        return target
    return ResolvedTarget(**{**target.__dict__, "against": None, "against_name": None, "scale": "probability"})


def shares_of(attribution: Attribution, bins: Bins) -> list[float]:
    """The shares that bins stand for on this input; `InputError` for what is no share."""
    if isinstance(bins, str):
        if bins != "all":
            raise InputError(f"bins is 'all' or shares of the tokens such as {BINS}, got '{bins}'")
        n = int(attribution.units.sum())
        return [k / n for k in range(1, n + 1)]
    if not bins or not all(0 <= share <= 1 for share in bins):
        raise InputError(f"bins is 'all' or at least one share of the tokens between 0 and 1, got {bins!r}")
    return list(bins)


def sizes_of(attribution: Attribution, shares: Sequence[float]) -> list[int]:
    """How many tokens each share is, rounded up."""
    n = int(attribution.units.sum())
    return [math.ceil(share * n - 1e-9) for share in shares]


def removed(attribution: Attribution, shares: Sequence[float]) -> Bool[Tensor, "share token"]:
    """For each share, the tokens in that first part of the ranking, rounded up; special tokens never."""
    ranking = torch.tensor(attribution.ranking(), dtype=torch.long)
    # A special token ranks behind every share.
    rank = torch.full((attribution.example.n_tokens,), len(ranking))
    rank[ranking] = torch.arange(len(ranking))
    return rank < torch.tensor(sizes_of(attribution, shares))[:, None]


def kept(attribution: Attribution, shares: Sequence[float], *, alone: bool) -> Bool[Tensor, "share token"]:
    """For each share, the tokens that stay: all but the first part, or (`alone`) it and what is never taken away."""
    gone = removed(attribution, shares)
    return gone | ~attribution.units if alone else ~gone


def rows(attribution: Attribution, shares: Sequence[float], operator: str, *, alone: bool) -> list[Row]:
    """A row a share: without those tokens, or (`alone`) with nothing but them and the special ones."""
    return [Row(attribution.example, row, operator) for row in kept(attribution, shares, alone=alone)]


def draws(
    model: Model,
    attribution: Attribution,
    staying: Bool[Tensor, "choice token"],
    operator: str | None,
    target: ResolvedTarget,
) -> Float[Tensor, "choice draw"]:
    """The target for each choice of tokens that stay; more than one draw where the operator draws.

    operator: of those in `attnprobe.models.rows.OPERATORS`; "resample" draws from the text's own tokens, "infill" from
    the model itself, both with the seed 0.
    """
    groups = [[unit] for unit in attribution.units.nonzero().flatten().tolist()]
    taken = removal(model, attribution.example, operator, groups)
    return taken.targets(model, list(staying), target).double()


def answers(
    model: Model,
    attribution: Attribution,
    staying: Bool[Tensor, "choice token"],
    operator: str | None,
    target: ResolvedTarget | None = None,
) -> tuple[float, Float[Tensor, " choice"]]:
    """The measured number of the whole input, and for each choice of tokens that stay; the mean over draws."""
    whole = torch.ones(1, attribution.example.n_tokens, dtype=torch.bool)
    target = measured(attribution.target) if target is None else target
    found = draws(model, attribution, torch.cat([whole, staying]), operator, target).mean(1)
    return float(found[0]), found[1:]


def falls(
    model: Model,
    attribution: Attribution,
    bins: Bins,
    operator: str | None,
    *,
    alone: bool,
    target: ResolvedTarget | None = None,
) -> Float[Tensor, " share"]:
    """How much the measured number falls at each share: without the top tokens, or with them alone.

    NaN where there is no token to take away.
    """
    shares = shares_of(attribution, bins)
    if not bool(attribution.units.any()):
        return torch.full((1,), math.nan)
    whole, found = answers(model, attribution, kept(attribution, shares, alone=alone), operator, target)
    return whole - found


@faithfulness.add(
    family="faithfulness",
    source="DeYoung et al. 2020 (ERASER), sec. 4",
    low=-1,
    high=1,
    better="higher",
    default=True,
)
def comprehensiveness(
    model: Model, attribution: Attribution, *, operator: str | None = None, bins: Bins = BINS
) -> float:
    """Fall of the label's probability without the top tokens, mean over the bins; -1 to 1, higher is better.

    bins: shares of the tokens, rounded up, or "all": every number of them.
    """
    return float(falls(model, attribution, bins, operator, alone=False).mean())


@faithfulness.add(
    family="faithfulness",
    source="DeYoung et al. 2020 (ERASER), sec. 4",
    low=-1,
    high=1,
    better="lower",
    default=True,
)
def sufficiency(model: Model, attribution: Attribution, *, operator: str | None = None, bins: Bins = BINS) -> float:
    """Fall of the label's probability with the top tokens alone, mean over the bins; -1 to 1, lower is better.

    bins: as of comprehensiveness.
    """
    return float(falls(model, attribution, bins, operator, alone=True).mean())


@faithfulness.add(
    family="faithfulness",
    source="Samek et al. 2017; Modarressi et al. 2023 (DecompX)",
    low=-1,
    high=1,
    better="higher",
    default=False,
)
def aopc_comprehensiveness(model: Model, attribution: Attribution, *, operator: str | None = None) -> float:
    """Fall of the label's probability without the top 10, 20, … 90 % of tokens, mean; -1 to 1, higher is better.

    Samek et al. divide by one step more, since they count the whole input, whose fall is 0.
    """
    return float(falls(model, attribution, TENTHS, operator, alone=False).mean())


@faithfulness.add(
    family="faithfulness",
    source="Samek et al. 2017; Modarressi et al. 2023 (DecompX)",
    low=-1,
    high=1,
    better="lower",
    default=False,
)
def aopc_sufficiency(model: Model, attribution: Attribution, *, operator: str | None = None) -> float:
    """Fall of the label's probability with the top 10, 20, … 90 % of tokens alone, mean; -1 to 1, lower is better."""
    return float(falls(model, attribution, TENTHS, operator, alone=True).mean())
