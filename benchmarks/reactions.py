"""Small reactions made by templates, each with the true source of every atom of its product.

Run: python benchmarks/reactions.py   (writes benchmarks/reactions.csv; needs rdkit, which nothing else here does)

The list is kept in the project, so that the study and its tests run without RDKit. The truth comes from RDKit, which
knows where each atom of a product came from when it ran a template. Symmetry counts on both sides: an atom of a
reactant that is the same as the source is a source too, and so are the sources of the same atoms of the product. Atoms
are numbered in the order of the text, from 0 on both sides of `>>`.
"""

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

LIST = Path(__file__).parent / "reactions.csv"
PER_TEMPLATE, SEED = 16, 0
ACIDS = ("CC(=O)O", "CCC(=O)O", "CC(C)C(=O)O", "COCC(=O)O", "C=CC(=O)O", "O=C(O)c1ccccc1")
AMINES = ("CN", "CCN", "CCCN", "CC(C)N", "CNC", "C1CCNC1", "C1COCCN1", "NCc1ccccc1", "Nc1ccccc1")
HALIDES = ("CCBr", "CCCBr", "CC(C)Br", "C=CCBr", "COCCBr", "N#CCBr", "BrCc1ccccc1", "O=C(CBr)c1ccccc1")


@dataclass(frozen=True)
class Template:
    """A reaction SMARTS of two reactants and one product, and what may stand for each reactant."""

    name: str
    smarts: str
    first: tuple[str, ...]
    second: tuple[str, ...]


TEMPLATES = (
    Template(
        "amide coupling",
        "[C:1](=[O:2])Cl.[N;H1,H2:3]>>[C:1](=[O:2])[N:3]",
        ("CC(=O)Cl", "CCC(=O)Cl", "CC(C)C(=O)Cl", "COCC(=O)Cl", "C=CC(=O)Cl", "O=C(Cl)c1ccccc1"),
        AMINES,
    ),
    Template(
        "esterification",
        "[C:1](=[O:2])[OH].[OH;$([O][CX4]):3]>>[C:1](=[O:2])[O:3]",
        ACIDS,
        ("CO", "CCO", "CCCO", "CC(C)O", "C=CCO", "COCCO", "OCc1ccccc1"),
    ),
    Template(
        "Suzuki coupling",
        "[#6:1]B(O)O.[#6;c,$(C=C):2][Br,I]>>[#6:1][#6:2]",
        ("C=CB(O)O", "CC=CB(O)O", "CC(C)=CB(O)O", "OB(O)c1ccccc1", "OB(O)c1ccoc1", "OB(O)c1ccsc1"),
        ("C=CBr", "CC=CBr", "COC(=O)C=CBr", "Brc1ccccn1", "Brc1cncnc1", "Ic1ccsc1", "COc1ccc(Br)cc1"),
    ),
    Template(
        "reductive amination",
        "[CX3;$(C[#6]):1]=O.[N;H1,H2:3]>>[C:1][N:3]",
        ("CC=O", "CCC=O", "CC(C)C=O", "CC(C)=O", "CCC(C)=O", "O=C1CCCC1", "O=Cc1ccccc1"),
        AMINES,
    ),
    Template(
        "Williamson ether",
        "[OH:1][#6:2].[CX4:3]Br>>[O:1]([#6:2])[C:3]",
        ("CO", "CCO", "CC(C)O", "COCCO", "Oc1ccccc1", "Oc1cccnc1", "Cc1ccc(O)cc1"),
        HALIDES,
    ),
    Template("amine alkylation", "[N;H1,H2:1].[CX4:2]Br>>[N:1][C:2]", AMINES, HALIDES),
    Template(
        "thioether formation",
        "[SH:1][#6:2].[CX4:3]Br>>[S:1]([#6:2])[C:3]",
        ("CS", "CCS", "CCCS", "CC(C)S", "OCCS", "Sc1ccccc1", "Sc1ccccn1"),
        HALIDES,
    ),
)


@dataclass(frozen=True)
class Reaction:
    """A reaction SMILES with its truth. sources: for each atom of the product, the atoms that it may come from.

    bonds: pairs of atoms that are bonded in the reactants; product_bonds: in the product.
    """

    template: str
    text: str
    sources: tuple[tuple[int, ...], ...]
    bonds: tuple[tuple[int, int], ...]
    product_bonds: tuple[tuple[int, int], ...]


def read_reactions(path: Path = LIST) -> list[Reaction]:
    """The list that is kept in the project."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_read(row) for row in csv.DictReader(file)]


def _read(row: dict[str, str]) -> Reaction:
    sources = tuple(tuple(map(int, one.split("|"))) for one in row["sources"].split())
    return Reaction(row["template"], row["reaction"], sources, _pairs(row["bonds"]), _pairs(row["product_bonds"]))


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(a), int(b)) for a, b in (pair.split("-") for pair in text.split()))


# ---------------------------------------------------------------- building the list, with RDKit


@dataclass(frozen=True)
class Written:
    """A molecule as text: of each of its atoms the place in the text, its symmetry class, and the bonds by place."""

    text: str
    place: dict[int, int]
    kind: tuple[int, ...]
    bonds: tuple[tuple[int, int], ...]


def written(molecule: Any) -> Written:
    """The canonical SMILES of a molecule."""
    from rdkit import Chem

    text = Chem.MolToSmiles(molecule)
    order = list(molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
    place = {atom: number for number, atom in enumerate(order)}
    pairs = [(place[b.GetBeginAtomIdx()], place[b.GetEndAtomIdx()]) for b in molecule.GetBonds()]
    bonds = tuple(sorted((min(pair), max(pair)) for pair in pairs))
    return Written(text, place, tuple(Chem.CanonicalRankAtoms(molecule, breakTies=False)), bonds)


def reacted(template: Template, texts: tuple[str, str], swap: bool) -> Reaction | None:
    """What a template makes of two reactants; None where it makes nothing, or different things."""
    from rdkit import Chem
    from rdkit.Chem import AllChem

    reactants = [Chem.MolFromSmiles(text) for text in texts]
    made = [found[0] for found in AllChem.ReactionFromSmarts(template.smarts).RunReactants(reactants)]
    for molecule in made:
        Chem.SanitizeMol(molecule)
    if len({Chem.MolToSmiles(molecule) for molecule in made}) != 1:
        return None
    sides, result = [written(molecule) for molecule in reactants], written(made[0])
    start = [0, len(sides[0].place)] if not swap else [len(sides[1].place), 0]
    of_kind: dict[int, set[int]] = {}
    for atom in made[0].GetAtoms():
        side, source = origin(atom)
        kinds, place = sides[side].kind, sides[side].place
        alike = {start[side] + place[a] for a in place if kinds[a] == kinds[source]}
        of_kind.setdefault(result.kind[atom.GetIdx()], set()).update(alike)
    sources = [tuple(sorted(of_kind[result.kind[atom]])) for atom in sorted(result.place, key=result.place.__getitem__)]
    bonds = [(a + start[side], b + start[side]) for side, one in enumerate(sides) for a, b in one.bonds]
    names = [one.text for one in (sides[::-1] if swap else sides)]
    text = f"{'.'.join(names)}>>{result.text}"
    return Reaction(template.name, text, tuple(sources), tuple(sorted(bonds)), result.bonds)


def origin(atom: Any) -> tuple[int, int]:
    """The reactant and its atom that RDKit says an atom of the product came from."""
    facts = atom.GetPropsAsDict()
    return int(facts["react_idx"]), int(facts["react_atom_idx"])


def reactions_of(template: Template, draw: random.Random) -> Iterator[Reaction]:
    """Up to `PER_TEMPLATE` different reactions of a template; which reactant comes first is drawn."""
    pairs = list(product(template.first, template.second))
    draw.shuffle(pairs)
    seen: set[str] = set()
    for texts in pairs:
        found = reacted(template, texts, swap=draw.random() < 0.5)
        if found is not None and found.text not in seen and len(seen) < PER_TEMPLATE:
            seen.add(found.text)
            yield found


def main() -> None:
    """Write the list."""
    draw = random.Random(SEED)
    with LIST.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("template", "reaction", "sources", "bonds", "product_bonds"))
        for template in TEMPLATES:
            for one in reactions_of(template, draw):
                sources = " ".join("|".join(map(str, each)) for each in one.sources)
                pairs = [" ".join(f"{a}-{b}" for a, b in bonds) for bonds in (one.bonds, one.product_bonds)]
                rows.writerow((one.template, one.text, sources, *pairs))


if __name__ == "__main__":
    main()
