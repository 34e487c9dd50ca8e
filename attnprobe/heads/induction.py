"""Heads that look for what was there before, on random tokens that repeat: nothing but the repeats can be followed."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.heads import probe_scores
from attnprobe.heads.positions import diagonal_mass
from attnprobe.heads.sides import Scores, Sides, by_head, by_layer, mass_on, sides
from attnprobe.models.model import Model, Stack
from attnprobe.models.own_words import is_special

# Of a vocabulary of this size and more, ends are left out: the most and the least common tokens, where ids are ranks.
LARGE = 1000
END = 0.02
SHORTEST = 2

Pairs = Bool[Tensor, "query key"]


@dataclass(frozen=True, eq=False)
class Repeats:
    """Random tokens said several times, as a model reads them; first: where the first one stands."""

    example: Example
    ids: Int[Tensor, " token"]
    first: int
    length: int
    repeats: int

    @property
    def later(self) -> Bool[Tensor, " token"]:
        """The tokens that were said before."""
        at = torch.arange(self.example.n_tokens) - self.first
        return (at >= self.length) & (at < self.length * self.repeats)

    @property
    def said(self) -> Bool[Tensor, " token"]:
        """The random tokens, no special ones."""
        at = torch.arange(self.example.n_tokens) - self.first
        return (at >= 0) & (at < self.length * self.repeats)


def random_ids(model: Model) -> list[int] | None:
    """Ids of a model's words that random sequences are drawn from; None of a model without a vocabulary."""
    model = getattr(model, "inner", model)  # what an edited model edits
    tokenizer: Any = getattr(model, "tokenizer", None)
    vocabulary: Any = getattr(model, "vocabulary", None)
    if vocabulary is not None:
        known = [index for token, index in vocabulary.ids.items() if not is_special(token) and token != "[UNK]"]
        return _without_ends(known)
    try:
        table = getattr(model, "embedding", None)
    except InputError:
        return None
    if not isinstance(table, nn.Embedding):
        return None
    n = min(table.num_embeddings, len(tokenizer) if tokenizer is not None else table.num_embeddings)
    special = set(getattr(tokenizer, "all_special_ids", ())) | set(_named(model).values())
    return _without_ends([index for index in range(n) if index not in special])


def _without_ends(ids: list[int]) -> list[int]:
    cut = int(END * len(ids)) if len(ids) >= LARGE else 0
    return ids[cut : len(ids) - cut]


def _named(model: Model) -> dict[str, int]:
    """Ids of special tokens by name, from the tokenizer, the vocabulary or the configuration."""
    model = getattr(model, "inner", model)
    tokenizer, vocabulary = getattr(model, "tokenizer", None), getattr(model, "vocabulary", None)
    if vocabulary is not None:
        given = {"bos": vocabulary.begin or "[BOS]", "cls": "[CLS]", "eos": vocabulary.end}
        return {name: vocabulary.ids[token] for name, token in given.items() if token in vocabulary.ids}
    source = tokenizer if tokenizer is not None else getattr(model, "config", None)
    found = {name: getattr(source, f"{name}_token_id", None) for name in ("bos", "cls", "sep", "eos", "pad", "mask")}
    return {name: index for name, index in found.items() if isinstance(index, int)}


def _inside(model: Model, named: dict[str, int]) -> dict[str, int]:
    """Without the begin token where the vocabulary does not hold it, as in a small network with another's settings."""
    try:
        table = getattr(getattr(model, "inner", model), "embedding", None)
    except InputError:
        return named
    n, begin = getattr(table, "num_embeddings", None), named.get("bos", 0)
    if n is None or begin < n:
        return named
    warnings.warn(
        f"the begin token of {model.name} is {begin} (config.bos_token_id, or the tokenizer's), which lies outside of "
        f"its vocabulary of {n} ids; random tokens stand without one",
        stacklevel=2,
    )
    return {name: index for name, index in named.items() if name != "bos"}


def around(model: Model) -> tuple[list[int], list[int]]:
    """Special ids before and behind a sequence: [CLS] … [SEP] where a tokenizer has both, else a begin token alone.

    A begin token that lies outside of the vocabulary is left out, with a warning.
    """
    named = _inside(model, _named(model))
    if getattr(getattr(model, "inner", model), "tokenizer", None) is not None and {"cls", "sep"} <= set(named):
        return [named["cls"]], [named["sep"]]
    begin = next((named[name] for name in ("bos", "cls") if name in named), None)
    return ([] if begin is None else [begin]), []


def repeated(model: Model, *, length: int, repeats: int, generator: torch.Generator) -> Repeats | None:
    """`length` random tokens, all different where there are enough, said `repeats` times behind a begin token.

    Of fewer tokens where the model cannot read so many. None of a model that reads no tokens. Errors: `InputError` for
    less than 2 tokens or repeats, and for a model that reads no such sequence however short.
    """
    if length < SHORTEST or repeats < 2:
        raise InputError(f"length and repeats are at least 2, got {length} and {repeats}")
    known = random_ids(model)
    if not known:
        return None
    before, behind = around(model)
    drawn = torch.tensor(known)[torch.randperm(len(known), generator=generator)][:length].tolist()
    refused: InputError | None = None
    for n in range(length, SHORTEST - 1, -1):
        one = (drawn * (n // len(drawn) + 1))[:n]
        ids = [*before, *one * repeats, *behind]
        try:
            example = _read(model, ids, one)
        except InputError as error:
            refused = refused or error
            continue
        if example.n_tokens != len(ids):
            raise InputError(f"{model.name} reads {example.n_tokens} tokens where {len(ids)} ids were given")
        return Repeats(example, torch.tensor(ids), len(before), n, repeats)
    raise InputError(f"{model.name} reads no repeated random tokens: {refused}") from refused


def _read(model: Model, ids: list[int], answer: list[int]) -> Example:
    """The ids as an example; an encoder-decoder gets any answer, so that it need not write one."""
    writes = any(stack.kind == "cross" for stack in model.stacks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.example(ids, answer=answer[:1]) if writes else model.example(ids)


def probed(
    model: Model,
    stack: Stack,
    score: Callable[[Repeats, Float[Tensor, "head query key"]], Float[Tensor, " head"]],
    *,
    length: int,
    n_repeats: int,
    n_samples: int,
    seed: int,
) -> Scores:
    """A score of the weights of one stack on repeated random tokens, mean over samples; NaN where it reads none."""
    if n_samples < 1:
        raise InputError(f"n_samples is at least 1, got {n_samples}")
    generator = torch.Generator().manual_seed(seed)
    keep = Keep.of("weights", stack=stack.name, kind=stack.kind)
    found = []
    for _ in range(n_samples):
        given = repeated(model, length=length, repeats=n_repeats, generator=generator)
        if given is None:
            return by_layer([torch.full((n,), torch.nan, dtype=torch.float64) for n in stack.n_heads])
        capture = model.capture(given.example, keep=keep).only(stack.name, stack.kind)
        if sides(capture) != Sides(queries=True, keys=True):
            return by_layer([torch.full((n,), torch.nan, dtype=torch.float64) for n in stack.n_heads])
        found.append(by_head(capture, lambda w, one=given: score(one, w)))  # type: ignore[misc]
    return torch.stack(found).mean(0)


def follows(given: Repeats) -> Pairs:
    """Pairs (i, j) where the token before j is the token of i, another place: what a head must know to say it again."""
    before = torch.cat([torch.tensor([-1]), given.ids[:-1]])
    said = given.said
    pairs = (given.ids[:, None] == before) & said[:, None]
    at = torch.arange(len(before))
    return pairs & (at - 1 != at[:, None])


@probe_scores.add(
    family="probe",
    source="Olsson et al. 2022 (prefix matching score)",
    label="Induction, on random tokens",
    low=0,
    high=1,
    unit="share",
)
def induction(
    model: Model, stack: Stack, *, length: int = 25, repeats: int = 4, n_samples: int = 10, seed: int = 0
) -> Scores:
    """Weight on tokens that came after the query's own token elsewhere, mean over queries that were said before.

    Random tokens, repeated, behind a begin token where there is one; NaN where queries or keys are no tokens.
    """

    def score(given: Repeats, weights: Tensor) -> Tensor:
        return mass_on(weights, follows(given), given.later)

    return probed(model, stack, score, length=length, n_repeats=repeats, n_samples=n_samples, seed=seed)


@probe_scores.add(
    family="probe",
    source="Wang et al. 2023 (duplicate token heads)",
    label="Same token elsewhere, on random tokens",
    low=0,
    high=1,
    unit="share",
)
def duplicate_random(
    model: Model, stack: Stack, *, length: int = 25, repeats: int = 4, n_samples: int = 10, seed: int = 0
) -> Scores:
    """Weight on other places of the query's own token, mean over queries that were said before; random tokens."""

    def score(given: Repeats, weights: Tensor) -> Tensor:
        same = (given.ids[:, None] == given.ids) & given.said & given.said[:, None]
        return mass_on(weights, same.fill_diagonal_(False), given.later)

    return probed(model, stack, score, length=length, n_repeats=repeats, n_samples=n_samples, seed=seed)


@probe_scores.add(
    family="probe",
    source="Olsson et al. 2022 (previous-token heads)",
    label="Previous token, on random tokens",
    low=0,
    high=1,
    unit="share",
)
def previous_random(
    model: Model, stack: Stack, *, length: int = 25, repeats: int = 4, n_samples: int = 10, seed: int = 0
) -> Scores:
    """Weight on the token before the query, mean over all queries but the first; random tokens."""
    return probed(
        model,
        stack,
        lambda given, weights: diagonal_mass(weights, -1),
        length=length,
        n_repeats=repeats,
        n_samples=n_samples,
        seed=seed,
    )
