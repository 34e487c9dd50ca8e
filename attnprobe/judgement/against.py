"""What speaks against a verdict, in sentences with their numbers: it is shown with every one."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.judgement.effects import Effects
from attnprobe.judgement.rule import EXPLAINS, MISLEADS, UNDECIDED, Reading, Thresholds, ranked


def against(
    verdict: str,
    scores: Float[Tensor, " unit"],
    pieces: Sequence[str],
    readings: Sequence[Reading],
    evidence: Sequence[Reading],
    effects: Sequence[Effects],
    lacking: Mapping[str, str],
    thresholds: Thresholds,
) -> tuple[str, ...]:
    """Other readings, units that do not fit, units near the border, and operators that had no say."""
    deciding = [one for one in effects if one.operator in {reading.operator for reading in readings}]
    return (
        *_other_readings(verdict, readings, evidence),
        *_misfits(verdict, scores, pieces, deciding, thresholds),
        *_near_the_border(verdict, pieces, deciding, thresholds),
        *_without_a_say(readings, lacking),
    )


def _other_readings(verdict: str, readings: Sequence[Reading], evidence: Sequence[Reading]) -> Iterator[str]:
    for reading in readings:
        if verdict == UNDECIDED and reading.call is not None:
            yield f"under {reading.operator} alone it {reading.call}: {reading.reason}"
    for reading in evidence:
        if verdict != UNDECIDED and reading.call != verdict:
            said = reading.call or "is neither"
            yield f"under {reading.operator}, which does not decide, it {said}: {reading.reason}"
        if verdict == UNDECIDED and reading.call is not None:
            yield f"under {reading.operator}, which does not decide, it {reading.call}: {reading.reason}"


def _misfits(
    verdict: str, scores: Tensor, pieces: Sequence[str], effects: Sequence[Effects], t: Thresholds
) -> Iterator[str]:
    """The unit that fits the verdict least, under each operator that decides."""
    if len(scores) < 2 or verdict == UNDECIDED:
        return
    ranks = ranked(scores)
    for one in effects:
        share = one.relative
        acting, idle = share >= t.effective, share < t.effective
        if verdict == MISLEADS and bool(acting.any()):
            best = int(torch.where(acting, ranks, -1).argmax())
            place = 1 + int((ranks > ranks[best]).sum())
            yield (
                f"under {one.operator} '{pieces[best]}' acts ({share[best]:.0%} of the largest effect) and has place "
                f"{place} of {len(ranks)} in the map"
            )
        if verdict == EXPLAINS and bool(acting.any()) and bool(idle.any()):
            last = int(ranks[acting].min())
            above = idle & (ranks > last)
            if bool(above.any()):
                worst = int(torch.where(above, -share, -torch.inf).argmax())
                yield (
                    f"under {one.operator} '{pieces[worst]}' has {share[worst]:.0%} of the largest effect and stands "
                    "above a unit that acts"
                )


def _near_the_border(verdict: str, pieces: Sequence[str], effects: Sequence[Effects], t: Thresholds) -> Iterator[str]:
    """Units of which it is not told whether they act, as far as their effect is known."""
    if verdict == UNDECIDED:
        return
    for one in effects:
        share, largest = one.relative, float(one.values.max())
        error = one.standard_error.nan_to_num(0.0) / (largest or 1.0)
        near = (share >= t.idle) & (share < t.effective) | ((share - t.effective).abs() < error)
        for index in near.nonzero().flatten().tolist()[:3]:
            between = t.idle <= float(share[index]) < t.effective
            where = f"between the {t.idle:.0%} below which a unit is idle and" if between else "near"
            yield (
                f"under {one.operator} '{pieces[index]}' has {share[index]:.0%} ± {error[index]:.0%} of the largest "
                f"effect, {where} the {t.effective:.0%} from which it counts as acting"
            )


def _without_a_say(readings: Sequence[Reading], lacking: Mapping[str, str]) -> Iterator[str]:
    for operator, reason in lacking.items():
        yield f"{operator} had no say: {reason}"
    if len(readings) == 1:
        yield f"{readings[0].operator} decides alone; on planted models one operator is wrong more often than two"
