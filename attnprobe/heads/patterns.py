"""How spread a head's weights are, whatever they lie on."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.heads import head_scores
from attnprobe.heads.chance import visible_of
from attnprobe.heads.sides import Scores, by_head, by_layer, shares
from attnprobe.site import Site


def entropies(weights: Float[Tensor, "*head query key"]) -> Float[Tensor, "*head query"]:
    """Entropy of each row in nats; of a row that keeps a part back, that of the rest.

    >>> entropies(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [0.6931471824645996, 0.0]
    """
    return torch.special.entr(shares(weights).clamp(min=0)).sum(-1)


def relative_entropy(weights: Float[Tensor, "query key"], visible: Bool[Tensor, "query key"]) -> float:
    """Entropy of each row over that of an even row on its visible keys, mean: 0 one token, 1 all alike.

    Rows with one visible key are left out; without any other, 0.

    >>> relative_entropy(torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.ones(2, 2, dtype=torch.bool))
    1.0
    """
    n_visible = visible.sum(-1)
    rows = n_visible > 1
    if not bool(rows.any()):
        return 0.0
    return float((entropies(weights)[rows] / n_visible[rows].log()).mean())


@head_scores.add(
    family="pattern", source="Clark et al. 2019, sec. 3.3", label="Entropy, nats", low=0, high=None, unit="nats"
)
def entropy(capture: Capture) -> Scores:
    """Entropy of a head's rows in nats, mean over queries: 0 for one token, ln k for k tokens alike."""
    return by_head(capture, lambda w: entropies(w).mean(-1))


@head_scores.add(
    family="pattern",
    source="Clark et al. 2019, sec. 3.3 (entropy), relative to the visible keys",
    label="Spread",
    low=0,
    high=1,
    unit="number",
)
def spread(capture: Capture) -> Scores:
    """How evenly a head looks: entropy over that of an even look, 0 (one token) to 1 (all alike), mean over queries."""
    return by_layer([_spread(site) for site in capture.select()])


def _spread(site: Site) -> Float[Tensor, " head"]:
    weights, visible = site.need("weights")[0].double().cpu(), visible_of(site)
    return torch.tensor([relative_entropy(w, v) for w, v in zip(weights, visible, strict=True)], dtype=torch.float64)


@head_scores.add(
    family="pattern",
    source="Voita et al. 2019, sec. 4 (confidence)",
    label="Largest weight",
    low=0,
    high=1,
    unit="share",
)
def largest_weight(capture: Capture) -> Scores:
    """Largest weight of a query on any token, mean over queries: high for a head that is sure of where it looks."""
    return by_head(capture, lambda w: w.amax(-1).mean(-1))
