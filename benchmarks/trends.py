"""Published trends on models trained here: tables, five figures and the page TRENDS.md.

Run: .venv/bin/python benchmarks/trends.py   (one thread; --again forgets what .cache/trends holds)

Trains three transformers on subject-verb agreement and some dozens of small readers, each once, and asks the questions
of Abnar & Zuidema 2020, Jain & Wallace 2019, Serrano & Smith 2019 and Wiegreffe & Pinter 2019 of them. Interrupted and
started again it goes on where it was. --seeds, --texts for a shorter look.
"""

import argparse
import shutil
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from tqdm.auto import tqdm

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.published import attending, bundled, depth, pictures, training
from benchmarks.published.keeping import FOLDER, kept_table
from benchmarks.published.page import page

HERE = Path(__file__).parent
RESULTS = HERE / "TRENDS.md"
SEEDS, TEXTS, SEARCHED, SENTENCES = 3, 60, 10, 12

Measure = Callable[[int], pd.DataFrame]


def measured(name: str, measure: Measure, n_seeds: int) -> pd.DataFrame:
    """A table of all seeds, each measured once."""
    parts = []
    for seed in tqdm(range(n_seeds), desc=name, unit="seed", disable=None):
        parts.append(kept_table(f"{name}-{seed}", partial(measure, seed)).assign(seed=seed))
    return pd.concat(parts, ignore_index=True)


def tables(n_seeds: int, n_texts: int) -> dict[str, pd.DataFrame]:
    """What all was measured, by the name of the figure that shows it."""
    searched = min(SEARCHED, n_texts)
    measures: dict[str, Measure] = {
        f"depth-{n_texts}": lambda seed: depth.measure(seed, n_texts),
        f"attention-{n_texts}": lambda seed: attending.measure(seed, n_texts, searched),
        f"training-{n_texts}": lambda seed: training.measure(seed, 2 * n_texts),
    }
    found = {name.split("-")[0]: measured(name, measure, n_seeds) for name, measure in measures.items()}
    n_sentences = min(SENTENCES, n_texts)
    found["bundled"] = kept_table(f"bundled-{n_sentences}", lambda: bundled.measure(n_sentences, 0))
    return found


def draw(found: dict[str, pd.DataFrame]) -> None:
    """Write the figures."""
    figures: dict[str, Figure] = {
        "layers": pictures.depth_picture(found["depth"]),
        "attention": pictures.attention_picture(found["attention"]),
        "flips": pictures.flips_picture(found["attention"]),
        "training": pictures.training_picture(found["training"]),
        "bundled": pictures.bundled_picture(found["bundled"]),
    }
    for name, figure in figures.items():
        figure.savefig(HERE / f"trends-{name}.png", dpi=130)


def main() -> None:
    """Measure what is not there yet, draw, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="train and measure everything anew")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many (default %(default)s)")
    parser.add_argument("--texts", type=int, default=TEXTS, help="texts of each measurement (default %(default)s)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if given.again:
        shutil.rmtree(FOLDER, ignore_errors=True)
    found = tables(given.seeds, given.texts)
    draw(found)
    RESULTS.write_text(page(found), encoding="utf-8")
    print(f"{RESULTS} and five figures beside it")


if __name__ == "__main__":
    main()
