"""The judgement: whether a map explains a prediction, misleads, or cannot be told, from measured behaviour only.

judge(model, example, target, attribution) -> Verdict         one map, one prediction
verdicts([Verdict, …]) -> Verdicts                            one map, a set of predictions
unit_effects(model, example, target, operator) -> Effects     what each unit does, by removal in random orders
"""

from attnprobe.judgement.effects import Effects, effects_under, unit_effects
from attnprobe.judgement.rule import RULE, Reading, Thresholds, decide
from attnprobe.judgement.verdict_sets import PairedTest, Share, Verdicts, verdicts
from attnprobe.judgement.verdicts import JUDGES, Verdict, judge

__all__ = [
    "JUDGES",
    "RULE",
    "Effects",
    "PairedTest",
    "Reading",
    "Share",
    "Thresholds",
    "Verdict",
    "Verdicts",
    "decide",
    "effects_under",
    "judge",
    "unit_effects",
    "verdicts",
]
