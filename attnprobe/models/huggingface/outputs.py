"""What a transformers model's outputs are called, and where it answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.models.huggingface.places import unwrapped, word_embedding

CLASSES = ("Classification", "Prediction", "Choice")
VOCABULARY = ("CausalLM", "MaskedLM", "LMHead", "ForConditionalGeneration")


@dataclass(frozen=True, eq=False)
class HuggingFaceOutputs:
    """Classes by their names in the configuration, tokens by the tokenizer's, anything else by number.

    count: gives the number of outputs (None where that cannot be told); asked only where the class of the model does
    not say what it answers.
    """

    module: nn.Module = field(repr=False)
    tokenizer: Any = field(repr=False)
    count: Callable[[], int | None] = field(default=lambda: None, repr=False)

    @cached_property
    def _task(self) -> str:
        """Name of the first class of the model that says what it answers; the name of a wrapper says nothing."""
        classes = type(unwrapped(self.module)).__mro__
        if PreTrainedModel not in classes:
            return ""
        return next((c.__name__ for c in classes if any(word in c.__name__ for word in (*CLASSES, *VOCABULARY))), "")

    @property
    def _config(self) -> Any:
        return getattr(unwrapped(self.module), "config", None)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the classes of a classifier, numbers where outputs have no names, None for a vocabulary."""
        given = getattr(self._config, "id2label", None) or {}
        labels = tuple(str(given[i]) for i in sorted(given, key=int))
        if labels and any(word in self._task for word in CLASSES):
            return labels
        if any(word in self._task for word in VOCABULARY):
            return None
        return labels if len(labels) == self._n_outputs else self._numbers

    @cached_property
    def _n_outputs(self) -> int | None:
        return self.count()

    @cached_property
    def _numbers(self) -> tuple[str, ...] | None:
        """The numbers of outputs without names; None where there are as many as words or embeddings."""
        words = len(self.tokenizer.get_vocab()) if hasattr(self.tokenizer, "get_vocab") else 0
        rows = getattr(word_embedding(self.module), "num_embeddings", 0)
        vocabulary = {words, rows, getattr(self._config, "vocab_size", 0)}
        if self._n_outputs is None or self._n_outputs in vocabulary:
            return None if self._n_outputs else ()
        return tuple(str(index) for index in range(self._n_outputs))

    @property
    def exclusive(self) -> bool:
        """Whether one class excludes the others; a multi-label classifier judges each by itself."""
        return getattr(self._config, "problem_type", None) != "multi_label_classification"

    def index(self, label: str | int) -> int:
        """Index of a class by name or number, or of a token; `InputError` names the nearest."""
        if isinstance(label, int):
            return label
        names = self.names
        if names is None:
            return _token_index(self.tokenizer, label)
        folded = {name.lower(): index for index, name in enumerate(names)}
        found = names.index(label) if label in names else folded.get(label.lower())
        if found is None and label.isdigit():
            found = int(label)
        if found is None or found >= len(names):
            raise InputError(f"the model has no label '{label}'; {nearest(label, names)}")
        return found

    def name(self, index: int) -> str:
        """Name of a class, the text of a token, or the number."""
        names = self.names
        if names is not None:
            return names[index] if index < len(names) else str(index)
        if self.tokenizer is None or not hasattr(self.tokenizer, "decode"):
            return str(index)
        return str(self.tokenizer.decode([index])).strip() or str(self.tokenizer.convert_ids_to_tokens(index))

    @property
    def causal(self) -> bool:
        """Whether an answer at a position depends on no token behind it: a decoder that predicts the next token."""
        task = self._task
        if getattr(self._config, "is_encoder_decoder", False) or "Classification" in task or "MaskedLM" in task:
            return False
        writes = any(name in task for name in ("CausalLM", "LMHead", "ForConditionalGeneration"))
        return writes or bool(getattr(self._config, "is_decoder", False))

    def position(self, example: Example) -> int | None:
        """The last position of a causal model or decoder, the only [MASK] of a masked one, else None."""
        task = self._task
        if "Classification" in task:
            return None
        if "decoder_input_ids" in example.inputs:
            return int(example.inputs["decoder_input_ids"].shape[1]) - 1
        if "MaskedLM" in task:
            return _mask_position(getattr(self.tokenizer, "mask_token", None), example)
        return example.n_tokens - 1 if self.causal else None


def _token_index(tokenizer: Any, label: str) -> int:
    if tokenizer is None:
        raise InputError(f"without a tokenizer a label is a number, got '{label}'")
    vocabulary = tokenizer.get_vocab()
    if label in vocabulary:
        return int(vocabulary[label])
    ids = tokenizer.encode(label, add_special_tokens=False)
    if len(ids) == 1 and ids[0] != getattr(tokenizer, "unk_token_id", None):
        return int(ids[0])
    pieces = " + ".join(tokenizer.convert_ids_to_tokens(ids)) if len(ids) > 1 else "unknown"
    raise InputError(f"'{label}' is not one token of this model ({pieces}); {nearest(label, vocabulary)}")


def _mask_position(mask: str | None, example: Example) -> int:
    places = [index for index, token in enumerate(example.tokens) if token == mask]
    if len(places) != 1:
        count = f"{len(places)} {mask} tokens" if places else f"no {mask or 'mask'} token"
        raise InputError(f"the text has {count}; say which position to explain with Target(position=…) (--position)")
    return places[0]
