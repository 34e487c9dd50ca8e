"""Two inputs that differ in a few tokens, and one number that differs between them: what patching starts from.

The clean input has what a model must notice for its answer, the corrupt one has something else there. Activations of
one are put into the run of the other, place by place, so both have the same number of tokens.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.example import WORD, Example
from attnprobe.heads.rows import counterpart
from attnprobe.models import load
from attnprobe.models.evaluator import logits, targets
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget, Target, as_target

DIRECTIONS = ("denoising", "noising")

# Answers that differ by less than this share of their size are the same but for rounding.
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5}


@dataclass(frozen=True, eq=False)
class Pair:
    """A clean and a corrupt input of one length, and the number that is looked at in both.

    changed: indices of the tokens that differ.
    """

    clean: Example
    corrupt: Example
    target: ResolvedTarget
    changed: tuple[int, ...]

    @property
    def pieces(self) -> tuple[str, ...]:
        """The tokens; where the two differ, clean/corrupt."""
        both = zip(self.clean.pieces, self.corrupt.pieces, strict=True)
        return tuple(a if i not in self.changed else f"{a}/{b.strip()}" for i, (a, b) in enumerate(both))

    def ends(self, direction: str) -> tuple[Example, Example]:
        """The example that runs, and the one whose activations are put into it."""
        check_direction(direction)
        return (self.corrupt, self.clean) if direction == "denoising" else (self.clean, self.corrupt)


@dataclass(frozen=True)
class Baselines:
    """The target on both inputs of a pair; patched answers are told as shares of the way between them."""

    clean: float
    corrupt: float

    @property
    def gap(self) -> float:
        """What the clean input has more than the corrupt one, target units."""
        return self.clean - self.corrupt

    def share(self, answers: Float[Tensor, " *place"], direction: str) -> Float[Tensor, " *place"]:
        """How much of the way a patched run went: 0 it stayed what it was, 1 it became the other one."""
        check_direction(direction)
        start = self.corrupt if direction == "denoising" else self.clean
        return (answers - start) / (self.gap if direction == "denoising" else -self.gap)


def check_direction(direction: str) -> None:
    """`InputError` for a direction that does not exist."""
    if direction not in DIRECTIONS:
        raise InputError(f"direction is 'denoising' (clean into corrupt) or 'noising', got '{direction}'")


def pair(model: Any, clean: Any, corrupt: Any, target: Any = None, **options: Any) -> Pair:
    """Two inputs as a model reads them: as many tokens in both, some of them different.

    target: as in `attribute`, with what is left open read off the clean input; None: what the model predicts for the
    clean input rather than what it predicts for the corrupt one (alone, where it predicts the same). options: of
    `model.example` (answer=… of an encoder-decoder).
    Errors: `InputError` for inputs of different length, and for two that are the same.
    """
    model = load(model)
    first = clean if isinstance(clean, Example) else model.example(clean, **options)
    other = counterpart(model, first, corrupt)
    changed = _changed(model, first, other)
    if not changed:
        raise InputError("the clean and the corrupt input are the same to this model; change at least one token")
    resolved = target if isinstance(target, ResolvedTarget) else _resolved(model, first, other, target)
    return Pair(first, other, resolved, changed)


def _changed(model: Model, clean: Example, corrupt: Example) -> tuple[int, ...]:
    """Indices of the tokens that the model is given differently."""
    a, b = (example.inputs.get("input_ids") for example in (clean, corrupt))
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape == (1, clean.n_tokens):
        differ = (a != b)[0]
    else:
        differ = (model.embed(clean) != model.embed(corrupt)).any(-1)
    return tuple(differ.nonzero().flatten().tolist())


def _resolved(model: Model, clean: Example, corrupt: Example, target: Any) -> ResolvedTarget:
    if target is not None:
        return model.resolve(clean, as_target(target))
    answers = [logits(model, [Row(example)]).detach() for example in (clean, corrupt)]
    found = Target().resolve(answers[0], model.outputs, clean)
    other = Target(position=found.position).resolve(answers[1], model.outputs, corrupt)
    if other.label == found.label:
        return found
    return Target(found.label, other.label, found.position).resolve(answers[0], model.outputs, clean)


def baselines(model: Model, given: Pair) -> Baselines:
    """The target on both inputs. Errors: `InputError` where it is the same, so that there is nothing to share out."""
    found = targets(model, [Row(given.clean), Row(given.corrupt)], given.target)
    clean, corrupt = found.double().tolist()
    if not abs(clean - corrupt) > ROUNDING.get(found.dtype, 1e-2) * max(abs(clean), abs(corrupt), 1e-12):
        raise InputError(
            f"{given.target.description} is {clean:.6g} on the clean input and {corrupt:.6g} on the corrupt one: there "
            "is no difference to explain; change other tokens, or look at another target"
        )
    return Baselines(clean, corrupt)


def swapped_pairs(
    model: Any, text: str, swaps: Mapping[str, str | Sequence[str]], target: Any = None, **options: Any
) -> tuple[Pair, ...]:
    """A pair for each word of a text and each word that can stand in its place with as many tokens.

    swaps: {"Paris": ["Rome", "London"]}; a word is swapped wherever it stands. Those of other lengths are left out.
    target, options: as in `pair`. Errors: `InputError` for a word that is not in the text, and where none is left.
    """
    model, found, lengths = load(model), list[Pair](), list[str]()
    clean = model.example(text, **options)
    for word, others in swaps.items():
        whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        if not whole.search(text):
            known = [match.group() for match in WORD.finditer(text)]
            raise InputError(f"the text has no word '{word}'; {nearest(word, known)}")
        for other in [others] if isinstance(others, str) else others:
            corrupt = model.example(whole.sub(lambda _, new=other: new, text), **options)  # type: ignore[misc]
            if _aligned(clean, corrupt, word, other):
                found.append(pair(model, clean, corrupt, target))
            lengths.append(f"'{other}' makes {corrupt.n_tokens} tokens")
    if not found:
        raise InputError(
            f"no swap leaves the text with {clean.n_tokens} tokens in their places ({', '.join(lengths) or 'none'})"
        )
    return tuple(found)


def _aligned(clean: Example, corrupt: Example, word: str, other: str) -> bool:
    """Whether two readings have as many tokens, and the same ones outside of the swapped words."""
    if clean.n_tokens != corrupt.n_tokens or word == other:
        return False
    pieces = list(zip(clean.pieces, corrupt.pieces, strict=True))
    return all(a == b or (a.strip() in word and b.strip() in other) for a, b in pieces)


def refuse_parts(model: Model, stack: Stack) -> None:
    """`InputError` where a layer keeps windows or images apart: their positions are not those of the input."""
    if any(n > 1 for n in stack.n_parts):
        raise InputError(
            f"{model.name}: {stack.name} {stack.kind}-attention keeps windows or images apart, whose positions are not "
            "those of the input; patch whole heads (positions=None)"
        )
