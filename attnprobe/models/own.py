"""OwnModel: a network on our own attention, with a small vocabulary or pictures to read, as a `Model`.

    OwnModel(network, vocabulary, labels=…)                      a classifier of texts
    OwnModel(network, vocabulary)                                a decoder: an output of the vocabulary at every token
    OwnModel(network, vocabulary, target_vocabulary=…)           an encoder-decoder: a text, and the answer to it
    OwnModel(network, labels=…, pictures=…)                      a Vision Transformer: its tokens are patches

The network is called as `network(embeddings, is_token)`: embeddings [batch token d_model] before positions
are added, is_token [batch token] False where nobody may look (or None); it gives logits [batch ...]. An
encoder-decoder is called as `network(embeddings, written, is_token)`, written: embeddings of its answer so far.
Every attention inside goes through `attnprobe.attention.seam.observe`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.attention.masks import expecting_blind_rows
from attnprobe.attention.seam import Keep, Locate, Tape, recording, silent
from attnprobe.attention.sequence_to_sequence import SequenceToSequence, located
from attnprobe.attention.two_towers import TwoTowers
from attnprobe.errors import CaptureError, InputError, nearest
from attnprobe.example import Example
from attnprobe.models.model import Model, Stack, facts_of
from attnprobe.models.modes import evaluating
from attnprobe.models.own_answers import Answers, answer_target
from attnprobe.models.own_contract import check_answer, check_call, check_heeds, told_embeddings
from attnprobe.models.own_inputs import Inputs
from attnprobe.models.own_patches import Embed, Patches
from attnprobe.models.own_words import Vocabulary, Words
from attnprobe.models.rows import Row, fill, stand_in
from attnprobe.site import Kind
from attnprobe.target import ResolvedTarget, Target, as_target

__all__ = ["OwnModel", "OwnOutputs", "Vocabulary"]


@dataclass(frozen=True)
class OwnOutputs:
    """What a model of ours calls its outputs: classes, or the words of its vocabulary at every position.

    writes: the positions are the steps of an answer, each of which depends on the whole input.
    """

    model: str
    names: tuple[str, ...] | None
    words: tuple[str, ...]
    exclusive: bool = True
    writes: bool = False

    @property
    def causal(self) -> bool:
        """Whether an answer at a position depends on no token behind it: our decoder predicts the next word."""
        return self.names is None and not self.writes

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
        """The last token (step) where every position has an output; None for one output an input."""
        if self.names is not None:
            return None
        written = example.inputs.get("decoder_input_ids") if self.writes else None
        return (example.n_tokens if written is None else int(written.shape[1])) - 1


class OwnModel(Model):
    """A network on our attention and what it reads, ready to be asked.

    vocabulary: of its texts (None: it reads pictures). labels: names of the outputs (None: the vocabulary, at every
    position). embedding: the table of word embeddings (default: the network's token_embedding). fillers: embeddings
    that can stand in for a removed token (default: those of [MASK], [PAD], [UNK] where they exist, the mean, zero; of a
    patch: the mean patch of `pictures` where some are given, a patch of 0, zero). target_vocabulary: of the answers of
    an encoder-decoder; answer_length: of the greedy one, where no end token ends it. embed: pictures to embeddings
    (default: the network's own).
    Its parameters are never touched, and it is in evaluation mode only while it runs.
    """

    def __init__(
        self,
        network: nn.Module,
        vocabulary: Vocabulary | None = None,
        *,
        name: str = "own",
        labels: Sequence[str] | None = None,
        embedding: nn.Embedding | None = None,
        fillers: Mapping[str, Tensor] | None = None,
        target_vocabulary: Vocabulary | None = None,
        answer_length: int | None = None,
        embed: Embed | None = None,
        pictures: Any = None,
    ) -> None:
        _refuse_towers(network)
        of_words = {"embedding": embedding, "target_vocabulary": target_vocabulary, "answer_length": answer_length}
        of_pictures = {"embed": embed, "pictures": pictures}
        _refuse_mixed(of_words if vocabulary is None else of_pictures, vocabulary is None)
        self.name, self.module, self.vocabulary, self._fillers = name, network, vocabulary, fillers
        self.inputs: Inputs = (
            Patches.of(name, network, embed, pictures)
            if vocabulary is None
            else _text_inputs(name, network, vocabulary, embedding, target_vocabulary, answer_length)
        )
        self.outputs = _outputs(name, labels, vocabulary, target_vocabulary)
        check_call(network, 3 if isinstance(self.inputs, Answers) else 2)
        self._heeds = False  # whether it was seen that hiding tokens changes the answer
        self._paths = {id(module): path for path, module in network.named_modules()}

    def __repr__(self) -> str:
        """Its name, its network, and what it reads."""
        reads = "pictures" if self.vocabulary is None else f"{len(self.vocabulary.tokens)} words"
        names = self.outputs.names
        answers = f"{len(names)} labels" if names else "words"
        return f"OwnModel({type(self.module).__name__}, name='{self.name}', reads {reads}, answers with {answers})"

    @property
    def _device(self) -> torch.device:
        """Where the inputs go."""
        return self.inputs.weight.device

    def _probe(self) -> Example:
        return self.inputs.probe(6)

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:  # type: ignore[override]
        """Stacks of attention with their layers and heads, as one short pass shows them."""
        tape = Tape(keep=Keep(frozenset(), reduce=facts_of), check=False)
        with torch.no_grad():
            self.forward([Row(self.inputs.probe(1))], tape)
        if not tape.reduced:
            raise CaptureError(f"no attention of {self.name} was seen; build the network on attnprobe.attention")
        return Stack.of_pass(tape)

    @property
    def fillers(self) -> Mapping[str, Tensor]:
        """Embeddings [d_model] that can stand in for a removed token, by operator name, best first."""
        return self.inputs.fillers if self._fillers is None else self._fillers

    def example(self, text: Any, pair: str | None = None, **options: Any) -> Example:
        """Read one input: a text, a list of tokens, or ids (to which nothing is added); a picture.

        answer: of an encoder-decoder, the answer to explain: a text, tokens or ids (default: the greedy one).
        Errors: `InputError` for a text without words or with more tokens than the model has positions.
        """
        if isinstance(text, Example):
            return text
        if pair is not None:
            raise InputError(f"{self.name} reads one text or one picture at a time, got a pair")
        if "answer" in options and not isinstance(self.inputs, Answers):
            raise InputError(f"{self.name} takes no answer: it is no encoder-decoder; ask with a target")
        return self.inputs.example(text, **options)

    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """The embeddings that removal and gradients work on, before positions are added."""
        return self.inputs.embed(example)

    def resolve(self, example: Example, target: Any = None) -> ResolvedTarget:
        """The target with every choice made; an encoder-decoder's default is its answer's log-probability."""
        wanted = as_target(target)
        if wanted == Target(scale=wanted.scale) and isinstance(self.inputs, Answers) and "answer_ids" in example.notes:
            ids = example.notes["answer_ids"]
            return answer_target(ids, self.inputs.target_vocabulary.text_of(ids), wanted.scale)
        return super().resolve(example, wanted)

    def forward(self, rows: Sequence[Row], tape: Tape | None = None) -> Float[Tensor, "row ..."]:
        """Logits of rows of one length. Without a tape this is the network as if attnprobe were not there."""
        made = [self._make(row) for row in rows]
        lengths = sorted({embeddings.shape[0] for embeddings, _ in made})
        if len(lengths) != 1:
            raise InputError(f"rows of one pass have one length, got {lengths or 'no rows'}")
        masked = any(not bool(is_token.all()) for _, is_token in made)
        is_token = torch.stack([row for _, row in made]) if masked else None
        embeddings, beside = torch.stack([row for row, _ in made]), self.inputs.beside([row.example for row in rows])
        if masked and not self._heeds:
            first = (embeddings[:1].detach(), *(tensor[:1].detach() for tensor in beside))
            with torch.no_grad():
                check_heeds(self.name, lambda seen: self._looked((*first, seen)), lengths[0], embeddings.device)
            self._heeds = True
        answer = self._run((embeddings, *beside, is_token), tape)
        check_answer(self.name, answer, self.outputs.names)
        return answer

    def _make(self, row: Row) -> tuple[Float[Tensor, "kept d_model"], Bool[Tensor, " kept"]]:
        """A row's embeddings and which of its tokens may be looked at, its removal made real."""
        embeddings = self.embed(row.example) if row.embeddings is None else row.embeddings
        everyone = torch.ones(len(embeddings), dtype=torch.bool, device=embeddings.device)
        if row.kept is None or bool(row.kept.all()):
            return embeddings, everyone
        row.need_inputs()
        kept = row.kept.to(embeddings.device)
        if row.fills:
            return self._make(fill(row, embeddings, stand_in(row, self.fillers, self.name)))
        if row.operator == "delete":
            self.inputs.check_length(int(kept.sum()))
            return embeddings[kept], everyone[kept]
        return embeddings, kept

    def _looked(self, arguments: tuple[Tensor | None, ...]) -> list[Tensor]:
        """The answer, and all attention weights that led to it."""
        tape = Tape(keep=Keep.of("weights"), check=False)
        answer = self._run(arguments, tape)
        return [answer, *(site.need("weights") for site in tape.sites)]

    def _run(self, arguments: tuple[Tensor | None, ...], tape: Tape | None) -> Tensor:
        # Rows in which every key was taken away are what the caller asked for, not a mistake in a mask.
        listening = silent() if tape is None else self.listening(tape)
        with evaluating(self.module), expecting_blind_rows(), listening, told_embeddings(self.module):
            return self.module(*arguments)

    @contextmanager
    def listening(self, tape: Tape) -> Iterator[Tape]:
        """Within the block, attention that runs in the network (or a part of it) passes the tape."""
        tape.locate = self._locate
        tape.start_pass()
        with recording(tape):
            yield tape

    @cached_property
    def _locate(self) -> Locate:
        if hasattr(self.module, "locate"):  # a network of several towers says so itself
            found: Locate = self.module.locate  # type: ignore[assignment]
            return found
        return located(self.module) if isinstance(self.inputs, Answers) else self._in_one_stack

    def _in_one_stack(self, module: nn.Module, cross: bool) -> tuple[str, Kind, str]:
        return getattr(self.module, "stack", "encoder"), "cross" if cross else "self", self._paths[id(module)]

    def describe(self) -> dict[str, Any]:
        """Facts for reports: name, type, dtype, number of parameters."""
        n_parameters = sum(p.numel() for p in self.module.parameters())
        dtype = str(self.inputs.weight.dtype).removeprefix("torch.")
        return {"name": self.name, "type": type(self.module).__name__, "dtype": dtype, "n_parameters": n_parameters}


def _text_inputs(
    name: str,
    network: nn.Module,
    vocabulary: Vocabulary,
    embedding: nn.Embedding | None,
    target_vocabulary: Vocabulary | None,
    answer_length: int | None,
) -> Inputs:
    """What a network reads that has a vocabulary: texts, or of an encoder-decoder texts with an answer."""
    words = Words.of(name, network, vocabulary, embedding)
    if target_vocabulary is not None:
        return Answers.of(words, target_vocabulary, answer_length)
    if isinstance(network, SequenceToSequence):
        raise InputError(f"{type(network).__name__} writes an answer; give the words of it: target_vocabulary=…")
    if answer_length is not None:
        raise InputError("answer_length goes with target_vocabulary=…, of an encoder-decoder")
    return words


def _outputs(
    name: str, labels: Sequence[str] | None, vocabulary: Vocabulary | None, target_vocabulary: Vocabulary | None
) -> OwnOutputs:
    """What the outputs are called."""
    if target_vocabulary is not None:
        if labels is not None:
            raise InputError("an encoder-decoder answers in the words of its target vocabulary; leave labels out")
        return OwnOutputs(name, None, target_vocabulary.tokens, writes=True)
    if vocabulary is None and labels is None:
        raise InputError("a network of pictures has no words to answer with; name its classes: labels=…")
    names = None if labels is None else tuple(map(str, labels))
    return OwnOutputs(name, names, () if vocabulary is None else vocabulary.tokens)


def _refuse_towers(network: nn.Module) -> None:
    """Raise for two towers as they are: what is explained is one axis."""
    if isinstance(network, TwoTowers):
        raise InputError(
            "TwoTowers reads a question and a picture, and what is explained is one of them; hold the question fixed "
            "with PictureAsked(towers, ids) to explain patches, or the picture with QuestionAsked(towers, picture) to "
            "explain words"
        )


def _refuse_mixed(other: Mapping[str, Any], pictures: bool) -> None:
    """Raise for arguments of the other kind of input."""
    for argument, given in other.items():
        if given is not None:
            kind, needed = ("pictures", "has no vocabulary") if pictures else ("words", "has a vocabulary")
            raise InputError(f"{argument} does not go with a network that {needed} and so reads {kind}; leave one out")
