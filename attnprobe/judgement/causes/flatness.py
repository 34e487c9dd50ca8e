"""Saturation: the target is flat at the input, so that gradients do not see what removal does."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.judgement.causes import Sign, causes, sign_of
from attnprobe.judgement.causes.case import MOST_UNITS, Case
from attnprobe.methods.gradient import answer, precise

# How far towards what stands in for it a token is moved: flat at one point may be chance, flat along the way is not.
STEP = 0.25


@causes.add(family="effect", source="Sundararajan et al. 2017, sec. 2", look_at="integrated_gradients")
def saturation(case: Case, *, threshold: float = 0.02) -> Sign:
    """A token that decides although the gradient at the input says that it does nothing.

    measure: |∂y/∂E_j · (E_j − other content)|, mean over draws, as a share of the token's effect over random orders;
    at the input or a quarter of the way to the other content, whichever is larger; the smallest of the strongest
    effective tokens. Present at most at `threshold`.
    """
    tokens = case.effective[:MOST_UNITS]
    if not tokens:
        return sign_of(case, False, 1.0, threshold, (), "No token has an effect.")
    shares = _slopes(case, tokens) / case.strength[: len(tokens)]
    share = float(shares.min())
    present = share <= threshold
    most = threshold if present else share
    chosen = [token for token, one in zip(tokens, shares.tolist(), strict=True) if one <= most]
    said = (
        f"At the input the gradient foretells {share:.3f} of the effect that {{units}} has over random orders "
        f"({case.lead.operator})."
    )
    if present:
        said += " What follows the gradient gives it no weight here."
    return sign_of(case, present, share, threshold, chosen, said)


def _slopes(case: Case, tokens: Sequence[int]) -> Float[Tensor, " unit"]:
    """|∂y/∂E_j · (E_j − other content)| of each token, mean over draws, the larger of both points."""
    here = precise(case.model.embed(case.example)).detach()
    there = torch.stack([draw[list(tokens)] for draw in case.stand_ins()]).to(here)
    away = here[list(tokens)] - there
    rows = here.repeat(1 + away.shape[0] * len(tokens), 1, 1)
    moved = rows[1:].unflatten(0, away.shape[:2])
    for number, token in enumerate(tokens):
        moved[:, number, token] -= STEP * away[:, number]
    with torch.enable_grad():
        rows.requires_grad_()
        (gradient,) = torch.autograd.grad(answer(case.model, case.example, case.target)(rows).sum(), rows)
    later = gradient[1:].unflatten(0, away.shape[:2])
    found = []
    for number, token in enumerate(tokens):
        both = torch.stack([away[:, number] @ gradient[0, token], (away[:, number] * later[:, number, token]).sum(-1)])
        found.append(both.abs().mean(1).max())
    return torch.stack(found).double().cpu()
