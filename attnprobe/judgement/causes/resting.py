"""Attention that rests where nothing is passed on: a sink, and a token whose values are next to null."""

import torch

from attnprobe.judgement.causes import Sign, causes, sign_of
from attnprobe.judgement.causes.case import EFFECTIVE, NOTHING, Case


@causes.add(family="attention", source="Gu et al. 2025; Kobayashi et al. 2020", look_at="integrated_gradients")
def sink(case: Case, *, threshold: float = 0.3, written: float = 0.5) -> Sign:
    """A token that all positions rest on, and that little is written from.

    measure: (m − u) / (1 − u), m: mean weight on it over layers, heads and queries, u: the same if all looked evenly at
    what they may see. Present from `threshold` on, where its share of what is written (Σ α|f(x)|) is at most `written`
    of its share of the weight, and zeroing its values has no effect.
    """
    layers = range(len(case.sites))
    mass = torch.stack([case.attention(n).mean((0, 1)) for n in layers]).mean(0)
    even = torch.stack([case.even(n).mean((0, 1)) for n in layers]).mean(0)
    lift = (mass - even) / (1 - even).clamp(min=NOTHING)
    each = [(case.attention(n).sum(1) * case.lengths(n)).sum(0) for n in layers]
    shares = torch.stack([one / one.sum().clamp(min=NOTHING) for one in each]).mean(0)
    passed = shares / (mass / mass.sum().clamp(min=NOTHING)).clamp(min=NOTHING)
    token = int(lift.argmax())
    quiet = float(case.value_effects[token]) < EFFECTIVE
    present = float(lift[token]) >= threshold and float(passed[token]) <= written and quiet
    said = (
        f"{{units}} gets {float(mass[token]):.2f} of all attention ({float(even[token]):.2f} if every position looked "
        f"evenly), {float(lift[token]):.2f} of what it could have beyond that; of what attention writes "
        f"{float(shares[token]):.3f} comes from there."
    )
    tail = " Weight on it is where attention rests, and not evidence for this prediction." if present else ""
    return sign_of(case, present, float(lift[token]), threshold, [token], said + tail)


@causes.add(family="attention", source="Kobayashi et al. 2020, sec. 3", look_at="value_norms")
def value_null_token(case: Case, *, threshold: float = 0.25) -> Sign:
    """The token that is looked at most passes on next to nothing.

    measure: Σ_h α|f(x)| of the token with the largest weight (last layer, mean of heads, position read) as a share of
    the largest of any token. Present at most at `threshold`, where zeroing its values has no effect either.
    """
    last = len(case.sites) - 1
    rows = [row for row in case.read if row < case.attention(last).shape[1]] or [0]
    weights = case.attention(last)[:, rows].mean(1)
    lengths = (weights * case.lengths(last)).sum(0)
    token = int(weights.mean(0).argmax())
    share = float(lengths[token] / lengths.max().clamp(min=NOTHING))
    effect = float(case.value_effects[token])
    present = share <= threshold and effect < EFFECTIVE
    said = (
        f"{{units}} has the largest weight ({float(weights.mean(0)[token]):.2f}) where the answer is read, and what is "
        f"written from it is {share:.3f} of the longest; zeroing its values has {effect:.2f} of the largest effect."
    )
    tail = " Its weight carries next to nothing to this prediction." if present else ""
    return sign_of(case, present, share, threshold, [token], said + tail)
