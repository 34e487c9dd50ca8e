"""One variant of a family, measured: what its units do under the operators that judge, and what each map says."""

import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.attributing import attribute
from attnprobe.errors import AttnprobeError
from attnprobe.judgement.causes import find_causes
from attnprobe.judgement.effects import TOLERANCE, Effects, unit_effects
from attnprobe.judgement.verdicts import JUDGES
from attnprobe.models.evaluator import remembering
from attnprobe.models.planted.families import LONGEST, N_WORDS, SHORTEST, Variant, variant
from attnprobe.models.planted.plan import PlantedModel

MAPS = ("raw_attention", "rollout", "value_norms", "attention_x_gradient", "chefer_2021b")
PERMUTED, FOREIGN, TWIN = "permuted", "foreign", "twin"


@dataclass(frozen=True, eq=False)
class Measured:
    """One variant. effects: under each operator, on the units. maps: sizes of the scores on the units, by name; also
    with the tokens shuffled ("raw_attention, permuted"), those of another input ("…, foreign"), and of the twin ("…,
    twin").
    causes: what was recognised of the prediction, whatever the map; nothing near the boundary.
    """

    family: str
    number: int
    boundary: bool
    n_tokens: int
    units: Int[Tensor, " unit"]
    causal: frozenset[int]
    influence: Float[Tensor, " unit"]
    effects: tuple[Effects, ...]
    maps: dict[str, Float[Tensor, " unit"]]
    causes: tuple[str, ...]


def measure_quietly(wanted: tuple[str, int, bool]) -> Measured:
    """`measure` of a family, number and boundary, on one thread and without a word; for several processes."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return measure(wanted[0], wanted[1], boundary=wanted[2])


def packed(wanted: tuple[str, int, bool]) -> bytes:
    """`measure_quietly` in bytes: tensors on their way between processes would each hold a file open."""
    return pickle.dumps(measure_quietly(wanted))


def measure(
    family: str,
    number: int,
    *,
    boundary: bool = False,
    with_data: bool = True,
    n_words: int = N_WORDS,
    tolerance: float | None = TOLERANCE,
    causes: bool = True,
    lengths: tuple[int, int] = (SHORTEST, LONGEST),
) -> Measured:
    """A variant with its effects under the operators that judge, its maps, and what was recognised.

    with_data: whether "resample" has the other inputs of the same kind to draw from, else words of the vocabulary.
    n_words: of the vocabulary that the mean embedding is taken over. tolerance: of the effects. causes: whether they
    are looked for. lengths: the fewest and the most tokens.
    """
    found = variant(family, number, boundary=boundary, n_words=n_words, lengths=lengths)
    made = found.made
    target = made.model.resolve(made.example, made.target)
    data = found.others if with_data else None
    with remembering():
        effects = tuple(
            unit_effects(made.model, made.example, target, name, seed=number, data=data, tolerance=tolerance)
            for name in JUDGES
        )
        units = effects[0].units
        maps = _maps(found, units)
        known = _causes(found, effects, number) if causes and not boundary else ()
    return Measured(
        family,
        number,
        boundary,
        made.example.n_tokens,
        units,
        frozenset(found.causal),
        found.influence[units],
        effects,
        maps,
        known,
    )


def _causes(found: Variant, effects: tuple[Effects, ...], seed: int) -> tuple[str, ...]:
    made, scores = found.made, torch.ones(found.n_tokens)
    target = made.model.resolve(made.example, made.target)
    return find_causes(made.model, made.example, target, scores, effects=effects, data=found.others, seed=seed).names


def _maps(found: Variant, units: Int[Tensor, " unit"]) -> dict[str, Float[Tensor, " unit"]]:
    shuffled = torch.randperm(len(units), generator=torch.Generator().manual_seed(found.number))
    maps: dict[str, Tensor] = {}
    for name in MAPS:
        own = _sizes(found.made, found.made.example, name, units)
        if own is None:
            continue
        maps[name] = own
        maps[f"{name}, {PERMUTED}"] = own[shuffled]
        other = _sizes(found.made, found.others[0], name, units)
        if other is not None:
            maps[f"{name}, {FOREIGN}"] = other
        twin = None if found.twin is None else _sizes(found.twin, found.twin.example, name, units)
        if twin is not None:
            maps[f"{name}, {TWIN}"] = twin
    return maps


def _sizes(made: PlantedModel, example: Any, name: str, units: Int[Tensor, " unit"]) -> Float[Tensor, " unit"] | None:
    """Sizes of the scores on the units; None where the method does not do this model."""
    try:
        return attribute(made.model, example, name, made.target).scores[units].double().abs()
    except AttnprobeError:
        return None
