"""Does attention explain what a model of chemistry predicts? Two claims about the same maps, kept apart.

Run: .venv/bin/python benchmarks/atom_mapping.py   (writes reports/atom-mapping; finished predictions stay in .cache, so
that an interrupted run goes on)

rxnmapper (ALBERT, 12 layers of 8 heads) reads reactions; its head (10, 5) is known for naming the reactant atom that a
product atom came from. That claim is held against the list of `benchmarks/reactions.py`. The other claim, that a map
explains why the model fills in the atom that it fills in, is judged on masked product atoms.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from tqdm.auto import tqdm

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe import load
from attnprobe.models.model import Model
from attnprobe.provenance import provenance
from benchmarks.mapping import explaining, naming, page, pictures, sides, tables
from benchmarks.mapping.reading import Tokens, drawn_atoms, masked, tokens_of
from benchmarks.reactions import LIST, read_reactions
from tests.real import smiles
from tests.real.fetch import RXNMAPPER, fetch

ROOT = Path(__file__).parent.parent
OUT, CACHE = ROOT / "reports" / "atom-mapping", ROOT / ".cache" / "attnprobe-atom-mapping"
# The shortest reactions of the list are judged: a prediction takes thousands of passes. Of some of them a second
# atom is masked; and for one reaction in so many causes are sought.
JUDGED, TWICE, WHY = 60, 12, 5
HEADS = ("10.5", "11.5")
SHOWN = (*HEADS, "mean of heads, layer 10", "mean of heads, layer 11", "mean of all heads", "rollout")
# Two predictions that are drawn token by token.
EXAMPLES = {"told-by-context": ("CC(=O)Cl.CN>>CNC(C)=O", 4), "told-by-source": ("CCO.CCBr>>CCOCC", 2)}


class Question(NamedTuple):
    """A product atom to mask, and whether erasure and causes are measured there."""

    tokens: Tokens
    atom: int
    erase: bool
    why: bool


def rxnmapper() -> Model:
    """The model, fetched from the package registry the first time."""
    fetch(RXNMAPPER)
    folder = RXNMAPPER.folder
    return load((smiles.load_rxnmapper(folder), smiles.smiles_tokenizer(folder)), name=str(RXNMAPPER))


def questions(read: list[Tokens]) -> list[Question]:
    """What is asked: an atom of each of the shortest reactions, of every other one a carbon, then another of some.

    Half of the first atoms are asked about erasure too, and some about causes.
    """
    first, second = [], []
    for number, tokens in enumerate(sorted(read, key=lambda one: len(one.tokens))[:JUDGED]):
        atoms = drawn_atoms(tokens, explaining.SEED)
        one, other = atoms if number % 2 == 0 else atoms[::-1]
        first.append(Question(tokens, one, number // 4 % 2 == 0, number % WHY == 0))
        if number < TWICE:
            second.append(Question(tokens, other, False, False))
    return [*first, *second]


def shelf() -> Path:
    """Where finished predictions lie: a folder for each set of choices and versions."""
    versions = provenance()
    choices = (explaining.SEED, explaining.EVIDENCE, explaining.N_EVIDENCE, explaining.N_RANDOM, explaining.ERASED_BY)
    known = (*choices, *explaining.MAPS, *explaining.BESIDE, versions["torch"], versions["transformers"])
    folder = CACHE / hashlib.sha256(repr(known).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def records(model: Model, read: list[Tokens]) -> Iterator[dict[str, Any]]:
    """One record a prediction; those on the shelf are not made again."""
    examples = {tokens.reaction.text: model.example(tokens.reaction.text) for tokens in read}
    folder = shelf()
    for question in tqdm(questions(read), desc="masked atoms"):
        text = question.tokens.reaction.text
        path = folder / f"{hashlib.sha256(f'{text} {question.atom}'.encode()).hexdigest()[:16]}.json"
        found = json.loads(path.read_text("utf-8")) if path.is_file() else None
        if found is None or not answers(found, question):
            others = [example for other, example in examples.items() if other != text]
            asked = masked(model, question.tokens, question.atom)
            found = explaining.record(model, asked, others, erase=question.erase, why=question.why)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(found), "utf-8")
            part.rename(path)  # whole, or not at all
        yield found | ({} if question.erase else {"erasure": None}) | ({} if question.why else {"causes": None})


def answers(found: dict[str, Any], question: Question) -> bool:
    """Whether a record has all that is asked."""
    erased, sought = found["erasure"] is not None, found["causes"] is not None
    return (erased or not question.erase) and (sought or not question.why)


def named(model: Model, read: list[Tokens]) -> pd.DataFrame:
    """Every map as a map of atoms; kept on the shelf too."""
    path = shelf() / f"named-{hashlib.sha256(LIST.read_bytes()).hexdigest()[:12]}.csv"
    if not path.is_file():
        naming.named_atoms(model, read).to_csv(path, index=False)
    return pd.read_csv(path, dtype={"map": str})


def all_tables(names: pd.DataFrame, found: list[dict[str, Any]], read: list[Tokens]) -> dict[str, pd.DataFrame]:
    """Every table of the report, by the name of its file."""
    verdicts, erased = tables.verdict_rows(found), tables.erasure_rows(found)
    return {
        "head_accuracy": naming.head_table(names),
        "maps_of_atoms": naming.shares(names[~naming.is_head(names) | names["map"].isin(HEADS)], ["map", "among"]),
        "maps_of_atoms_by_template": naming.shares(names[names["map"].isin(SHOWN)], ["template", "map", "among"]),
        "heads_paired": tables.heads_paired(names),
        "verdicts": verdicts,
        "verdict_shares": tables.verdict_shares(verdicts),
        "verdict_shares_by_element": tables.verdict_shares(verdicts, ("element", "map")),
        "both_claims": tables.both_claims(verdicts),
        "named_when_masked": tables.named_when_masked(verdicts),
        "quality": tables.quality(verdicts),
        "erasure": tables.erasure(erased),
        "pairs_of_maps": tables.pairs_of_maps(verdicts, erased),
        "effects_of_parts": tables.effects_of_parts(found),
        "weights_of_parts": tables.weights_of_parts(found),
        "first_by_effect": tables.first_by_effect(found),
        "agreement_by_side": sides.agreement_by_side(found, {tokens.reaction.text: tokens for tokens in read}),
        "contexts": tables.contexts(found),
        "silenced_heads": tables.silenced_heads(found),
        "causes": tables.causes(found),
    }


def draw(found: list[dict[str, Any]], read: list[Tokens], made: dict[str, pd.DataFrame]) -> None:
    """Every figure of the report."""
    of_text = {tokens.reaction.text: tokens for tokens in read}
    chance = sum(naming.chances(of_text[r["reaction"]], r["atom"])[naming.ANY] for r in found) / len(found)
    figures = {
        "heads": pictures.heads(made["head_accuracy"], made["silenced_heads"]),
        "claims": pictures.claims(made["named_when_masked"], chance, made["verdict_shares"], made["quality"]),
        "parts": pictures.parts(made["effects_of_parts"], made["weights_of_parts"], "all"),
        "erasure": pictures.erasure(made["erasure"]),
    }
    for name, (text, atom) in EXAMPLES.items():
        record = next(r for r in found if (r["reaction"], r["atom"]) == (text, atom))
        figures[name] = pictures.one_prediction(record, of_text[text])
    for name, figure in figures.items():
        figure.savefig(OUT / f"{name}.png", dpi=110)


def main() -> None:
    """Ask, and write the report."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = rxnmapper()
    read = [tokens_of(model, reaction) for reaction in read_reactions()]
    names = named(model, read)
    found = list(records(model, read))
    made = all_tables(names, found, read)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, table in made.items():
        table.to_csv(OUT / f"{name}.csv", index=False, float_format="%.6g")
    draw(found, read, made)
    (OUT / "README.md").write_text(page.page(made, found, names), "utf-8")


if __name__ == "__main__":
    main()
