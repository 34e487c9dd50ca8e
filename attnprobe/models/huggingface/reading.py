"""Texts to examples: what the tokenizer says, with offsets, words, and nothing cut off in silence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.layout import Layout
from attnprobe.models.huggingface.places import word_embedding

TOKEN_AXIS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
# What tokenizers and data sets put beside a model's inputs.
BESIDE = (
    "offset_mapping",
    "special_tokens_mask",
    "length",
    "overflow_to_sample_mapping",
    "num_truncated_tokens",
    "labels",
)


@dataclass(frozen=True)
class Limits:
    """What a model can read: the most tokens and the number of ids, None where there is no limit."""

    n_tokens: int | None
    n_ids: int | None

    @classmethod
    def of(cls, module: nn.Module, tokenizer: Any, config: Any) -> "Limits":
        """The limits that the tokenizer, the configuration and the embeddings of a model set."""
        rows = getattr(word_embedding(module), "num_embeddings", None)
        return cls(max_length(tokenizer, config, module), rows)

    def check_length(self, n_tokens: int, advice: str = "shorten it") -> None:
        """Raise if an input has more tokens than the model takes."""
        if self.n_tokens is not None and n_tokens > self.n_tokens:
            raise InputError(f"the text has {n_tokens} tokens, the model takes {self.n_tokens}; {advice}")

    def check_ids(self, ids: Tensor, name: str = "input_ids") -> None:
        """Raise unless ids are whole numbers that the model has embeddings for."""
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise InputError(f"{name} are whole numbers, got {str(ids.dtype).removeprefix('torch.')}")
        outside = ids[(ids < 0) | (ids >= (2**63 - 1 if self.n_ids is None else self.n_ids))]
        if outside.numel():
            known = "0 or more" if self.n_ids is None else f"0 to {self.n_ids - 1}"
            raise InputError(f"there is no token with the id {int(outside[0])} ({name}); this model's ids are {known}")


def max_length(tokenizer: Any, config: Any, module: nn.Module | None = None) -> int | None:
    """The most tokens that the model takes, None for no limit."""
    limits = [getattr(tokenizer, "model_max_length", None), getattr(config, "max_position_embeddings", None)]
    if getattr(config, "n_positions", None) and getattr(config, "model_type", "") != "t5":
        limits.append(config.n_positions)
    for path, part in module.named_modules() if module is not None else ():
        padding = getattr(part, "padding_idx", None)
        table = getattr(part, "weight", None)
        if path.rsplit(".", 1)[-1] == "position_embeddings" and padding is not None and isinstance(table, Tensor):
            limits.append(len(table) - padding - 1)  # positions start behind the padding index
    known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < 10**9]
    return min(known) if known else None


def read(tokenizer: Any, limits: Limits, text: Any, pair: Any = None, *, truncate: bool = False) -> Example:
    """An example from a string, a pair of strings, a list of words, token ids, or a tokenizer's own output."""
    ids = None if isinstance(text, Mapping) else _as_ids(text)
    if ids is None and not isinstance(text, Mapping):
        return _from_text(tokenizer, text, pair, limits, truncate)
    if pair is not None:
        raise InputError("token ids and encodings hold the pair already; give a pair with a text only")
    given = text if ids is None else {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return _from_encoding(tokenizer, given, limits)


def _as_ids(text: Any) -> Tensor | None:
    """Token ids as a tensor [token] or [1 token], None for what is not ids."""
    if isinstance(text, Tensor) or hasattr(text, "__array__"):
        return None if getattr(getattr(text, "dtype", None), "kind", "i") in "UO" else torch.as_tensor(text)
    if isinstance(text, str | bytes | bytearray) or not isinstance(text, Sequence) or not text:
        return None
    inner = text[0] if len(text) == 1 and isinstance(text[0], Sequence) and not isinstance(text[0], str) else text
    return torch.as_tensor(text) if inner and all(isinstance(i, int | float) for i in inner) else None


def _words_or_text(text: Any, what: str) -> list[str] | str:
    """A text or a list of words, checked."""
    if not isinstance(text, str) and not (
        isinstance(text, Sequence | tuple) and not isinstance(text, bytes) and all(isinstance(w, str) for w in text)
    ):
        raise InputError(f"a {what} is a string, a list of words, or token ids, got {type(text).__name__}")
    return text if isinstance(text, str) else [str(word) for word in text]


def _from_text(tokenizer: Any, text: Any, pair: Any, limits: Limits, truncate: bool) -> Example:
    text = _words_or_text(text.tolist() if hasattr(text, "tolist") else text, "text")
    if tokenizer is None:
        raise InputError("this model has no tokenizer; give token ids, or load((model, tokenizer))")
    second = None if pair is None else _words_or_text(pair, "second text")
    if second is not None and isinstance(text, str) != isinstance(second, str):
        raise InputError("the two texts of a pair are both strings or both lists of words")
    joined, other = (t if t is None or isinstance(t, str) else " ".join(t) for t in (text, second))
    if not (joined or "").strip():
        raise InputError("the text is empty; give at least one word")
    options = {"is_split_into_words": not isinstance(text, str), "return_tensors": "pt"}
    encoding = tokenizer(text, second, truncation=False, verbose=False, **options)
    n_tokens, cut = encoding["input_ids"].shape[1], 0
    if n_tokens == 0:
        raise InputError(f"the tokenizer makes no tokens of {joined!r}; give another text")
    if not truncate:
        limits.check_length(n_tokens, "shorten it, or pass truncate=True (--truncate)")
    elif limits.n_tokens is not None and n_tokens > limits.n_tokens:
        encoding = tokenizer(text, second, truncation=True, max_length=limits.n_tokens, **options)
        cut = n_tokens - limits.n_tokens
    limits.check_ids(encoding["input_ids"])
    layout = Layout.of(encoding, special_of(tokenizer, encoding["input_ids"][0]), joined or "", other)
    layout = layout if isinstance(text, str) else layout.of_words(text, second or ())
    return _example(tokenizer, dict(encoding), layout, cut, {})


def _from_encoding(tokenizer: Any, encoding: Mapping[str, Any], limits: Limits) -> Example:
    inputs = _inputs_of(encoding)
    ids = inputs["input_ids"]
    limits.check_ids(ids)
    if ids.shape[1] == 0:
        raise InputError("the input has no tokens; give at least one")
    _check_lengths(inputs)
    first, last = _unpadded(inputs, getattr(tokenizer, "pad_token_id", None))
    cut = {n: v[:, first:last] if n in TOKEN_AXIS and v.ndim == 2 else v for n, v in inputs.items()}
    limits.check_length(last - first)
    special = special_of(tokenizer, ids[0])
    text = tokenizer.decode(cut["input_ids"][0]) if tokenizer is not None else " ".join(map(str, ids[0].tolist()))
    layout = Layout.of(encoding, special, text, None).without_offsets()
    left_out = [name for name in BESIDE if name in encoding]
    notes = {"left_out": tuple(left_out)} if left_out else {}
    return _example(tokenizer, cut, layout.between(first, last), 0, notes)


def _inputs_of(encoding: Mapping[str, Any]) -> dict[str, Tensor]:
    """The model's inputs in an encoding, each with the batch axis."""
    if encoding.get("inputs_embeds") is not None:
        raise InputError("inputs_embeds have no tokens to explain; give input_ids")
    try:
        given = {n: torch.as_tensor(v) for n, v in encoding.items() if v is not None and n not in BESIDE}
    except (TypeError, ValueError) as error:
        raise InputError(f"an encoding holds tensors or lists of numbers of one input ({error})") from error
    if "input_ids" not in given:
        raise InputError(f"an encoding needs input_ids, got {', '.join(given) or 'nothing'}")
    inputs = {n: v.reshape(1, -1) if v.ndim < 2 else v for n, v in given.items()}
    ids = inputs["input_ids"]
    if ids.ndim != 2:
        raise InputError(f"input_ids have the shape [1 token], got {list(ids.shape)}; give one text at a time")
    if ids.shape[0] != 1:
        raise InputError(f"an example is one input, got a batch of {ids.shape[0]}; give them one at a time")
    return inputs


def _check_lengths(inputs: Mapping[str, Tensor]) -> None:
    """Raise where an input along the tokens is not as long as the ids."""
    n_tokens = inputs["input_ids"].shape[1]
    for name in TOKEN_AXIS:
        given = inputs.get(name)
        if given is not None and given.shape[-1] != n_tokens:
            raise InputError(f"{name} is of {given.shape[-1]} tokens, input_ids of {n_tokens}; give one entry a token")


def _unpadded(inputs: Mapping[str, Tensor], padding: int | None) -> tuple[int, int]:
    """Where the input begins and ends without its padding; a mask that hides real tokens stays as the user made it."""
    mask, ids = inputs.get("attention_mask"), inputs["input_ids"][0]
    if mask is None or mask.ndim != 2 or bool(mask[0].bool().all()):
        return 0, len(ids)
    if not bool(mask[0].bool().any()):
        raise InputError("the attention mask hides every token")
    stays = mask[0].bool() if padding is None else mask[0].bool() | (ids != padding)
    kept = stays.nonzero().flatten()
    return int(kept[0]), int(kept[-1]) + 1


def special_of(tokenizer: Any, ids: Tensor) -> tuple[bool, ...]:
    """Which ids are special: neither a word nor what stands for one ([UNK], [MASK], unless they have another use)."""

    def named(*names: str) -> set[int | None]:
        return {getattr(tokenizer, f"{name}_token_id", None) for name in names}

    words = named("unk", "mask") - named("bos", "eos", "cls", "sep", "pad")
    special = set(getattr(tokenizer, "all_special_ids", ()) or ()) - words
    return tuple(index in special for index in ids.tolist())


def _example(tokenizer: Any, inputs: dict[str, Tensor], layout: Layout, cut: int, notes: dict[str, Any]) -> Example:
    ids, mask = inputs["input_ids"][0].tolist(), inputs.get("attention_mask")
    hidden = 0 if mask is None or mask.ndim != 2 else int((mask[0] == 0).sum())
    if hidden:
        notes = {**notes, "attention_mask": f"hides {hidden} of {len(ids)} tokens, as it was given"}
    return Example(
        text=layout.text,
        pair=layout.pair,
        inputs={n: v for n, v in inputs.items() if n not in BESIDE},
        tokens=tuple(tokenizer.convert_ids_to_tokens(ids)) if tokenizer is not None else tuple(map(str, ids)),
        spans=layout.spans,
        is_special=layout.is_special,
        in_pair=layout.in_pair,
        words=layout.words,
        n_truncated=cut,
        notes=notes,
    )
