"""Are heads that are known from elsewhere found blind? Writes benchmarks/FOUND_BLIND.md and its pictures.

Run: .venv/bin/python benchmarks/found_blind.py   (one thread, a quarter of an hour; --again forgets .cache/found)

SmolLM2's induction heads, by the probe alone, and what it costs to silence them; a decoder of two layers that learns
induction here beside one of one layer that does not; rxnmapper's head 5, which maps atoms, among its 96 heads. Models
come from the package registry; where one cannot be had, its part is left out and the page says so.
"""

import argparse
import shutil
import sys
import warnings
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from tqdm.auto import tqdm

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe.head_figures import head_maps
from attnprobe.heads import head_scores
from attnprobe.models.model import Model
from attnprobe.provenance import provenance
from benchmarks.atom_mapping import rxnmapper
from benchmarks.found import learning, page, pictures, repeats, sources
from benchmarks.mapping.naming import ANY, ELEMENT
from benchmarks.mapping.reading import tokens_of
from benchmarks.published.keeping import kept_table
from benchmarks.reactions import read_reactions
from benchmarks.swapping import smollm2
from tests.real.fetch import NotFetchedError

HERE = Path(__file__).parent
RESULTS, CACHE = HERE / "FOUND_BLIND.md", HERE.parent / ".cache" / "found"
N_TEXTS, N_DRAWS, N_FRONT, N_SEEDS = 8, 24, 5, 3


def silencing(model: Model, n_texts: int, n_draws: int) -> tuple[pd.DataFrame, pd.DataFrame, repeats.Heads]:
    """The probes of every head; the loss with nothing, the five in front, and draws of five others silenced."""
    scores = kept_table("smollm2-probes", partial(repeats.probed, model), CACHE)
    front = repeats.in_front(scores, "induction", N_FRONT)
    draws = repeats.drawn_others(front, model.stacks[0], n_draws)
    sets = {repeats.NOTHING: (), repeats.FRONT: front} | {f"draw {at}": heads for at, heads in enumerate(draws)}
    texts = repeats.texts_of(model, n_texts)
    lost = kept_table(f"smollm2-loss-{n_texts}-{n_draws}", partial(repeats.losses, model, texts, sets), CACHE)
    return scores, lost, front


def part_of_smollm2(n_texts: int, n_draws: int) -> list[str]:
    """The part of the page on SmolLM2, and its picture."""
    model = smollm2()
    if isinstance(model, str):
        return page.left_out(model)
    scores, lost, front = silencing(model, n_texts, n_draws)
    pictures.smollm2(scores, lost, front).savefig(HERE / "found-smollm2.png", dpi=110)
    return page.smollm2(model.name, scores, lost, front)


def part_of_learning(n_seeds: int) -> list[str]:
    """The part of the page on what is trained here, and its picture."""
    parts = [
        kept_table(f"learning-{n_layers}-{seed}", partial(learning.learned, n_layers, seed), CACHE)
        for n_layers in learning.N_STEPS
        for seed in tqdm(range(n_seeds), desc=f"layers: {n_layers}", unit="training", disable=None)
    ]
    table = pd.concat(parts, ignore_index=True)
    pictures.learning(table, page.LEARNED).savefig(HERE / "found-learning.png", dpi=110)
    return page.learning(table)


def part_of_rxnmapper() -> list[str]:
    """The part of the page on rxnmapper, and its picture."""
    try:
        model = rxnmapper()
    except (NotFetchedError, OSError) as error:
        return page.left_out(f"rxnmapper is left out: {error}")
    read = [tokens_of(model, reaction) for reaction in read_reactions()]
    found = sources.profiled(model, read, list(head_scores))
    shown = [sources.SCORES[ELEMENT], sources.SCORES[ANY], "same_token"]
    head_maps(found, shown, columns=3).savefig(HERE / "found-sources.png", dpi=110)
    return page.rxnmapper(found, read)


def main() -> None:
    """Measure and write FOUND_BLIND.md."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--texts", type=int, default=N_TEXTS, help="repeated texts for the loss (default %(default)s)")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="sets of five other heads (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="trainings of each depth (default %(default)s)")
    parser.add_argument("--again", action="store_true", help="measure what is in .cache/found again")
    given = parser.parse_args()
    if given.again:
        shutil.rmtree(CACHE, ignore_errors=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    versions = ", ".join(f"{k} {v}" for k, v in provenance().items() if k in ("torch", "transformers", "python"))
    lines = [
        *page.beginning(versions),
        *part_of_smollm2(given.texts, given.draws),
        *part_of_learning(given.seeds),
        *part_of_rxnmapper(),
    ]
    RESULTS.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(RESULTS.read_text("utf-8"))


if __name__ == "__main__":
    main()
