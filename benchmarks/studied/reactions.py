"""Reactions as SMILES, made by joining fragments: ten templates, ten reactions each, none longer than 40 tokens.

A template is a chemist's reaction, not a rule of the model: which class the model names is the model's affair.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Fragment:
    """A group, written so that its last atom binds (`before`), and so that its first one does (`after`)."""

    before: str
    after: str


@dataclass(frozen=True)
class Reaction:
    """A reaction in SMILES, and the template that made it."""

    template: str
    smiles: str


ALKYL = (
    Fragment("C", "C"),
    Fragment("CC", "CC"),
    Fragment("CCC", "CCC"),
    Fragment("CC(C)", "C(C)C"),
    Fragment("C=CC", "CC=C"),
)
ARYL = (Fragment("c1ccccc1", "c1ccccc1"), Fragment("c1ccsc1", "c1ccsc1"), Fragment("c1ccoc1", "c1ccoc1"))
VINYL = (
    Fragment("CC=C", "C=CC"),
    Fragment("CCC=C", "C=CCC"),
    Fragment("CC(C)=C", "C=C(C)C"),
    Fragment("COC=C", "C=COC"),
)
Template = Callable[[Fragment, Fragment], str]
# Each with what its two fragments are taken from.
TEMPLATES: dict[str, tuple[Template, Sequence[Fragment], Sequence[Fragment]]] = {
    "amide from acid chloride": (
        lambda a, b: f"{a.before}N.{b.before}C(=O)Cl>>{b.before}C(=O)N{a.after}",
        ALKYL,
        ALKYL,
    ),
    "amide from acid": (lambda a, b: f"{a.before}N.{b.before}C(=O)O>>{b.before}C(=O)N{a.after}", ALKYL, ALKYL),
    "esterification": (lambda a, b: f"{a.before}O.{b.before}C(=O)O>>{b.before}C(=O)O{a.after}", ALKYL, ALKYL),
    "ester hydrolysis": (lambda a, b: f"{a.before}OC(=O){b.after}>>OC(=O){b.after}", ALKYL, ARYL),
    "sulfonamide": (lambda a, b: f"{a.before}N.{b.before}S(=O)(=O)Cl>>{b.before}S(=O)(=O)N{a.after}", ALKYL, ALKYL),
    "ether from halide": (lambda a, b: f"{b.before}O.Br{a.after}>>{b.before}O{a.after}", ALKYL, ALKYL),
    "reductive amination": (lambda a, b: f"{a.before}N.O=C{b.after}>>{a.before}NC{b.after}", ALKYL, ALKYL),
    "Suzuki coupling": (lambda a, b: f"{a.before}B(O)O.Br{b.after}>>{a.before}{b.after}", ARYL, VINYL),
    "Boc deprotection": (lambda a, b: f"CC(C)(C)OC(=O)N{a.after}{b.after}>>N{a.after}{b.after}", ALKYL[:4], ALKYL),
    "nitro reduction": (lambda a, b: f"O=[N+]([O-]){b.after}{a.after}>>N{b.after}{a.after}", ALKYL, ARYL),
}
N_EACH = 10


def reactions(n_each: int = N_EACH) -> list[Reaction]:
    """The reactions, template by template: the shortest of each, none twice.

    >>> found = reactions(1)
    >>> len(found), found[0].smiles
    (10, 'CN.CC(=O)Cl>>CC(=O)NC')
    """
    return [Reaction(name, smiles) for name in TEMPLATES for smiles in _made(name)[:n_each]]


def _made(name: str) -> list[str]:
    """All reactions of a template, the shortest first."""
    template, first, second = TEMPLATES[name]
    return sorted(dict.fromkeys(template(a, b) for a, b in product(first, second)), key=len)
