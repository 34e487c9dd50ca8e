"""What "resample" draws in the judgement: the token at the same place of other texts, or any word of the vocabulary.

A token at the same place has the same part to play; one from anywhere brings its own part along (a word that many
look at, with the content of a word that says something), which no input of the kind would show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.models.own_words import is_special
from attnprobe.models.rows import StandIns

# Words of the vocabulary that are drawn from, where no texts are given.
N_WORDS = 256


@dataclass(frozen=True, eq=False)
class Source:
    """Embeddings to draw from, and which of them may stand in for each token.

    table: the embeddings. choices: for each token of the example, entries of the table; none for what is never taken
    away. words: where they come from, for people.
    """

    table: Float[Tensor, "entry d_model"]
    choices: tuple[Tensor, ...]
    words: str

    def draws(self, n_draws: int, generator: torch.Generator) -> list[StandIns]:
        """For each draw an entry a token; every choice of a token comes up before one comes up again."""
        index = torch.zeros(n_draws, len(self.choices), dtype=torch.long)
        for token, choices in enumerate(self.choices):
            if len(choices):
                rounds = -(-n_draws // len(choices))
                shuffled = [torch.randperm(len(choices), generator=generator) for _ in range(rounds)]
                index[:, token] = choices[torch.cat(shuffled)[:n_draws]]
        return [StandIns(self.table, row) for row in index]


def source_of(model: Model, example: Example, index: Int[Tensor, " unit"], data: Sequence[Any] | None) -> Source:
    """What may stand in for the units of an example. data: texts, or examples that were read from them (None: words).

    Errors: `InputError` for data that is no list of texts, or that has nothing to draw.
    """
    if data is None:
        return _of_vocabulary(model, example, index)
    if isinstance(data, str | Mapping) or len(data) == 0:
        raise InputError(f"data is a list of at least one text to draw tokens from, got {data!r}")
    answer: dict[str, Any] = {"answer": list(example.notes["answer_ids"])} if "answer_ids" in example.notes else {}
    texts = [text if isinstance(text, Example) else model.example(text, **answer) for text in data]
    starts = torch.tensor([0, *(text.n_tokens for text in texts)]).cumsum(0).tolist()
    table = torch.cat([model.embed(text).detach() for text in texts])
    free = [not special for text in texts for special in text.is_special]
    anywhere = torch.tensor([entry for entry, ok in enumerate(free) if ok], dtype=torch.long)
    if not len(anywhere):
        raise InputError("the texts of data have only special tokens; there is nothing to draw")
    wanted, choices = set(index.tolist()), []
    for token in range(example.n_tokens):
        here = [
            start + token
            for start, text in zip(starts, texts, strict=False)
            if token < text.n_tokens and free[start + token]
        ]
        found = torch.tensor(here, dtype=torch.long) if here else anywhere
        choices.append(found if token in wanted else found[:0])
    plural = "s" if len(texts) > 1 else ""
    return Source(table, tuple(choices), f"the same place of {len(texts)} other text{plural}")


def _of_vocabulary(model: Model, example: Example, index: Int[Tensor, " unit"]) -> Source:
    """Any word of the vocabulary in the place of each unit; the other units of this input where there is none."""
    ids = _word_ids(model)
    if ids is None or "input_ids" not in example.inputs:
        return _of_itself(model, example, index)
    if len(ids) > N_WORDS:  # evenly from the whole vocabulary: it is sorted by how frequent words are, or by letters
        ids = ids[torch.linspace(0, len(ids) - 1, N_WORDS).long()]
    table = _embedded(model, example, ids)
    every = torch.arange(len(ids))
    wanted = set(index.tolist())
    choices = tuple(every if token in wanted else every[:0] for token in range(example.n_tokens))
    return Source(table, choices, f"{len(ids)} words of the vocabulary")


def _embedded(model: Model, example: Example, ids: Int[Tensor, " word"]) -> Float[Tensor, "word d_model"]:
    """Embeddings of words, looked up as those of an input are, in pieces of its length."""
    given, found = example.inputs["input_ids"], []
    for part in ids.split(given.shape[-1]):
        row = given.clone()
        row[0, : len(part)] = part.to(given.device)
        found.append(model.embed(replace(example, inputs={**example.inputs, "input_ids": row}))[: len(part)])
    return torch.cat(found).detach()


def _word_ids(model: Model) -> Int[Tensor, " word"] | None:
    """Ids of the words of a model's vocabulary without its special tokens; None where it has none."""
    inner = getattr(model, "inner", model)
    vocabulary, tokenizer = getattr(inner, "vocabulary", None), getattr(inner, "tokenizer", None)
    if vocabulary is not None:
        return torch.tensor([i for word, i in vocabulary.ids.items() if not is_special(word)], dtype=torch.long)
    if tokenizer is None or not hasattr(tokenizer, "get_vocab"):
        return None
    special = set(getattr(tokenizer, "all_special_ids", ()))
    n_rows = getattr(getattr(inner, "embedding", None), "num_embeddings", None)
    known = sorted(set(tokenizer.get_vocab().values()) - special)
    return torch.tensor([i for i in known if n_rows is None or i < n_rows], dtype=torch.long)


def _of_itself(model: Model, example: Example, index: Int[Tensor, " unit"]) -> Source:
    if len(index) < 2:
        raise InputError(
            f"there is no other token to draw from in '{example.text[:40]}'; give texts to draw from: data=[…]"
        )
    wanted = index.tolist()
    choices = tuple(
        torch.tensor([other for other in wanted if other != token] if token in wanted else [], dtype=torch.long)
        for token in range(example.n_tokens)
    )
    return Source(model.embed(example).detach(), choices, "the other tokens of the text")
