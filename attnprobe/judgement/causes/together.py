"""Tokens that do not act one by one: one makes up for another, or the effect of one depends on another."""

from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.judgement.causes import Sign, causes, sign_of
from attnprobe.judgement.causes.case import MOST_UNITS, Case
from attnprobe.judgement.effects import Effects


@dataclass(frozen=True, eq=False)
class Company:
    """Changes of y: alone [draw unit] without each effective unit, both [draw pair] without two, all [draw] without
    any of them. effect [unit]: over random orders."""

    tokens: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    alone: Float[Tensor, "draw unit"]
    both: Float[Tensor, "draw pair"]
    all: Float[Tensor, " draw"]
    effect: Float[Tensor, " unit"]


def company(case: Case, effects: Effects) -> Company | None:
    """What the strongest effective units do alone, in pairs and together; None where fewer than two have an effect."""
    tokens = case.effective(effects, MOST_UNITS)
    if len(tokens) < 2 or float(effects.values.max()) <= 0:
        return None
    pairs = tuple(combinations(range(len(tokens)), 2))
    sets = [[], *[[t] for t in tokens], *[[tokens[i], tokens[j]] for i, j in pairs], list(tokens)]
    change = case.without(effects, sets)
    change = change[:, 1:] - change[:, :1]
    n = len(tokens)
    strength = case.on_tokens(effects, effects.values)[tokens]
    return Company(tuple(tokens), pairs, change[:, :n], change[:, n:-1], change[:, -1], strength)


def _companies(case: Case) -> list[tuple[str, Company]]:
    found = [(effects.operator, company(case, effects)) for effects in case.content]
    return [(operator, one) for operator, one in found if one is not None]


@causes.add(family="effect", source="McGrath et al. 2023 (backup); methods.md P6, P11", look_at="shapley_sampling")
def redundancy(case: Case, *, threshold: float = 0.25, excess: float = 0.5) -> Sign:
    """Tokens that make up for one another: taken away alone, one changes little.

    measure: |change of y| without a token alone, as a share of its mean effect over random orders; the smallest of all
    tokens for which another, or all effective ones together, change more than each alone would have it, by at least
    `excess` of that effect. Present at most at `threshold`.
    """
    best: tuple[float, tuple[int, ...], str] | None = None
    for operator, one in _companies(case):
        alone = one.alone.abs().mean(0)
        for i, token in enumerate(one.tokens):
            share, other = float(alone[i] / one.effect[i]), _stands_in(one, alone, i, excess)
            if other is not None and (best is None or share < best[0]):
                best = (share, (token, *[one.tokens[k] for k in other if k != i]), operator)
    if best is None:
        return sign_of(case, False, 1.0, threshold, (), "No token was found that makes up for another.")
    share, tokens, operator = best
    present = share <= threshold
    words = [case.example.pieces[token] for token in tokens]
    said = (
        f"'{words[0]}' taken away alone changes the target by {share:.2f} of its mean effect over random orders "
        f"({operator}); together with {', '.join(repr(word) for word in words[1:])} it changes more than both alone."
    )
    if present:
        said += " Removing one token at a time does not see it."
    return sign_of(case, present, share, threshold, tokens, said)


def _stands_in(one: Company, alone: Tensor, i: int, excess: float) -> tuple[int, ...] | None:
    """Units with which unit i changes more than they do one by one; None where there are none."""
    wanted = excess * float(one.effect[i])
    gains = {
        pair: float(one.both[:, number].abs().mean() - alone[pair[0]] - alone[pair[1]])
        for number, pair in enumerate(one.pairs)
        if i in pair
    }
    pair = max(gains, key=lambda key: gains[key])
    if gains[pair] >= wanted:
        return pair
    return tuple(range(len(one.tokens))) if float(one.all.abs().mean() - alone.sum()) >= wanted else None


@causes.add(family="effect", source="Lundberg et al. 2018 (interaction); methods.md P7-P9", look_at="shapley_sampling")
def interaction(case: Case, *, threshold: float = 0.25) -> Sign:
    """Tokens whose effects depend on one another, so that one number a token is not the whole account.

    measure: |f11 − f10 − f01 + f00| of two effective tokens (there or not), mean over draws, as a share of the largest
    change that either or both make; the largest of all pairs and content operators. Present from `threshold` on.
    """
    best, tokens, operator = 0.0, (), ""
    for name, one in _companies(case):
        for number, (i, j) in enumerate(one.pairs):
            second = (one.both[:, number] - one.alone[:, i] - one.alone[:, j]).abs().mean()
            changes = torch.stack([one.both[:, number], one.alone[:, i], one.alone[:, j]]).abs().mean(1)
            share = float(second / changes.max().clamp(min=1e-30))
            if share > best:
                best, tokens, operator = share, (one.tokens[i], one.tokens[j]), name
    if not tokens:
        said = "No two tokens have effects that depend on one another."
        return sign_of(case, False, best, threshold, (), said)
    present = best >= threshold
    said = (
        f"What one of {{units}} does depends on the other: the second difference is {best:.2f} of the largest change "
        f"({operator})."
    )
    if present:
        said += " An order of tokens may still be right, but their scores do not add up."
    return sign_of(case, present, best, threshold, tokens, said)
