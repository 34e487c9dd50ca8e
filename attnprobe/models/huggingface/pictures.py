"""Pictures to examples: one token a patch, behind the special tokens that the model puts before them."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.example import Example
from attnprobe.models.huggingface.places import unwrapped
from attnprobe.models.rows import Row

if TYPE_CHECKING:
    from attnprobe.models.huggingface.model import HuggingFaceModel


def is_picture(module: nn.Module, given: Any) -> bool:
    """Whether a model reads pictures."""
    return getattr(unwrapped(module), "main_input_name", "input_ids") == "pixel_values"


def read_picture(model: "HuggingFaceModel", picture: Any) -> Example:
    """An example from pixel values [channel height width] or a picture that the image processor takes.

    Its tokens are the keys of the model's first attention, as a pass shows them.
    """
    pixels = _pixels(model, picture)
    config = vision_config(model.config)
    rows, columns = _grid(config, pixels)
    patches = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    n_positions = _n_positions(model, pixels)
    special = _special(config, n_positions - len(patches)) if patches else None
    notes = {}
    if special is None:
        special, patches = [], [f"position {index}" for index in range(n_positions)]
        notes["positions"] = "which positions are patches of the picture and which are special could not be told"
    return Example(
        text=f"picture of {rows} x {columns} patches" if not notes else f"picture of {n_positions} positions",
        inputs={"pixel_values": pixels},
        tokens=(*special, *patches),
        spans=(None,) * n_positions,
        is_special=(*[True] * len(special), *[False] * len(patches)),
        words=(*[None] * len(special), *range(len(patches))),
        axis="patches",
        picture=picture,
        notes=notes,
    )


def vision_config(config: Any) -> Any:
    """The part of a configuration that is about pictures."""
    return getattr(config, "vision_config", None) or config


def blank_picture(config: Any) -> Tensor:
    """A picture [channel height width] without content, of the size that the configuration names."""
    config = vision_config(config)
    size = getattr(config, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else size
    return torch.zeros(getattr(config, "num_channels", 3), height, width)


def _pixels(model: "HuggingFaceModel", picture: Any) -> Tensor:
    """Pixel values with the batch axis, in the numbers of the model."""
    if isinstance(picture, Tensor):
        pixels = picture if picture.ndim >= 4 else picture[None]
    elif model.tokenizer is not None:
        pixels = model.tokenizer(picture, return_tensors="pt")["pixel_values"]
    else:
        raise InputError(
            "this model reads pictures; give a tensor [channel height width], or load it with its image processor"
        )
    if pixels.ndim < 4 or pixels.shape[0] != 1:
        raise InputError(
            f"a picture is one tensor [channel height width], got {list(pixels.shape)}; give one at a time"
        )
    return pixels.to(next(model.module.parameters()).dtype)


def _grid(config: Any, pixels: Tensor) -> tuple[int, int]:
    """Rows and columns of patches, 0 where the configuration names no size of a patch, or for more than a picture."""
    size = getattr(config, "patch_size", None)
    height, width = size if isinstance(size, list | tuple) and len(size) == 2 else (size, size)
    if not isinstance(height, int) or not isinstance(width, int) or pixels.ndim != 4:
        return 0, 0
    return pixels.shape[-2] // height, pixels.shape[-1] // width


def _special(config: Any, n: int) -> list[str] | None:
    """Names of the `n` special tokens before the patches; None where the configuration does not account for them."""
    if n == 0:
        return []
    names = ["[CLS]"] if getattr(config, "model_type", "") != "deit" else ["[CLS]", "[DIST]"]
    names += [f"[REG{index}]" for index in range(getattr(config, "num_register_tokens", 0) or 0)]
    return names if len(names) == n else None


def _n_positions(model: "HuggingFaceModel", pixels: Tensor) -> int:
    """Number of keys of the first attention on a picture of this size; one pass a size."""
    known = model.__dict__.setdefault("_n_positions", {})
    if pixels.shape not in known:
        n_keys = Keep(reduce=lambda site: {"n_keys": torch.tensor(site.need("weights").shape[-1])})
        tape = Tape(keep=n_keys, check=False)
        unnamed = Example("picture", {"pixel_values": pixels}, ("picture",), (None,), (False,), (None,), "patches")
        try:
            with torch.no_grad():
                model.forward([Row(unnamed)], tape)
        except AttnprobeError:
            raise
        except (ValueError, TypeError, RuntimeError) as error:
            raise InputError(f"{model.name} does not read a picture of {list(pixels.shape[1:])}: {error}") from error
        known[pixels.shape] = int(tape.reduced[0][1]["n_keys"])
    return int(known[pixels.shape])
