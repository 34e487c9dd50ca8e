"""HuggingFaceModel: any transformers model behind the `Model` interface, unchanged."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import NOTHING, Keep, Tape, silent
from attnprobe.errors import AttnprobeError, CaptureError, InputError, RowsError, nearest
from attnprobe.example import Example
from attnprobe.models.huggingface.answers import answer_of
from attnprobe.models.huggingface.by_hand import ByHand
from attnprobe.models.huggingface.conditions import check_conditions, uncompiled
from attnprobe.models.huggingface.given import Readers
from attnprobe.models.huggingface.inputs import embedding_override, input_device, model_inputs
from attnprobe.models.huggingface.listening import listening
from attnprobe.models.huggingface.mapless import Mapless, in_words, mapless_layers
from attnprobe.models.huggingface.outputs import HuggingFaceOutputs
from attnprobe.models.huggingface.patches import patch_fillers, patch_vectors
from attnprobe.models.huggingface.places import first_called, locator, unwrapped, word_embedding
from attnprobe.models.huggingface.runs import attention_modules
from attnprobe.models.model import Model, Stack, facts_of
from attnprobe.models.modes import evaluating, version_of
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget, Target, as_target


class HuggingFaceModel(Model):
    """A transformers model and its tokenizer. Nothing of either is changed.

    numerics: how weights are computed, "delegate" (the model's own eager function) or "own" (the formula).
    """

    def __init__(
        self, module: nn.Module, tokenizer: Any = None, name: str | None = None, numerics: str = "delegate"
    ) -> None:
        self.module = getattr(module, "_orig_mod", module)  # compiled code cannot be watched; what it was made from can
        self.processor = tokenizer
        self.tokenizer = Readers.of(tokenizer).texts
        self.numerics = numerics
        self.config = getattr(unwrapped(module), "config", None)
        self.name = name or getattr(self.config, "name_or_path", "") or type(module).__name__
        self.outputs = HuggingFaceOutputs(self.module, self.tokenizer, self._n_outputs)
        self._rows_apart = False
        self.own_fillers: dict[str, Tensor] | None = None  # given in the place of those that are found

    def __repr__(self) -> str:
        return f"HuggingFaceModel({self.name!r}, {type(self.module).__name__})"

    @property
    def _device(self) -> torch.device:
        """Where the inputs go."""
        return input_device(self.module)

    @property
    def embedding(self) -> nn.Module:
        """The module that turns ids (or pixels) into vectors."""
        found = word_embedding(self.module) or self._looked_up
        if found is None:
            raise InputError(f"{self.name} has no input embedding that could be found")
        return found

    @cached_property
    def _looked_up(self) -> nn.Module | None:
        """Of a network without a body that names its embedding: the one that is called with the input ids."""
        tables = [part for part in self.module.modules() if isinstance(part, nn.Embedding)]
        return first_called(self.module, tables) if len(tables) > 1 else next(iter(tables), None)

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """Stacks of attention with their layers and heads, seen in one pass of a short input."""
        tape = Tape(keep=Keep(reduce=facts_of), check=False, n_rows=1)
        with torch.no_grad():
            self.forward([Row(self._probe())], tape)
        return Stack.of_pass(tape)

    @cached_property
    def mapless(self) -> tuple[Mapless, ...]:  # type: ignore[override]
        """Layers that mix positions without attention weights (state spaces, convolutions), each with its reason."""
        return mapless_layers(self.module)

    def _probe(self) -> Example:
        from attnprobe.models.huggingface.probing import probe_example

        found = probe_example(self)
        if found is None:
            raise InputError(f"{self.name}: no short input is known for such a model; give an example of your own")
        return found

    def _n_outputs(self) -> int | None:
        """Number of outputs (at each position), as a short input shows it; None where the model does not read one."""
        try:
            with torch.no_grad():
                return int(self.forward([Row(self._probe())]).shape[-1])
        except (InputError, RuntimeError, TypeError, ValueError, LookupError):
            return None

    @property
    def fillers(self) -> dict[str, Tensor]:
        """Embeddings of [MASK], the mean, [PAD], [UNK] and zero, as far as the tokenizer has them.

        Of a model of pictures a patch of zero pixels ("mask") and zero. Made anew when a parameter was changed in place
        or replaced: an old embedding would be taken for a filler in silence.
        """
        if self.own_fillers is not None:
            return self.own_fillers
        now = version_of(self.module)
        known = self.__dict__.get("_fillers_of")
        if known is None or known[0] != now:
            known = self.__dict__["_fillers_of"] = (now, self._make_fillers())
        return known[1]

    def _make_fillers(self) -> dict[str, Tensor]:
        if word_embedding(self.module) is None and self._looked_up is None:
            return {}
        weight = getattr(self.embedding, "weight", None)
        if not isinstance(self.embedding, nn.Embedding) or weight is None:
            return self._patch_fillers()
        ids = {name: getattr(self.tokenizer, f"{name}_token_id", None) for name in ("mask", "pad", "unk")}
        with torch.no_grad():
            known = {
                n: self.embedding(torch.tensor([[i]], device=self._device))[0, 0]
                for n, i in ids.items()
                if i is not None
            }
            if weight.is_meta:  # on disk: it comes back where it is looked up
                mean = self.embedding(torch.arange(self.embedding.num_embeddings, device=self._device)).mean(0)
            else:
                mean = weight.mean(0) * getattr(self.embedding, "embed_scale", 1.0)
        order = {
            "mask": known.get("mask"),
            "mean": mean,
            "pad": known.get("pad"),
            "unk": known.get("unk"),
            "zero": torch.zeros_like(mean),
        }
        return {name: vector for name, vector in order.items() if vector is not None}

    def _patch_fillers(self) -> dict[str, Tensor]:
        """What can stand in for a patch; nothing where a model has no vector a patch."""
        try:
            return patch_fillers(self, self._probe())
        except AttnprobeError:
            return {}

    def example(self, text: Any, pair: Any = None, **options: Any) -> Example:
        """Read a text, a pair, a list of words, token ids, a BatchEncoding, or a picture as this model does.

        truncate: cut a text that is too long (the example says by how much) instead of raising `InputError`.
        answer: for encoder-decoders, the answer to explain (default: the greedy one).
        """
        from attnprobe.models.huggingface.given import read_given

        if isinstance(text, Example):
            return text
        unknown = [name for name in options if name not in ("truncate", "answer")]
        if unknown:
            raise InputError(f"example has no option '{unknown[0]}'; {nearest(unknown[0], ('truncate', 'answer'))}")
        return read_given(self, text, pair, processor=self.processor, **options)

    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """Word embeddings of the tokens, as the embedding module gives them (positions are not in it).

        Of a picture the projected patches; special tokens have none there, which is 0. Errors: `InputError` for an
        input without either.
        """
        if "input_ids" not in example.inputs or not isinstance(self.embedding, nn.Embedding):
            return patch_vectors(self, example)
        # Places of a picture may have ids behind the vocabulary; the model puts the picture there.
        ids = example.inputs["input_ids"].to(self._device).clamp(max=self.embedding.num_embeddings - 1)
        with torch.no_grad():
            return self.embedding(ids)[0]

    def forward(self, rows: Sequence[Row], tape: Tape | None = None) -> Float[Tensor, " row *rest"]:
        """Logits of rows of one length; where the model has no head, its last hidden states."""
        if tape is not None and self._rows_apart and len(rows) > 1:
            return self._one_by_one(rows, tape)
        try:
            return self._pass(rows, tape)
        except RowsError:
            if tape is None or len(rows) == 1:
                raise
            self._rows_apart = True
            return self._one_by_one(rows, tape)

    def _one_by_one(self, rows: Sequence[Row], tape: Tape) -> Tensor:
        """Rows that one pass cannot tell apart (windows, packed pictures) in passes of their own."""
        if tape.keep is not NOTHING:
            raise RowsError(f"{self.name} lays several inputs out in its own way; capture them one at a time")
        return torch.cat([self._pass([row], tape.of_row(index)) for index, row in enumerate(rows)])

    def _pass(self, rows: Sequence[Row], tape: Tape | None) -> Tensor:
        with evaluating(self.module):
            check_conditions(self.module)
        inputs, embeddings = model_inputs(self, rows)
        with evaluating(self.module), uncompiled(), embedding_override(self, embeddings, inputs.get("input_ids")):
            if tape is None:
                with silent():  # an edit that asks the model something is no part of the recording
                    return answer_of(self.module(**inputs), len(rows))
            with self._listening(tape) as by_hand:
                answer = answer_of(self.module(**inputs), len(rows))
                self._note(by_hand)
                if not tape.seen:
                    raise CaptureError(self._nothing_seen())
        return answer

    def _nothing_seen(self) -> str:
        """Why a pass showed no attention, in a sentence."""
        name = f"{self.name} ({type(self.module).__name__})"
        if self.unseen or (attention_modules(self.module) and not self.mapless):
            named = ", ".join((self.unseen or attention_modules(self.module))[:8])
            return f"{name} computes attention where attnprobe does not see it; its attention modules: {named}"
        kinds = in_words(self.mapless) or "none of its modules calls itself attention, and no softmax over keys ran"
        return f"{name} has no attention weights to show: {kinds}"

    @contextmanager
    def listening(self, tape: Tape) -> Iterator[Tape]:
        """Within the block, attention that runs in the module (or a part of it) passes the tape."""
        with self._listening(tape) as by_hand:
            yield tape
            self._note(by_hand)

    def _listening(self, tape: Tape) -> AbstractContextManager[ByHand]:
        tape.locate, tape.numerics = self._locate, self.numerics
        return listening(self.module, tape)

    def _note(self, by_hand: ByHand) -> None:
        """Remember what a pass showed of attention that cannot be followed."""
        self.unseen = tuple(dict.fromkeys((*self.unseen, *by_hand.unseen)))
        self.blank = tuple(dict.fromkeys((*self.blank, *by_hand.blank)))

    @cached_property
    def _locate(self) -> Any:
        return locator(self.module)

    def resolve(self, example: Example, target: Any = None) -> ResolvedTarget:
        """The target with every choice made; an encoder-decoder's default is its answer's log-probability.

        Of a whole answer the scale "probability" is explained as such; "logit" (the default) and "log_probability"
        both mean its log-probability.
        """
        from attnprobe.models.huggingface.generation import answer_target

        wanted = as_target(target)
        if wanted == Target(scale=wanted.scale) and "answer_ids" in example.notes:
            return answer_target(self, example, wanted.scale)
        return super().resolve(example, wanted)

    def describe(self) -> dict[str, Any]:
        """Facts for reports."""
        return {
            "name": self.name,
            "architecture": type(self.module).__name__,
            "n_parameters": sum(p.numel() for p in self.module.parameters()),
            "dtype": str(next(self.module.parameters()).dtype).removeprefix("torch."),
            "device": str(self._device),
            "implementation": str(getattr(self.config, "_attn_implementation", None)),
            "stacks": [f"{s.name} {s.kind}: {s.n_layers} layers, {max(s.n_heads)} heads" for s in self.stacks],
        }
