"""OwnModel: a network on our own attention, with a small word vocabulary, as a `Model`.

The network is called as `network(embeddings, is_token)`: embeddings [batch token d_model] before positions
are added, is_token [batch token] False where nobody may look (or None); it gives logits [batch ...].
Every attention inside goes through `attnprobe.attention.seam.observe`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.attention.masks import expecting_blind_rows
from attnprobe.attention.seam import Keep, Tape, recording, silent
from attnprobe.errors import CaptureError, InputError, nearest
from attnprobe.example import Example, words_of_spans
from attnprobe.models.model import Model, Stack, facts_of
from attnprobe.models.modes import evaluating
from attnprobe.models.rows import CONTENT, Row, fill, filler
from attnprobe.site import Kind

# They stand for a word, so they are explained like one; every other bracketed token is special.
_STANDS_FOR_A_WORD = ("[UNK]", "[MASK]")
Text = str | Sequence[str] | Sequence[int] | Tensor | Example
WORDS = r"\[[A-Z]+\]|\w+(?:'\w+)*|[^\w\s]"


@dataclass(frozen=True)
class Vocabulary:
    """Words of a model by id; a text is cut by a regular expression, every match is a token.

    begin: token put before every text (None: none). lowercase: words are looked up in lower case.

    >>> Vocabulary.of(["a good film"]).encode("Good!")[1]
    [2, 4, 1]
    """

    tokens: tuple[str, ...]
    begin: str | None = "[CLS]"
    pattern: str = WORDS
    lowercase: bool = True

    def __post_init__(self) -> None:
        if self.begin is not None and self.begin not in self.tokens:
            raise InputError(
                f"texts begin with '{self.begin}', which is not in the vocabulary; add it, or give begin=None"
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

    def encode(
        self, text: str | Sequence[str] | Sequence[int] | Tensor
    ) -> tuple[str, list[int], list[tuple[int, int] | None]]:
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
        return whole, ids, spans

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


@dataclass(frozen=True)
class OwnOutputs:
    """What a model of ours calls its outputs: classes, or the words of its vocabulary at every position."""

    model: str
    names: tuple[str, ...] | None
    words: tuple[str, ...]
    exclusive: bool = True

    @property
    def causal(self) -> bool:
        """Whether an answer at a position depends on no token behind it: our decoder predicts the next word."""
        return self.names is None

    def index(self, label: str | int) -> int:
        """Index of an output by name; `InputError` names the nearest."""
        if isinstance(label, int):
            return label
        names = self.names or self.words
        if label not in names:
            raise InputError(f"{self.model} has no output '{label}'; {nearest(label, names)}")
        return names.index(label)

    def name(self, index: int) -> str:
        """Name of an output."""
        return (self.names or self.words)[index]

    def position(self, example: Example) -> int | None:
        """The last token where every position has an output; None for one output an input."""
        return example.n_tokens - 1 if self.names is None else None


class OwnModel(Model):
    """A network on our attention, its token embedding and its vocabulary, ready to be asked.

    labels: names of the outputs (None: the vocabulary, at every position). fillers: embeddings that can stand
    in for a removed token (default: those of [MASK], [PAD], [UNK] where they exist, the mean, zero).
    Its parameters are never touched, and it is in evaluation mode only while it runs.
    """

    def __init__(
        self,
        network: nn.Module,
        vocabulary: Vocabulary,
        *,
        name: str = "own",
        labels: Sequence[str] | None = None,
        embedding: nn.Embedding | None = None,
        fillers: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.name, self.module, self.vocabulary = name, network, vocabulary
        found = getattr(network, "token_embedding", None) if embedding is None else embedding
        if not isinstance(found, nn.Embedding):
            raise InputError(f"{type(network).__name__} has no token_embedding; pass embedding=nn.Embedding(…)")
        if found.num_embeddings < len(vocabulary.tokens):
            raise InputError(
                f"{len(vocabulary.tokens)} words need as many embeddings, the network has {found.num_embeddings}"
            )
        self.embedding, self._fillers = found, fillers
        self.outputs = OwnOutputs(name, None if labels is None else tuple(labels), vocabulary.tokens)
        self._paths = {id(module): path for path, module in network.named_modules()}

    @property
    def _device(self) -> torch.device:
        """Where the inputs go."""
        return self.embedding.weight.device

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:  # type: ignore[override]
        """Stacks of attention with their layers and heads, as one short pass shows them."""
        tape = Tape(keep=Keep(frozenset(), reduce=facts_of), check=False)
        ids = torch.zeros(1, getattr(self.module, "fixed_length", None) or 1, dtype=torch.long, device=self._device)
        with torch.no_grad():
            self._run(self.embedding(ids), None, tape)
        if not tape.reduced:
            raise CaptureError(f"no attention of {self.name} was seen; build the network on attnprobe.attention")
        return Stack.of_pass(tape)

    @property
    def fillers(self) -> Mapping[str, Tensor]:
        """Embeddings [d_model] that can stand in for a removed token, by operator name, best first."""
        if self._fillers is not None:
            return self._fillers
        table = self.embedding.weight.detach()[: len(self.vocabulary.tokens)]
        tokens = {"mask": "[MASK]", "pad": "[PAD]", "unk": "[UNK]"}
        known = {name: table[self.vocabulary.ids[t]] for name, t in tokens.items() if t in self.vocabulary.ids}
        ordered = {"mask": known.get("mask"), "mean": table.mean(0), **known, "zero": torch.zeros_like(table[0])}
        return {name: vector for name, vector in ordered.items() if vector is not None}

    def example(self, text: Text, pair: str | None = None, **options: Any) -> Example:
        """Read one input: a text, a list of tokens, or ids (to which nothing is added).

        Errors: `InputError` for a text without words or with more tokens than the model has positions.
        """
        if isinstance(text, Example):
            return text
        if pair is not None or options:
            raise InputError(
                f"{self.name} reads one text without options, got {'a pair' if pair is not None else list(options)}"
            )
        text, ids, spans = self.vocabulary.encode(text)
        self._check_length(len(ids))
        tokens = tuple(self.vocabulary.tokens[i] for i in ids)
        special = tuple(_bracketed(token) and token not in _STANDS_FOR_A_WORD for token in tokens)
        spans = [None if s else span for s, span in zip(special, spans, strict=True)]
        inputs = {"input_ids": torch.tensor([ids], device=self._device)}
        return Example(text, inputs, tokens, tuple(spans), special, words_of_spans(text, spans))

    def _check_length(self, length: int) -> None:
        longest, fixed = getattr(self.module, "max_length", None), getattr(self.module, "fixed_length", None)
        if fixed is not None and length != fixed:
            raise InputError(f"{self.name} reads exactly {fixed} tokens, got {length}")
        if longest is not None and length > longest:
            raise InputError(f"the text has {length} tokens, {self.name} has {longest} positions; shorten it")

    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """The embeddings that removal and gradients work on, before positions are added."""
        return self.embedding(example.inputs["input_ids"].to(self._device))[0].detach()

    def forward(self, rows: Sequence[Row], tape: Tape | None = None) -> Float[Tensor, "row ..."]:
        """Logits of rows of one length. Without a tape this is the network as if attnprobe were not there."""
        made = [self._make(row) for row in rows]
        lengths = sorted({embeddings.shape[0] for embeddings, _ in made})
        if len(lengths) != 1:
            raise InputError(f"rows of one pass have one length, got {lengths or 'no rows'}")
        masked = any(not bool(is_token.all()) for _, is_token in made)
        is_token = torch.stack([row for _, row in made]) if masked else None
        embeddings = torch.stack([row for row, _ in made])
        return self._run(embeddings, is_token, tape)

    def _make(self, row: Row) -> tuple[Float[Tensor, "kept d_model"], Bool[Tensor, " kept"]]:
        """A row's embeddings and which of its tokens may be looked at, its removal made real."""
        embeddings = self.embed(row.example) if row.embeddings is None else row.embeddings
        everyone = torch.ones(len(embeddings), dtype=torch.bool, device=embeddings.device)
        if row.kept is None or bool(row.kept.all()):
            return embeddings, everyone
        kept = row.kept.to(embeddings.device)
        if row.operator in CONTENT:
            filled = fill(row, embeddings, filler(self.fillers, row.operator, self.name)).embeddings
            return embeddings if filled is None else filled, everyone
        if row.operator == "delete":
            self._check_length(int(kept.sum()))
            return embeddings[kept], everyone[kept]
        return embeddings, kept

    def _run(self, embeddings: Tensor, is_token: Tensor | None, tape: Tape | None) -> Tensor:
        # Rows in which every key was taken away are what the caller asked for, not a mistake in a mask.
        with evaluating(self.module), expecting_blind_rows(), silent() if tape is None else self.listening(tape):
            return self.module(embeddings, is_token)

    @contextmanager
    def listening(self, tape: Tape) -> Iterator[Tape]:
        """Within the block, attention that runs in the network (or a part of it) passes the tape."""
        tape.locate = self._locate
        tape.start_pass()
        with recording(tape):
            yield tape

    def _locate(self, module: nn.Module, cross: bool) -> tuple[str, Kind, str]:
        if hasattr(self.module, "locate"):  # a network of several towers says so itself
            found: tuple[str, Kind, str] = self.module.locate(module, cross)  # type: ignore[operator]
            return found
        return getattr(self.module, "stack", "encoder"), "cross" if cross else "self", self._paths[id(module)]

    def describe(self) -> dict[str, Any]:
        """Facts for reports: name, type, dtype, number of parameters."""
        n_parameters = sum(p.numel() for p in self.module.parameters())
        dtype = str(self.embedding.weight.dtype).removeprefix("torch.")
        return {"name": self.name, "type": type(self.module).__name__, "dtype": dtype, "n_parameters": n_parameters}
