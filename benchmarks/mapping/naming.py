"""The first claim: a map names a relation, the reactant atom that a product atom came from."""

from collections.abc import Iterable

import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe import Target, attribute
from attnprobe.judgement.verdict_sets import wilson
from attnprobe.models.model import Model
from benchmarks.mapping.reading import Tokens

ELEMENT, ANY = "same element", "any atom"


def whole_maps(model: Model, text: str) -> dict[str, Tensor]:
    """Every map of a reaction [query token]: of each head, means of heads, and rollout."""
    example = model.example(text)
    layers = [layer.float() for layer in model.capture(example).weights()]
    found = {f"{at}.{head}": w for at, layer in enumerate(layers) for head, w in enumerate(layer)}
    found |= {f"mean of heads, layer {at}": layer.mean(0) for at, layer in enumerate(layers)}
    stacked = torch.stack(layers)
    found["mean of heads, last 4 layers"] = stacked[-4:].mean((0, 1))
    found["mean of all heads"] = stacked.mean((0, 1))
    # Whatever is asked, rollout's map is that of all positions.
    for name, share in (("rollout", 0.5), ("rollout without identity", 0.0)):
        said = attribute(model, example, "rollout", Target(label=0, position=0), identity=share)
        found[name] = _known(said.map)
    return found


def _known(found: Tensor | None) -> Tensor:
    if found is None:
        raise TypeError("rollout gives a map")
    return found


def hits(row: Tensor, tokens: Tokens, atom: int) -> dict[str, bool]:
    """Whether the largest weight among reactant atoms lies on a true source, by what may be chosen from."""
    right = tokens.sources(atom)
    chosen = {ELEMENT: tokens.candidates(atom), ANY: tokens.reactant}
    return {among: all_first(row[list(of)], [t in right for t in of]) for among, of in chosen.items()}


def all_first(weights: Tensor, right: Iterable[bool]) -> bool:
    """Whether whatever has the largest weight is right; where several tie, all of them.

    >>> all_first(torch.tensor([0.2, 0.5]), [False, True]), all_first(torch.tensor([0.5, 0.5]), [False, True])
    (True, False)
    """
    return bool(torch.tensor(list(right))[weights == weights.max()].all())


def chances(tokens: Tokens, atom: int) -> dict[str, float]:
    """How often a random choice is right."""
    right = len(tokens.sources(atom))
    return {ELEMENT: right / len(tokens.candidates(atom)), ANY: right / len(tokens.reactant)}


def named_atoms(model: Model, read: Iterable[Tokens]) -> pd.DataFrame:
    """A row a reaction, product atom, map and choice: whether the map names the source, and the chance of that."""
    rows = []
    for number, tokens in enumerate(tqdm(list(read), desc="reactions, as maps of atoms", leave=False)):
        maps = whole_maps(model, tokens.reaction.text)
        for atom, token in enumerate(tokens.product):
            chance = chances(tokens, atom)
            for name, weights in maps.items():
                rows += [
                    (number, tokens.reaction.template, atom, name, among, right, chance[among])
                    for among, right in hits(weights[token], tokens, atom).items()
                ]
    return pd.DataFrame(rows, columns=["reaction", "template", "atom", "map", "among", "right", "chance"])


def shares(found: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """A row a group: share of product atoms whose source is named, Wilson's interval, chance, atoms and reactions."""
    rows = []
    for group, part in found.groupby(by, sort=False):
        right, n = int(part.right.sum()), len(part)
        low, high = wilson(right, n)
        facts = (right / n, low, high, part.chance.mean(), n, part.reaction.nunique())
        rows.append((*(group if isinstance(group, tuple) else (group,)), *facts))
    return pd.DataFrame(rows, columns=[*by, "share", "low", "high", "chance", "n_atoms", "n_reactions"])


def is_head(found: pd.DataFrame) -> pd.Series:
    """Which rows are of a single head: those named layer.head."""
    return found["map"].str.fullmatch(r"\d+\.\d+")


def head_table(found: pd.DataFrame) -> pd.DataFrame:
    """Every head as a map of atoms, the best first: layer, head, and the shares with their intervals."""
    table = shares(found[is_head(found)], ["map", "among"])
    table[["layer", "head"]] = table["map"].str.split(".", expand=True).astype(int)
    table = table.drop(columns="map").sort_values(["among", "share"], ascending=[False, False])
    return table[["layer", "head", "among", "share", "low", "high", "chance", "n_atoms", "n_reactions"]]
