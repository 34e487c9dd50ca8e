"""Attention sinks: how much of a map rests on its first token, and the map without it."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, nearest

Sink = Literal["keep", "drop"]

# A head whose mean weight on a token is above this takes it for a sink (Gu et al. 2025).
THRESHOLD = 0.3
# A row that keeps less than this share of itself has nothing left: the rest is rounding.
NOTHING_LEFT = 1e-6


def sink_share(layers: Sequence[Float[Tensor, "head query key"]], threshold: float = THRESHOLD) -> float:
    """Share of the heads whose mean weight on the first token, over all queries, is above `threshold` (Gu et al. 2025).

    >>> sink_share([torch.tensor([[[1.0, 0.0], [0.8, 0.2]], [[1.0, 0.0], [0.0, 1.0]]])], threshold=0.6)
    0.5
    """
    means = torch.cat([layer.float().mean(-2)[:, 0].cpu() for layer in layers])
    return float((means > threshold).float().mean())


def without_sink(weights: Float[Tensor, "query key"]) -> tuple[Float[Tensor, "query key"], list[int]]:
    """The map without the first key that anyone looks at, its rows summing to 1 again; and the rows with nothing left.

    Those rows are 0: what is divided by nothing has no value.

    >>> without_sink(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]))
    (tensor([[0.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000]]), [0])
    """
    seen = (weights != 0).any(0).nonzero().flatten()
    rest = weights.clone()
    rest[:, int(seen[0]) if len(seen) else 0] = 0
    total = rest.sum(-1, keepdim=True)
    left = total > NOTHING_LEFT * rest.abs().sum(-1, keepdim=True)
    found = (rest / total.where(left, 1.0)).where(left, 0.0)
    return found, (~left).flatten().nonzero().flatten().tolist()


def handled(
    weights: Float[Tensor, "query key"], sink: Sink, rows: Sequence[int] = ()
) -> tuple[Float[Tensor, "query key"], dict[str, object]]:
    """The map with its sink kept or dropped, and what that left undefined; `rows` are those that must have a value.

    Errors: `InputError` where one of `rows` looks at nothing but the sink.
    """
    if sink not in ("keep", "drop"):
        raise InputError(f"sink is 'keep' or 'drop', got '{sink}'; {nearest(sink, ('keep', 'drop'))}")
    if sink == "keep":
        return weights, {}
    found, undefined = without_sink(weights)
    lost = sorted(set(rows) & set(undefined))
    if lost:
        raise InputError(
            f"position {lost[0]}, which the answer is read from, looks at nothing but the first token, so nothing is "
            "left to share out once that is dropped; use sink='keep'"
        )
    return found, {"sink": "drop", "undefined_rows": undefined[:8]}
