"""Which heads look from a word to its syntactic head, or back, by relation (Clark et al. 2019, sec. 4).

A head is right about a dependency where, of all other words, the one at its other end gets most weight. It is set
against the best fixed offset: the share that "the word two to the left", or whichever of -3 to 3 does best, is right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.attention.seam import Keep
from attnprobe.errors import AttnprobeError, InputError, nearest
from attnprobe.heads.conllu import Sentence, read_conllu
from attnprobe.heads.sides import Sides, sides
from attnprobe.heads.word_maps import word_map, words_of_tokens
from attnprobe.models import load
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import explained_stack

OFFSETS = (-3, -2, -1, 1, 2, 3)
DIRECTIONS = ("to_head", "to_dependent")
ALL = "all"
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Syntax:
    """How often each head of a stack looks along each relation.

    table: a row a relation, direction, layer and head: accuracy, low, high (95 % Wilson interval), n dependencies, and
    the best fixed offset with its accuracy (`offset`, `offset_accuracy`), which knows no words. direction: "to_head",
    from the dependent to its head, or "to_dependent". relation "all": every dependency. warnings: sentences that were
    left out, each with the reason.
    """

    model: str
    stack: str
    kind: str
    n_sentences: int
    table: pd.DataFrame = field(repr=False)
    warnings: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """The whole table."""
        return self.table.copy()

    def best(self, *, at_least: int = 10) -> pd.DataFrame:
        """The best head of each relation and direction with at least so many dependencies, best relations first.

        The best of many heads does less well on new sentences than on these, the more so the smaller n.
        """
        known = self.table[self.table.n >= at_least]
        rows = known.loc[known.groupby(["relation", "direction"], sort=False).accuracy.idxmax()]
        return rows.sort_values("accuracy", ascending=False, ignore_index=True)

    def of(self, relation: str, direction: str = "to_head") -> Float[np.ndarray, "layer head"]:
        """Accuracy of every head for one relation and direction; NaN for heads that a layer lacks."""
        for given, known in ((relation, self.table.relation), (direction, self.table.direction)):
            if given not in set(known):
                raise InputError(f"nothing was measured of '{given}'; {nearest(given, list(dict.fromkeys(known)))}")
        rows = self.table[(self.table.relation == relation) & (self.table.direction == direction)]
        return rows.pivot(index="layer", columns="head", values="accuracy").to_numpy()


def syntax(
    model: Any,
    sentences: str | Path | Iterable[Sentence],
    *,
    stack: str | None = None,
    subtypes: bool = False,
    progress: bool = True,
) -> Syntax:
    """Accuracy of each self-attention head by relation, on the sentences of a CoNLL-U file (or of `read_conllu`).

    stack: name of the stack, where a model has several ("encoder" first). subtypes: whether `nsubj:pass` is a relation
    of its own. In a causal model no word sees what comes after it, which counts as a miss.
    Errors: `InputError` for a file that is no CoNLL-U, and where no sentence could be read by the model.
    """
    model = load(model)
    given = read_conllu(sentences) if isinstance(sentences, str | Path) else list(sentences)
    found, said, where = [], [], None
    for number, sentence in enumerate(
        tqdm(given, desc="syntax", delay=1.0, leave=False, disable=None if progress else True)
    ):
        try:
            where, maps = _maps(model, sentence, stack)
            found.append((sentence, maps.argmax(-1).masked_fill(maps.amax(-1) <= 0, -1)))
        except AttnprobeError as error:
            said.append(f"sentence {number + 1} ('{sentence.text[:40]}'): {error}")
    if where is None:
        raise InputError(f"no sentence could be read by {model.name}: {said[0] if said else 'there is none'}")
    rows = [row for relation, edges in _edges(found, subtypes).items() for row in _rows(relation, edges, found, where)]
    return Syntax(model.name, where.name, where.kind, len(found), pd.DataFrame(rows), tuple(said))


def _maps(model: Model, sentence: Sentence, name: str | None) -> tuple[Stack, Float[Tensor, "layer head query key"]]:
    """Weights between the words of the surface, 0 on the word itself."""
    example = model.example(sentence.text)
    named = [stack for stack in model.stacks if stack.kind == "self" and name in (None, stack.name)]
    if not named:
        raise InputError(
            f"{model.name} has no self-attention '{name}'; {nearest(str(name), [s.name for s in model.stacks])}"
        )
    stack = named[0] if name is not None else explained_stack(model, example, "self")
    capture = model.capture(example, keep=Keep.of("weights", stack=stack.name, kind=stack.kind))
    capture = capture.only(stack.name, stack.kind)
    if sides(capture) != Sides(queries=True, keys=True):
        raise InputError(f"{stack.name} self-attention of {model.name} does not look at the words of the text")
    words = words_of_tokens(example, sentence.spans)
    if max(words) < 0:
        raise InputError(f"{model.name} does not say which characters its tokens cover; no word could be found")
    layers = [word_map(layer.double().cpu(), words, sentence.n_places) for layer in capture.maps()]
    most = max(map(len, layers))
    whole = torch.full((len(layers), most, sentence.n_places, sentence.n_places), torch.nan, dtype=torch.float64)
    for row, layer in zip(whole, layers, strict=True):
        row[: len(layer)] = layer * (1 - torch.eye(sentence.n_places, dtype=layer.dtype))
    return stack, whole


Found = Sequence[tuple[Sentence, Int[Tensor, "layer head _"]]]  # of as many places as each sentence has
Edges = list[tuple[int, int, int]]  # sentence, dependent, head: surface tokens


def _edges(found: Found, subtypes: bool) -> dict[str, Edges]:
    """The dependencies by relation, all of them first; those within one surface token are left out."""
    edges: dict[str, Edges] = {ALL: []}
    for number, (sentence, _) in enumerate(found):
        for word, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True)):
            if head < 0 or sentence.places[head] == sentence.places[word]:
                continue
            name = relation if subtypes else relation.split(":")[0]
            for key in (ALL, name):
                edges.setdefault(key, []).append((number, sentence.places[word], sentence.places[head]))
    return {relation: listed for relation, listed in edges.items() if listed}


def _rows(relation: str, edges: Edges, found: Found, stack: Stack) -> Iterable[dict[str, Any]]:
    for direction in DIRECTIONS:
        pairs = [(at, a, b) if direction == "to_head" else (at, b, a) for at, a, b in edges]
        right = sum((found[at][1][:, :, a] == b).long() for at, a, b in pairs)
        apart = np.array([b - a for _, a, b in pairs])
        shares = {offset: float((apart == offset).mean()) for offset in OFFSETS}
        offset = max(shares, key=lambda o: shares[o])
        for layer, n_heads in enumerate(stack.n_heads):
            for head in range(n_heads):
                accuracy, low, high = wilson(int(right[layer, head]), len(pairs))  # type: ignore[index]
                yield {
                    "relation": relation, "direction": direction, "layer": layer, "head": head,
                    "accuracy": accuracy, "low": low, "high": high, "n": len(pairs),
                    "offset": offset, "offset_accuracy": shares[offset],
                }  # fmt: skip


@lru_cache(maxsize=4096)
def wilson(k: int, n: int) -> tuple[float, float, float]:
    """Share k / n with its 95 % Wilson interval.

    >>> tuple(round(x, 3) for x in wilson(8, 10))
    (0.8, 0.49, 0.943)
    """
    ends = stats.binomtest(k, n).proportion_ci(LEVEL, method="wilson")
    return k / n, float(ends.low), float(ends.high)
