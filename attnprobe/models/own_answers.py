"""Encoder-decoders of ours: a text and the answer that is written to it.

The explained tokens are those of the text; the answer is a part of the question. As with pretrained encoder-decoders
the target is the log-probability of the whole answer, or with `Target(position=t)` an output at its step t.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import silent
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.modes import evaluating
from attnprobe.models.own_inputs import Inputs
from attnprobe.models.own_words import Vocabulary, Words, checked_table
from attnprobe.target import ResolvedTarget, Scale

MOST_WRITTEN = 32


@dataclass(frozen=True, eq=False)
class Answers(Inputs):
    """Texts with an answer in a second vocabulary; `network(embeddings, written, is_token)`, logits at every step.

    target_embedding: the table of what is written. answer_length: tokens of a greedy answer that no end token ends.
    """

    words: Words
    target_vocabulary: Vocabulary
    target_embedding: nn.Embedding
    answer_length: int | None = None

    @classmethod
    def of(cls, words: Words, target_vocabulary: Vocabulary, answer_length: int | None = None) -> "Answers":
        """Checked: the network has a table for what it writes, and the vocabulary a token to begin with."""
        if target_vocabulary.begin is None:
            raise InputError("a decoder begins with a token of its own; give the target vocabulary begin='[BOS]'")
        if answer_length is not None and answer_length < 1:
            raise InputError(f"an answer has at least 1 token, got answer_length={answer_length}")
        found = getattr(words.network, "target_embedding", None)
        table = checked_table(found, target_vocabulary, words.network, "target_embedding")
        return cls(words, target_vocabulary, table, answer_length)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The model's name."""
        return self.words.name

    @property
    def network(self) -> nn.Module:  # type: ignore[override]
        """The network."""
        return self.words.network

    @property
    def weight(self) -> Tensor:
        """The table of the text's words."""
        return self.words.weight

    @property
    def fillers(self) -> Any:
        """Those of the text's words."""
        return self.words.fillers

    def example(self, given: Any, *, answer: Any = None, **options: Any) -> Example:
        """Read a text; answer: a text, tokens or ids to explain (default: the greedy one)."""
        source = self.words.example(given, **options)
        ids = self._greedy(source) if answer is None else self._given(answer)
        longest = getattr(self.network, "max_length", None)
        if longest is not None and len(ids) > longest:
            raise InputError(f"the answer has {len(ids)} tokens, {self.name} has {longest} positions; shorten it")
        read = [self._begin, *ids[:-1]]
        names = tuple(self.target_vocabulary.tokens[index] for index in read)
        written = torch.tensor([read], device=self.weight.device)
        answer = tuple(self.target_vocabulary.tokens[index] for index in ids)
        notes = {"answer_ids": tuple(ids), "answer_tokens": answer, "decoder_tokens": names}
        return replace(source, inputs={**source.inputs, "decoder_input_ids": written}, notes=notes)

    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """Word embeddings of the text."""
        return self.words.embed(example)

    def probe(self, n_tokens: int) -> Example:
        """Some ids, and as many of an answer."""
        source, n_words = self.words.probe(n_tokens), len(self.target_vocabulary.tokens)
        ids = [index % n_words for index in range(source.n_tokens)]
        answer = [n_words - 1 - index for index in ids]
        return self.example(source.inputs["input_ids"], answer=[i for i in answer if i != self._begin] or [answer[0]])

    def beside(self, examples: Sequence[Example]) -> tuple[Tensor, ...]:
        """Embeddings [batch step d_model] of what is written before each step, from the token it begins with."""
        rows = [example.inputs["decoder_input_ids"].to(self.weight.device) for example in examples]
        lengths = sorted({row.shape[1] for row in rows})
        if len(lengths) != 1:
            raise InputError(f"rows of one pass have answers of one length, got {lengths}")
        return (self.target_embedding(torch.cat(rows)),)

    @property
    def _begin(self) -> int:
        return self.target_vocabulary.ids[str(self.target_vocabulary.begin)]

    def _given(self, answer: Any) -> list[int]:
        """Ids of an answer, without the token that the decoder begins with."""
        is_text = isinstance(answer, str | Tensor) or (isinstance(answer, Sequence) and len(answer) > 0)
        if not is_text or (isinstance(answer, Tensor) and (answer.is_floating_point() or answer.numel() == 0)):
            raise InputError(f"an answer is a text, a list of tokens or of ids, of at least one token, got {answer!r}")
        _, ids, _ = self.target_vocabulary.encode(answer)
        ids = ids[1:] if ids[0] == self._begin else ids
        if not ids or self._begin in ids:
            raise InputError(
                f"an answer is what is written behind '{self.target_vocabulary.begin}', once and not empty, "
                f"got {answer!r}"
            )
        return ids

    @torch.no_grad()
    def _greedy(self, source: Example) -> list[int]:
        """The likeliest token at each step, up to the end token or the length that was asked for."""
        end = None if self.target_vocabulary.end is None else self.target_vocabulary.ids[self.target_vocabulary.end]
        if end is None and self.answer_length is None:
            raise InputError(
                f"{self.name} has no end token, so it would write on; give answer=…, answer_length=… of OwnModel, or a "
                "target vocabulary with end='[EOS]'"
            )
        longest = min(self.answer_length or MOST_WRITTEN, getattr(self.network, "max_length", None) or MOST_WRITTEN)
        embeddings, ids = self.embed(source)[None], [self._begin]
        with evaluating(self.network), silent():
            while len(ids) <= longest and (len(ids) == 1 or ids[-1] != end):
                written = self.target_embedding(torch.tensor([ids], device=self.weight.device))
                ids.append(int(self.network(embeddings, written, None)[0, -1].argmax()))
        return ids[1:]


def answer_target(ids: Sequence[int], text: str, scale: str = "log_probability") -> ResolvedTarget:
    """The log-probability of a whole answer, summed over its tokens; on scale "probability" its exponential.

    ids: of the answer, the token at each step. A whole answer has no logit: "logit" means its log-probability.
    """
    chosen = torch.tensor(list(ids))

    def log_probability(logits: Tensor) -> Tensor:
        index = chosen.to(logits.device)[None, :, None].expand(len(logits), -1, 1)
        return logits[:, : len(chosen)].log_softmax(-1).gather(-1, index).sum((1, 2))

    def probability(logits: Tensor) -> Tensor:
        return log_probability(logits).exp()

    found: Scale = "probability" if scale == "probability" else "log_probability"
    name, nan = f"{found.replace('_', '-')} of the answer '{text}'", float("nan")
    function = probability if found == "probability" else log_probability
    return ResolvedTarget(-1, name, None, None, None, found, -1, text, nan, nan, function)
