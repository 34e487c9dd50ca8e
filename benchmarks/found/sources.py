"""rxnmapper's heads as maps of atoms: the templates give the relation, the desk ranks the heads."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnprobe import profile
from attnprobe.capture import Capture
from attnprobe.head_profile import HeadProfile
from attnprobe.judgement.verdict_sets import wilson
from attnprobe.models.model import Model
from benchmarks.mapping.naming import ANY, ELEMENT, chances, hits
from benchmarks.mapping.reading import Tokens

MAPPING_HEAD, UPPER = 5, 9  # what is known of the model from elsewhere; no score is told
SCORES = {ELEMENT: "sources_named_by_element", ANY: "sources_named_among_all"}


def naming_score(read: Sequence[Tokens], among: str) -> Callable[[Capture], Tensor]:
    """A head score: share of product atoms whose true source has the head's largest weight among the candidates."""
    of_tokens = {tokens.tokens: tokens for tokens in read}

    def score(capture: Capture) -> Tensor:
        tokens = of_tokens[capture.example.tokens]
        return torch.stack([torch.tensor([_share(head, tokens, among) for head in layer]) for layer in capture.maps()])

    score.__name__ = SCORES[among]
    score.__doc__ = f"Share of product atoms whose source has the largest weight; candidates: {among}."
    return score


def _share(weights: Tensor, tokens: Tokens, among: str) -> float:
    return float(np.mean([hits(weights[at], tokens, atom)[among] for atom, at in enumerate(tokens.product)]))


def profiled(model: Model, read: Sequence[Tokens], scores: Sequence[str] = ()) -> HeadProfile:
    """The desk's profile of every head on these reactions: both choices of candidates, and other scores."""
    mine = [naming_score(read, among) for among in (ELEMENT, ANY)]
    return profile(model, [tokens.reaction.text for tokens in read], scores=[*mine, *scores], progress=False)


def pooled(found: HeadProfile, read: Sequence[Tokens], among: str) -> pd.DataFrame:
    """A row a head, the best first: layer, head, share of all product atoms, Wilson's interval, atoms, chance."""
    sizes = np.array([len(tokens.product) for tokens in read])
    right = (found.values[SCORES[among]] * sizes[:, None]).sum(0).round().astype(int)
    n = int(sizes.sum())
    chance = float(np.mean([chances(one, atom)[among] for one in read for atom in range(len(one.product))]))
    table = found.heads[["layer", "head"]].copy()
    ends = [wilson(int(k), n) for k in right]
    table = table.assign(share=right / n, low=[e[0] for e in ends], high=[e[1] for e in ends], n=n, chance=chance)
    return table.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def ranks(found: HeadProfile) -> pd.DataFrame:
    """A row a score: the head that has the most of it, and the ranks of head 5 of the upper layers, from 1."""
    frame, rows = found.to_frame(), []
    upper = [(layer, MAPPING_HEAD) for layer in range(UPPER, int(frame.layer.max()) + 1)]
    for name in found.scores:
        if frame[name].isna().all() or frame[name].nunique() == 1:
            continue
        order = frame[name].rank(ascending=False, method="max")
        first = frame.loc[frame[name].idxmax()]
        mine = {at: int(order[(frame.layer == at[0]) & (frame["head"] == at[1])].iloc[0]) for at in upper}
        named = {f"{layer}.{head}": rank for (layer, head), rank in mine.items()}
        rows.append({"score": name, "first": f"{first.layer}.{first['head']}", "value": first[name], **named})
    return pd.DataFrame(rows)


def by_template(found: HeadProfile, read: Sequence[Tokens], at: tuple[int, int], among: str = ELEMENT) -> pd.Series:
    """Share of product atoms whose source a head names, by template."""
    column = int(np.flatnonzero((found.heads.layer == at[0]) & (found.heads["head"] == at[1]))[0])
    sizes = np.array([len(tokens.product) for tokens in read])
    names = pd.Series([tokens.reaction.template for tokens in read])
    right = pd.Series(found.values[SCORES[among]][:, column] * sizes)
    return right.groupby(names, sort=False).sum() / pd.Series(sizes).groupby(names, sort=False).sum()
