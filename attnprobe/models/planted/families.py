"""Families of planted models: random variants of 8 to 40 tokens, in which the units that act are known.

A variant is a model, an input, and other inputs of its kind (each place has its part to play in all of them, and other
contents). A unit is causal if other content in its place changes y by any route. Its influence is measured on the
network: the mean change of y over all other inputs and all choices of which other causal units have been replaced. A
causal unit has at least 40 % of the largest influence and any other at most 10 %; a draw that has not is thrown away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.models.own import OwnModel
from attnprobe.models.planted import families_attention, families_circuits, families_gates
from attnprobe.models.planted.building import build
from attnprobe.models.planted.families_scene import Scene, Stage
from attnprobe.models.planted.plan import Plan, PlantedModel
from attnprobe.models.rows import Row

SHORTEST, LONGEST = 8, 40
CAUSAL, IDLE = 0.4, 0.1
NO_BOUNDARY = ("P12",)  # its other tokens are words that match or do not
MOST_DRAWS = 200
ROWS_AT_ONCE = 512
# Words of the vocabulary that the mean embedding is taken over; all but those of the inputs have no content.
N_WORDS = 5000

Recipe = Callable[[Stage], Scene]
FAMILIES: dict[str, Recipe] = {
    **families_attention.RECIPES,
    **families_gates.RECIPES,
    **families_circuits.RECIPES,
}


@dataclass(frozen=True, eq=False)
class Variant:
    """A random member of a family.

    causal: the tokens that act, by construction. influence: of each token, as a share of the largest. others: other
    inputs of the same kind, of the same length. boundary: some units that are not causal have 10 to 40 % of the largest
    influence. twin: a second model that gives the same y on every input, for the family P3.
    """

    family: str
    number: int
    made: PlantedModel
    causal: tuple[int, ...]
    influence: Float[Tensor, " token"]
    others: tuple[Example, ...]
    boundary: bool = False
    twin: PlantedModel | None = None

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return self.made.example.n_tokens


def variant(
    family: str,
    number: int,
    *,
    boundary: bool = False,
    n_words: int = N_WORDS,
    lengths: tuple[int, int] = (SHORTEST, LONGEST),
) -> Variant:
    """A member of a family by its number: the same number gives the same variant.

    n_words: of the vocabulary that the mean embedding is taken over; 0 for the words of the inputs alone. lengths: the
    fewest and the most tokens.

    Errors: `InputError` for a family that does not exist, or a draw without what was asked for.

    >>> one = variant("P1", 0)
    >>> 8 <= one.n_tokens <= 40 and all(float(one.influence[j]) >= 0.4 for j in one.causal)
    True
    """
    if boundary and family in NO_BOUNDARY:
        raise InputError(f"{family} has no variants near the boundary")
    if family not in FAMILIES:
        raise InputError(f"no family of planted models is named '{family}'; {nearest(family, FAMILIES)}")
    key = [list(FAMILIES).index(family), number, int(boundary)]
    draw = np.random.default_rng(key)
    for _ in range(MOST_DRAWS):
        stage = Stage(draw, int(draw.integers(lengths[0], lengths[1] + 1)), boundary)
        scene = FAMILIES[family](stage)
        found = _made(family, number, scene, int(draw.integers(2**31)), boundary, n_words)
        if _as_claimed(found):
            return found
    raise InputError(f"{family}: {MOST_DRAWS} draws gave no variant {number} of the influences asked for")


def _made(family: str, number: int, scene: Scene, rotation: int, boundary: bool, n_words: int) -> Variant:
    made, others = _built(family, scene, rotation, n_words)
    twin = None if scene.twin is None else _built(family, replace(scene, layers=scene.twin), rotation, n_words)[0]
    influence = influences(made, scene.causal, others)
    return Variant(family, number, made, tuple(sorted(scene.causal)), influence, others, boundary, twin)


def _built(family: str, scene: Scene, rotation: int, n_words: int) -> tuple[PlantedModel, tuple[Example, ...]]:
    """The network in a random basis, whose "mean" is that of all words, its input, and the other inputs."""
    words, texts = scene.words()
    plan = Plan(
        name=family,
        title=family,
        story=scene.story,
        tokens=texts[0],
        dims=scene.dims,
        contents=words,
        layers=scene.layers,
        answer=0.0,
        truth=(0.0,) * len(texts[0]),
        players=tuple(sorted(scene.causal)),
        readout=scene.readout,
        label=scene.label,
        read=scene.read,
        causal=scene.decoder,
        positions=scene.positions,
    )
    made = build(plan, rotation=rotation)
    model = _with_a_mean(cast(OwnModel, made.model), n_words)
    every = [_example(model, text) for text in texts]
    answer = float(model.targets([Row(every[0])], model.resolve(every[0], made.target))[0])
    return replace(made, model=model, example=every[0], answer=answer), tuple(every[1:])


def _with_a_mean(model: OwnModel, n_words: int) -> OwnModel:
    """The model with the mean embedding of a vocabulary that has these words and many that say nothing here."""
    table = model.inputs.weight.detach()
    fillers = {"mean": table.sum(0) / max(n_words, len(table)), "zero": torch.zeros_like(table[0])}
    return OwnModel(model.module, model.vocabulary, name=model.name, labels=model.outputs.names, fillers=fillers)


def _example(model: OwnModel, words: Sequence[str]) -> Example:
    """An input in which every token is explained, the first one too."""
    example = model.example(list(words))
    n = example.n_tokens
    return replace(example, is_special=(False,) * n, words=tuple(range(n)))


def influences(made: PlantedModel, causal: Sequence[int], others: Sequence[Example]) -> Float[Tensor, " token"]:
    """The mean change of y when other content is put in a token's place, as a share of the largest.

    Over all other inputs that it is taken from, and over all choices of the other causal tokens that have been
    replaced by those of the same input before. Exact: every one of them is run.
    """
    model, example = made.model, made.example
    here, there = model.embed(example), torch.stack([model.embed(other) for other in others])
    n, target = example.n_tokens, model.resolve(example, made.target)
    last = n if target.last_seen is None else target.last_seen + 1
    found = torch.zeros(n, dtype=torch.float64)
    for token in range(last):
        company = [j for j in causal if j != token]
        before = torch.zeros(2 ** len(company), n, dtype=torch.bool)
        before[:, company] = torch.tensor(list(product((False, True), repeat=len(company))), dtype=torch.bool)
        after = before.clone()
        after[:, token] = True
        gone = torch.stack([before, after])[:, :, None, :, None]
        rows = torch.where(gone, there, here).flatten(0, 2)
        with torch.no_grad():
            y = torch.cat([target(model.module(part)) for part in rows.split(ROWS_AT_ONCE)])
        first, second = y.reshape(2, -1)
        found[token] = (second - first).abs().mean()
    return found / found.max() if float(found.max()) > 0 else found


def _as_claimed(found: Variant) -> bool:
    """Whether the influences are those of a variant of this kind."""
    causal = found.influence[list(found.causal)]
    rest = found.influence.clone()
    rest[list(found.causal)] = 0
    if float(causal.min()) < CAUSAL:
        return False
    return bool(IDLE < float(rest.max()) < CAUSAL) if found.boundary else float(rest.max()) <= IDLE
