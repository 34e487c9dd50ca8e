"""Two full comparisons: the bundled sentiment model on sentences, and rxnfp's reaction classifier on reactions.

Run: .venv/bin/python benchmarks/studies.py [sentiment|held_out|reactions ...]   (all three without a name)

    sentiment   120 sentences of benchmarks/studied/sentences.csv   -> reports/sentiment.html and its tables
    held_out    100 rated film sentences that the model never saw   -> reports/held_out/, tables without any text
    reactions   100 reactions of benchmarks/studied/reactions.py    -> reports/reactions.html and its tables

Finished examples are kept in .cache/studies, so what was interrupted goes on. The rated sentences are fetched with pip
into .cache and never kept in the project; rxnfp is what `python tests/real/fetch.py` brings. Where one cannot be had,
its study is left out with a word.
"""

import argparse
import csv
import os
import random
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe import compare, load
from attnprobe.comparison import Comparison
from attnprobe.models.bundled.data import download, make_splits, read_sentences
from benchmarks.studied.learned import of_held_out, of_reactions, of_sentences
from benchmarks.studied.reactions import reactions
from tests.real.fetch import RXNFP
from tests.real.smiles import load_rxnfp, smiles_tokenizer

HERE = Path(__file__).parent
REPORTS, CACHE = HERE.parent / "reports", HERE.parent / ".cache"
# What `attnprobe report --config` reads too; the other two read what the command line cannot: data fetched with pip, a
# tokenizer of the project's own.
WRITTEN = tomllib.loads((REPORTS / "sentiment.toml").read_text("utf-8"))
SENTENCES = (REPORTS / WRITTEN["file"]).resolve()
N_HELD_OUT, N_WORDS = 100, 12
# Of 100 examples these have up to some megabytes each, so they are not kept.
LARGE = tuple(WRITTEN["without"])
# Attention maps of the first texts only, so that a page stays small.
MAP_BYTES = WRITTEN["map-bytes"]
# What a table says of a text in words, which quotes it.
QUOTING = ("reason", "against", "causes")
WITHOUT_TEXTS = ("operators", "agreement", "faithfulness", "curves", "tests", "stability", "verdict_shares", "costs")
COMMAND = ".venv/bin/python benchmarks/studies.py"


@dataclass(frozen=True)
class Job:
    """One study: how its comparison is made, what was learned from it, and what is kept."""

    make: Callable[[], tuple[Any, Sequence[str]]]
    learned: Callable[[Comparison, Sequence[str]], tuple[str, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)
    page: bool = True


def sentiment() -> tuple[Any, list[str]]:
    """The bundled model, and the sentences that were written for it."""
    return load(WRITTEN["model"]), [row["text"] for row in rows_of(SENTENCES)]


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a head."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def held_out() -> tuple[Any, list[str]]:
    """The bundled model, and film sentences of the part of the data that neither training nor choosing has seen."""
    test = [rated.text for rated in make_splits(read_sentences(download(CACHE))).test]
    short = [text for text in test if len(text.split()) <= N_WORDS]
    return load("attnprobe/sentiment"), random.Random(0).sample(sorted(short), N_HELD_OUT)


def reaction_classes() -> tuple[Any, list[str]]:
    """rxnfp's classifier of 50 classes, which have no names, and reactions made from templates."""
    if not RXNFP.folder.is_dir():
        raise OSError(f"{RXNFP} was not fetched: run `python tests/real/fetch.py` with a package registry in reach")
    module = load_rxnfp(RXNFP.folder)
    module.config.id2label = {number: f"class {number}" for number in range(module.config.num_labels)}
    module.config.label2id = {name: number for number, name in module.config.id2label.items()}
    return load((module, smiles_tokenizer(RXNFP.folder)), name="rxnfp"), [one.smiles for one in reactions()]


JOBS = {
    "sentiment": Job(sentiment, of_sentences, {"n_random": WRITTEN["n-random"]}),
    "held_out": Job(held_out, of_held_out, {"n_random": WRITTEN["n-random"]}, page=False),
    # A reaction takes some thousand passes of twelve layers, so these are the least of everything: 20 random orders, 5
    # permutations, 50 steps, no search for the best order.
    "reactions": Job(
        reaction_classes,
        of_reactions,
        {
            "n_random": 20,
            "oracle": False,
            "options": {
                "shapley_sampling": {"n_samples": 5},
                "integrated_gradients": {"n_steps": 50, "max_steps": 50},
            },
        },
    ),
}


def made(name: str, limit: int | None = None) -> tuple[Comparison, Sequence[str]]:
    """The comparison of a study, from its folder as far as it is there, and its texts."""
    job = JOBS[name]
    model, texts = job.make()
    texts = list(texts)[:limit]
    folder = CACHE / "studies" / (name if limit is None else f"{name}-{limit}")
    return compare(model, texts, folder=folder, **job.options), texts


def keep(name: str, comparison: Comparison, texts: Sequence[str]) -> None:
    """The page and its tables, or of sentences that are not ours the tables that quote none; what was learned."""
    said = JOBS[name].learned(comparison, texts)
    if JOBS[name].page:
        path = REPORTS / f"{name}.html"
        comparison.report(path, command=f"{COMMAND} {name}", summary=said, without=LARGE, map_bytes=MAP_BYTES)
    else:
        keep_numbers(REPORTS / name, comparison)
    readme = REPORTS / "README.md"
    readme.write_text(learned_into(readme.read_text(encoding="utf-8"), name, said), encoding="utf-8")


def keep_numbers(folder: Path, comparison: Comparison) -> None:
    """The tables that hold nothing of a text."""
    folder.mkdir(exist_ok=True)
    for table in WITHOUT_TEXTS:
        comparison.tables[table].to_csv(folder / f"{table}.csv", index=False)
    verdicts = comparison.verdicts.drop(columns=[c for c in QUOTING if c in comparison.verdicts])
    verdicts.to_csv(folder / "verdicts.csv", index=False)


def learned_into(page: str, name: str, said: Sequence[str]) -> str:
    """The page of reports with these sentences between the two marks of a study.

    >>> print(learned_into("<!-- a -->\\nold\\n<!-- /a -->", "a", ["One.", "Two."]))
    <!-- a -->
    1. One.
    2. Two.
    <!-- /a -->
    """
    before, mark, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not mark or not end:
        raise ValueError(
            f"the page has no place for '{name}': <!-- {name} --> and <!-- /{name} --> on lines of their own"
        )
    lines = "".join(f"{number}. {one}\n" for number, one in enumerate(said, 1))
    return before + mark + lines + end + after


def main() -> None:
    """Make the studies that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*JOBS, []], help="which studies; all of them without a name")
    parser.add_argument("--limit", type=int, help="the first so many examples only; nothing is written")
    given = parser.parse_args()
    for name in given.names or JOBS:
        before = sum(os.times()[:2])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                comparison, texts = made(name, given.limit)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{name}: left out, {error}")
            continue
        if given.limit is None:
            keep(name, comparison, texts)
        print(f"{name}: {len(texts)} examples, {sum(os.times()[:2]) - before:.0f} s of CPU time")


if __name__ == "__main__":
    main()
