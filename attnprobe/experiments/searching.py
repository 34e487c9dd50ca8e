"""Gradient search for other attention: weights made from free numbers and put in at the seam, gradients kept.

The loss of each start is −JSD + penalty · relu(TVD − eps), less `cross` times its mean JSD to the other starts (Jain &
Wallace 2019, sec. 4.2.2, and the constants of their code).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.experiments.asking import Asked, heads_of
from attnprobe.intervention import Intervention
from attnprobe.methods.mixing import visible_keys
from attnprobe.models.evaluator import differentiable
from attnprobe.models.rows import Row
from attnprobe.site import Site


@dataclass(frozen=True, eq=False)
class Searched:
    """What is searched in one layer: some rows of some heads, over their visible keys.

    shares: the model's own weights there, each row divided by its mass; mass: what rows sum to (a sink keeps some).
    """

    layer: int
    heads: tuple[int, ...]
    rows: tuple[int, ...]
    shares: Float[Tensor, "head row key"]
    mass: Float[Tensor, "head row 1"]
    seen: Bool[Tensor, "head row key"]

    @classmethod
    def of(cls, site: Site, heads: int | Sequence[int] | None, rows: Sequence[int] | None) -> "Searched":
        """The rows of a captured site (None: all); `InputError` where they are no distributions."""
        chosen, weights = heads_of(site, heads), site.need("weights")[0].double().cpu()
        index = list(range(weights.shape[1])) if rows is None else list(rows)
        picked, seen = weights[chosen][:, index], visible_keys(site).cpu()[chosen][:, index]
        mass = picked.sum(-1, keepdim=True)
        if bool((picked < 0).any()) or bool((mass > 1 + 1e-4).any()):
            raise InputError(f"{site.place}: its rows are no distributions over keys, so there is no JSD between them")
        shares = picked / mass.clamp(min=torch.finfo(mass.dtype).tiny)
        return cls(site.place.layer, tuple(chosen), tuple(index), shares, mass, seen)

    def shares_of(self, free: Float[Tensor, "*start head row key"]) -> Float[Tensor, "*start head row key"]:
        """Rows that sum to 1 over the visible keys, from free log-weights; 0 where there is nothing to see."""
        return free.masked_fill(~self.seen, -1e4).softmax(-1) * self.seen * (self.mass > 0)

    def edit(self, shares: Float[Tensor, "head row key"], one: Asked) -> Intervention:
        """Puts the rows in at the seam, with the mass that the model's own had there."""

        def change(site: Site) -> Site:
            weights = site.need("weights")
            # Of the mass of now: edits of layers below may have moved what a sink keeps.
            index = [torch.tensor(part, device=weights.device) for part in (self.heads, self.rows)]
            old = weights.index_select(1, index[0])
            mass = old.index_select(2, index[1]).sum(-1, keepdim=True)
            new = old.index_copy(2, index[1], shares.to(weights)[None] * mass)
            return site.replace(weights=weights.index_copy(1, index[0], new))

        return Intervention("counterfactual attention", change, (self.layer,), one.stack.name, one.stack.kind)


def jensen_shannon(p: Float[Tensor, "*#batch key"], q: Float[Tensor, "*#batch key"]) -> Tensor:
    """Jensen-Shannon divergence in nats, 0 to ln 2 = 0.693.

    >>> jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])).item()
    0.6931471824645996
    >>> jensen_shannon(torch.tensor([0.3, 0.7]), torch.tensor([0.3, 0.7])).item()
    0.0
    """
    middle = (p + q) / 2
    floor = torch.finfo(p.dtype).tiny

    def divergence(one: Tensor) -> Tensor:
        return (one * (one.clamp(min=floor).log() - middle.clamp(min=floor).log())).sum(-1)

    return ((divergence(p) + divergence(q)) / 2).clamp(min=0)


def jsd_of(
    searched: Sequence[Searched], shares: Sequence[Float[Tensor, "start head row key"]], of: str
) -> Float[Tensor, " start"]:
    """How far attention is from the model's own: mean over layers, heads and rows ("heads"), or the JSD of the mean
    over heads ("mean")."""
    found = []
    for layer, new in zip(searched, shares, strict=True):
        here = layer.mass[..., 0] > 0
        if of == "mean":
            found.append(jensen_shannon(new.mean(-3), layer.shares.mean(-3))[..., here.any(0)].mean(-1))
        else:
            found.append(jensen_shannon(new, layer.shares)[..., here].mean(-1))
    return torch.stack(found).mean(0)


@dataclass(frozen=True)
class Search:
    """How to search; the defaults are those of Jain & Wallace's code.

    n_steps, rate: of Adam (amsgrad). spread: of the normal noise on the log of uniform starts. penalty: on what the
    output moves beyond eps. cross: weight of the distance of the starts from each other.
    """

    n_starts: int = 5
    n_steps: int = 500
    rate: float = 0.01
    spread: float = 3.0
    penalty: float = 500.0
    cross: float = 1.0


Measured = Callable[[Float[Tensor, " row *rest"]], Float[Tensor, " row"]]


def search(
    one: Asked, searched: Sequence[Searched], moved: Measured, eps: float, how: Search, of: str, seed: int
) -> tuple[list[list[Tensor]], list[float]]:
    """Candidates, each the shares of every layer: of each start the best within eps that it passed, and its last.

    Second: the largest JSD within eps so far, step by step; it begins at 0, the model's own attention, and never falls.
    """
    generator = torch.Generator().manual_seed(seed)
    free = [_start(layer, how, generator).requires_grad_() for layer in searched]
    optimizer = torch.optim.Adam(free, lr=how.rate, amsgrad=True)
    best: list[list[Tensor] | None] = [None] * how.n_starts
    reached, history = [0.0] * how.n_starts, [0.0]
    for _ in range(how.n_steps):
        with torch.enable_grad():
            shares = [layer.shares_of(numbers) for layer, numbers in zip(searched, free, strict=True)]
            distance = jsd_of(searched, shares, of)
            variation = moved(_logits(one, searched, shares))
            loss = -distance + how.penalty * (variation - eps).relu()
            whole = loss.sum() - how.cross * _apart(shares)
        for start, (far, near) in enumerate(zip(distance.tolist(), variation.tolist(), strict=True)):
            if near <= eps and far > reached[start]:
                reached[start], best[start] = far, [layer[start].detach() for layer in shares]
        history.append(max(reached))
        for numbers, gradient in zip(free, torch.autograd.grad(whole, free), strict=True):
            numbers.grad = gradient
        optimizer.step()
    last = [layer.shares_of(numbers.detach()) for layer, numbers in zip(searched, free, strict=True)]
    ends = [[layer[start] for layer in last] for start in range(how.n_starts)]
    return [found for found in best if found is not None] + ends, history


def _start(layer: Searched, how: Search, generator: torch.Generator) -> Float[Tensor, "start head row key"]:
    """The log of uniform weights, and noise; the softmax makes the log of n the same for all keys, so noise alone."""
    return how.spread * torch.randn(how.n_starts, *layer.shares.shape, generator=generator, dtype=torch.float64)


def _logits(one: Asked, searched: Sequence[Searched], shares: Sequence[Tensor]) -> Tensor:
    rows = [
        Row(one.example, edits=tuple(layer.edit(new[start], one) for layer, new in zip(searched, shares, strict=True)))
        for start in range(len(shares[0]))
    ]
    return differentiable(one.model, rows)[0]


def _apart(shares: Sequence[Float[Tensor, "start head row key"]]) -> Float[Tensor, ""]:
    """Mean JSD between starts, as in the published loss."""
    n = len(shares[0])
    if n < 2:
        return torch.zeros((), dtype=torch.float64)
    pairs = [jensen_shannon(layer[:, None], layer[None]).flatten(2).mean(-1) for layer in shares]
    return torch.stack(pairs).mean(0).sum() / (n * (n - 1))
