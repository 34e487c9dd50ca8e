"""Sounds: to the features of the model, and the names of its frames, with their time where it can be told."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.models.huggingface.positions import Named, Seen

# Inputs that are sounds: spectra [1 mel frame] (or [1 frame mel]), and samples [1 sample].
SPECTRA, SAMPLES = "input_features", "input_values"


def sound_inputs(reader: Any, config: Any, name: str, sound: Any) -> Mapping[str, Any]:
    """What the feature extractor makes of the samples [sample] of a sound, at the rate that it names.

    Without a feature extractor: samples as they are for a model that reads samples; a spectrum [mel frame] for any.
    """
    given, of_samples = _numbers(sound), name == SAMPLES and not getattr(config, "num_mel_bins", None)
    if of_samples and given.ndim > 1 and given.shape[0] != 1:
        raise InputError(f"a sound is one row of samples, got {list(given.shape)}; give one channel, or their mean")
    if given.ndim > 1:
        return {name: given if given.shape[0] == 1 else given[None]}
    if reader is None and not of_samples:
        raise InputError(
            f"this model reads the spectrum of a sound ({name}); load it with its feature extractor, or give a "
            "spectrum [mel frame]"
        )
    if reader is None:
        return {name: given[None]}
    try:
        return reader(given.numpy(), sampling_rate=reader.sampling_rate, return_tensors="pt")  # type: ignore[no-any-return]
    except Exception as error:  # whatever a feature extractor raises
        raise InputError(f"the feature extractor does not read this sound: {error}") from error


def _numbers(sound: Any) -> Tensor:
    """A sound as a tensor of floats, checked."""
    try:
        given = torch.as_tensor(sound)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"this model reads sounds; a sound is an array of samples, got {type(sound).__name__}"
        ) from error
    if not given.is_floating_point():
        dtype = str(given.dtype).removeprefix("torch.")
        raise InputError(f"the samples of a sound are floats, mostly from -1 to 1, got {dtype}; divide by the largest")
    if given.numel() == 0 or given.ndim == 0:
        raise InputError("the sound is empty; give at least one sample")
    return given


def named_frames(reader: Any, config: Any, inputs: Mapping[str, Any], seen: Seen) -> Named | None:
    """Names "frame i (seconds)" of the positions of a sound; None for anything else.

    A model that cuts the spectrum into patches has no order in time, and its positions are numbered only.
    """
    name = next((name for name in (SPECTRA, SAMPLES) if isinstance(inputs.get(name), Tensor)), None)
    if name is None or getattr(config, "patch_size", None) or seen.n_rows > 1:
        return None
    step = _seconds(reader, config, inputs[name], name, seen.n_keys)
    times = ["" if step is None else f" ({index * step:.3f} s)" for index in range(seen.n_keys)]
    notes = {} if step is not None else {"positions": "without a feature extractor the time of a frame is not known"}
    frames = tuple(f"frame {index}{time}" for index, time in enumerate(times))
    return Named(frames, text=f"sound of {seen.n_keys} frames", axis="frames", notes=notes)


def _seconds(reader: Any, config: Any, given: Tensor, name: str, n: int) -> float | None:
    """Seconds from one position to the next: from the strides of the model, else the length of the sound by `n`."""
    rate = getattr(reader, "sampling_rate", None)
    if not rate:
        return None
    if name == SAMPLES and given.ndim == 2:
        strides = getattr(config, "conv_stride", None)
        return (math.prod(strides) if isinstance(strides, Sequence) else given.shape[-1] / n) / rate
    hop = getattr(reader, "hop_length", None)
    if not hop:
        return None
    mel = getattr(reader, "feature_size", None)
    n_frames = given.shape[-1] if given.shape[-2] == mel else given.shape[-2]
    return float(n_frames * hop / rate / n)
