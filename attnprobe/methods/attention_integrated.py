"""Attention weights times the gradient integrated while one layer's weights grow from nothing (Hao et al. 2021)."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError, RowsError
from attnprobe.example import Example
from attnprobe.intervention import Intervention
from attnprobe.methods import Scores, Size, methods
from attnprobe.methods.attention import check_layer
from attnprobe.methods.attention_gradient import Heads, gradients_of, of_heads, refuse_parts, whole_sites
from attnprobe.models.evaluator import batch_size, differentiable, even_batches, halving, targets
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

Rule = Literal["gauss", "left"]


def scaled(parts: Sequence[Site], shares: Sequence[float]) -> Intervention:
    """In place of the weights of a layer, those of a captured one, each batch row's times its own share.

    parts: its captured sites, one a part that the layer keeps apart. The weights are where a gradient starts.
    """
    place, given = parts[0].place, {part.place.part: part.need("weights") for part in parts}

    def change(site: Site) -> Site:
        old, weights = site.need("weights"), given.get(site.place.part)
        if weights is None or len(old) != len(shares):
            raise RowsError(f"{site.place}: {len(old)} batch rows, expected {len(shares)}, one a share")
        by_row = torch.tensor(shares).to(old)[:, None, None, None]
        return site.replace(weights=(by_row * weights.to(old)).requires_grad_())

    return Intervention("scaled weights", change, (place.layer,), place.stack, place.kind)


def quadrature(n_steps: int, rule: Rule) -> tuple[list[float], list[float]]:
    """Points from 0 to 1 and their weights: Gauss-Legendre, or the left Riemann sum of the authors' code.

    >>> quadrature(2, "left")
    ([0.0, 0.5], [0.5, 0.5])
    """
    if rule == "left":
        return [step / n_steps for step in range(n_steps)], [1 / n_steps] * n_steps
    if rule != "gauss":
        raise InputError(f"rule is 'gauss' or 'left', got '{rule}'")
    points, weights = np.polynomial.legendre.leggauss(n_steps)
    return ((points + 1) / 2).tolist(), (weights / 2).tolist()


@dataclass(frozen=True, eq=False)
class _Path:
    """The line on which the weights of one layer grow from nothing; parts: its captured sites."""

    model: Model
    example: Example
    target: ResolvedTarget
    parts: Sequence[Site]
    rule: Rule

    @property
    def layer(self) -> int:
        """Number of the layer."""
        return self.parts[0].layer

    def scores(self, n_steps: int) -> Float[Tensor, "head query key"]:
        """Weights times their mean gradient on the path, a batch row a step; parts are rows of one map."""
        points, shares = quadrature(n_steps, self.rule)
        found: list[Tensor] = []
        start, size = 0, even_batches(n_steps, batch_size(self.example.n_tokens))
        while start < n_steps:
            ahead = points[start : start + size], shares[start : start + size]
            try:
                product, done = halving(partial(self._batch, *ahead), len(ahead[0]), "steps")
            except RowsError:
                if size == 1:
                    raise
                size = 1  # this attention lays several inputs out in its own way
                continue
            found.append(product)
            size, start = min(size, done) if done < len(ahead[0]) else size, start + done
        return torch.stack(found).sum(0)

    def _batch(self, points: Sequence[float], shares: Sequence[float], n: int) -> tuple[Tensor, int]:
        """What the first n points of a batch add to the scores, and n."""
        place = self.parts[0].place
        rows = [Row(self.example, edits=(scaled(self.parts, points[:n]),))] * n
        logits, tape = differentiable(
            self.model, rows, Keep.of("weights", layers=self.layer, stack=place.stack, kind=place.kind)
        )
        sites = whole_sites(self.model, tape)
        gradients = gradients_of(self.model, self.target(logits), [site.need("weights") for site in sites])
        products = [
            part.need("weights")[0].to(g) * (torch.tensor(shares[:n]).to(g)[:, None, None, None] * g).sum(0)
            for part, g in zip(self.parts, gradients, strict=True)
        ]
        if len({tuple(product.shape) for product in products}) > 1:
            raise InputError(f"{self.model.name} has parts of a layer over other keys than its tokens")
        return torch.stack(products).sum(0).detach().cpu(), n


def _falls(paths: Sequence[_Path]) -> list[float]:
    """For each path, how much the target falls when all weights of its layer are 0."""
    model, example, target = paths[0].model, paths[0].example, paths[0].target
    rows = [Row(example, edits=(scaled(path.parts, [0.0]),)) for path in paths]
    answers = targets(model, [Row(example), *rows], target)
    return [float(answers[0] - answer) for answer in answers[1:]]


def _cost(size: Size, o: Mapping[str, Any]) -> tuple[int, int]:
    n_layers = size.n_layers if o["layers"] == "all" else 1
    return n_layers * (o["n_steps"] + 1) + 2, n_layers * o["n_steps"]


@methods.add(
    family="attention",
    source="Hao et al. 2021 (ATTATTR), sec. 3",
    formula="Σ_l Σ_h Σ_i A^{l,h}_{ij} ∫₀¹ ∂y/∂A^{l,h}_{ij}(t A^l) dt, the other layers recomputed",
    cost="L m F, L m B (m = n_steps)",
    signed=True,
    passes=_cost,
)
def attention_integrated_gradients(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layers: Literal["all", "last"] | int = "all",
    heads: Heads = "all",
    scale: Literal["target", "probability"] = "target",
    rule: Rule = "gauss",
    n_steps: int = 20,
    tolerance: float = 0.05,
    max_steps: int = 320,
) -> Scores:
    """Attention weight times its gradient while one layer's weights grow from 0, summed over heads and queries; signed.

    A layer's scores add up to the fall of the target when all its weights are 0; layers: "all" (summed), the "last", or
    one by number. scale: that of the "target", or its "probability" as published. rule: "gauss" (Gauss-Legendre), or
    the "left" sum of the authors' code. Steps are doubled until the gap is below `tolerance` of that fall, up to
    max_steps; the gaps that are left, over all layers and heads, are the residual.
    """
    if n_steps < 1 or max_steps < n_steps:
        raise InputError(f"n_steps is from 1 to max_steps ({max_steps}), got {n_steps}")
    stack = explained_stack(model, example)
    numbers = _numbers(layers, stack.n_layers)
    sites = model.capture(example).select(stack.name, stack.kind)
    refuse_parts(model, sites)
    answer = _on(target, scale)
    paths = [_Path(model, example, answer, [s for s in sites if s.layer == number], rule) for number in numbers]
    changes, found, steps = _falls(paths), [], []
    for path, change in zip(
        tqdm(paths, desc="integrating", delay=1.0, leave=False, unit="layer"), changes, strict=True
    ):
        product, used = _within(path, change, (n_steps, max_steps, tolerance))
        found.append(product)
        steps.append(used)
    gaps = [float(product.sum()) - change for product, change in zip(found, changes, strict=True)]
    _warn_of_gaps(numbers, changes, gaps, steps, tolerance)
    product = torch.stack([m.sum(0) for m in of_heads(model, found, heads)]).sum(0)
    told = {"n_steps": steps, "changes": [round(c, 6) for c in changes], "gaps": [round(g, 6) for g in gaps]}
    return Scores(product.sum(0), map=product, residual=sum(gaps), used=told)


def _within(path: _Path, change: float, limits: tuple[int, int, float]) -> tuple[Float[Tensor, "head query key"], int]:
    """The scores of a layer with as many steps as the tolerance asks for, and how many those were."""
    steps, most, tolerance = limits
    while True:
        product = path.scores(steps)
        gap = float(product.sum()) - change
        if abs(gap) <= tolerance * max(abs(change), 1e-6) or steps >= most:
            return product, steps
        steps = min(2 * steps, most)


def _warn_of_gaps(
    numbers: Sequence[int], changes: Sequence[float], gaps: Sequence[float], steps: Sequence[int], tolerance: float
) -> None:
    """Say which layer adds up worst, where one does not within the tolerance."""
    open_ = [(abs(gap), i) for i, gap in enumerate(gaps) if abs(gap) > tolerance * max(abs(changes[i]), 1e-3)]
    if open_:
        worst = max(open_)[1]
        warnings.warn(
            f"attention_integrated_gradients: after {steps[worst]} steps the scores of layer {numbers[worst]} add up "
            f"to {changes[worst] + gaps[worst]:.4g}, the target changes by {changes[worst]:.4g}"
            + (f" ({len(open_) - 1} more layers)" if len(open_) > 1 else ""),
            stacklevel=3,
        )


def _numbers(layers: Literal["all", "last"] | int, n_layers: int) -> list[int]:
    if isinstance(layers, str) and layers not in ("all", "last"):
        raise InputError(f"layers is 'all', 'last' or a number, got '{layers}'")
    if layers == "all":
        return list(range(n_layers))
    return [check_layer(-1 if isinstance(layers, str) else layers, n_layers)]


def _on(target: ResolvedTarget, scale: str) -> ResolvedTarget:
    """The target on the scale that was asked for."""
    if scale not in ("target", "probability"):
        raise InputError(f"scale is 'target' or 'probability', got '{scale}'")
    if scale == "target":
        return target
    if target.function is not None:
        raise InputError(
            f"{target.description} has no probability to take in its place; ask for a Target(scale='probability')"
        )
    return target.on("probability")
