"""Texts to examples: what the tokenizer says, with offsets, words, and nothing cut off in silence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.encodings import (
    BESIDE,
    check_ids_shape,
    check_lengths,
    inputs_of,
    is_along_tokens,
    unpadded,
)
from attnprobe.models.huggingface.layout import Layout
from attnprobe.models.huggingface.places import word_embedding

# Attributes of a configuration that name the id which stands for a picture (a video, a sound) among the ids of a text.
PLACES = tuple(f"{kind}_token_{form}" for kind in ("image", "video", "audio") for form in ("id", "index"))


@dataclass(frozen=True)
class Limits:
    """What a model can read: the most tokens and the number of ids, None where there is no limit.

    places: ids that stand for a part of a picture, video or sound; they need no embedding of their own.
    """

    n_tokens: int | None
    n_ids: int | None
    places: tuple[int, ...] = ()

    @classmethod
    def of(cls, module: nn.Module, tokenizer: Any, config: Any) -> "Limits":
        """The limits that the tokenizer, the configuration and the embeddings of a model set."""
        rows = getattr(word_embedding(module), "num_embeddings", None)
        return cls(max_length(tokenizer, config, module), rows, _places(config))

    def check_length(self, n_tokens: int, advice: str = "shorten it") -> None:
        """Raise if an input has more tokens than the model takes."""
        if self.n_tokens is not None and n_tokens > self.n_tokens:
            raise InputError(f"the text has {n_tokens} tokens, the model takes {self.n_tokens}; {advice}")

    def check_ids(self, ids: Tensor, name: str = "input_ids") -> None:
        """Raise unless ids are whole numbers that the model has embeddings for."""
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise InputError(f"{name} are whole numbers, got {str(ids.dtype).removeprefix('torch.')}")
        outside = ids[(ids < 0) | (ids >= (2**63 - 1 if self.n_ids is None else self.n_ids))]
        outside = outside[~torch.isin(outside, torch.tensor(self.places, dtype=ids.dtype))]
        if outside.numel():
            known = "0 or more" if self.n_ids is None else f"0 to {self.n_ids - 1}"
            raise InputError(f"there is no token with the id {int(outside[0])} ({name}); this model's ids are {known}")


def _places(config: Any) -> tuple[int, ...]:
    """Ids that a configuration sets aside for pictures, videos and sounds."""
    named = [getattr(config, name, None) for name in PLACES]
    return tuple(dict.fromkeys(index for index in named if isinstance(index, int)))


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


def read(
    tokenizer: Any,
    limits: Limits,
    text: Any,
    pair: Any = None,
    *,
    truncate: bool = False,
    dtype: torch.dtype | None = None,
) -> Example:
    """An example from a string, a pair of strings, a list of words, token ids, or an encoding with input_ids.

    dtype: what pictures and the like that an encoding holds beside the ids are cast to.
    """
    ids = None if isinstance(text, Mapping) else _as_ids(text)
    if ids is None and not isinstance(text, Mapping):
        return _from_text(tokenizer, text, pair, limits, truncate)
    if pair is not None:
        raise InputError("token ids and encodings hold the pair already; give a pair with a text only")
    given = text if ids is None else {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return _from_encoding(tokenizer, given, limits, dtype)


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


def _from_encoding(tokenizer: Any, encoding: Mapping[str, Any], limits: Limits, dtype: torch.dtype | None) -> Example:
    if encoding.get("inputs_embeds") is not None:
        raise InputError("inputs_embeds have no tokens to explain; give input_ids")
    inputs = inputs_of(encoding, dtype)
    if "input_ids" not in inputs:
        raise InputError(f"an encoding needs input_ids, got {', '.join(inputs) or 'nothing'}")
    ids = inputs["input_ids"]
    check_ids_shape(ids)
    limits.check_ids(ids)
    check_lengths(inputs)
    first, last = unpadded(inputs, getattr(tokenizer, "pad_token_id", None))
    cut = {n: v[:, first:last] if is_along_tokens(n, v) else v for n, v in inputs.items()}
    limits.check_length(last - first)
    special, notes = _with_places(special_of(tokenizer, ids[0]), ids[0], limits.places)
    text = tokenizer.decode(cut["input_ids"][0]) if tokenizer is not None else " ".join(map(str, ids[0].tolist()))
    layout = Layout.of(encoding, special, text, None).without_offsets()
    left_out = [name for name in BESIDE if name in encoding]
    notes |= {"left_out": tuple(left_out)} if left_out else {}
    if isinstance(cut.get("decoder_input_ids"), Tensor):
        notes["decoder_tokens"] = names_of(tokenizer, cut["decoder_input_ids"][0].tolist())
    return _example(tokenizer, cut, layout.between(first, last), 0, notes)


def _with_places(
    special: tuple[bool, ...], ids: Tensor, places: tuple[int, ...]
) -> tuple[tuple[bool, ...], dict[str, Any]]:
    """Places of pictures are special: their word embeddings are not used, so that taking them away does nothing."""
    stands = [index in places for index in ids.tolist()]
    if not any(stands):
        return special, {}
    note = f"{sum(stands)} of {len(ids)} tokens stand for a picture, video or sound; removal leaves them alone"
    return tuple(a or b for a, b in zip(special, stands, strict=True)), {"picture_places": note}


def names_of(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Tokens of ids; the numbers where there is no tokenizer."""
    return tuple(tokenizer.convert_ids_to_tokens(ids)) if tokenizer is not None else tuple(map(str, ids))


def special_of(tokenizer: Any, ids: Tensor) -> tuple[bool, ...]:
    """Which ids are special: neither a word nor what stands for one ([UNK], [MASK], unless they have another use)."""

    def named(*names: str) -> set[int | None]:
        return {getattr(tokenizer, f"{name}_token_id", None) for name in names}

    words = named("unk", "mask") - named("bos", "eos", "cls", "sep", "pad")
    special = set(getattr(tokenizer, "all_special_ids", ()) or ()) - words
    return tuple(index in special for index in ids.tolist())


def _example(tokenizer: Any, inputs: dict[str, Any], layout: Layout, cut: int, notes: dict[str, Any]) -> Example:
    ids, mask = inputs["input_ids"][0].tolist(), inputs.get("attention_mask")
    hidden = 0 if mask is None or mask.ndim != 2 else int((mask[0] == 0).sum())
    if hidden:
        notes = {**notes, "attention_mask": f"hides {hidden} of {len(ids)} tokens, as it was given"}
    return Example(
        text=layout.text,
        pair=layout.pair,
        inputs={n: v for n, v in inputs.items() if n not in BESIDE},
        tokens=names_of(tokenizer, ids),
        spans=layout.spans,
        is_special=layout.is_special,
        in_pair=layout.in_pair,
        words=layout.words,
        n_truncated=cut,
        notes=notes,
    )
