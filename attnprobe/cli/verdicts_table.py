"""The tables of `attnprobe benchmark verdicts`."""

import math
from collections.abc import Sequence

from attnprobe.benchmark.verdicts import Calibration, Case
from attnprobe.benchmark.verdicts_summary import by_family, rates, twins
from attnprobe.cli.printing import show_note, show_table
from attnprobe.judgement.rule import RULE, Thresholds

LEGEND = (
    "Truth → verdict, counts of maps: E explains, M misleads, N neither, U undecided. The last column is the share of "
    "the maps that explain or mislead which were left undecided."
)
HELD_OUT = "Thresholds were set on the other half of the families."
AS_IT_IS = "With one family there is no other half to set thresholds on: those of the rule are used."
FEW = "So few maps cannot show that a bar is kept: the whole benchmark has 120 variants of each family."
# So many maps of a truth show a share of 1 % at most where none is wrong (Wilson, 95 %).
ENOUGH = 380


def show(found: Calibration) -> None:
    """Error rates, then a row a family."""
    inside = [case for case in found.cases if not case.boundary]
    found_rates = rates(inside)
    rows = [[r.name, str(r.count), str(r.n), *map(percent, (r.share, r.high, r.bar))] for r in found_rates]
    both, conflicting = twins(found)
    rows.append(["twins in conflict, both called explains", str(both), str(conflicting), "", "", "0 %"])
    show_table(["what should not happen", "count", "of", "share", "up to", "bar"], rows)
    print()
    _show_families(inside)
    print()
    apart = bool(found.halves[1])
    for side, thresholds in zip(found.halves, found.thresholds, strict=True):
        if side:
            show_note(f"{', '.join(side)}: {in_words(thresholds if apart else RULE)}")
    few = [FEW] if min((rate.n for rate in found_rates), default=0) < ENOUGH else []
    show_note(" ".join([LEGEND, HELD_OUT if apart else AS_IT_IS, *few]))


def _show_families(inside: Sequence[Case]) -> None:
    frame = by_family(inside)
    short = {"explains": "E", "misleads": "M", "neither": "N", "undecided": "U"}
    heads = [" → ".join(short[word] for word in name.split(" → ")) for name in frame.columns[1:-1]]
    rows = [
        [str(values[0]), *map(str, values[1:-1]), percent(values[-1])]
        for values in (list(row.values()) for row in frame.to_dict("records"))
    ]
    show_table(["family", *(head.replace(" ", "") for head in heads), "undecided"], rows)


def percent(share: float) -> str:
    """A share with one digit; nothing where it is not defined."""
    return "" if math.isnan(share) else f"{100 * share:.1f} %"


def in_words(thresholds: Thresholds) -> str:
    """The numbers of the rule by name."""
    return ", ".join(f"{name} {value:g}" for name, value in vars(thresholds).items())
