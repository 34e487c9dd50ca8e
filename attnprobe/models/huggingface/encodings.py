"""What a tokenizer or processor made: its values as the model's own inputs, names and shapes untouched."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnprobe.errors import InputError

# Inputs with one entry a token. All but the boxes have the shape [1 token]; these are [1 token 4].
TOKEN_AXIS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "mm_token_type_ids",
    "global_attention_mask",
    "langs",
    "bbox",
)
# What tokenizers and data sets put beside a model's inputs.
BESIDE = (
    "offset_mapping",
    "special_tokens_mask",
    "length",
    "overflow_to_sample_mapping",
    "num_truncated_tokens",
    "labels",
)
# Also made tensors where they come as lists; other lists are the model's own affair.
LISTS = (*TOKEN_AXIS, "decoder_input_ids", "decoder_attention_mask")
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def inputs_of(encoding: Mapping[str, Any], dtype: torch.dtype | None = None) -> dict[str, Any]:
    """The model's inputs in an encoding: arrays as tensors, ids with the batch axis, anything else as it is.

    dtype: what pictures, sounds and the like are cast to (None: nothing is); masks keep their own.
    """
    try:
        given = {n: _value(n, v) for n, v in encoding.items() if v is not None and n not in BESIDE}
    except (TypeError, ValueError) as error:
        raise InputError(f"an encoding holds tensors or lists of numbers of one input ({error})") from error
    return {name: _cast(name, value, dtype) for name, value in given.items()}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Tensor) or name in LISTS:
        found = torch.as_tensor(np.asarray(value) if _has_arrays(value) else value)
        return found.reshape(1, -1) if name in LISTS and found.ndim < 2 else found
    return torch.as_tensor(np.asarray(value)) if _has_arrays(value) else value


def _has_arrays(value: Any) -> bool:
    """Whether a value is an array, or a list of arrays as processors give it without `return_tensors`."""
    inside = value[0] if isinstance(value, list) and value else value
    return isinstance(inside, np.ndarray)


def _cast(name: str, value: Any, dtype: torch.dtype | None) -> Any:
    floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.to(dtype) if floating and dtype is not None and not name.endswith("mask") else value


def is_along_tokens(name: str, value: Any) -> bool:
    """Whether an input has one entry a token on its second axis, so that it can be cut with the ids."""
    return isinstance(value, Tensor) and name in TOKEN_AXIS and value.ndim == (3 if name == "bbox" else 2)


def check_ids_shape(ids: Tensor) -> None:
    """Raise unless ids have the shape [1 token]."""
    if ids.ndim != 2:
        raise InputError(f"input_ids have the shape [1 token], got {list(ids.shape)}; give one text at a time")
    if ids.shape[0] != 1:
        raise InputError(f"an example is one input, got a batch of {ids.shape[0]}; give them one at a time")
    if ids.shape[1] == 0:
        raise InputError("the input has no tokens; give at least one")


def check_lengths(inputs: Mapping[str, Any]) -> None:
    """Raise where an input along the tokens is not as long as the ids."""
    n_tokens = inputs["input_ids"].shape[1]
    for name in TOKEN_AXIS:
        given = inputs.get(name)
        n_given = n_tokens if given is None else given.shape[-2 if name == "bbox" and given.ndim == 3 else -1]
        if n_given != n_tokens:
            raise InputError(f"{name} is of {n_given} tokens, input_ids of {n_tokens}; give one entry a token")


def unpadded(inputs: Mapping[str, Any], padding: int | None) -> tuple[int, int]:
    """Where the input begins and ends without its padding; a mask that hides real tokens stays as the user made it."""
    mask, ids = inputs.get("attention_mask"), inputs["input_ids"][0]
    if mask is None or mask.ndim != 2 or bool(mask[0].bool().all()):
        return 0, len(ids)
    if not bool(mask[0].bool().any()):
        raise InputError("the attention mask hides every token")
    stays = mask[0].bool() if padding is None else mask[0].bool() | (ids != padding)
    kept = stays.nonzero().flatten()
    return int(kept[0]), int(kept[-1]) + 1


def number_type(module: nn.Module) -> torch.dtype:
    """The type of the numbers that a model computes with: that of its first parameter that is not quantized."""
    return next((p.dtype for p in module.parameters() if p.dtype in NUMBERS), torch.float32)
