"""What a transformers model's outputs are called, and where it answers."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example


@dataclass(frozen=True, eq=False)
class HuggingFaceOutputs:
    """Classes by their names in the configuration, tokens by the tokenizer's."""

    module: nn.Module = field(repr=False)
    tokenizer: Any = field(repr=False)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the classes of a classifier, None for a model that predicts tokens or has no head."""
        labels = getattr(getattr(self.module, "config", None), "id2label", None)
        task = type(self.module).__name__
        if not labels or not any(word in task for word in ("Classification", "Prediction", "Choice")):
            return None
        return tuple(str(labels[i]) for i in sorted(labels, key=int))

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

    def position(self, example: Example) -> int | None:
        """The last position of a causal model or decoder, the only [MASK] of a masked one, else None."""
        task = type(self.module).__name__
        if "Classification" in task:
            return None
        if "decoder_input_ids" in example.inputs:
            return int(example.inputs["decoder_input_ids"].shape[1]) - 1
        if "MaskedLM" in task:
            return _mask_position(getattr(self.tokenizer, "mask_token", None), example)
        causal = (
            "CausalLM" in task or "LMHead" in task or getattr(getattr(self.module, "config", None), "is_decoder", False)
        )
        return example.n_tokens - 1 if causal else None


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
