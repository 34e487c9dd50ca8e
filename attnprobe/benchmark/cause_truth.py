"""Which causes a variant of a planted family has by construction: told from its plan, before anything is measured."""

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.models.planted.families import Variant

# Where the effect of one token depends on another: gates, and contents that find or keep out one another.
CONDITIONAL = ("P1c", "P6", "P7", "P8", "P9", "P11", "P12", "P19", "P20", "retrieval")
# One of the tokens is enough.
BACKED_UP = ("P6", "P11", "P20")
# A ReLU is off, or a softmax has decided, at the input: the derivative of y by a causal token's content is 0.
FLAT = ("P6", "P10", "P11", "P12", "P19", "P20")
# Two heads write into one direction, so that only a combination of their weights shows.
TWO_FOR_ONE = ("P3", "P16")
# What a token that does not act holds is next to nothing wherever it is weighed.
QUIET_BYSTANDERS = ("P1", "P3", "P15", "positional", "two_layer", "P6", "P7", "P8", "P9", "P10", "P11", "P20")
# Beyond even attention, the share from which on a token is said to be rested on.
RESTED_ON = 0.3


def built_in(variant: Variant) -> dict[str, bool]:
    """Each cause, and whether this variant has it by construction."""
    family = variant.family
    return {
        "sink": family in QUIET_BYSTANDERS and _rested_on(variant) not in (None, *variant.causal),
        "value_null_token": family == "P1c" or (family in QUIET_BYSTANDERS and _loudest(variant) not in variant.causal),
        "residual_bypass": family == "P2",
        "mixing_across_layers": family == "P5" or (family == "P15" and _carriers(variant) != set()),
        "redundancy": family in BACKED_UP,
        "saturation": family in FLAT,
        "non_identifiability": family in TWO_FOR_ONE,
        "interaction": family in CONDITIONAL,
    }


def _rows(variant: Variant) -> list[Float[Tensor, "head query key"]]:
    """The weights that the plan gives, layer by layer."""
    n = variant.n_tokens
    return [
        torch.stack([torch.tensor(head.probabilities, dtype=torch.float64).expand(n, n) for head in layer.heads])
        for layer in variant.made.plan.layers
    ]


def _rested_on(variant: Variant) -> int | None:
    """The token that all positions of all layers look at beyond even attention, if there is one."""
    n = variant.n_tokens
    even = torch.ones(n, n, dtype=torch.float64)
    even = even.tril() if variant.made.plan.causal else even
    even = (even / even.sum(-1, keepdim=True)).mean(0)
    mass = torch.stack([rows.mean((0, 1)) for rows in _rows(variant)]).mean(0)
    lift = (mass - even) / (1 - even)
    return int(lift.argmax()) if float(lift.max()) >= RESTED_ON else None


def _loudest(variant: Variant) -> int:
    """The token with the largest weight in the last layer, where the answer is read."""
    return int(_rows(variant)[-1].mean(0)[variant.made.plan.read].argmax())


def _carriers(variant: Variant) -> set[int]:
    """Of the chain: the places on the way of the first source that do not act themselves."""
    n_layers = len(variant.made.plan.layers)
    return set(range(variant.n_tokens - n_layers, variant.n_tokens - 1)) - set(variant.causal)
