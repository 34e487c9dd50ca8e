"""Whether a head stays in the query's own part of the input: its sentence, or its text of a pair."""

import torch
from jaxtyping import Int
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.example import Example
from attnprobe.heads import head_scores
from attnprobe.heads.sides import Scores, by_head, by_tokens, nowhere, shares, words
from attnprobe.heads.tokens import ends_sentence, is_punctuation, marked

APART = -1  # number of a token that is in no segment


def sentences(example: Example) -> Int[Tensor, " token"]:
    """Number of the sentence of each token, -1 of special tokens.

    A sentence ends with its marks (`.`, `!`, `?`, …) and what punctuation follows them; the second text of a pair
    begins a new one.
    """
    ends, marks = marked(example, ends_sentence).tolist(), marked(example, is_punctuation).tolist()
    second = example.in_pair or (False,) * example.n_tokens
    found: list[int] = []
    number, ended = 0, False
    for index, special in enumerate(example.is_special):
        moved = index > 0 and second[index] != second[index - 1]
        if (ended and not marks[index] and not special) or (moved and bool(found)):
            number, ended = number + 1, False
        ended = ended or ends[index]
        found.append(APART if special else number)
    return torch.tensor(found)


def texts(example: Example) -> Int[Tensor, " token"]:
    """0 for tokens of the first text of a pair, 1 for those of the second, -1 for special tokens."""
    second = torch.tensor(example.in_pair or (False,) * example.n_tokens).long()
    return second.masked_fill(~words(example), APART)


def kept_within(capture: Capture, segments: Int[Tensor, " token"]) -> Scores:
    """Share of a query's weight that stays in its own segment, of what lies in any; mean over the queries in one.

    NaN where there are fewer than two segments, or queries and keys are not the tokens of the example. An even look
    gives the segment's share of the tokens.
    """
    inside = segments != APART
    if len(segments[inside].unique()) < 2:
        return by_head(capture, nowhere)
    own = segments[inside][:, None] == segments[inside]

    def score(weights: Tensor) -> Tensor:
        looks = shares(weights[:, inside][..., inside])
        seen = looks.sum(-1)  # 0 where a query looks at special tokens alone
        return torch.where(seen.sum(-1) > 0, (looks * own).sum((-2, -1)) / seen.sum(-1), torch.nan)

    return by_tokens(capture, score)


@head_scores.add(
    family="segment",
    source="Kovaleva et al. 2019 (block patterns), by sentences",
    label="Stays in its sentence",
    low=0,
    high=1,
    unit="share",
    needs="two sentences",
)
def same_sentence(capture: Capture) -> Scores:
    """Share of a query's weight on words that stays in its own sentence, mean; NaN in a text of one sentence."""
    return kept_within(capture, sentences(capture.example))


@head_scores.add(
    family="segment",
    source="Kovaleva et al. 2019 (block patterns), by texts of a pair",
    label="Stays in its text of a pair",
    low=0,
    high=1,
    unit="share",
    needs="a pair of texts",
)
def same_text(capture: Capture) -> Scores:
    """Share of a query's weight on words that stays in its own text of a pair, mean; NaN without a pair."""
    return kept_within(capture, texts(capture.example))
