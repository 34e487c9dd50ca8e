"""Ablation: what the target loses when a head gives something that says nothing of this input.

Each takes one head at a time and gives y − y(without it), target units. Zero takes away what a head gives whatever the
input says (a constant that others count on) as well as what it says of it; mean and resample only the latter.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.heads import head_effects
from attnprobe.heads.rows import Parts, changed, examples_of, z_of, z_put
from attnprobe.models.model import Model, Stack
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

Effects = Float[Tensor, "layer head"]


@head_effects.add(
    family="ablation",
    source="Michel et al. 2019, sec. 3",
    label="Zero ablation",
    low=None,
    high=None,
    unit="target",
    sign="+: falls without it",
)
def zero_ablation(model: Model, example: Example, target: ResolvedTarget, stack: Stack) -> Effects:
    """How much the target falls when a head gives 0, one head at a time."""
    nothing = torch.zeros(1)
    after, before = changed(
        model, example, target, stack, lambda layer, head: z_put(stack, layer, head, nothing, "zero"), "zero ablation"
    )
    return before - after


@head_effects.add(
    family="ablation",
    source="Wang et al. 2023, sec. 2.2",
    label="Mean ablation",
    low=None,
    high=None,
    unit="target",
    sign="+: falls without it",
)
def mean_ablation(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack, *, data: Iterable[Any] | None = None
) -> Effects:
    """How much the target falls when a head gives its mean at every position: over `data`, or else over this example.

    data: inputs whose positions, all together, give the mean; without them it is that of the example's own positions,
    which leaves in what a head says of the input as a whole.
    """
    means = _means(model, [example] if data is None else examples_of(model, data), stack)
    after, before = changed(
        model,
        example,
        target,
        stack,
        lambda layer, head: z_put(stack, layer, head, means[layer][head], "mean"),
        "mean ablation",
    )
    return before - after


def _means(model: Model, examples: Sequence[Example], stack: Stack) -> list[Float[Tensor, "head d_value"]]:
    """The mean z of each head over all positions of all examples."""
    sums: list[Tensor | float] = [0.0] * stack.n_layers
    places = [0] * stack.n_layers
    keep = Keep(frozenset(), stack=stack.name, kind=stack.kind, reduce=_sums)
    for one in examples:
        for place, found in model.capture(one, keep=keep).reduced:
            sums[place.layer] = sums[place.layer] + found["sum"]
            places[place.layer] += int(found["n"])
    return [torch.as_tensor(total) / n for total, n in zip(sums, places, strict=True)]


def _sums(site: Site) -> dict[str, Tensor]:
    z = site.need("z").detach().double()
    return {"sum": z.sum((0, 2)), "n": torch.tensor(z.shape[0] * z.shape[2])}


@head_effects.add(
    family="ablation",
    source="Chan et al. 2022 (causal scrubbing)",
    label="Resampling",
    low=None,
    high=None,
    unit="target",
    sign="+: falls without it",
)
def resample_ablation(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    stack: Stack,
    *,
    data: Iterable[Any] | None = None,
    n_samples: int | None = None,
    seed: int = 0,
) -> Effects:
    """How much the target falls when a head gives what it gave on another input; mean over inputs of `data`.

    n_samples: how many inputs are drawn from data, with replacement (None: each once). An input of the same shape gives
    its z position by position; of one of another length each position gets that of a random one (`seed`).
    Errors: `InputError` without data.
    """
    if data is None:
        raise InputError("resample_ablation takes z from other inputs; give some: data=[…]")
    if n_samples is not None and n_samples < 1:
        raise InputError(f"n_samples is at least 1, got {n_samples}")
    generator = torch.Generator().manual_seed(seed)
    donors = examples_of(model, data)
    if n_samples is not None:
        drawn = torch.randint(len(donors), (n_samples,), generator=generator).tolist()
        donors = [donors[number] for number in drawn]
    own, known, falls = z_of(model, example, stack), dict[int, list[Parts]](), []
    for donor in donors:
        if id(donor) not in known:
            known[id(donor)] = z_of(model, donor, stack)
        given = [_fitted(theirs, mine, generator) for theirs, mine in zip(known[id(donor)], own, strict=True)]
        after, before = changed(
            model,
            example,
            target,
            stack,
            lambda layer, head, given=given: z_put(stack, layer, head, given[layer], "resampled z"),  # type: ignore[misc]
            "resample ablation",
        )
        falls.append(before - after)
    return torch.stack(falls).mean(0)


def _fitted(theirs: Parts, mine: Parts, generator: torch.Generator) -> Parts:
    """z of another input in the shape of this one's: as it is, or at random positions of it."""
    if all(part in theirs and theirs[part].shape == z.shape for part, z in mine.items()):
        return theirs
    pool = torch.cat(list(theirs.values()), dim=1)
    return {
        part: pool[:, torch.randint(pool.shape[1], (z.shape[1],), generator=generator).to(pool.device)]
        for part, z in mine.items()
    }
