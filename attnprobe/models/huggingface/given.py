"""Anything that a user gives to an `Example`: texts, ids, pictures, sounds, and what a processor made of them."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.encodings import inputs_of, number_type
from attnprobe.models.huggingface.pictures import PIXELS, named_patches, picture_inputs
from attnprobe.models.huggingface.places import unwrapped
from attnprobe.models.huggingface.positions import check_one, first_attention, numbered, run, with_notes
from attnprobe.models.huggingface.reading import Limits, names_of, read
from attnprobe.models.huggingface.sounds import SAMPLES, SPECTRA, named_frames, sound_inputs

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel

# Parts of the configuration of a model that reads something beside text.
OTHER_TOWERS = ("vision_config", "audio_config")


@dataclass(frozen=True)
class Readers:
    """What turns raw texts, pictures and sounds into a model's own inputs; None where there is none."""

    texts: Any = None
    pictures: Any = None
    sounds: Any = None

    @classmethod
    def of(cls, given: Any) -> "Readers":
        """Of a tokenizer, an image processor, a feature extractor, or a processor that holds several of them."""
        if given is None or hasattr(given, "convert_ids_to_tokens"):
            return cls(texts=given)
        parts = [getattr(given, name, None) for name in ("tokenizer", "image_processor", "feature_extractor")]
        return cls(*parts) if any(part is not None for part in parts) else cls(pictures=given, sounds=given)


def main_input(module: nn.Module) -> str:
    """Name of the input that a model reads first of all."""
    named = getattr(unwrapped(module), "main_input_name", "input_ids")
    name = named if isinstance(named, str) else str(next(iter(named), "input_ids"))
    if reads(module, name):
        return name
    parameters = inspect.signature(unwrapped(module).forward).parameters  # towers often do not say it
    return next((known for known in parameters if known in (*PIXELS, SPECTRA, SAMPLES)), name)


def reads(module: nn.Module, name: str) -> bool:
    """Whether a model of transformers has an input of this name; many take any name and let it fall in silence."""
    inner = unwrapped(module)
    return not isinstance(inner, PreTrainedModel) or name in inspect.signature(inner.forward).parameters


def read_given(
    model: "HuggingFaceModel",
    given: Any,
    pair: Any = None,
    *,
    processor: Any = None,
    truncate: bool = False,
    answer: Any = None,
) -> Example:
    """An example from a text, a pair, words, ids, a picture, a sound, or any mapping of the model's own inputs.

    processor: what the model was loaded with beside it. answer: for encoder-decoders, the answer to explain (default:
    the greedy one). Errors: `InputError` that says what this model reads.
    """
    if "MultipleChoice" in type(unwrapped(model.module)).__name__:
        raise InputError(
            f"{model.name} chooses among several texts at once, which attnprobe does not read; give a "
            "classifier of one text or pair"
        )
    readers, name = Readers.of(processor), main_input(model.module)
    raw = not isinstance(given, Mapping)
    if raw and name in PIXELS:
        encoding = picture_inputs(readers.pictures, model.config, given, name)
        return _without_ids(model, encoding, readers, answer, picture=given)
    if raw and name in (SPECTRA, SAMPLES):
        return _without_ids(model, sound_inputs(readers.sounds, model.config, name, given), readers, answer)
    vectors = not raw and given.get("inputs_embeds") is not None and reads(model.module, "input_ids")
    if not raw and "input_ids" not in given and not vectors:
        return _without_ids(model, given, readers, answer)
    return _with_ids(model, given, pair, readers, truncate, answer)


def _check_letters(text: Any) -> None:
    """`InputError` for halves of a letter (lone surrogates), which no tokenizer reads and no file holds."""
    try:
        str.encode(text if isinstance(text, str) else "", "utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start} of the text is half of a letter ({text[error.start]!a}), left where it was cut "
            'or read in a wrong encoding; text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") mends it'
        ) from None


def _with_ids(
    model: "HuggingFaceModel", given: Any, pair: Any, readers: Readers, truncate: bool, answer: Any
) -> Example:
    if hasattr(given, "convert") and hasattr(given, "size"):
        raise InputError(
            f"{model.name} reads text first of all, got a picture; give what its processor makes of the text and the "
            "picture together"
        )
    if not reads(model.module, "input_ids"):
        raise InputError(f"{model.name} reads {main_input(model.module)}, which this input does not hold")
    for text in (given, pair):
        _check_letters(text)
    limits = Limits.of(model.module, readers.texts, model.config)
    dtype = number_type(model.module)
    example = read(readers.texts, limits, given, pair, truncate=truncate, dtype=dtype)
    _check_end(model, example)
    example = _answered(model, example, answer)
    if any(getattr(model.config, name, None) is not None for name in OTHER_TOWERS):
        _check_runs(model, example)
    return example


def _without_ids(
    model: "HuggingFaceModel", encoding: Mapping[str, Any], readers: Readers, answer: Any, picture: Any = None
) -> Example:
    inputs = inputs_of(encoding, number_type(model.module))
    check_one(inputs)
    decoding = takes_decoder_ids(model, inputs)
    start = {"decoder_input_ids": torch.tensor([[start_id(model.config)]])} if decoding else {}
    seen = first_attention(model, inputs | start)
    named = (
        named_patches(model.config, inputs, seen)
        or named_frames(readers.sounds, model.config, inputs, seen)
        or numbered(inputs, seen)
    )
    example = named.example(inputs, picture)
    if isinstance(decoder := inputs.get("decoder_input_ids"), Tensor):
        example = with_notes(example, {"decoder_tokens": names_of(readers.texts, decoder[0].tolist())})
    return _answered(model, example, answer)


def _answered(model: "HuggingFaceModel", example: Example, answer: Any) -> Example:
    """The example with the answer of an encoder-decoder, where it has none yet."""
    from attnprobe.models.huggingface.generation import with_answer

    if takes_decoder_ids(model, example.inputs):
        return with_answer(model, example, answer)
    if answer is not None:
        raise InputError(f"{model.name} takes no answer: only an encoder-decoder without decoder_input_ids does")
    return example


def takes_decoder_ids(model: "HuggingFaceModel", inputs: Mapping[str, Any]) -> bool:
    """Whether a model needs ids for its decoder beside these inputs; classifiers make their own."""
    if not getattr(model.config, "is_encoder_decoder", False) or "decoder_input_ids" in inputs:
        return False
    parameters = inspect.signature(unwrapped(model.module).forward).parameters
    passes_on = "input_ids" in inputs and any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    reads = "decoder_input_ids" in parameters or passes_on
    return reads and "Classification" not in type(unwrapped(model.module)).__name__


def start_id(config: Any) -> int:
    """An id that a decoder can begin with, for a pass whose answer is not looked at."""
    named = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id"))
    return next((index for index in named if isinstance(index, int)), 0)


def _check_end(model: "HuggingFaceModel", example: Example) -> None:
    """Raise where a classifier would answer at an end token that the input does not have."""
    end = getattr(model.config, "eos_token_id", None)
    classifies = "ForSequenceClassification" in type(unwrapped(model.module)).__name__
    at_end = classifies and getattr(model.config, "is_encoder_decoder", False)
    if at_end and isinstance(end, int) and not bool((example.inputs["input_ids"] == end).any()):
        raise InputError(
            f"{model.name} answers at the end token (id {end}), which this input does not have; end the ids with {end}"
        )


def _check_runs(model: "HuggingFaceModel", example: Example) -> None:
    """Raise where a model that reads more than text does not run on this; on text alone one pass tells for all."""
    floats = [n for n, v in example.inputs.items() if isinstance(v, Tensor) and v.is_floating_point()]
    alone = not [name for name in floats if not name.endswith("mask")]
    if alone and model.__dict__.get("_reads_text_alone", False):
        return
    try:
        run(model, example)
    except InputError as error:
        more = (
            "; it reads more than text: give what its processor makes of the text and the picture (or sound) together"
        )
        raise InputError(f"{error}{more if alone else ''}") from error
    if alone:
        model.__dict__["_reads_text_alone"] = True
