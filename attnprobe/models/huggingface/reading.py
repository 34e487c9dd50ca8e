"""Texts to examples: what the tokenizer says, with offsets, words, and nothing cut off in silence."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example, words_of_spans

TOKEN_AXIS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def read(tokenizer: Any, config: Any, text: Any, pair: str | None, *, truncate: bool = False) -> Example:
    """An example from a string, a pair of strings, a list of words, token ids, or a tokenizer's own output."""
    limit = max_length(tokenizer, config)
    if isinstance(text, Mapping):
        return _from_encoding(tokenizer, text, limit)
    if isinstance(text, Tensor) or (isinstance(text, Sequence) and text and all(isinstance(i, int) for i in text)):
        ids = torch.as_tensor(text).reshape(1, -1)
        return _from_encoding(tokenizer, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, limit)
    return _from_text(tokenizer, text, pair, limit, truncate)


def max_length(tokenizer: Any, config: Any) -> int | None:
    """The most tokens that the model takes, None for no limit."""
    limits = [getattr(tokenizer, "model_max_length", None), getattr(config, "max_position_embeddings", None)]
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "longformer") and limits[1]:
        limits[1] -= (getattr(config, "pad_token_id", 1) or 0) + 1  # positions start behind the padding index
    if getattr(config, "n_positions", None) and getattr(config, "model_type", "") != "t5":
        limits.append(config.n_positions)
    known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < 10**9]
    return min(known) if known else None


def _from_text(tokenizer: Any, text: Any, pair: str | None, limit: int | None, truncate: bool) -> Example:
    if tokenizer is None:
        raise InputError("this model has no tokenizer; give token ids, or load((model, tokenizer))")
    if not isinstance(text, str) and not (isinstance(text, Sequence) and all(isinstance(w, str) for w in text)):
        raise InputError(f"a text is a string, a list of words, or token ids, got {type(text).__name__}")
    words = list(text) if not isinstance(text, str) else None
    joined = text if isinstance(text, str) else " ".join(text)
    if not joined.strip():
        raise InputError("the text is empty; give at least one word")
    fast = bool(getattr(tokenizer, "is_fast", False))
    encoding = tokenizer(
        text if words is None else words,
        pair,
        is_split_into_words=words is not None,
        return_tensors="pt",
        return_offsets_mapping=fast and words is None,
        truncation=False,
        verbose=False,
    )
    n_tokens = encoding["input_ids"].shape[1]
    cut = 0
    if limit is not None and n_tokens > limit:
        if not truncate:
            raise InputError(
                f"the text has {n_tokens} tokens, the model takes {limit}; "
                "shorten it, or pass truncate=True (--truncate)"
            )
        cut = n_tokens - limit
        encoding = tokenizer(
            text if words is None else words,
            pair,
            is_split_into_words=words is not None,
            return_tensors="pt",
            return_offsets_mapping=fast and words is None,
            truncation=True,
            max_length=limit,
        )
    return _example(tokenizer, encoding, joined, pair, cut)


def _from_encoding(tokenizer: Any, encoding: Mapping[str, Any], limit: int | None) -> Example:
    inputs = {name: torch.as_tensor(value) for name, value in encoding.items() if value is not None}
    if "input_ids" not in inputs:
        raise InputError(f"an encoding needs input_ids, got {', '.join(inputs) or 'nothing'}")
    inputs = {n: v.reshape(1, -1) if v.ndim == 1 else v for n, v in inputs.items()}
    if inputs["input_ids"].shape[0] != 1:
        raise InputError(
            f"an example is one input, got a batch of {inputs['input_ids'].shape[0]}; give them one at a time"
        )
    inputs = _without_padding(inputs)
    n_tokens = inputs["input_ids"].shape[1]
    if n_tokens == 0:
        raise InputError("the input has no tokens; give at least one")
    if limit is not None and n_tokens > limit:
        raise InputError(f"the input has {n_tokens} tokens, the model takes {limit}; shorten it")
    text = (
        tokenizer.decode(inputs["input_ids"][0])
        if tokenizer is not None
        else " ".join(map(str, inputs["input_ids"][0].tolist()))
    )
    return _example(tokenizer, inputs, text, None, 0)


def _without_padding(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Cut the masked tokens off both ends; a mask with holes inside stays as the user made it."""
    mask = inputs.get("attention_mask")
    if mask is None or mask.ndim != 2 or bool(mask[0].bool().all()):
        return inputs
    seen = mask[0].nonzero().flatten()
    if seen.numel() == 0:
        raise InputError("the attention mask hides every token")
    first, last = int(seen[0]), int(seen[-1]) + 1
    return {n: v[:, first:last] if n in TOKEN_AXIS else v for n, v in inputs.items()}


def _example(tokenizer: Any, encoding: Any, text: str, pair: str | None, cut: int) -> Example:
    ids = encoding["input_ids"][0].tolist()
    special = set(getattr(tokenizer, "all_special_ids", ()) or ()) - {
        getattr(tokenizer, "unk_token_id", None),
        getattr(tokenizer, "mask_token_id", None),
    }
    is_special = tuple(i in special for i in ids)
    tokens = tuple(tokenizer.convert_ids_to_tokens(ids)) if tokenizer is not None else tuple(map(str, ids))
    offsets = encoding.get("offset_mapping")
    if offsets is not None:
        spans = [None if s or a == b else (a, b) for (a, b), s in zip(offsets[0].tolist(), is_special, strict=True)]
    else:
        spans = [None] * len(ids)
    second = _second_text(encoding, pair)
    return Example(
        text=text,
        pair=pair,
        inputs={n: v for n, v in encoding.items() if n != "offset_mapping"},
        tokens=tokens,
        spans=tuple(spans),
        is_special=is_special,
        in_pair=second,
        words=_words(encoding, (text, pair), spans, is_special, second),
        n_truncated=cut,
    )


def _second_text(encoding: Any, pair: str | None) -> tuple[bool, ...] | None:
    """Which tokens belong to the second text of a pair; None where there is no pair, or no telling."""
    if pair is None or not getattr(encoding, "encodings", None):
        return None
    return tuple(number == 1 for number in encoding.sequence_ids(0))


def _words(
    encoding: Any,
    texts: tuple[str, str | None],
    spans: list,
    is_special: tuple[bool, ...],
    second: tuple[bool, ...] | None,
) -> tuple[int | None, ...]:
    """Word numbers: from the offsets, else from the tokenizer, else a word a token; a pair's second text goes on."""
    if any(span is not None for span in spans):
        first = words_of_spans(texts[0], [None if second and second[i] else s for i, s in enumerate(spans)])
        if second is None or texts[1] is None:
            return first
        rest = words_of_spans(texts[1], [s if second[i] else None for i, s in enumerate(spans)])
        n_words = len({word for word in first if word is not None})
        return tuple(a if b is None else b + n_words for a, b in zip(first, rest, strict=True))
    if hasattr(encoding, "word_ids") and getattr(encoding, "encodings", None):
        return tuple(None if s else w for w, s in zip(encoding.word_ids(0), is_special, strict=True))
    numbers = iter(range(len(is_special)))
    return tuple(None if s else next(numbers) for s in is_special)
