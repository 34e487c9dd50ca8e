"""The two tables of a model of words: the embeddings that it reads, and the unembedding that it answers with."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import InputError, nearest
from attnprobe.models.linear_maps import map_of
from attnprobe.models.model import Model
from attnprobe.models.residual_stream import Source, Stream
from attnprobe.models.ways import Way


@dataclass(frozen=True, eq=False)
class WordTable:
    """The embeddings of all words, without what a module multiplies them by (Gemma)."""

    model: Model = field(repr=False)
    module: nn.Embedding
    n_words: int

    @property
    def weight(self) -> Float[Tensor, "word d_model"]:
        """The rows of the words."""
        return self.module.weight.detach()[: self.n_words]

    def rows(self, ids: list[int] | None = None) -> Float[Tensor, "word d_model"]:
        """Embeddings as the model makes them, of some words or of all."""
        given = torch.arange(self.n_words) if ids is None else torch.tensor(ids)
        with torch.no_grad():
            return self.module(given.to(self.module.weight.device)).detach()

    def way(self, stream: Stream, reader: tuple[str, int]) -> Way:
        """The direct way from the word embeddings to what a map reads; `InputError` where there is none."""
        found = [way for source in self._sources(stream) if (way := stream.way(source, reader)) is not None]
        if not found:
            raise InputError(
                f"{self.model.name}: no word embedding reaches '{reader[0]}' directly; a map lies between (a "
                "projection of embeddings), or that side of the model reads no words"
            )
        return found[0]

    def _sources(self, stream: Stream) -> list[Source]:
        """Where the table is looked up; shared tables have several modules."""
        modules, mine = dict(self.model.module.named_modules()), self.module.weight.data_ptr()
        tables = [source for source in stream.sources if source[0] == "table"]
        same = [one for one in tables if getattr(modules[one[1]], "weight", self.module.weight).data_ptr() == mine]
        return [source for source in stream.sources if source[0] == "given"] + same


def word_table(model: Model) -> WordTable:
    """The word embeddings of a model; `InputError` for a model that reads no words."""
    model = _inner(model)
    vocabulary, inputs = getattr(model, "vocabulary", None), getattr(model, "inputs", None)
    inputs = getattr(inputs, "words", inputs)  # of an encoder-decoder of ours
    table = getattr(model if inputs is None else inputs, "embedding", None)
    if not isinstance(table, nn.Embedding):
        raise InputError(f"{model.name} reads no words from a table of embeddings, so there are no circuits of tokens")
    return WordTable(model, table, table.num_embeddings if vocabulary is None else len(vocabulary.tokens))


@dataclass(frozen=True, eq=False)
class Unembedding:
    """The map that gives a logit to each word; reader: what it reads."""

    reader: tuple[str, int]
    weight: Float[Tensor, "d_model word"] = field(repr=False)


def unembedding(model: Model, stream: Stream, n_words: int) -> Unembedding:
    """The last map, where it gives the logits of as many words as there are embeddings.

    Errors: `InputError` for classifiers, and where the logits are made in another way.
    """
    model = _inner(model)
    if model.outputs.names is not None:
        raise InputError(
            f"{model.name} answers with {len(model.outputs.names)} classes, not with words: it has no unembedding"
        )
    answer = stream.answer
    wide = [one for one in stream.outputs if answer is not None and one[2].shape[-1] == answer.shape[-1]]
    if answer is None or not wide or not _in_order(wide[-1][2], answer):
        raise InputError(f"{model.name}: its logits are not what its last map gives, so no unembedding was found")
    path, call, _ = wide[-1]
    linear = map_of(path, model.module.get_submodule(path))
    if linear is None or answer.shape[-1] < n_words:
        raise InputError(
            f"{model.name} has {n_words} embeddings and {answer.shape[-1]} outputs: words in and out are not the same"
        )
    return Unembedding((path, call), linear.read(model.module)[0][:, :n_words])


def _in_order(given: Tensor, answer: Tensor) -> bool:
    """Whether the last row of the logits is in the order of what the map gave (a cap or factor changes no order)."""
    last, said = given.flatten(0, -2)[-1], answer.flatten(0, -2)[-1]
    return bool((said[last.argsort()].diff() >= 0).all())


def word_id(model: Model, token: Any) -> int:
    """The id of a word: a number, or a text that is one token of the model."""
    model, n_words = _inner(model), word_table(model).n_words
    vocabulary, tokenizer = getattr(model, "vocabulary", None), getattr(model, "tokenizer", None)
    if isinstance(token, int) and not isinstance(token, bool):
        if not 0 <= token < n_words:
            raise InputError(f"{model.name} has tokens 0 to {n_words - 1}, got {token}")
        return token
    if not isinstance(token, str):
        raise InputError(f"a token is a text or a number, got {token!r}")
    if vocabulary is not None:
        if token not in vocabulary.ids:
            raise InputError(f"the vocabulary has no '{token}'; {nearest(token, vocabulary.tokens)}")
        return int(vocabulary.ids[token])
    if tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer; give the token as a number, got '{token}'")
    known = tokenizer.get_vocab()
    ids = [known[token]] if token in known else tokenizer.encode(token, add_special_tokens=False)
    if len(ids) != 1:
        raise InputError(f"'{token}' is {len(ids)} tokens ({tokenizer.convert_ids_to_tokens(ids)}); give one of them")
    return int(ids[0])


def word_name(model: Model, index: int) -> str:
    """A word by its id: the token, or the number where there is no tokenizer."""
    model = _inner(model)
    vocabulary, tokenizer = getattr(model, "vocabulary", None), getattr(model, "tokenizer", None)
    if vocabulary is not None:
        return str(vocabulary.tokens[index])
    return str(index) if tokenizer is None else str(tokenizer.convert_ids_to_tokens(index))


def _inner(model: Model) -> Any:
    """The model that an edited model edits."""
    return getattr(model, "inner", model)
