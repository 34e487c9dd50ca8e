"""Saturation: the target is flat at the input, so that gradients do not see what removal does."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.judgement.causes import Sign, causes, sign_of
from attnprobe.judgement.causes.case import Case
from attnprobe.judgement.effects import Effects
from attnprobe.methods.gradient import answer, precise
from attnprobe.models.rows import FIXED, filler

# How far towards what stands in for it a token is moved: flat at one point may be chance, flat along the way is not.
STEPS = (0.0, 0.1, 0.25)


@causes.add(family="effect", source="Sundararajan et al. 2017, sec. 2", look_at="integrated_gradients")
def saturation(case: Case, *, threshold: float = 0.02) -> Sign:
    """A token that decides although the gradient at the input says that it does nothing.

    measure: |∂y/∂E_j · (E_j − baseline)| as a share of the token's effect over random orders, the largest of the first
    quarter of the way to the baseline; the smallest of all effective tokens. Present at most at `threshold`.
    """
    fixed = [effects for effects in case.content if effects.operator in FIXED]
    if not fixed:
        raise InputError("saturation is held against an operator with one embedding for all tokens, such as 'mean'")
    effects = fixed[0]
    tokens = case.effective(effects)
    if float(effects.values.max()) <= 0:
        return sign_of(case, False, 1.0, threshold, (), f"No token has an effect ({effects.operator}).")
    strength = case.on_tokens(effects, effects.values)[tokens]
    shares = _slopes(case, effects, tokens) / strength
    least = int(shares.argmin())
    share = float(shares[least])
    present = share <= threshold
    chosen = [t for t, s in zip(tokens, shares.tolist(), strict=True) if s <= threshold] if present else [tokens[least]]
    said = (
        f"At the input the gradient foretells {share:.3f} of the effect that {{units}} has ({effects.operator}, random "
        "orders)."
    )
    if present:
        said += " What follows the gradient gives no weight to it here."
    return sign_of(case, present, share, threshold, chosen, said)


def _slopes(case: Case, effects: Effects, tokens: Sequence[int]) -> Float[Tensor, " unit"]:
    """|∂y/∂E_j · (E_j − baseline)| of each token, the largest of all steps on its way."""
    here = precise(case.model.embed(case.example)).detach()
    there = filler(case.model.fillers, effects.operator, case.model.name).to(here)
    rows = here.repeat(len(tokens) * len(STEPS), 1, 1)
    for number, token in enumerate(tokens):
        for step, share in enumerate(STEPS):
            rows[number * len(STEPS) + step, token] = here[token] + share * (there - here[token])
    with torch.enable_grad():
        rows.requires_grad_()
        (gradient,) = torch.autograd.grad(answer(case.model, case.example, case.target)(rows).sum(), rows)
    by_step = gradient.unflatten(0, (len(tokens), len(STEPS)))
    slopes = [(by_step[number, :, token] @ (here[token] - there)).abs().max() for number, token in enumerate(tokens)]
    return torch.stack(slopes).double().cpu()
