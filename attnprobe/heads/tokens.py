"""On which kind of token a head's weight lies: special, punctuation, the same token again, the rarest."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.heads import head_scores
from attnprobe.heads.sides import Scores, by_head, by_keys, by_tokens, mass_on, nowhere, top_keys, words
from attnprobe.models.model import Model

# What tokenizers put before or behind the characters of a token.
MARKS = "Ġ▁#Ċ"
# Marks that end a sentence, of the scripts that have their own.
ENDS = frozenset(".!?…。！？।؟")


def is_punctuation(piece: str) -> bool:
    """Whether a token is made of marks alone.

    >>> is_punctuation("▁,"), is_punctuation("##."), is_punctuation("5.")
    (True, True, False)
    """
    bare = piece.strip().strip(MARKS) or piece.strip()
    return bool(bare) and all(unicodedata.category(character)[0] in "PS" for character in bare)


def ends_sentence(piece: str) -> bool:
    """Whether a token is a mark that ends a sentence, closing quotes and brackets behind it included.

    >>> ends_sentence(".\\""), ends_sentence("?"), ends_sentence("3.5"), ends_sentence(",")
    (True, True, False, False)
    """
    return is_punctuation(piece) and any(character in ENDS for character in piece)


def marked(example: Example, test: Any) -> Bool[Tensor, " token"]:
    """The tokens, no special ones, whose piece passes a test; none where the tokens are not those of a text."""
    if example.axis not in ("source", "target"):
        return torch.zeros(example.n_tokens, dtype=torch.bool)
    return torch.tensor([test(piece) for piece in example.pieces]) & words(example)


def token_ids(example: Example) -> Int[Tensor, " token"] | None:
    """Ids of the tokens that the example describes; None where it has none (pictures, sounds)."""
    name = "decoder_input_ids" if example.axis == "target" and "decoder_input_ids" in example.inputs else "input_ids"
    ids = example.inputs.get(name)
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.shape[1] != example.n_tokens:
        return None
    return ids[0].cpu()


def mass_on_keys(capture: Capture, keys: Bool[Tensor, " token"]) -> Scores:
    """Weight on some tokens, mean over queries; NaN where there are none, or the keys are no tokens."""

    def score(weights: Tensor) -> Tensor:
        return mass_on(weights, keys[None], torch.ones(weights.shape[-2], dtype=torch.bool))

    return by_keys(capture, score)


@head_scores.add(
    family="token",
    source="Clark et al. 2019, sec. 3.2",
    label="Mass on special tokens",
    low=0,
    high=1,
    unit="share",
    needs="special tokens among the keys",
)
def special_mass(capture: Capture) -> Scores:
    """Weight on special tokens, mean over queries; NaN where there are none, or the keys are other tokens."""
    return mass_on_keys(capture, ~words(capture.example))


@head_scores.add(
    family="token",
    source="Clark et al. 2019, sec. 3.2",
    label="Mass on punctuation",
    low=0,
    high=1,
    unit="share",
    needs="punctuation in the text",
)
def punctuation(capture: Capture) -> Scores:
    """Weight on punctuation, mean over queries; NaN in a text without."""
    return mass_on_keys(capture, marked(capture.example, is_punctuation))


@head_scores.add(
    family="token",
    source="Clark et al. 2019, sec. 3.2 (periods)",
    label="Mass on ends of sentences",
    low=0,
    high=1,
    unit="share",
    needs="a mark that ends a sentence",
)
def sentence_boundary(capture: Capture) -> Scores:
    """Weight on marks that end a sentence, mean over queries; NaN in a text without."""
    return mass_on_keys(capture, marked(capture.example, ends_sentence))


def same_as(ids: Int[Tensor, " token"], word: Bool[Tensor, " token"]) -> Bool[Tensor, "query key"]:
    """Pairs of different places with one token; special tokens are in none."""
    alike = (ids[:, None] == ids) & word[:, None] & word
    return alike.fill_diagonal_(False)


def same_mass(capture: Capture, *, earlier: bool) -> Scores:
    """Weight on other places with the query's own token (earlier: before it), mean over the queries that have any."""
    ids, word = token_ids(capture.example), words(capture.example)
    if ids is None:
        return by_head(capture, nowhere)
    pairs = same_as(ids, word)
    pairs = pairs.tril() if earlier else pairs
    return by_tokens(capture, lambda w: mass_on(w, pairs, pairs.any(-1)))


@head_scores.add(
    family="token",
    source="Olsson et al. 2022",
    label="Mass on the same token elsewhere",
    low=0,
    high=1,
    unit="share",
    needs="a token that comes twice",
)
def same_token(capture: Capture) -> Scores:
    """Weight on the query's own token at other places, mean over the queries that have one; NaN without repeats."""
    return same_mass(capture, earlier=False)


@head_scores.add(
    family="token",
    source="Wang et al. 2023 (duplicate token heads)",
    label="Mass on the same token before",
    low=0,
    high=1,
    unit="share",
    needs="a token that comes twice",
)
def duplicate_token(capture: Capture) -> Scores:
    """Weight on the query's own token at earlier places, mean over the queries that have one; NaN without repeats."""
    return same_mass(capture, earlier=True)


def token_counts(model: Model, examples: Iterable[Any]) -> Counter[int]:
    """How often each token id comes in some texts: a frequency list for `rare_words`."""
    counts: Counter[int] = Counter()
    for number, item in enumerate(examples):
        ids = token_ids(model.example(item))
        if ids is None:
            raise InputError(f"example {number} has no token ids to count; give texts")
        counts.update(ids.tolist())
    return counts


def rarest(example: Example, n: int, counts: Mapping[int, int] | None = None) -> Bool[Tensor, " token"] | None:
    """Which tokens are the n rarest of an example, special tokens left out; None where there are no n + 1 to compare.

    By their counts (unknown: 0; equally rare ones go together); without, by id, the higher the rarer: vocabularies of
    words and word pieces are mostly sorted so.
    """
    ids, word = token_ids(example), words(example)
    if ids is None:
        return None
    common = -ids if counts is None else torch.tensor([counts.get(index, 0) for index in ids.tolist()])
    ranks = common[word].unique()
    if len(ids[word].unique()) <= n or len(ranks) < 2:
        return None
    at = next(rank for rank in ranks if len(ids[word & (common <= rank)].unique()) >= n)
    return word & (common <= at)


@head_scores.add(
    family="token",
    source="Voita et al. 2019, sec. 5 (rare words)",
    label="Largest weight on a rare word",
    low=0,
    high=1,
    unit="share",
    needs="more different tokens than are called rare",
)
def rare_words(capture: Capture, *, n: int = 2, counts: Mapping[int, int] | None = None) -> Scores:
    """Share of queries whose largest weight, specials left out, is on one of the n rarest tokens; rare: high ids.

    counts: how often each id comes in a corpus (`token_counts`); rare is then what comes least.
    """
    rare, word = rarest(capture.example, n, counts), words(capture.example)
    if rare is None:
        return by_head(capture, nowhere)

    def score(weights: Tensor) -> Tensor:
        looked = weights[..., word]
        looks = (looked.amax(-1, keepdim=True) > 0).to(weights.dtype)  # a query may see special tokens alone
        found = (top_keys(looked) * looks)[..., rare[word]].sum(-1)
        return torch.where(looks.sum((-2, -1)) > 0, found.sum(-1) / looks.sum((-2, -1)), torch.nan)

    return by_keys(capture, score)
