"""A short input that a model reads, made from its configuration alone."""

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnprobe.errors import AttnprobeError, CaptureError, InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.given import main_input, read_given, reads, start_id, takes_decoder_ids
from attnprobe.models.huggingface.pictures import PIXELS, n_channels, picture_size, vision_config
from attnprobe.models.huggingface.places import word_embedding
from attnprobe.models.huggingface.positions import run
from attnprobe.models.huggingface.reading import PLACES
from attnprobe.models.huggingface.sounds import SAMPLES, SPECTRA

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel

N_TOKENS = 8
N_SAMPLES = 16_000  # one second at the rate that nearly every model of speech is made for
N_FRAMES = 128
MASK = "input_features_mask"
SIDES = (64, 224)  # tried where a configuration names no size


def probe_example(model: "HuggingFaceModel") -> Example | None:
    """A short valid example: ids inside of the vocabulary with the end token last, noise as a picture or a sound.

    Of what the model may read, in the order of its main input, the first that it runs on; None where its configuration
    says of no input that it may read it.
    Errors: `CaptureError` where it ran, but no attention was seen; `InputError` with the model's own words for the
    likeliest input where it ran on none.
    """
    refused: AttnprobeError | None = None
    for inputs in _candidates(model):
        try:
            example = read_given(model, inputs)
            run(model, example)
        except AttnprobeError as error:
            blind = isinstance(error, CaptureError) and not isinstance(refused, CaptureError)
            refused = error if refused is None or blind else refused
        else:
            return example
    if isinstance(refused, InputError):
        raise InputError(f"no short input is known for such a model; give an example of your own ({refused})")
    if refused is not None:
        raise refused
    return None


def _candidates(model: "HuggingFaceModel") -> Iterator[dict[str, Any]]:
    """What the model may read, likeliest first."""
    name, config = main_input(model.module), model.config
    text = _text(model)
    yield from _packed(model)
    if name in PIXELS:
        for picture in _pictures(config, name):
            yield picture | _decoder(model, picture)
            if text:
                yield picture | text
    elif name == SPECTRA:
        for spectrum in (_spectrum(config), _spectrum(config).transpose(1, 2)):
            yield {name: spectrum} | _decoder(model, {})
        yield {name: _spectrum(config), MASK: torch.ones(1, _spectrum(config).shape[-1], dtype=torch.long)}
    elif name == SAMPLES:
        yield {name: _spectrum(config).transpose(1, 2) if _n_mel(config) else _noise(1, N_SAMPLES)}
        yield {name: _noise(1, 1, N_SAMPLES)}
    elif name == "past_values":
        yield from _series(config)
    if text:
        yield text
        yield from (picture | text for picture in _pictures(config, "pixel_values"))
        yield {SPECTRA: _spectrum(config)} | text
        yield {SAMPLES: _noise(1, 1, N_SAMPLES)} | text


def _noise(*shape: int) -> Tensor:
    """The same noise, 0 to 1, each time; something blank would make one position look like another."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def _text(model: "HuggingFaceModel") -> dict[str, Any]:
    """Ids that differ and stand for no picture, the end token last; with ids for a decoder where there is one."""
    if not reads(model.module, "input_ids"):
        return {}
    config = model.config
    rows = getattr(word_embedding(model.module), "num_embeddings", None) or getattr(config, "vocab_size", None)
    rows = rows or getattr(getattr(config, "text_config", None), "vocab_size", None)
    if not isinstance(rows, int):
        rows = N_TOKENS  # a network of somebody's own; ids this small it knows if it reads ids at all
    end = _id(config, "eos_token_id", rows)
    named = ("eos_token_id", "pad_token_id", "bos_token_id", *PLACES)
    taken = {_id(part, name, rows) for part in (config, getattr(config, "text_config", None)) for name in named}
    free = [index for index in range(min(rows, 64)) if index not in taken] or [0]
    ids = [free[index % len(free)] for index in range(N_TOKENS)]
    text = {"input_ids": torch.tensor([[*ids[:-1], ids[-1] if end is None else end]])}
    if _takes(model, "bbox"):
        text["bbox"] = torch.tensor([[[index, index, index + 5, index + 5] for index in range(N_TOKENS)]])
    return text | _decoder(model, text)


def _takes(model: "HuggingFaceModel", name: str) -> bool:
    return name in inspect.signature(model.module.forward).parameters


def _id(config: Any, name: str, rows: int) -> int | None:
    """A special id of a configuration, None where it names none that the model has an embedding for."""
    index = getattr(config, name, None)
    index = index[0] if isinstance(index, list) and index else index
    return index if isinstance(index, int) and 0 <= index < rows else None


def _decoder(model: "HuggingFaceModel", inputs: dict[str, Any]) -> dict[str, Any]:
    """Two ids for the decoder beside these inputs, so that no answer has to be generated."""
    if not takes_decoder_ids(model, inputs):
        return {}
    return {"decoder_input_ids": torch.tensor([[start_id(model.config), 1]])}


def _pictures(config: Any, name: str) -> Iterator[dict[str, Any]]:
    """Noise as a picture of the size that the configuration names, else of some usual sizes; also as a short video."""
    part = vision_config(config)
    frames = next(
        (n for key in ("num_frames", "frames_per_clip") if isinstance(n := getattr(part, key, None), int)), None
    )
    sizes = [picture_size(config)] if getattr(part, "image_size", None) else [(side, side) for side in SIDES]
    for size in sizes:
        if frames is not None or name == "pixel_values_videos":
            yield {name: _noise(1, frames or 2, n_channels(config), *size)}
        if name == "pixel_values":
            yield {name: _noise(1, n_channels(config), *size)}


def _packed(model: "HuggingFaceModel") -> Iterator[dict[str, Any]]:
    """Noise as the 4 x 4 patches of one picture, laid out flat [patch number], for towers that read pictures so."""
    patch, channels = getattr(model.config, "patch_size", None), n_channels(model.config)
    if not isinstance(patch, int):
        return
    if _takes(model, "grid_thw"):
        first = next(iter(inspect.signature(model.module.forward).parameters))
        named = getattr(model.config, "temporal_patch_size", None)
        for steps in (named,) if isinstance(named, int) else (1, 2):
            yield {first: _noise(16, channels * steps * patch**2), "grid_thw": torch.tensor([[1, 4, 4]])}
    elif _takes(model, "spatial_shapes"):
        flat, seen = _noise(1, 16, channels * patch**2), torch.ones(1, 16, dtype=torch.long)
        yield {"pixel_values": flat, "pixel_attention_mask": seen, "spatial_shapes": torch.tensor([[4, 4]])}


def _audio_config(config: Any) -> Any:
    """The part of a configuration that is about sounds."""
    named = (getattr(config, name, None) for name in ("audio_config", "encoder_config"))
    return next((part for part in named if hasattr(part, "to_dict")), config)


def _n_mel(config: Any) -> int | None:
    """Bands of the spectrum that a model reads, None where it names none."""
    audio = _audio_config(config)
    named = ("num_mel_bins", "feature_size", "input_feat_per_channel", "feature_projection_input_dim", "input_dim")
    return next((n for name in named if isinstance(n := getattr(audio, name, None), int)), None)


def _spectrum(config: Any) -> Tensor:
    """Noise as a spectrum [1 mel frame], as long as the model insists on: two frames a position, as Whisper has it."""
    audio = _audio_config(config)
    positions = getattr(audio, "max_source_positions", None)
    n_frames = 2 * positions if isinstance(positions, int) else None
    if getattr(audio, "model_type", "") == "speech_to_text":
        n_frames = N_FRAMES  # at most so many, and a quarter of the frames
    if getattr(audio, "patch_size", None):
        n_frames = getattr(audio, "max_length", None)
    return _noise(1, _n_mel(config) or 80, n_frames if isinstance(n_frames, int) and n_frames > 0 else N_FRAMES)


def _series(config: Any) -> Iterator[dict[str, Any]]:
    """Noise as a series of numbers, by time (and channel)."""
    length = next(
        (n for k in ("context_length", "prediction_length") if isinstance(n := getattr(config, k, None), int)), 32
    )
    lags = max(getattr(config, "lags_sequence", None) or [0])
    n_channels = getattr(config, "num_input_channels", None)
    values = _noise(1, length + lags, n_channels) if isinstance(n_channels, int) else _noise(1, length + lags)
    yield {"past_values": values}
    n_features = getattr(config, "num_time_features", 0) or 0
    ahead = getattr(config, "prediction_length", None) or 1
    yield {
        "past_values": values,
        "past_time_features": _noise(1, length + lags, n_features),
        "past_observed_mask": torch.ones_like(values),
        "future_values": _noise(1, ahead),
        "future_time_features": _noise(1, ahead, n_features),
    }
