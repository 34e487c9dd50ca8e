"""Capture on a tiny model of every model type that transformers has.

Run: .venv/bin/python benchmarks/coverage.py            (all types: benchmarks/coverage.csv and COVERAGE.md)
     .venv/bin/python benchmarks/coverage.py bloom led  (these alone, to the terminal)
"""

import argparse
import csv
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from tqdm.auto import tqdm

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.covering import COLUMNS, Measured, measure
from benchmarks.covering.forking import forked
from benchmarks.covering.measuring import row_of
from benchmarks.covering.tables import badge, write_coverage
from benchmarks.tiny_models import build, model_types

HERE = Path(__file__).parent


def measured(types: list[str], jobs: int, path: Path | None) -> list[Measured]:
    """A row for each type, in the order given; each is on disk as soon as it is known."""
    rows: dict[str, Measured] = {}
    for name, found, why in tqdm(forked(measure, types, jobs=jobs), total=len(types), unit="type"):
        rows[name] = found or replace(Measured(name), reason=why)
        if path is not None:
            write(list(rows.values()), path)
    return [rows[name] for name in types]


def write(rows: list[Measured], path: Path | None) -> None:
    """The table as CSV, to a file or to the terminal."""
    stream = sys.stdout if path is None else path.open("w", newline="", encoding="utf-8")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([f"{v:.2g}" if isinstance(v, float) else v for v in row_of(row)] for row in rows)
    if path is not None:
        stream.close()


def main() -> None:
    """Reads which types to measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", help="model types; none: all of them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--csv", type=Path, help="where to write (default: benchmarks/coverage.csv for all types)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    build("llama")  # imports, once for all children, what nearly every model needs
    path = arguments.csv or (None if arguments.types else HERE / "coverage.csv")
    rows = measured(arguments.types or model_types(), arguments.jobs, path)
    write(rows, path)
    if not arguments.types:
        write_coverage(rows, HERE)
        print(badge(rows))


if __name__ == "__main__":
    main()
