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
# Of the largest influence: what passes through a carrier, and at most through what is none. Between them it is neither.
CARRIES, BARELY = 0.4, 0.2
# The loudest token of two heads that cancel: what it writes, of the longest, if it speaks as was meant.
SPEAKS = 0.5


def built_in(variant: Variant) -> dict[str, bool | None]:
    """Each cause, and whether this variant has it by construction; None where the draw lies between."""
    family = variant.family
    return {
        "sink": family in QUIET_BYSTANDERS and _rested_on(variant) not in (None, *variant.causal),
        "value_null_token": _null(variant),
        "residual_bypass": family == "P2",
        "mixing_across_layers": _carried(variant) if family in ("P5", "P15", "two_layer") else False,
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


def _null(variant: Variant) -> bool | None:
    """Whether the token with the largest weight, last layer and position read, holds next to nothing."""
    weights = _rows(variant)[-1][:, variant.made.plan.read]
    loudest = int(weights.mean(0).argmax())
    if variant.family == "P16":
        written = weights.sum(0) * _contents(variant, "val").abs()
        return False if float(written[loudest] / written.max()) >= SPEAKS else None
    return variant.family == "P1c" or (variant.family in QUIET_BYSTANDERS and loudest not in variant.causal)


def _carried(variant: Variant) -> bool | None:
    """Of a chain of layers with one head each: how much of y passes through the values of a token that does not act."""
    layers = [rows[0] for rows in _rows(variant)]
    start = _contents(variant, next(iter(variant.made.plan.layers[0].heads[0].value))[0])
    read = variant.made.plan.read

    def answer(open_: Float[Tensor, " token"]) -> Float[Tensor, ""]:
        state = start
        for rows in layers:
            state = rows @ (open_ * state)
        return state[read]

    whole = torch.ones(variant.n_tokens, dtype=torch.float64)
    passing = torch.stack([(answer(whole) - answer(whole.index_fill(0, j, 0.0))).abs() for j in _each(variant)])
    reach = torch.eye(variant.n_tokens, dtype=torch.float64)
    for rows in layers:
        reach = rows @ reach
    passing = passing / (reach[read] * start).abs().max()
    passing[list(variant.causal)] = 0
    most = float(passing.max())
    return True if most >= CARRIES else False if most <= BARELY else None


def _each(variant: Variant) -> list[Tensor]:
    return list(torch.arange(variant.n_tokens))


def _contents(variant: Variant, dim: str) -> Float[Tensor, " token"]:
    """What each token has in one dimension."""
    plan = variant.made.plan
    return torch.tensor([plan.contents[word].get(dim, 0.0) for word in plan.tokens], dtype=torch.float64)
