"""Normalizers: what makes weights [*batch query key] of scores, over the last axis. Hidden keys score -inf, weigh 0.

softmax           w_j = exp(s_j / T) / sum_k exp(s_k / T)       T -> 0: hard;  T -> infinity: uniform
softmax_plus_one  w_j = exp(s_j) / (exp(sink) + sum_k exp(s_k)) rows sum to less than 1: a query may abstain
sigmoid           w_j = 1 / (1 + exp(-s_j))                     no competition: rows sum to anything
sparsemax         w_j = max(0, s_j - t), sum_j w_j = 1          Martins & Astudillo 2016: the nearest distribution
entmax15          w_j = max(0, s_j/2 - t)^2, sum_j w_j = 1      Peters, Niculae & Martins 2019: between the two
hard              w_j = 1 at the largest score, else 0          the first one of a tie; gradients are softmax's

A row of hidden keys alone becomes zeros. `NORMALIZERS` has these; those that draw: `attnprobe.attention.sampling`.
"""

from collections.abc import Callable
from functools import partial, wraps

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.site import SOFTMAX, Normalizer
from attnprobe.site import softmax as softmax_over_keys


def zero_where_hidden(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function with exact zeros, and no gradient, at scores of -inf; also where a whole row is -inf."""

    @wraps(function)
    def guarded(scores: Tensor) -> Tensor:
        hidden = torch.isneginf(scores)
        return function(scores.masked_fill(hidden.all(-1, keepdim=True), 0.0)).masked_fill(hidden, 0.0)

    return guarded


def softmax(
    scores: Float[Tensor, "*batch query key"], *, temperature: float = 1.0
) -> Float[Tensor, "*batch query key"]:
    """Softmax of scores / temperature.

    >>> softmax(torch.tensor([[0.0, 0.0, -torch.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    return softmax_over_keys(scores / above_zero(temperature))


def softmax_plus_one(
    scores: Float[Tensor, "*batch query key"], *, sink: Tensor | float = 0.0
) -> Float[Tensor, "*batch query key"]:
    """Softmax with one more key, of score `sink`, whose value is nothing; a tensor broadcasts to [*batch query 1].

    >>> softmax_plus_one(torch.tensor([[0.0, 0.0, 0.0]])).tolist()
    [[0.25, 0.25, 0.25]]
    """
    column = torch.as_tensor(sink, dtype=scores.dtype, device=scores.device).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]


def sigmoid(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """Each key on its own, 0 to 1; a bias of -log(keys) keeps the sum near 1 (Ramapuram et al. 2024)."""
    return torch.sigmoid(scores)


@zero_where_hidden
def sparsemax(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """The point of the simplex that is nearest to the scores; keys far below the largest get exactly 0.

    >>> sparsemax(torch.tensor([[0.5, 0.0, -1.0]])).tolist()
    [[0.75, 0.25, 0.0]]
    """
    shifted = _below_largest(scores)
    ranked = shifted.sort(dim=-1, descending=True).values
    rank = torch.ones_like(ranked).cumsum(-1)
    threshold = (ranked.cumsum(-1) - 1) / rank  # if the keys up to this rank were those with weight
    n_kept = (ranked > threshold).sum(-1, keepdim=True).clamp(min=1)  # 0 in a row with NaN, which stays NaN
    return (shifted - threshold.gather(-1, n_kept - 1)).relu()  # whose gradient is 0 at 0, unlike that of clamp


@zero_where_hidden
def entmax15(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """Entmax with exponent 1.5: smoother than sparsemax, still exactly 0 for keys far below the largest.

    >>> entmax15(torch.tensor([[3.0, 1.0, 1.0]])).tolist()
    [[1.0, 0.0, 0.0]]
    """
    shifted = _below_largest(scores / 2)
    ranked = shifted.sort(dim=-1, descending=True).values
    rank = torch.ones_like(ranked).cumsum(-1)
    mean = ranked.cumsum(-1) / rank  # of the keys up to this rank, and their squared distances from it
    spread = ranked.square().cumsum(-1) - rank * mean.square()
    with torch.no_grad():
        threshold = mean - ((1 - spread).clamp(min=0) / rank).sqrt()
        n_kept = ((ranked > threshold) & (ranked > -1)).sum(-1, keepdim=True).clamp(min=1)
    mean, spread = mean.gather(-1, n_kept - 1), spread.gather(-1, n_kept - 1)
    return (shifted - mean + ((1 - spread) / n_kept).sqrt()).relu().square()


def hard(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """All weight on the largest score; gradients as if it had been softmax (straight-through).

    >>> hard(torch.tensor([[0.0, 2.0, 1.0]])).tolist()
    [[0.0, 1.0, 0.0]]
    """
    return straight_through(one_hot(scores.argmax(-1), scores), softmax_over_keys(scores))


def one_hot(index: Tensor, scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """1 at key `index` [*batch query] of each row, else 0; zeros where the row may look at nothing."""
    return torch.zeros_like(scores).scatter(-1, index[..., None], 1.0).masked_fill(torch.isneginf(scores), 0.0)


def straight_through(forward: Tensor, backward: Tensor) -> Tensor:
    """Exactly the values of `forward`, with the gradient of `backward` (Bengio et al. 2013)."""
    return forward.detach() + (backward - backward.detach())


def above_zero(temperature: float) -> float:
    """The temperature, or an `InputError`."""
    if not temperature > 0:
        raise InputError(f"a temperature is above 0, got {temperature}; towards 0 softmax becomes 'hard'")
    return temperature


def _below_largest(scores: Tensor) -> Tensor:
    """Scores less the largest of their row. What lies a whole unit below has weight 0, and is cut there: no -inf."""
    return (scores - scores.detach().amax(-1, keepdim=True)).clamp(min=-1)


NORMALIZERS: dict[str, Normalizer] = {
    "softmax": SOFTMAX,
    "softmax_plus_one": Normalizer("softmax_plus_one", softmax_plus_one, "at_most_one"),
    "sigmoid": Normalizer("sigmoid", sigmoid, "any"),
    "sparsemax": Normalizer("sparsemax", sparsemax),
    "entmax15": Normalizer("entmax15", entmax15),
    "hard": Normalizer("hard", hard),
}


def get_normalizer(name: str, *, temperature: float = 1.0) -> Normalizer:
    """A normalizer by name, of scores / temperature; `InputError` names the nearest."""
    if name not in NORMALIZERS:
        raise InputError(f"no normalizer is named '{name}'; {nearest(name, NORMALIZERS)}")
    found, divisor = NORMALIZERS[name], above_zero(temperature)
    cooler = Normalizer(f"{name} at temperature {divisor:g}", lambda scores: found(scores / divisor), found.row_sum)
    return found if divisor == 1 else cooler


def with_sink(sink: Tensor | float) -> Normalizer:
    """Softmax beside a sink of this score (one a head: [head 1 1]), as `softmax_plus_one`."""
    return Normalizer("softmax with a sink", partial(softmax_plus_one, sink=sink), "at_most_one")
