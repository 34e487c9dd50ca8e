"""Tokens that do not act one by one: one makes up for another, or the effect of one depends on another."""

from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.judgement.causes import Sign, causes, named, sign_of
from attnprobe.judgement.causes.case import MOST_UNITS, NOTHING, Case


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


def company(case: Case) -> Company | None:
    """What the strongest effective tokens do alone, in pairs and together; None where fewer than two have an effect."""
    tokens = case.effective[:MOST_UNITS]
    if len(tokens) < 2:
        return None
    pairs = tuple(combinations(range(len(tokens)), 2))
    sets = [[], *[[t] for t in tokens], *[[tokens[i], tokens[j]] for i, j in pairs], tokens]
    change = case.without(sets)
    change, n = change[:, 1:] - change[:, :1], len(tokens)
    return Company(tuple(tokens), pairs, change[:, :n], change[:, n:-1], change[:, -1], case.strength[:n])


@causes.add(family="effect", source="McGrath et al. 2023 (backup); methods.md P6, P11", look_at="shapley_sampling")
def redundancy(case: Case, *, threshold: float = 0.25, excess: float = 0.5) -> Sign:
    """Tokens that make up for one another: taken away alone, one changes little.

    measure: |change of y| without a token alone, as a share of its mean effect over random orders; the smallest of all
    tokens for which another, or all effective ones together, change more than each alone would have it, by at least
    `excess` of that effect. Present at most at `threshold`.
    """
    one = company(case)
    found: dict[int, tuple[int, ...]] = {}
    if one is not None:
        alone = one.alone.abs().mean(0)
        found = {i: others for i in range(len(one.tokens)) if (others := _stands_in(one, alone, i, excess))}
    if one is None or not found:
        return sign_of(case, False, 1.0, threshold, (), "No token was found that makes up for another.")
    shares = {i: float(alone[i] / one.effect[i]) for i in found}
    least = min(shares, key=lambda i: shares[i])
    tokens = [one.tokens[i] for i in (least, *found[least])]
    words = [case.example.pieces[token] for token in tokens]
    present = shares[least] <= threshold
    said = (
        f"'{words[0]}' taken away alone changes the target by {shares[least]:.2f} of its mean effect over random "
        f"orders ({case.lead.operator}); together with {named(words[1:])} the change is larger than those of each "
        "alone add up to."
    )
    if present:
        said += " Removing one token at a time does not see it."
    return sign_of(case, present, shares[least], threshold, tokens, said)


def _stands_in(one: Company, alone: Tensor, i: int, excess: float) -> tuple[int, ...]:
    """Units that with unit i change more than each alone; none where there are none."""
    wanted = excess * float(one.effect[i])
    gains = {
        pair[0] + pair[1] - i: float(one.both[:, number].abs().mean() - alone[pair[0]] - alone[pair[1]])
        for number, pair in enumerate(one.pairs)
        if i in pair
    }
    other = max(gains, key=lambda k: gains[k])
    if gains[other] >= wanted:
        return (other,)
    together = float(one.all.abs().mean() - alone.sum())
    return tuple(k for k in range(len(one.tokens)) if k != i) if together >= wanted else ()


@causes.add(family="effect", source="Lundberg et al. 2018 (interaction); methods.md P7-P9", look_at="shapley_sampling")
def interaction(case: Case, *, threshold: float = 0.25) -> Sign:
    """Tokens whose effects depend on one another, so that one number a token is not the whole account.

    measure: |f11 − f10 − f01 + f00| of two effective tokens (there or not), root mean square over draws, as a share of
    the largest change that either or both make; the largest of all pairs. Present from `threshold` on.
    """
    one = company(case)
    shares = {} if one is None else {pair: _second_difference(one, n) for n, pair in enumerate(one.pairs)}
    if one is None or not shares:
        return sign_of(case, False, 0.0, threshold, (), "Fewer than two tokens have an effect.")
    pair = max(shares, key=lambda key: shares[key])
    present = shares[pair] >= threshold
    said = (
        f"What one of {{units}} does depends on the other: the second difference is {shares[pair]:.2f} of the largest "
        f"change ({case.lead.operator})."
        if present
        else f"No two tokens act on one another by more than {shares[pair]:.2f} of the largest change ({{units}})."
    )
    if present:
        said += " An order of tokens may still be right, but their scores do not add up."
    return sign_of(case, present, shares[pair], threshold, [one.tokens[i] for i in pair], said)


def _second_difference(one: Company, number: int) -> float:
    """|f11 − f10 − f01 + f00| of a pair as a share of the largest of its changes, root mean squares over draws."""
    i, j = one.pairs[number]
    both, first, second = one.both[:, number], one.alone[:, i], one.alone[:, j]
    largest = torch.stack([both, first, second]).square().mean(1).sqrt().max()
    return float((both - first - second).square().mean().sqrt() / largest.clamp(min=NOTHING))
