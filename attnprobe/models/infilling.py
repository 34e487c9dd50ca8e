"""What a masked language model expects in the place of tokens that were taken away, given all others."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.evaluator import of_each
from attnprobe.models.model import Model
from attnprobe.models.own_words import is_special
from attnprobe.models.rows import Row, StandIns


@dataclass(frozen=True, eq=False)
class Infiller:
    """Tokens in the place of those taken away, from a masked language model that sees [MASK] there.

    Several tokens that go together are each filled in from the tokens that stay, not from one another. reading: the
    example as the reader reads it. likeliest: the token that it thinks likeliest, the one that was there left out; else
    draws from its whole prediction, the one that was there included; special tokens never. uniform: a number a draw and
    token, which makes a draw the same whatever the batch.
    """

    model: Model
    example: Example
    reader: Model
    reading: Example
    likeliest: bool
    uniform: Float[Tensor, "draw token"] = field(repr=False)

    @classmethod
    def of(
        cls, model: Model, example: Example, infiller: Any, n_draws: int, likeliest: bool, generator: torch.Generator
    ) -> "Infiller":
        """Checked: the reader predicts tokens behind [MASK], and has the tokens of the model."""
        from attnprobe.models import load

        reader = model if infiller is None else load(infiller)
        if not _predicts_masked(reader):
            raise InputError(
                f"'infill' needs a masked language model, which {reader.name} is not; give one with the same tokens: "
                "infiller=… (a Model, or what load takes)"
            )
        if "input_ids" not in example.inputs:
            raise InputError(
                f"'infill' puts words in; {model.name} reads no token ids here ({', '.join(example.inputs)})"
            )
        reading = example if reader is model else _read_by(reader, model, example)
        uniform = torch.rand(n_draws, example.n_tokens, generator=generator, dtype=torch.float64)
        return cls(model, example, reader, reading, likeliest, uniform)

    @property
    def n_draws(self) -> int:
        """How many stand-ins each choice of tokens gets."""
        return len(self.uniform)

    def __call__(self, kept: Sequence[Bool[Tensor, " token"]]) -> list[list[StandIns]]:
        """Stand-ins of every draw for each choice of tokens that stay; a pass of the reader for each choice."""
        rows = [Row(self.reading, kept=choice, operator="mask") for choice in kept]
        if not rows:
            return []
        ids = torch.stack(of_each(self.reader, rows, self._read, progress="infilling"))
        known, index = ids.unique(return_inverse=True)
        inputs = {**self.example.inputs, "input_ids": known[None]}
        table = self.model.embed(replace(self.example, inputs=inputs))
        return [[StandIns(table, draw) for draw in choice] for choice in index]

    def _read(self, logits: Tensor, rows: Sequence[Row]) -> list[Int[Tensor, "draw token"]]:
        """Ids in the place of tokens that are gone; the others stay as they are."""
        given = self.example.inputs["input_ids"][0].cpu()
        found = []
        for answer, row in zip(logits, rows, strict=True):
            gone = torch.tensor([]).long() if row.kept is None else (~row.kept.cpu()).nonzero()[:, 0]
            ids = given.repeat(self.n_draws, 1)
            ids[:, gone] = self._choose(answer[gone.to(answer.device)].double().cpu(), given[gone], gone)
            found.append(ids)
        return found

    def _choose(
        self, scores: Float[Tensor, "gone word"], there: Int[Tensor, " gone"], gone: Int[Tensor, " gone"]
    ) -> Int[Tensor, "draw gone"]:
        scores = scores[:, : _n_words(self.model, scores.shape[1])].clone()
        scores[:, _special_ids(self.reader, scores.shape[1])] = -torch.inf
        if self.likeliest:
            return scores.scatter(1, there[:, None], -torch.inf).argmax(1)[None]
        total = scores.softmax(1).cumsum(1)
        # The first word whose cumulative probability is above the number drawn.
        wanted = self.uniform[:, gone].T.contiguous() * total[:, -1:]
        return torch.searchsorted(total, wanted, right=True).clamp(max=scores.shape[1] - 1).T


def _predicts_masked(reader: Model) -> bool:
    """Whether a model predicts the words behind [MASK]: a word at every position, from both sides."""
    outputs = reader.outputs
    writes = getattr(outputs, "writes", False) or getattr(getattr(reader, "config", None), "is_encoder_decoder", False)
    return outputs.names is None and not outputs.causal and not writes and "mask" in reader.fillers


def _read_by(reader: Model, model: Model, example: Example) -> Example:
    """The example as the reader reads it; `InputError` where its tokens are others."""
    ours, theirs = _words(model), _words(reader)
    ids = example.inputs["input_ids"][0].tolist()
    if ours is not None and theirs is not None and ours != theirs:
        word = min((word for word in {**ours, **theirs} if ours.get(word) != theirs.get(word)), key=str)
        raise InputError(
            f"{reader.name} has other tokens than {model.name} ('{word}' is {theirs.get(word)} there, "
            f"{ours.get(word)} here); give a masked language model with the same tokenizer"
        )
    read = reader.example(ids)
    if read.n_tokens != example.n_tokens:
        raise InputError(f"{reader.name} reads {read.n_tokens} tokens where {model.name} reads {example.n_tokens}")
    # What the caller hides, and which tokens are of the second text, where the reader tells them apart as well.
    carried = {"attention_mask"} | ({"token_type_ids"} if _has_types(reader) else set())
    return replace(read, inputs={**read.inputs, **{n: v for n, v in example.inputs.items() if n in carried}})


def _has_types(reader: Model) -> bool:
    """Whether a reader tells the second text of a pair from the first."""
    return (getattr(getattr(reader, "config", None), "type_vocab_size", 0) or 0) > 1


def _words(model: Model) -> dict[str, int] | None:
    """The vocabulary of a model, by word; None where it is not known."""
    tokenizer: Any = getattr(model, "tokenizer", None)
    vocabulary: Any = getattr(model, "vocabulary", None)
    if hasattr(tokenizer, "get_vocab"):
        return dict(tokenizer.get_vocab())
    return None if vocabulary is None else dict(vocabulary.ids)


def _n_words(model: Model, n_outputs: int) -> int:
    """How many of the outputs are words that the model has an embedding for."""
    table = getattr(model, "embedding", None)
    return min(n_outputs, getattr(table, "num_embeddings", n_outputs))


def _special_ids(reader: Model, n_words: int) -> list[int]:
    """Ids that stand for no word, as far as they are known."""
    tokenizer, vocabulary = getattr(reader, "tokenizer", None), getattr(reader, "vocabulary", None)
    known = getattr(tokenizer, "all_special_ids", None)
    if known is None and vocabulary is not None:
        known = [index for word, index in vocabulary.ids.items() if is_special(word) or word in ("[MASK]", "[UNK]")]
    return [index for index in known or () if index < n_words]
