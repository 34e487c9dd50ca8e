"""The verdict on maps of long texts: the rule of VERDICTS.md on planted models of 70 to 128 tokens; LONG_VERDICTS.md.

Run: .venv/bin/python benchmarks/long_verdicts.py   (about ten minutes of one free core)

VERDICTS.md has texts of 8 to 40 tokens, on which the thresholds were set. Nothing is set here.
"""

import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import pandas as pd
import torch
from tqdm.auto import tqdm

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe.benchmark.verdicts import TRUTHS, judged
from attnprobe.benchmark.verdicts_measuring import measure
from attnprobe.judgement.rule import VERDICTS
from attnprobe.models.planted.families import FAMILIES
from benchmarks.compare import machine, table

RESULTS = Path(__file__).parent / "LONG_VERDICTS.md"
N_VARIANTS, LENGTHS = 3, (70, 128)


def main() -> None:
    """Measure and write LONG_VERDICTS.md."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started, load = time.process_time(), os.getloadavg()[0]
    counts: Counter[tuple[str, str]] = Counter()
    orders, wrong = [], []
    for family, number in tqdm([(family, number) for family in FAMILIES for number in range(N_VARIANTS)]):
        one = measure(family, number, lengths=LENGTHS, causes=False)
        orders += [effects.n_orders for effects in one.effects]
        for case in judged(one):
            counts[case.truth, case.verdict] += 1
            if case.verdict not in ("undecided", case.truth):
                wrong.append(
                    f"- {family}, variant {number}, {case.map}: {case.truth}, called {case.verdict}: {case.reason}"
                )
    rows = [{"truth": t, **{v: counts[t, v] for v in VERDICTS}} for t in TRUTHS]
    text = "\n".join(
        [
            "# The verdict on maps of long texts\n",
            "Made by `.venv/bin/python benchmarks/long_verdicts.py`.\n",
            f"Machine: {machine()}; load when it began: {load:.1f}; CPU time: {time.process_time() - started:.0f} s.\n",
            f"{len(FAMILIES)} families x {N_VARIANTS} variants of {LENGTHS[0]} to {LENGTHS[1]} tokens, the maps of "
            "[VERDICTS.md](VERDICTS.md), also with their tokens shuffled and those of another input; the rule as it "
            f"is. Effects over {min(orders)} to {max(orders)} orders. In the rows the truth by construction, in the "
            "columns the verdict.\n",
            table(pd.DataFrame(rows)),
            "\nCalled what they are not:\n\n" + "\n".join(wrong) if wrong else "\nNone is called what it is not.",
            "",
        ]
    )
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
