"""How often the verdict is wrong: on random planted models whose acting units are known, with held-out thresholds."""

import pickle
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.benchmark.verdicts_fitting import fitted
from attnprobe.benchmark.verdicts_measuring import FOREIGN, MAPS, PERMUTED, TWIN, Measured, measure_quietly, packed
from attnprobe.errors import InputError, nearest
from attnprobe.judgement.rule import EXPLAINS, MISLEADS, RULE, Thresholds, auc, decide, ranked
from attnprobe.models.planted.families import FAMILIES, IDLE, NO_BOUNDARY

NEITHER = "neither"
TRUTHS = (EXPLAINS, MISLEADS, NEITHER)
N_VARIANTS = 120


@dataclass(frozen=True)
class Case:
    """One map of one variant. truth: of the map, by construction; verdict: of the rule, with thresholds set on the
    other half of the families where held_out, else with those of the rule as it is. causes: what was recognised.
    boundary: some units have 10 to 40 % of the largest influence; truth takes them for units that do not act, and
    truth_if_they_act for units that do. n_causal: number of acting units.
    """

    family: str
    variant: int
    n_tokens: int
    map: str
    truth: str
    verdict: str
    causes: tuple[str, ...]
    held_out: bool
    boundary: bool
    n_causal: int
    reason: str
    truth_if_they_act: str

    @property
    def kind(self) -> str:
        """`own`, or what was done to the map: `permuted`, `foreign` or `twin`."""
        return next((kind for kind in (PERMUTED, FOREIGN, TWIN) if self.map.endswith(kind)), "own")


@dataclass(frozen=True, eq=False)
class Calibration:
    """Every case, the thresholds that each half of the families was judged with, and what was measured."""

    cases: tuple[Case, ...]
    thresholds: tuple[Thresholds, Thresholds]
    halves: tuple[tuple[str, ...], tuple[str, ...]]
    measured: tuple[Measured, ...]

    def to_frame(self) -> pd.DataFrame:
        """A row a case, with its kind."""
        return pd.DataFrame([{**vars(case), "kind": case.kind} for case in self.cases])


def benchmark_verdicts(
    families: Sequence[str] | None = None,
    n_variants: int = N_VARIANTS,
    *,
    n_boundary: int | None = None,
    workers: int = 1,
    progress: bool = True,
) -> Calibration:
    """The verdict on n_variants random variants of every family, and on n_boundary near the boundary (an eighth).

    Thresholds are set on every second family and scored on the others, both ways; of a single family they are those of
    the rule. workers: processes; more than one needs a script that may be imported. Errors: `InputError` for a family
    that does not exist, or fewer variants than 1.
    """
    names = tuple(FAMILIES if families is None else dict.fromkeys(families))
    for name in names:
        if name not in FAMILIES:
            raise InputError(f"no family of planted models is named '{name}'; {nearest(name, FAMILIES)}")
    if n_variants < 1:
        raise InputError(f"the number of variants is 1 or more, got {n_variants}")
    n_boundary = n_variants // 8 if n_boundary is None else n_boundary
    measured = _all_measured(names, n_variants, n_boundary, workers, progress)
    return calibrated(measured)


def calibrated(measured: Sequence[Measured]) -> Calibration:
    """Thresholds from each half of the families that were measured, and every map judged with those of the other."""
    names = tuple(dict.fromkeys(one.family for one in measured))
    halves = names[::2], names[1::2]
    sides = [[one for one in measured if one.family in half and not one.boundary] for half in halves]
    known = [
        [(one, name, truth_of(one.maps[name], one)) for one in side for name in MAPS if name in one.maps]
        for side in sides
    ]
    # The first half is judged with what the second gave, and the other way round.
    thresholds = (fitted(known[1]), fitted(known[0]))
    cases: list[Case] = []
    for one in measured:
        held_out = bool(halves[1]) and not one.boundary
        given = thresholds[0 if one.family in halves[0] else 1] if held_out else RULE
        cases += judged(one, given, held_out=held_out)
    return Calibration(tuple(cases), thresholds, halves, tuple(measured))


def _all_measured(
    names: Sequence[str], n_variants: int, n_boundary: int, workers: int, progress: bool
) -> list[Measured]:
    wanted = [(name, number, False) for name in names for number in range(n_variants)]
    wanted += [(name, number, True) for name in names if name not in NO_BOUNDARY for number in range(n_boundary)]
    bar = partial(
        tqdm, total=len(wanted), desc="verdicts", delay=1.0, leave=False, unit="variant", disable=not progress
    )
    if workers <= 1 or len(wanted) < 2 * workers:
        return list(bar(map(measure_quietly, wanted)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return [pickle.loads(one) for one in bar(pool.map(packed, wanted, chunksize=4))]


def truth_of(scores: Float[Tensor, " unit"], measured: Measured, also: Sequence[int] = ()) -> str:
    """What a map is by construction: it "explains" when it ranks every acting unit above every other, it "misleads"
    when none of its first units acts and it ranks those that act no better than chance, and is neither otherwise.

    also: units that are taken for acting ones as well.
    """
    acting = torch.tensor([unit in measured.causal or unit in also for unit in measured.units.tolist()])
    if not bool(scores.any()) or bool(acting.all()):
        return NEITHER
    ranks = ranked(scores)
    if int(ranks[acting].min()) > int(ranks[~acting].max()):
        return EXPLAINS
    first = ranks == ranks.max()
    return MISLEADS if not bool((first & acting).any()) and auc(ranks, acting, ~acting) <= 0.5 else NEITHER


def judged(
    one: Measured,
    thresholds: Thresholds = RULE,
    operators: Sequence[str] | None = None,
    *,
    held_out: bool = False,
) -> list[Case]:
    """A case for each map of a variant. operators: those that decide (None: all that were measured)."""
    effects = [e for e in one.effects if operators is None or e.operator in operators]
    weak = (one.influence > IDLE).nonzero().flatten()
    between = [int(one.units[index]) for index in weak] if one.boundary else []
    found = []
    for name, scores in one.maps.items():
        verdict, reason, _ = decide(scores, effects, thresholds)
        found.append(
            Case(
                family=one.family,
                variant=one.number,
                n_tokens=one.n_tokens,
                map=name,
                truth=truth_of(scores, one),
                verdict=verdict,
                causes=one.causes,
                held_out=held_out,
                boundary=one.boundary,
                n_causal=len(one.causal),
                reason=reason,
                truth_if_they_act=truth_of(scores, one, between),
            )
        )
    return found
