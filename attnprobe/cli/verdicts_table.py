"""The tables of `attnprobe benchmark verdicts`."""

import math

from rich.console import Console
from rich.table import Table

from attnprobe.benchmark.verdicts import Calibration
from attnprobe.benchmark.verdicts_summary import by_family, rates, twins
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
    console = Console(highlight=False)
    inside = [case for case in found.cases if not case.boundary]
    table = Table("what should not happen", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for head in ("count", "of", "share", "up to", "bar"):
        table.add_column(head, justify="right")
    for rate in rates(inside):
        table.add_row(rate.name, str(rate.count), str(rate.n), *map(percent, (rate.share, rate.high, rate.bar)))
    both, conflicting = twins(found)
    table.add_row("twins in conflict, both called explains", str(both), str(conflicting), "", "", "0 %")
    console.print(table)
    console.print()
    console.print(_families(found))
    apart = bool(found.halves[1])
    for side, thresholds in zip(found.halves, found.thresholds, strict=True):
        if side:
            console.print(f"{', '.join(side)}: {in_words(thresholds if apart else RULE)}", markup=False)
    few = [FEW] if min((rate.n for rate in rates(inside)), default=0) < ENOUGH else []
    console.print(" ".join([LEGEND, HELD_OUT if apart else AS_IT_IS, *few]), markup=False)


def _families(found: Calibration) -> Table:
    table = Table("family", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    frame = by_family([case for case in found.cases if not case.boundary])
    short = {"explains": "E", "misleads": "M", "neither": "N", "undecided": "U"}
    for name in frame.columns[1:-1]:
        truth, verdict = name.split(" → ")
        table.add_column(f"{short[truth]}→{short[verdict]}", justify="right")
    table.add_column("undecided", justify="right")
    for row in frame.to_dict("records"):
        values = list(row.values())
        table.add_row(str(values[0]), *map(str, values[1:-1]), percent(values[-1]))
    return table


def percent(share: float) -> str:
    """A share with one digit; nothing where it is not defined."""
    return "" if math.isnan(share) else f"{100 * share:.1f} %"


def in_words(thresholds: Thresholds) -> str:
    """The numbers of the rule by name."""
    return ", ".join(f"{name} {value:g}" for name, value in vars(thresholds).items())
