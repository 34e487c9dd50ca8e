"""Time of compare() where it does the most: 12 methods, three operators, 200 random orders, 20 sentences.

Run: .venv/bin/python benchmarks/comparing.py   (writes benchmarks/COMPARING.md; --profile prints where the time goes)

The bars, on two cores: comprehensiveness and sufficiency at ERASER's five bins and the deletion area, on the bundled
model and sentences of up to 20 words, below 120 seconds; and the whole report of one long text of a small model of
12 x 12 heads, with everything that is made by default, below 50 seconds and 2 MB.
"""

import argparse
import cProfile
import os
import pstats
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers

from attnprobe import compare, load
from attnprobe.choosing import DEFAULT
from attnprobe.models.evaluator import Meter
from benchmarks.compare import machine, sentences, table

RESULTS = Path(__file__).parent / "COMPARING.md"
METHODS = [name for name in DEFAULT if name != "random_scores"][:12]
N_RANDOM, N_WORDS, BAR = 200, 20, 120
# The long text: random word numbers, on a random model with attention spread over all of it.
N_LAYERS, N_HEADS, N_TOKENS, D_MODEL, PAGE_BAR = 12, 12, 128, 48, 50


def load_average() -> float:
    """How many processes want to run."""
    return os.getloadavg()[0]


def texts() -> list[str]:
    """20 sentences of up to 20 words."""
    return [" ".join(text.split()[:N_WORDS]) for text in sentences()]


def measure(verdicts: bool) -> tuple[Any, dict[str, Any]]:
    """One comparison, and what it took."""
    model = load("attnprobe/sentiment")
    compare(model, texts()[:1], METHODS[:2], n_random=2, n_resamples=10, verdicts=False, progress=False)
    with Meter() as meter:
        started, started_cpu = time.perf_counter(), time.process_time()
        found = compare(model, texts(), METHODS, n_random=N_RANDOM, verdicts=verdicts)
        seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    units = [int(study.attributions[0].units.sum()) for study in found.studies]
    facts = {
        "verdicts": "yes" if verdicts else "no",
        "wall time, s": round(seconds, 1),
        "CPU time, s": round(cpu, 1),
        "of it running the model, s": round(found.seconds, 1),
        "forward passes": meter.forward,
        "backward passes": meter.backward,
        "tokens that may go, mean": round(statistics.mean(units), 1),
    }
    return found, facts


def measure_page() -> dict[str, Any]:
    """The whole report of one long text, as `compare` and `report` make it where nothing is said; and what it took."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=D_MODEL,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        intermediate_size=4 * D_MODEL,
        vocab_size=2000,
        num_labels=2,
    )
    model = load(transformers.BertForSequenceClassification(config).eval())
    example = model.example(torch.randint(5, 1990, (N_TOKENS,)))
    with Meter() as meter, tempfile.TemporaryDirectory() as folder:
        started, started_cpu = time.perf_counter(), time.process_time()
        found = compare(model, [example])
        compared = time.perf_counter()
        page = found.report(Path(folder) / "page.html")
        ended = time.perf_counter()
        return {
            "wall time, s": round(ended - started, 1),
            "CPU time, s": round(time.process_time() - started_cpu, 1),
            "of it writing the page, s": round(ended - compared, 1),
            "page, MB": round(page.stat().st_size / 1e6, 2),
            "methods": len(found.methods),
            "forward passes": meter.forward,
        }


def main() -> None:
    """Measure and write COMPARING.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.profile:
        with cProfile.Profile() as profile:
            measure(False)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(60)
        return
    load_before = load_average()
    page = measure_page()
    runs = [measure(verdicts) for verdicts in (False, True)]
    found = runs[0][0]
    text = "\n".join(
        [
            "# How long a full comparison takes\n",
            "Made by `.venv/bin/python benchmarks/comparing.py`.\n",
            f"Machine: {machine()}; threads: {torch.get_num_threads()}; load when it began: {load_before:.1f}. Where "
            "others use the machine, the CPU time says more than the wall time.\n",
            f"{len(found.studies)} sentences of up to {N_WORDS} words, {len(METHODS)} methods, "
            f"{', '.join(found.settings.operators)}, {N_RANDOM} random orders; "
            f"{', '.join(dict.fromkeys(found.faithfulness.metric))}. The bar is {BAR} s.\n",
            table(pd.DataFrame([facts for _, facts in runs])),
            "\n## The whole report of one long text\n",
            f"{N_TOKENS} tokens, a random BERT of {N_LAYERS} x {N_HEADS} heads, d_model {D_MODEL}; all that `compare` "
            f"and `report` make where nothing is said. The bars are {PAGE_BAR} s and 2 MB. With a larger model the "
            "passes take their time: multiply their number by what a row of yours takes.\n",
            table(pd.DataFrame([page])),
            "",
        ]
    )
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
