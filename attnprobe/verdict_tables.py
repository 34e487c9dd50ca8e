"""Verdicts of attention-derived maps: asked of the judgement, example by example, and their shares over a set."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.judgement import JUDGES, Effects, Verdict, effects_under, judge
from attnprobe.judgement.causes import Causes, find_causes
from attnprobe.judgement.rule import VERDICTS
from attnprobe.judgement.verdict_sets import wilson
from attnprobe.models.model import Model
from attnprobe.significance import holm, paired
from attnprobe.study import Study

FAMILY = "attention"
# What is shown beside the operators that decide.
EVIDENCE = ("value_zero", "attention_mask")
# What decides nothing need not be as exact: half the orders, and no more of them for texts beyond fifty units.
EVIDENCE_ORDERS, EVIDENCE_ROWS = 8, 800
# From so many other texts on, "resample" takes tokens at the same place from them, else words of the vocabulary.
ENOUGH = 4
# Shares of effects differ from here on by rounding alone.
DIGITS = 12
# Between sentences that stand in one cell.
BETWEEN = " | "
COLUMNS = ["example_index", "method", "verdict", "reason", "against", "causes", "operators", "lacking"]
COLUMNS += ["drawn_from", "quality", "random", "n_orders", "seed"]
SHARES = ["method", "verdict", "share", "low", "high", "count", "n"]
SHARES += ["difference", "statistic", "p", "p_holm", "effect", "n_tested"]


def judged(
    model: Model, found: Sequence[Attribution], others: Sequence[Example], seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row a map that attention makes, with its verdict on one example; and a row a map and operator: the evidence.

    others: further examples, for "resample". Effects and causes are measured once, for all maps.
    """
    maps = [a for a in found if a.family == FAMILY]
    if not maps or not bool(maps[0].units.any()):
        return pd.DataFrame(), pd.DataFrame()
    example, target = maps[0].example, maps[0].target
    data = list(others) if len(others) >= ENOUGH else None
    decide, lacking = effects_under(model, example, target, JUDGES, seed=seed, data=data)
    few: dict[str, Any] = {"n_orders": EVIDENCE_ORDERS, "most_rows": EVIDENCE_ROWS}
    beside, missing = effects_under(model, example, target, EVIDENCE, seed=seed, data=data, **few)
    effects, lacking = (*decide, *beside), {**lacking, **missing}
    causes = _causes(model, maps[0], effects, data, seed)
    rows, evidence = [], []
    for one in maps:
        # What the model lacks is named by effects_under; asked again it would be refused again.
        known = [e.operator for e in effects]
        verdict = judge(
            model,
            example,
            target,
            one,
            operators=[name for name in JUDGES if name in known],
            evidence=[name for name in EVIDENCE if name in known],
            effects=effects,
            seed=seed,
            data=data,
        )
        rows.append(_row(verdict, lacking, causes))
        evidence.append(verdict.to_frame().rename(columns={"map": "method"}))
    return pd.DataFrame(rows), pd.concat(evidence, ignore_index=True)


def _causes(
    model: Model, attribution: Attribution, effects: Sequence[Effects], data: Sequence[Any] | None, seed: int
) -> Causes | None:
    """What is known of why attention and the prediction part; None where no content operator gave effects."""
    example, target = attribution.example, attribution.target
    try:
        return find_causes(model, example, target, attribution, effects=effects, data=data, seed=seed)
    except InputError:
        return None


def _row(verdict: Verdict, lacking: dict[str, str], causes: Causes | None) -> dict[str, Any]:
    found = [] if causes is None or verdict.verdict == "explains" else [c for c in causes.found if c.present]
    said = [f"{c.name.replace('_', ' ')}: {c.sentence.rstrip('.')}; look at {c.look_at}" for c in found]
    silent = [f"{name} had no say: {why}" for name, why in lacking.items() if name in JUDGES]
    return {
        "method": verdict.map,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "against": BETWEEN.join([*verdict.against, *silent]),
        "causes": BETWEEN.join(said),
        "operators": ", ".join(verdict.operators),
        "lacking": ", ".join(lacking),
        "drawn_from": next((str(e.used["data"]) for e in verdict.effects if "data" in e.used), ""),
        "quality": verdict.quality,
        "random": verdict.random,
        "n_orders": verdict.n_orders,
        "seed": verdict.seed,
    }


def verdicts(studies: Sequence[Study]) -> pd.DataFrame:
    """A row an example and map."""
    return _stacked([s.verdicts for s in studies], COLUMNS)


def evidence(studies: Sequence[Study]) -> pd.DataFrame:
    """A row an example, map and operator: what it says of the map, and whether it decides."""
    return _stacked([s.evidence for s in studies], ["example_index", "method", "operator", "call"])


def _stacked(frames: Sequence[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    parts = [frame.assign(example_index=i) for i, frame in enumerate(frames) if len(frame)]
    if not parts:
        return pd.DataFrame(columns=columns)
    whole = pd.concat(parts, ignore_index=True)
    return whole[["example_index", *[c for c in whole.columns if c != "example_index"]]]


def shares(table: pd.DataFrame) -> pd.DataFrame:
    """A row a map and verdict: its share of the examples with a 95 % Wilson interval, and the map beside random orders.

    difference: by how much the share of the effect that its first units have is above that of random orders, mean over
    n_tested examples; p: Wilcoxon's test of it, p_holm: corrected for the number of maps, effect: rank biserial.
    """
    parts = [(str(method), part) for method, part in table.groupby("method", sort=False)]
    # A map that is the same for all tokens has what random orders have; rounding must make no difference of it.
    tests = [paired((part.quality - part["random"]).to_numpy(dtype=float).round(DIGITS)) for _, part in parts]
    rows = []
    for (method, part), test, p_holm in zip(parts, tests, holm([t.p for t in tests]), strict=True):
        for kind in VERDICTS:
            count, n = int((part.verdict == kind).sum()), len(part)
            numbers = (test.difference, test.statistic, test.p, p_holm, test.effect, test.n)
            rows.append((method, kind, count / n, *wilson(count, n), count, n, *numbers))
    return pd.DataFrame(rows, columns=SHARES)
