"""Sets of pairs whose answer is known: who is given what, and what came next when it was said before."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.heads.induction import Repeats, random_ids, repeated
from attnprobe.heads.pairs import Pair, pair
from attnprobe.models import load
from attnprobe.models.model import Model
from attnprobe.target import Target

# Two people are named, one of them acts, and the sentence ends before the other one.
SENTENCES = (
    "When {a} and {b} met at the {place}, {giver} handed the {thing} to",
    "When {a} and {b} came home, {giver} showed the {thing} to",
    "After {a} and {b} had dinner, {giver} passed the {thing} to",
    "After {a} and {b} left the {place}, {giver} sent a {thing} to",
    "While {a} and {b} waited at the {place}, {giver} lent the {thing} to",
    "While {a} and {b} were talking, {giver} offered a {thing} to",
    "Yesterday {a} and {b} went to the {place}, and {giver} brought a {thing} to",
    "Last week {a} and {b} were at the {place}, where {giver} sold the {thing} to",
    "Because {a} and {b} are friends, {giver} gave the {thing} to",
    "As {a} and {b} walked to the {place}, {giver} threw the {thing} to",
    "Then {a} and {b} sat down, and {giver} read the {thing} to",
    "Once {a} and {b} found the {thing} in the {place}, {giver} left it to",
)
NAMES = (
    *("Mary", "John", "Anna", "Paul", "Emma", "Mark", "Lucy", "David", "Sarah", "Peter", "Laura", "James"),
    *("Alice", "Simon", "Rachel", "Thomas", "Julia", "Martin", "Helen", "Robert"),
)
THINGS = ("book", "letter", "ball", "key", "cup", "map")
PLACES = ("park", "school", "station", "market", "house", "library")


def subject_object(model: Any, n: int = 32, *, seed: int = 0) -> tuple[Pair, ...]:
    """Sentences in which one of two people gives something, up to the name of the other: who gets it?

    Corrupt: the other one gives. Target: the logit of the right name rather than the giver's, read where the name would
    come (of a masked model: at the mask). n: how many, drawn from `seed`; fewer where the vocabulary has few of the
    names as one token. Errors: `InputError` for a model that does not predict words, or knows no two of the names.
    """
    model = load(model)
    if model.outputs.names is not None or any(stack.kind == "cross" for stack in model.stacks):
        raise InputError(f"subject_object asks a language model for a word; {model.name} is none")
    if n < 1:
        raise InputError(f"n is at least 1, got {n}")
    generator = torch.Generator().manual_seed(seed)
    found = tuple(islice(_sentence_pairs(model, generator, 20 * n), n))
    if not found:
        raise InputError(f"{model.name} knows no two of the names ({', '.join(NAMES[:3])}, …) as one token each")
    return found


def _sentence_pairs(model: Model, generator: torch.Generator, tries: int) -> Iterator[Pair]:
    for _ in range(tries):
        a, b = (NAMES[index] for index in torch.randperm(len(NAMES), generator=generator)[:2].tolist())
        words = {
            key: given[int(torch.randint(len(given), (1,), generator=generator))]
            for key, given in (("sentence", SENTENCES), ("thing", THINGS), ("place", PLACES))
        }
        stem = words["sentence"].format(a=a, b=b, giver="{giver}", thing=words["thing"], place=words["place"])
        made, other = (_asked(model, stem.format(giver=giver), b, a) for giver in (a, b))
        if made is not None and other is not None and made[0].n_tokens == other[0].n_tokens:
            example, position, labels = made
            yield pair(model, example, other[0], Target(*labels, position=position))


def _asked(model: Model, stem: str, right: str, wrong: str) -> tuple[Example, int, tuple[int, int]] | None:
    """The sentence as the model reads it, where the name would come, and the ids of both names; None where unfit."""
    mask = None if model.outputs.causal else getattr(getattr(model, "tokenizer", None), "mask_token", None)
    try:
        read = [model.example(f"{stem} {name}.") for name in (right, wrong)]
        example = model.example(stem if mask is None else f"{stem} {mask}.")
    except InputError:
        return None
    a, b, asked = (one.inputs["input_ids"][0] for one in (*read, example))
    if len(a) != len(b):
        return None
    places = (a != b).nonzero().flatten().tolist()
    if len(places) != 1 or (mask is None) == (len(asked) == len(a)):
        return None  # a name of several tokens, or one that is unknown
    at, unknown = places[0], _unknown(model)
    if unknown in (int(a[at]), int(b[at])):
        return None
    before = torch.equal(asked[:at], a[:at])
    position = at if mask is not None else at - 1
    return (example, position, (int(a[at]), int(b[at]))) if before and at else None


def _unknown(model: Model) -> int | None:
    """The id of words that a model does not know."""
    vocabulary = getattr(model, "vocabulary", None)
    if vocabulary is not None:
        return vocabulary.ids.get("[UNK]")
    return getattr(getattr(model, "tokenizer", None), "unk_token_id", None)


def induction(
    model: Any,
    n: int = 8,
    *,
    length: int = 8,
    change: str = "answer",
    seed: int = 0,
) -> tuple[Pair, ...]:
    """Random tokens said twice: what came after the last but one token when it was said first?

    Corrupt: another token in the earlier place of the answer, which changes what is to be copied (change="answer";
    target: the logit of the answer rather than of the other token), or in the place before it, so that nothing leads
    there ("match"; target: the log-probability of the answer). length: tokens of one round, fewer where the model
    reads no so many. Errors: `InputError` for a model that does not predict the next token.
    """
    model = load(model)
    if change not in ("answer", "match"):
        raise InputError(f"change is 'answer' or 'match', got '{change}'")
    if not model.outputs.causal or model.outputs.names is not None:
        raise InputError(f"induction is a question for a model that predicts the next token; {model.name} does not")
    if n < 1:
        raise InputError(f"n is at least 1, got {n}")
    generator = torch.Generator().manual_seed(seed)
    return tuple(_induction_pair(model, generator, length, change) for _ in range(n))


def _induction_pair(model: Model, generator: torch.Generator, length: int, change: str) -> Pair:
    given, known = repeated(model, length=length, repeats=2, generator=generator), random_ids(model)
    if given is None or not known:
        raise InputError(f"{model.name} reads no tokens that random sequences could be drawn from")
    last = given.first + given.length - 1  # the earlier place of the answer
    answer = int(given.ids[last])
    spare = sorted(set(known) - set(given.ids.tolist()))
    if not spare:
        raise InputError(f"the vocabulary of {model.name} has no token that is not said already; use a shorter length")
    other = spare[int(torch.randint(len(spare), (1,), generator=generator))]
    corrupt = _with(model, given, last if change == "answer" else last - 1, other)
    position = given.first + 2 * given.length - 2
    if change == "answer":
        return pair(model, given.example, corrupt, Target(answer, other, position))
    return pair(model, given.example, corrupt, Target(answer, position=position, scale="log_probability"))


def _with(model: Model, given: Repeats, place: int, token: int) -> Example:
    """The sequence with another token in one place."""
    ids: Tensor = given.ids.clone()
    ids[place] = token
    return model.example(ids.tolist())
