"""How often the verdict on a map is wrong, on random planted models: writes VERDICTS.md.

Run: .venv/bin/python benchmarks/verdicts.py   (two processes, about a quarter of an hour of two free cores)
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
from tqdm.auto import tqdm

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from attnprobe.benchmark.verdicts import Calibration, Case, benchmark_verdicts
from attnprobe.benchmark.verdicts_measuring import MAPS, Measured, measure
from attnprobe.benchmark.verdicts_summary import Rate, by_family, judged_with, rates, twins
from attnprobe.judgement.rule import RULE, Thresholds
from attnprobe.models.planted.families import FAMILIES

HERE = Path(__file__).parent
RESULTS = HERE / "VERDICTS.md"
# Variants of each family for what is tried beside the rule as it is.
N_BESIDE = 20
NUMBERS = ("effective", "idle", "miss", "order", "top", "chance", "half")

PAGE = """# The verdict: the rule, and how often it is wrong

## The rule

Whether a map of the tokens *explains* a prediction, *misleads*, or cannot be told (*undecided*) is decided by what the
tokens do, and by nothing else.

1. **Effects.** Units (tokens that may be taken away) are removed one after another in random orders, each order
   followed by its reverse. The effect of unit *j* is the mean change of the explained number y when it goes:

       e_j = mean over orders of |y before j goes − y after j has gone|

   over 16 orders, and up to 64 while a standard error is above {tolerance:.0%} of the largest effect. (Leaving out one
   unit alone does not see what another makes up for.)
2. **Two operators decide.** *mean*: the mean embedding in the token's place. *resample*: the token at the same place of
   another input of the kind. Both leave the key in the softmax. Value zeroing, operators that take the key out and
   deletion areas are evidence: they are shown, and decide nothing. An operator that a model does not have has no say,
   and the verdict says so.
3. **Under each operator** a unit *acts* if e_j ≥ {effective:g} of the largest effect and is *idle* if
   e_j < {idle:g} of it; in between it is not told which. With k the number of units that act,

       M = 1 − e(first k units of the map) / e(best k units)     e(set): sum of its effects
       A = chance that the map puts a unit that acts above one that is idle (AUC, ties count half)
       T = largest effect among the map's first units (those that tie for the first place) / largest effect

   **explains**: M ≤ {miss:g} and A ≥ {order:g}. **misleads**: T < {top:g} and A ≤ {chance:g}.
4. **A verdict stands only where every operator that decides gives it**, and *explains* only where the map has no pair
   in the wrong order: a unit that acts below one that has at most {half:g} of its effect under every operator.
5. **Everything else is undecided**, with the reason: the operators disagree; the map ranks some but not all (neither
   of the two holds under any operator); a map that is 0 everywhere or the same for all; one unit alone; no unit that
   acts, or none that is idle.

Scores with a direction are taken by their size, as effects are. What speaks against a verdict is shown with it.

## How often it is wrong

{n_families} families of planted models, {n_variants} random variants of each ({shortest} to {longest} tokens; weights,
constants, places of the tokens, little influences of the others and the basis are random), five maps of each:
{maps}. The truth comes from the construction. A unit is causal if other content in its place changes y by any route,
in company or alone; causal units have at least 40 % of the largest influence and all others at most 10 %, measured on
every network by exchanging contents with those of 12 other inputs in the company of every choice of the other causal
units. A map *explains* when it ranks every causal unit above every other, *misleads* when none of its first units is
causal and it ranks causal units no better than chance (AUC ≤ 0.5), and is *neither* otherwise (0 everywhere included).
The thresholds were set on every second family and scored on the others, both ways: every number in this section is
from families that had no part in setting them.

{rates}

*Up to*: upper end of Wilson's 95 % interval. Truths: {truths}.

{thresholds}

### By family

Truth → verdict; E explains, M misleads, N neither, U undecided. The last column is the share of the clear maps (E and
M) that was left undecided.

{families}

### Beside the rule as it is

The rule with its own thresholds ({rule}), and what becomes of it, on the same variants; where the effects had to be
measured anew, on {n_beside} variants of each family.

{beside}

*The rule of the first trial* has no units in between (idle below {effective:g}) and no step 4 for pairs. *16 orders*:
none are added. *Words of the vocabulary*: resampling without other inputs of the kind; here the vocabulary is the words
of those inputs, at any place. *A mean that speaks*: the mean embedding of the words of the inputs alone, which carries
the contents of causal tokens to every place (otherwise the mean is taken over 5,000 words, most of which have no
content).

### Near the boundary

{n_boundary} variants of each family but P12 in which one to three units have 10 to 40 % of the largest influence. No
rule can be right there: whether such a unit counts is a choice. Own maps, thresholds of the rule.

{boundary}

### What this does not show

- The truth was measured by exchanging contents with the same other inputs that *resample* draws from. The table says
  how well effects and maps are read from 16 to 64 random orders under two operators; it does not say that planted
  models are like trained ones.
- In every variant there is a gap between causal and other units. Trained models have none, and *undecided* is common
  there: of 72 predictions of rxnmapper 36 have no unit that is idle (reports/atom-mapping).
- *Explains* is a statement on which units act, not on how: a map that explains may still name no mechanism.
- The permuted and the foreign maps count as errors only where their own truth is not *explains*: where attention goes
  by place, the map of another input is right.
- The families whose share of undecided is above 15 % are: {above}.
"""


def main() -> None:
    found = benchmark_verdicts(workers=2)
    RESULTS.write_text(page(found, beside(N_BESIDE)), "utf-8")
    print(f"wrote {RESULTS}")


def beside(n: int) -> dict[str, list[Measured]]:
    """Some variants of each family, measured in other ways."""
    ways = {
        "16 orders": {"tolerance": None},
        "words of the vocabulary": {"with_data": False},
        "a mean that speaks": {"n_words": 0},
    }
    wanted = [(family, number) for family in FAMILIES for number in range(n)]
    bar = partial(tqdm, delay=1.0, leave=False, unit="variant")
    return {
        name: [measure(*one, causes=False, **given) for one in bar(wanted, desc=name)] for name, given in ways.items()
    }


def page(found: Calibration, more: dict[str, list[Measured]]) -> str:
    """The page, from what was measured."""
    inside = [case for case in found.cases if not case.boundary]
    own = [case for case in inside if case.kind == "own"]
    families = by_family(inside)
    above = families[(families.undecided > 0.15) & (families.family != "all")].family
    return PAGE.format(
        tolerance=0.2,
        **vars(RULE),
        n_families=len({case.family for case in inside}),
        n_variants=1 + max(case.variant for case in inside),
        shortest=min(case.n_tokens for case in inside),
        longest=max(case.n_tokens for case in inside),
        maps=", ".join(f"`{name}`" for name in MAPS),
        rates=_rates(inside, twins(found)),
        truths=", ".join(f"{sum(c.truth == t for c in own):,} {t}" for t in ("explains", "misleads", "neither")),
        thresholds=_thresholds(found),
        families=_families(families),
        rule=", ".join(f"{name} {getattr(RULE, name):g}" for name in NUMBERS),
        n_beside=N_BESIDE,
        beside=_beside(found, more),
        n_boundary=1 + max((case.variant for case in found.cases if case.boundary), default=-1),
        boundary=_boundary([case for case in found.cases if case.boundary]),
        above=", ".join(above) or "none",
    )


def _table(frame: pd.DataFrame) -> str:
    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|---" + "|---:" * (len(frame.columns) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in frame.to_numpy().tolist())])


def _percent(share: float) -> str:
    return "" if share != share else f"{100 * share:.1f} %"


def _rates(cases: Sequence[Case], pairs: tuple[int, int]) -> str:
    rows = [(r.name, r.count, f"{r.n:,}", _percent(r.share), _percent(r.high), _percent(r.bar)) for r in rates(cases)]
    rows.append(("twins in conflict, both called explains", pairs[0], f"{pairs[1]:,}", "", "", "0.0 %"))
    return _table(pd.DataFrame(rows, columns=["what should not happen", "count", "of", "share", "up to", "bar"]))


def _thresholds(found: Calibration) -> str:
    rows = [
        (", ".join(half), *(f"{getattr(given, name):g}" for name in NUMBERS))
        for half, given in zip(found.halves, found.thresholds, strict=True)
    ]
    return _table(pd.DataFrame(rows, columns=["scored with thresholds of the other half", *NUMBERS]))


def _families(frame: pd.DataFrame) -> str:
    short = {"explains": "E", "misleads": "M", "neither": "N", "undecided": "U"}
    names = {c: "→".join(short[part] for part in c.split(" → ")) for c in frame.columns[1:-1]}
    return _table(frame.rename(columns=names).assign(undecided=[_percent(x) for x in frame.undecided]))


def _beside(found: Calibration, more: dict[str, list[Measured]]) -> str:
    trial = replace(RULE, idle=RULE.effective, half=-1.0)
    ways: dict[str, tuple[Sequence[Measured], Thresholds, list[str] | None]] = {
        "the rule": (found.measured, RULE, None),
        "the rule of the first trial": (found.measured, trial, None),
        "mean alone": (found.measured, RULE, ["mean"]),
        "resample alone": (found.measured, RULE, ["resample"]),
        **{name: (measured, RULE, None) for name, measured in more.items()},
    }
    rows = []
    for name, (measured, thresholds, operators) in ways.items():
        known = rates(judged_with(measured, thresholds, operators))
        rows.append((name, *(_of(rate) for rate in known)))
    heads = [
        "",
        "M called E",
        "E called M",
        "N called E",
        "N called M",
        "clear, undecided",
        "permuted, foreign called E",
    ]
    return _table(pd.DataFrame(rows, columns=heads))


def _of(rate: Rate) -> str:
    return f"{_percent(rate.share)} ({rate.count} of {rate.n:,})"


def _boundary(cases: Sequence[Case]) -> str:
    """Truth with such units idle, and with them acting, beside the verdict."""
    frame = pd.DataFrame([vars(case) for case in cases if case.kind == "own"])
    table = frame.groupby(["truth", "truth_if_they_act", "verdict"]).size().unstack(fill_value=0).reset_index()
    return _table(table.rename(columns={"truth": "truth if they are idle", "truth_if_they_act": "truth if they act"}))


if __name__ == "__main__":
    main()
