"""Reactions as a model reads them: which token each atom is, and the same reaction with one product atom masked."""

import random
import re
from dataclasses import dataclass, replace
from typing import Any

from attnprobe import Target
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget
from benchmarks.reactions import Reaction
from tests.real.smiles import atoms

ARROW, MASK = ">>", "[MASK]"


@dataclass(frozen=True, eq=False)
class Tokens:
    """A reaction as tokens. reactant, product: token of each atom; sources: for each product atom, right tokens."""

    reaction: Reaction
    tokens: tuple[str, ...]
    reactant: tuple[int, ...]
    product: tuple[int, ...]

    @property
    def arrow(self) -> int:
        """The token between reactants and product."""
        return self.tokens.index(ARROW)

    def sources(self, atom: int) -> set[int]:
        """Tokens that a product atom may come from."""
        return {self.reactant[source] for source in self.reaction.sources[atom]}

    def candidates(self, atom: int) -> tuple[int, ...]:
        """Tokens of the reactant atoms of the same element."""
        wanted = element(self.tokens[self.product[atom]])
        return tuple(token for token in self.reactant if element(self.tokens[token]) == wanted)

    def neighbours(self, atom: int) -> set[int]:
        """Tokens of the reactant atoms that are bonded to a source, sources left out."""
        sources = self.sources(atom)
        pairs = [(self.reactant[a], self.reactant[b]) for a, b in self.reaction.bonds]
        return {b if a in sources else a for a, b in pairs if (a in sources) != (b in sources)}

    def bonded(self, atom: int) -> set[int]:
        """Tokens of the product atoms that are bonded to this one."""
        pairs = self.reaction.product_bonds
        return {self.product[b if a == atom else a] for a, b in pairs if atom in (a, b)}


def element(token: str) -> str:
    """The element of an atom's token; aromatic atoms are written small.

    >>> [element(token) for token in ("C", "c", "Cl", "[nH]", "[N+]")]
    ['C', 'C', 'Cl', 'N', 'N']
    """
    letters = re.sub(r"[^A-Za-z]", "", token.strip("[]").split("H")[0])
    return letters[:1].upper() + letters[1:]


def tokens_of(model: Any, reaction: Reaction) -> Tokens:
    """The tokens of a reaction, special ones at both ends."""
    return with_tokens(reaction, tuple(model.example(reaction.text).tokens))


def with_tokens(reaction: Reaction, tokens: tuple[str, ...]) -> Tokens:
    """The same from tokens that are known."""
    arrow, found = tokens.index(ARROW), atoms(list(tokens))
    return Tokens(reaction, tokens, tuple(t for t in found if t < arrow), tuple(t for t in found if t > arrow))


@dataclass(frozen=True, eq=False)
class Masked:
    """A reaction with one product atom masked, and what is asked there: the log-probability of the true token."""

    tokens: Tokens
    atom: int
    example: Example
    target: ResolvedTarget

    @property
    def position(self) -> int:
        """The token that is masked."""
        return self.tokens.product[self.atom]


def masked(model: Model, tokens: Tokens, atom: int) -> Masked:
    """Mask a product atom. [MASK] asks the question and is no part of the input: it counts as a special token."""
    position = tokens.product[atom]
    written = [MASK if at == position else token for at, token in enumerate(tokens.tokens)]
    example = model.example("".join(written[1:-1]))
    special = tuple(known or at == position for at, known in enumerate(example.is_special))
    example = replace(example, is_special=special)
    target = Target(label=tokens.tokens[position], position=position, scale="log_probability")
    return Masked(tokens, atom, example, model.resolve(example, target))


def drawn_atoms(tokens: Tokens, seed: int) -> list[int]:
    """Two product atoms to mask, drawn: one that is not carbon (where there is one) and a carbon."""
    draw = random.Random(f"{seed} {tokens.reaction.text}")
    order = list(range(len(tokens.product)))
    draw.shuffle(order)
    carbon = [atom for atom in order if element(tokens.tokens[tokens.product[atom]]) == "C"]
    other = [atom for atom in order if atom not in carbon]
    return [*other[:1], *carbon][:2]
