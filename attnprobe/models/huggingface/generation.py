"""Encoder-decoders: the answer that is explained, given or greedy."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.target import ResolvedTarget

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel

MAX_ANSWER = 32


def with_answer(model: "HuggingFaceModel", example: Example, answer: str | list[int] | None) -> Example:
    """The example with decoder ids: the start token and all but the last token of the answer."""
    if "Classification" in type(model.module).__name__:
        return example
    config: Any = model.config
    start = config.decoder_start_token_id if config.decoder_start_token_id is not None else config.bos_token_id
    if start is None:
        raise InputError(f"{model.name} names no decoder_start_token_id; give decoder_input_ids in an encoding")
    ids = _answer_ids(model, example, answer)
    read = [start, *ids[:-1]]
    decoder = torch.tensor([read])
    names = model.tokenizer.convert_ids_to_tokens(read) if model.tokenizer is not None else [str(i) for i in read]
    notes = {"answer_ids": tuple(ids), "decoder_tokens": tuple(names)}
    return replace(example, inputs={**example.inputs, "decoder_input_ids": decoder}, notes=notes)


def _answer_ids(model: "HuggingFaceModel", example: Example, answer: str | list[int] | None) -> list[int]:
    if isinstance(answer, str):
        return list(model.tokenizer(text_target=answer)["input_ids"])
    if answer is not None:
        return list(answer)
    inputs = {k: v.to(model._device) for k, v in example.inputs.items()}
    module: Any = model.module
    if not hasattr(module, "generate") or not module.can_generate():
        return [model.config.eos_token_id or 0]  # type: ignore[union-attr]
    with torch.no_grad():
        out = module.generate(**inputs, max_new_tokens=MAX_ANSWER, do_sample=False, num_beams=1)
    ids = out[0, 1:].tolist()
    return ids or [model.config.eos_token_id or 0]  # type: ignore[union-attr]


def answer_target(model: "HuggingFaceModel", example: Example) -> ResolvedTarget:
    """The log-probability of the whole answer, summed over its tokens."""
    ids = torch.tensor(example.notes["answer_ids"])

    def log_probability(logits: Tensor) -> Tensor:
        return (
            logits[:, : len(ids)]
            .log_softmax(-1)
            .gather(-1, ids.to(logits.device)[None, :, None].expand(len(logits), -1, 1))
            .sum((1, 2))
        )

    text = model.tokenizer.decode(ids, skip_special_tokens=True) if model.tokenizer is not None else str(ids.tolist())
    name = f"log-probability of the answer '{text}'"
    return ResolvedTarget(
        -1, name, None, None, None, "log_probability", -1, text, float("nan"), float("nan"), log_probability
    )
