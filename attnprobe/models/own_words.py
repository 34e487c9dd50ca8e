"""Words: a small vocabulary of our own, and the texts that a network reads with it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import InputError, nearest
from attnprobe.example import Axis, Example, words_of_spans
from attnprobe.models.own_inputs import Inputs

# They stand for a word, so they are explained like one; every other bracketed token is special.
_STANDS_FOR_A_WORD = ("[UNK]", "[MASK]")
Text = str | Sequence[str] | Sequence[int] | Tensor
WORDS = r"\[[A-Z]+\]|\w+(?:'\w+)*|[^\w\s]"


@dataclass(frozen=True)
class Vocabulary:
    """Words of a model by id; a text is cut by a regular expression, every match is a token.

    begin, end: tokens put before and behind every text (None: none). lowercase: words are looked up in lower case.

    >>> Vocabulary.of(["a good film"]).encode("Good!")[1]
    [2, 4, 1]
    """

    tokens: tuple[str, ...]
    begin: str | None = "[CLS]"
    pattern: str = WORDS
    lowercase: bool = True
    end: str | None = None

    def __post_init__(self) -> None:
        for side, token in (("begin", self.begin), ("end", self.end)):
            if token is not None and token not in self.tokens:
                raise InputError(
                    f"texts {side} with '{token}', which is not in the vocabulary; add it, or give {side}=None"
                )

    @classmethod
    def of(
        cls, texts: Sequence[str], specials: Sequence[str] = ("[PAD]", "[UNK]", "[CLS]"), **options: Any
    ) -> "Vocabulary":
        """The specials, then the words of the texts in order of appearance."""
        pattern, lowercase = options.get("pattern", WORDS), options.get("lowercase", True)
        words = [_normal(word.group(), lowercase) for text in texts for word in re.finditer(pattern, text)]
        return cls(tuple(dict.fromkeys((*specials, *words))), **options)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each token."""
        return {token: index for index, token in enumerate(self.tokens)}

    def id_of(self, token: str) -> int:
        """Id of a token, that of [UNK] for an unknown word; `InputError` names the nearest where there is no [UNK]."""
        known = self.ids.get(_normal(token, self.lowercase), self.ids.get("[UNK]"))
        if known is None:
            raise InputError(f"the vocabulary has no '{token}'; {nearest(token, self.tokens)}")
        return known

    def encode(self, text: Text) -> tuple[str, list[int], list[tuple[int, int] | None]]:
        """Text, ids and spans of a text, a list of tokens, or ids (to which nothing is added)."""
        given = text.flatten().tolist() if isinstance(text, Tensor) else text
        as_ids = not isinstance(given, str) and len(given) > 0 and isinstance(given[0], int)
        if isinstance(given, str):
            whole, found = given, [(match.group(), match.span()) for match in re.finditer(self.pattern, given)]
        else:
            words = [self.tokens[self._check_id(token)] if isinstance(token, int) else token for token in given]
            whole, ends = " ".join(words), accumulate(len(word) + 1 for word in words)
            found = [(word, (end - 1 - len(word), end - 1)) for word, end in zip(words, ends, strict=True)]
        if not found:
            raise InputError(f"the text {whole!r} has no words; give a text with at least one")
        ids = [self.id_of(token) for token, _ in found]
        spans: list[tuple[int, int] | None] = [span for _, span in found]
        if self.begin is not None and not as_ids and found[0][0] != self.begin:
            ids, spans = [self.ids[self.begin], *ids], [None, *spans]
        if self.end is not None and not as_ids and found[-1][0] != self.end:
            ids, spans = [*ids, self.ids[self.end]], [*spans, None]
        return whole, ids, spans

    def text_of(self, ids: Sequence[int]) -> str:
        """The words of ids as a text, special tokens left out; characters stand side by side, words apart.

        >>> Vocabulary.of(["a good film"]).text_of([2, 4, 5])
        'good film'
        """
        words = [token for token in (self.tokens[self._check_id(index)] for index in ids) if not is_special(token)]
        letters = all(len(token) == 1 for token in self.tokens if not _bracketed(token))
        return ("" if letters else " ").join(words)

    def _check_id(self, index: int) -> int:
        if not 0 <= index < len(self.tokens):
            raise InputError(
                f"id {index} is outside of the vocabulary of {len(self.tokens)} tokens (0 to {len(self.tokens) - 1})"
            )
        return index


def _normal(token: str, lowercase: bool) -> str:
    return token.lower() if lowercase and not _bracketed(token) else token


def _bracketed(token: str) -> bool:
    return token.startswith("[") and token.endswith("]") and len(token) > 2


def is_special(token: str) -> bool:
    """Whether a token is neither a word nor stands for one."""
    return _bracketed(token) and token not in _STANDS_FOR_A_WORD


@dataclass(frozen=True, eq=False)
class Words(Inputs):
    """Texts: a token is a word of the vocabulary, and its embedding a row of a table."""

    name: str
    network: nn.Module
    vocabulary: Vocabulary
    embedding: nn.Embedding

    @classmethod
    def of(cls, name: str, network: nn.Module, vocabulary: Vocabulary, embedding: nn.Embedding | None) -> "Words":
        """The words that a network reads with this table, its `token_embedding` unless another is given."""
        found = getattr(network, "token_embedding", None) if embedding is None else embedding
        return cls(name, network, vocabulary, checked_table(found, vocabulary, network, "token_embedding"))

    @property
    def weight(self) -> Tensor:
        """The table of embeddings."""
        return self.embedding.weight

    @property
    def fillers(self) -> Mapping[str, Tensor]:
        """Embeddings of [MASK], [PAD], [UNK] where they exist, the mean of the table, zero."""
        table = self.embedding.weight.detach()[: len(self.vocabulary.tokens)]
        tokens = {"mask": "[MASK]", "pad": "[PAD]", "unk": "[UNK]"}
        known = {name: table[self.vocabulary.ids[t]] for name, t in tokens.items() if t in self.vocabulary.ids}
        ordered = {"mask": known.get("mask"), "mean": table.mean(0), **known, "zero": torch.zeros_like(table[0])}
        return {name: vector for name, vector in ordered.items() if vector is not None}

    def example(self, given: Any, **options: Any) -> Example:
        """Read a text, a list of tokens, or ids (to which nothing is added)."""
        if options:
            raise InputError(f"{self.name} reads one text without options, got {list(options)}")
        text, ids, spans = self.vocabulary.encode(given)
        self.check_length(len(ids))
        tokens = tuple(self.vocabulary.tokens[i] for i in ids)
        special = tuple(map(is_special, tokens))
        spans = [None if s else span for s, span in zip(special, spans, strict=True)]
        inputs = {"input_ids": torch.tensor([ids], device=self.weight.device)}
        axis: Axis = getattr(self.network, "axis", "source")
        return Example(text, inputs, tokens, tuple(spans), special, words_of_spans(text, spans), axis)

    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """Word embeddings of the tokens."""
        return self.embedding(example.inputs["input_ids"].to(self.weight.device))[0].detach()

    def probe(self, n_tokens: int) -> Example:
        """Some ids, as many as are asked for, as far as the network reads that many."""
        fixed, longest = (getattr(self.network, name, None) for name in ("fixed_length", "max_length"))
        length, n_words = fixed or min(n_tokens, longest or n_tokens), len(self.vocabulary.tokens)
        return self.example([n_words - 1 - index % n_words for index in range(length)])


def checked_table(table: Any, vocabulary: Vocabulary, network: nn.Module, name: str) -> nn.Embedding:
    """The table, or an `InputError` where there is none, or one with fewer rows than the vocabulary has words."""
    if not isinstance(table, nn.Embedding):
        pictures = "; it reads pictures: leave the vocabulary out" if hasattr(network, "embed") else ""
        how = "pass embedding=nn.Embedding(…)" if name == "token_embedding" else f"give it a {name}"
        raise InputError(f"{type(network).__name__} has no {name}{pictures or f'; {how}'}")
    if table.num_embeddings < len(vocabulary.tokens):
        raise InputError(
            f"{len(vocabulary.tokens)} words need as many embeddings, the network has {table.num_embeddings}"
        )
    return table
