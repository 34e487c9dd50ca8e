"""Pictures to examples: one token a patch, behind the class token where there is one."""

from typing import Any

import torch
from torch import Tensor, nn

from attnprobe.errors import InputError
from attnprobe.example import Example


def is_picture(module: nn.Module, given: Any) -> bool:
    """Whether a model reads pictures."""
    return getattr(module, "main_input_name", "input_ids") == "pixel_values"


def read_picture(processor: Any, config: Any, picture: Any) -> Example:
    """An example from pixel values [channel height width] or a picture that the image processor takes."""
    if isinstance(picture, Tensor):
        pixels = picture if picture.ndim == 4 else picture[None]
    elif processor is not None:
        pixels = processor(picture, return_tensors="pt")["pixel_values"]
    else:
        raise InputError(
            "this model reads pictures; give a tensor [channel height width], or load it with its image processor"
        )
    size = config.patch_size if isinstance(config.patch_size, int) else config.patch_size[0]
    rows, columns = pixels.shape[-2] // size, pixels.shape[-1] // size
    patches = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    n = len(patches) + 1
    return Example(
        text=f"picture of {rows} x {columns} patches",
        inputs={"pixel_values": pixels.to(torch.float32)},
        tokens=("[CLS]", *patches),
        spans=(None,) * n,
        is_special=(True, *([False] * len(patches))),
        words=(None, *range(len(patches))),
        axis="patches",
        picture=picture,
    )
