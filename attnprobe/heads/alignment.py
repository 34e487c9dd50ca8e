"""Cross-attention as an alignment: whether it goes forward through the source, and leaves nothing out."""

import torch
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.heads import head_scores
from attnprobe.heads.sides import Scores, by_cross, nowhere, shares, top_keys


@head_scores.add(
    family="alignment",
    source="Raffel et al. 2017 (monotonic alignments)",
    label="Monotonicity",
    low=0,
    high=1,
    unit="share",
    needs="cross-attention",
)
def monotonicity(capture: Capture) -> Scores:
    """Share of steps from one query to the next whose most looked at token does not lie further back; cross only.

    Keys that tie are drawn from at random. NaN of a single query.
    """

    def score(weights: Tensor) -> Tensor:
        if weights.shape[-2] < 2:
            return nowhere(weights)
        top = top_keys(weights)
        here, there = top[:, :-1], top[:, 1:]
        not_before = here.cumsum(-1)  # [head query key]: how likely this query's top lies at or before the key
        return (there * not_before).sum(-1).mean(-1)

    return by_cross(capture, score)


@head_scores.add(
    family="alignment",
    source="Wu et al. 2016, eq. 15 (coverage), each token's part capped at an even one",
    label="Coverage of the source",
    low=0,
    high=1,
    unit="share",
    needs="cross-attention",
)
def coverage(capture: Capture) -> Scores:
    """How much of the source is looked at: mean over its tokens of min(1, weight over an even share); cross only.

    1 where every token gets an even share of all queries' weight, 1 / n where one of n gets it all.
    """

    def score(weights: Tensor) -> Tensor:
        even = shares(weights).mean(-2) * weights.shape[-1]
        return torch.minimum(even, torch.ones_like(even)).mean(-1)

    return by_cross(capture, score)
