"""Encoder-decoders: the answer that is explained, given or greedy."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import GenerationMixin

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.places import unwrapped
from attnprobe.models.huggingface.reading import Limits
from attnprobe.target import ResolvedTarget, Scale

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel

MAX_ANSWER = 32


def with_answer(model: "HuggingFaceModel", example: Example, answer: Any) -> Example:
    """The example with decoder ids: the start token and all but the last token of the answer."""
    if "Classification" in type(unwrapped(model.module)).__name__:
        return example
    config: Any = model.config
    named = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id"))
    start = next((index for index in named if index is not None), None)
    if start is None:
        raise InputError(f"{model.name} names no decoder_start_token_id; give decoder_input_ids in an encoding")
    ids = _answer_ids(model, example, answer)
    read = [start, *ids[:-1]]
    decoder = torch.tensor([read])
    tokens = [start, *ids]
    names = model.tokenizer.convert_ids_to_tokens(tokens) if model.tokenizer is not None else [str(i) for i in tokens]
    told = {"answer_ids": tuple(ids), "answer_tokens": tuple(names[1:]), "decoder_tokens": tuple(names[:-1])}
    notes = {**example.notes, **told}
    return replace(example, inputs={**example.inputs, "decoder_input_ids": decoder}, notes=notes)


def _answer_ids(model: "HuggingFaceModel", example: Example, answer: Any) -> list[int]:
    if answer is not None:
        return _given_ids(model, answer)
    inputs = {k: v.to(model._device) if isinstance(v, Tensor) else v for k, v in example.inputs.items()}
    module: Any = model.module
    if not hasattr(module, "generate") or not module.can_generate():
        return [model.config.eos_token_id or 0]  # type: ignore[union-attr]
    with torch.no_grad():
        # The plain way of every model: some (Whisper) have one of their own that drops the start token.
        out = GenerationMixin.generate(module, **inputs, max_new_tokens=_longest(model), do_sample=False, num_beams=1)
    ids = out[0, 1:].tolist()
    return ids or [model.config.eos_token_id or 0]  # type: ignore[union-attr]


def _longest(model: "HuggingFaceModel") -> int:
    """The most tokens of an answer: what the decoder has positions for, at most `MAX_ANSWER`."""
    named = (getattr(model.config, name, None) for name in ("max_target_positions", "max_decoder_position_embeddings"))
    limits = [limit - 1 for limit in named if isinstance(limit, int)]
    return max(1, min([MAX_ANSWER, *limits]))


def _given_ids(model: "HuggingFaceModel", answer: Any) -> list[int]:
    """Token ids of an answer given as a text or as ids, checked."""
    if isinstance(answer, str) and model.tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer, so an answer is a list of token ids, got {answer!r}")
    if isinstance(answer, str):
        answer = model.tokenizer(text_target=answer)["input_ids"]
    try:
        ids = torch.as_tensor(answer)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"an answer is a text or a list of token ids, got {type(answer).__name__}") from error
    if ids.ndim != 1 or ids.numel() == 0:
        raise InputError(f"an answer has at least one token, in one list, got the shape {list(ids.shape)}")
    Limits.of(model.module, model.tokenizer, model.config).check_ids(ids, "the answer's ids")
    return [int(index) for index in ids]


def answer_target(model: "HuggingFaceModel", example: Example, scale: str = "log_probability") -> ResolvedTarget:
    """The log-probability of the whole answer, summed over its tokens; on scale "probability" its exponential."""
    ids = torch.tensor(example.notes["answer_ids"])

    def log_probability(logits: Tensor) -> Tensor:
        chosen = ids.to(logits.device)[None, :, None].expand(len(logits), -1, 1)
        return logits[:, : len(ids)].log_softmax(-1).gather(-1, chosen).sum((1, 2))

    def probability(logits: Tensor) -> Tensor:
        return log_probability(logits).exp()

    text = model.tokenizer.decode(ids, skip_special_tokens=True) if model.tokenizer is not None else str(ids.tolist())
    chosen_scale: Scale = "probability" if scale == "probability" else "log_probability"
    function = probability if chosen_scale == "probability" else log_probability
    nan = float("nan")
    name = f"{chosen_scale.replace('_', '-')} of the answer '{text}'"
    return ResolvedTarget(-1, name, None, None, None, chosen_scale, -1, text, nan, nan, function)
