"""judge(): whether a map explains one prediction, misleads, or cannot be told, with what speaks against it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.example import Example
from attnprobe.judgement import asking
from attnprobe.judgement.against import against
from attnprobe.judgement.effects import N_ORDERS, TOLERANCE, Effects, effects_under
from attnprobe.judgement.rule import RULE, Reading, Thresholds, decide, quality_of, read
from attnprobe.models.evaluator import Meter, remembering
from attnprobe.models.removal import units as removable
from attnprobe.target import ResolvedTarget

# The operators that decide; all others are evidence.
JUDGES = ("mean", "resample")


@dataclass(frozen=True, eq=False)
class Verdict:
    """What was found of one map and one prediction.

    verdict: "explains", "misleads" or "undecided"; reason: why, with the numbers. readings: what each operator that
    decides says; evidence: what each of the others does, which decides nothing. operators: those that decided; lacking:
    those that this model does not have, which are left out, and why. against: what speaks against the verdict. quality:
    1 - M, mean over the operators that decide (NaN where not defined); random: the same for random orders.
    effects: of the units, under every operator. scores: the map's, one a token; map: the method's name.
    """

    map: str
    verdict: str
    reason: str
    readings: tuple[Reading, ...]
    evidence: tuple[Reading, ...]
    operators: tuple[str, ...]
    lacking: Mapping[str, str]
    against: tuple[str, ...]
    quality: float
    random: float
    effects: tuple[Effects, ...] = field(repr=False)
    scores: Float[Tensor, " token"] = field(repr=False)
    example: Example = field(repr=False)
    target: ResolvedTarget = field(repr=False)
    thresholds: Thresholds = field(default=RULE, repr=False)
    n_orders: int = N_ORDERS
    seed: int = 0
    forward_passes: int = 0
    seconds: float = 0.0

    def to_frame(self) -> pd.DataFrame:
        """A row an operator: what it says of the map, whether it decides, beside the verdict, target and cost."""
        effects = {one.operator: one for one in self.effects}
        rows = [
            {
                "map": self.map,
                "target": self.target.description,
                "verdict": self.verdict,
                "operator": reading.operator,
                "kind": effects[reading.operator].kind,
                "decides": reading.operator in self.operators,
                "call": reading.call or "neither",
                "miss": reading.miss,
                "order": reading.order,
                "top": reading.top,
                "n_effective": reading.n_effective,
                "n_idle": reading.n_idle,
                "reason": reading.reason,
                "n_orders": effects[reading.operator].n_orders,
                "seed": self.seed,
                "forward_passes": self.forward_passes,
                "seconds": self.seconds,
            }
            for reading in (*self.readings, *self.evidence)
        ]
        return pd.DataFrame(rows)

    def units(self) -> pd.DataFrame:
        """A row a unit: token_index, piece, score, and the effect (a share of the largest) under each operator."""
        index = removable(self.example, self.target)
        pieces = self.example.pieces
        frame = pd.DataFrame(
            {
                "token_index": index.numpy(),
                "piece": [pieces[i] for i in index.tolist()],
                "score": self.scores[index].numpy(),
            }
        )
        return frame.assign(**{one.operator: one.relative.numpy() for one in self.effects})


def judge(
    model: Any,
    example: Any,
    target: Any,
    attribution: asking.Map,
    *,
    operators: Sequence[str] | str = JUDGES,
    evidence: Sequence[str] | str = (),
    n_orders: int = N_ORDERS,
    seed: int = 0,
    data: Sequence[Any] | None = None,
    tolerance: float | None = TOLERANCE,
    effects: Sequence[Effects] | None = None,
    thresholds: Thresholds = RULE,
    name: str | None = None,
) -> Verdict:
    """Whether the map explains this prediction, misleads, or cannot be told, by the rule of `judgement.rule`.

    attribution: what a method said, or one score a token; scores with a direction are taken by size, as effects are.
    operators decide, all of them that this model has; evidence: others, that decide nothing ("value_zero",
    "attention_mask", …). data: other inputs of the same kind, whose tokens "resample" puts in the same place (None:
    words of the vocabulary). tolerance: of the effects, see `unit_effects`. effects: measured before, of the same
    example and target, used where the operator is the same. name: of the map. Errors: `InputError` for scores that are
    not one finite number a token, effects of other tokens, or settings that cannot be.
    """
    model, example, resolved = asking.read(model, example, target)
    scores = asking.scores_of(attribution, example)
    operators, wanted = asking.names(operators), asking.names((*asking.names(operators), *asking.names(evidence)))
    known = _measured(effects or (), wanted, example, resolved)
    missing = [one for one in wanted if one not in known]
    settings = {"n_orders": n_orders, "seed": seed, "data": data, "tolerance": tolerance}
    with Meter() as meter, remembering():
        more, lacking = effects_under(model, example, resolved, missing, **settings)  # type: ignore[arg-type]
    known |= {one.operator: one for one in more}
    found = tuple(known[one] for one in wanted if one in known)
    name = name or (attribution.method if isinstance(attribution, Attribution) else "scores")
    return Verdict(
        map=name,
        **_judged(scores, found, [one for one in operators if one in known], lacking, example, resolved, thresholds),
        lacking=lacking,
        effects=found,
        scores=scores,
        example=example,
        target=resolved,
        thresholds=thresholds,
        n_orders=found[0].n_orders if found else n_orders,
        seed=seed,
        forward_passes=meter.forward,
        seconds=meter.seconds,
    )


def _measured(
    effects: Sequence[Effects], wanted: Sequence[str], example: Example, target: ResolvedTarget
) -> dict[str, Effects]:
    """What was measured before under the operators that are wanted; `InputError` where it is of other tokens."""
    known = {one.operator: one for one in effects if one.operator in wanted}
    for one in known.values():
        asking.check_units(one.units, removable(example, target))
    return known


def _judged(
    scores: Float[Tensor, " token"],
    effects: Sequence[Effects],
    operators: Sequence[str],
    lacking: Mapping[str, str],
    example: Example,
    target: ResolvedTarget,
    thresholds: Thresholds,
) -> dict[str, Any]:
    """The rule on the units, and what speaks against it."""
    index = removable(example, target)
    sizes = scores[index].double().abs()
    verdict, reason, readings = decide(sizes, [one for one in effects if one.operator in operators], thresholds)
    evidence = tuple(read(sizes, one, thresholds) for one in effects if one.operator not in operators)
    pieces = [example.pieces[i] for i in index.tolist()]
    known = [quality_of(sizes, one, thresholds) for one in effects if one.operator in operators]
    known = [pair for pair in known if not math.isnan(pair[0])]
    quality, chance = (math.fsum(side) / len(known) for side in zip(*known, strict=True)) if known else (math.nan,) * 2
    return {
        "verdict": verdict,
        "reason": reason,
        "readings": readings,
        "evidence": evidence,
        "operators": tuple(operators),
        "quality": quality,
        "random": chance,
        "against": against(verdict, sizes, pieces, readings, evidence, effects, lacking, thresholds),
    }
