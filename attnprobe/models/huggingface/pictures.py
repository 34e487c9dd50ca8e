"""Pictures: to pixel values, and the names of their patches, behind the special tokens that the model puts first."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.models.huggingface.positions import Named, Seen

# Inputs that are pictures, with the channel third from the end.
PIXELS = ("pixel_values", "pixel_values_videos")
UNKNOWN = "which positions are patches and which are special could not be told"


def picture_inputs(reader: Any, config: Any, picture: Any, name: str = "pixel_values") -> Mapping[str, Any]:
    """What the image processor makes of a picture; of floats [channel height width] the same with the batch axis.

    name: what the model calls its pictures.
    """
    given = _floats(picture, n_channels(config))
    if given is not None and given.ndim < 3:
        raise InputError(f"a picture is one tensor [channel height width], got {list(given.shape)}; give one at a time")
    if given is not None:
        return {name: given if given.ndim > (4 if name == "pixel_values_videos" else 3) else given[None]}
    if reader is None:
        raise InputError(
            f"this model reads pictures as numbers, got {type(picture).__name__}: what turns a picture into them, its "
            "image processor, was not loaded. Load a folder that holds it (preprocessor_config.json), or "
            "load((model, processor)), or give pixel_values, a tensor of floats [channel height width]"
        )
    if n_channels(config) == 3 and hasattr(picture, "convert"):
        picture = picture.convert("RGB")  # grey pictures and those with a transparent ground
    try:
        return reader(picture, return_tensors="pt")  # type: ignore[no-any-return]
    except Exception as error:  # whatever an image processor raises
        raise InputError(f"the image processor does not read this {type(picture).__name__}: {error}") from error


def _floats(picture: Any, channels: int) -> Tensor | None:
    """Floats with the channel third from the end, None for what an image processor has to read."""
    if isinstance(picture, Tensor):
        return picture if picture.is_floating_point() else None
    fits = isinstance(picture, np.ndarray) and picture.dtype.kind == "f" and picture.ndim > 2
    return torch.as_tensor(picture) if fits and picture.shape[-3] == channels != picture.shape[-1] else None


def vision_config(config: Any) -> Any:
    """The part of a configuration that is about pictures."""
    named = ("vision_config", "encoder", "backbone_config")
    return next((part for name in named if _is_config(part := getattr(config, name, None))), config)


def _is_config(part: Any) -> bool:
    return hasattr(part, "to_dict")


def n_channels(config: Any) -> int:
    """Channels of the pictures that a model reads, 3 where its configuration does not say."""
    found = getattr(vision_config(config), "num_channels", None)
    return found if isinstance(found, int) else 3


def picture_size(config: Any, unnamed: int = 224) -> tuple[int, int]:
    """Height and width that the configuration names, else `unnamed`."""
    size = getattr(vision_config(config), "image_size", None) or unnamed
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def named_patches(config: Any, inputs: Mapping[str, Any], seen: Seen) -> Named | None:
    """Names "row,column" of the patches of a picture, "frame,row,column" of a video; None for anything else."""
    pixels = next((inputs[name] for name in PIXELS if isinstance(inputs.get(name), Tensor)), None)
    if pixels is None:
        return None
    config, n = vision_config(config), seen.n_keys
    grid, notes = _grid(config, pixels), {}
    if not any(grid):
        grid = _coarse(pixels, n)
        notes = {"positions": f"the model names no size of a patch; {n} positions are a grid of {grid[0]} x {grid[1]}"}
    patches = [",".join(map(str, index)) for index in np.ndindex(*grid)]
    special = _special(config, n - len(patches)) if patches else None
    if seen.n_rows > 1 and 0 < len(patches) <= seen.n_rows * seen.n_queries:
        special, notes = [], {"positions": seen.windows}
    kind = "video" if pixels.ndim == 5 else "picture"
    if special is None:
        numbers = tuple(f"position {index}" for index in range(n))
        return Named(numbers, text=f"{kind} of {n} positions", notes={"positions": UNKNOWN})
    text = f"{kind} of " + " \N{MULTIPLICATION SIGN} ".join(map(str, grid)) + " patches"
    return Named((*special, *patches), len(special), text, "patches", notes)


def _grid(config: Any, pixels: Tensor) -> tuple[int, ...]:
    """Rows and columns of patches, with the steps of time before them for a video; 0 where it cannot be told."""
    tube = getattr(config, "tubelet_size", None)
    size = getattr(config, "patch_size", None) or tube
    height, width = size[-2:] if isinstance(size, list | tuple) and len(size) > 1 else (size, size)
    if not isinstance(height, int) or not isinstance(width, int) or pixels.ndim not in (4, 5):
        return 0, 0
    rows, columns = pixels.shape[-2] // height, pixels.shape[-1] // width
    tube = tube[0] if isinstance(tube, list | tuple) else tube
    if pixels.ndim == 4:
        return rows, columns
    return (pixels.shape[1] // tube, rows, columns) if isinstance(tube, int) else (0, 0)


def _coarse(pixels: Tensor, n: int) -> tuple[int, int]:
    """Rows and columns of the `n` positions of a picture that was made smaller by the same number both ways."""
    height, width = pixels.shape[-2:]
    factors = [k for k in range(2, min(height, width) + 1) if height % k == 0 == width % k]
    fits = [(height // k, width // k) for k in factors if (height // k) * (width // k) == n]
    return fits[0] if fits and pixels.ndim == 4 else (0, 0)


def _special(config: Any, n: int) -> list[str] | None:
    """Names of the `n` special tokens before the patches; None where the configuration does not account for them."""
    if n == 0:
        return []
    names = ["[CLS]"] if getattr(config, "model_type", "") != "deit" else ["[CLS]", "[DIST]"]
    names += [f"[REG{index}]" for index in range(getattr(config, "num_register_tokens", 0) or 0)]
    return names if len(names) == n else None
