"""Where an attention module of a transformers model belongs: its stack, its kind, its path."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import torch
from torch import nn
from transformers import PretrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from attnprobe.attention.seam import Locate, silent
from attnprobe.models.modes import evaluating
from attnprobe.site import Kind

# Words in module paths that name a tower of a composite model, or a bridge between two.
TOWERS = {
    "vision": "vision",
    "visual": "vision",
    "visn": "vision",
    "image": "vision",
    "pixel": "vision",
    "backbone": "vision",
    "text": "text",
    "language": "text",
    "lang": "text",
    "audio": "audio",
    "speech": "audio",
    "qformer": "qformer",
    "resampler": "resampler",
    "perceiver": "resampler",
    "mask": "mask",
    "modal": "fusion",
    "multimodal": "fusion",
    "fusion": "fusion",
}
SIDES = ("encoder", "decoder")
# What calls itself cross-attention, or self-attention, in a class or in the steps of a path behind its layer's number.
CROSS = re.compile(r"cross_?(modal_?)?att|enc_?dec_?att|encoder_attn|encoder_decoder_att", re.IGNORECASE)
SELF = re.compile(r"self_?att|^self$", re.IGNORECASE)


def unwrapped(module: nn.Module) -> nn.Module:
    """The model inside of what only spreads or compiles it: DataParallel and its kin, torch.compile."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = module._orig_mod  # type: ignore[assignment]
        else:
            return module


def word_embedding(module: nn.Module) -> nn.Module | None:
    """What a model calls its input embedding, or else the first of its parts that names one; None where none does."""
    for part in module.modules():
        try:
            found = part.get_input_embeddings()  # type: ignore[operator]
        except (AttributeError, NotImplementedError):
            continue
        if isinstance(found, nn.Module):
            return found
    return None


def first_called(module: nn.Module, tables: Sequence[nn.Embedding]) -> nn.Embedding:
    """The first table that looks the input ids up in a pass of a short input; the first of all where none does."""
    ids = torch.tensor([[1, 0]], device=tables[0].weight.device)
    called: list[nn.Embedding] = []

    def note(table: nn.Module, given: tuple[Any, ...]) -> None:
        if given and given[0].shape == ids.shape and bool((given[0] == ids).all()):
            called.append(cast(nn.Embedding, table))

    handles = [table.register_forward_pre_hook(note) for table in tables]
    try:
        with torch.no_grad(), evaluating(module), silent(), suppress(RuntimeError, TypeError, ValueError, LookupError):
            module(input_ids=ids)
    finally:
        for handle in handles:
            handle.remove()
    return next(iter(called), tables[0])


def locator(module: nn.Module) -> Locate:
    """A function that says (stack, kind, path) of an attention module inside `module`."""
    paths = {id(part): path for path, part in module.named_modules()}
    whole = unwrapped(module)
    stacks: dict[int, str] = {}

    def locate(part: nn.Module, lengths_differ: bool) -> tuple[str, Kind, str]:
        path = paths.get(id(part), type(part).__name__)
        if id(part) not in stacks:
            stacks[id(part)] = stack_of(whole, part, path)
        return stacks[id(part)], kind_of(module, part, path, lengths_differ), path

    return locate


def kind_of(module: nn.Module, part: nn.Module, path: str, lengths_differ: bool) -> Kind:
    """Whether an attention looks at another sequence: what it says of itself, then its name, then the lengths.

    Queries that are fewer than the keys are no sign of it in causal attention, which also looks at cached keys.
    """
    said = getattr(part, "is_cross_attention", None)
    if isinstance(said, bool):
        return "cross" if said else "self"
    names = (*_own_steps(path), type(part).__name__)
    if any(CROSS.search(name) for name in names):
        return "cross"
    if any(SELF.search(name) for name in names) or _causal(module, part) or _writes(getattr(module, "config", None)):
        return "self"
    return "cross" if lengths_differ else "self"


def _own_steps(path: str) -> list[str]:
    """The last steps of a path, at most three, behind the last number: ["crossattention", "self"]."""
    steps = path.split(".")
    numbers = [index for index, step in enumerate(steps) if step.isdigit()]
    return steps[numbers[-1] + 1 if numbers else 0 :][-3:]


def _causal(module: nn.Module, part: nn.Module) -> bool:
    return bool(getattr(part, "is_causal", getattr(getattr(unwrapped(module), "config", None), "is_decoder", False)))


def stack_of(module: nn.Module, part: nn.Module, path: str) -> str:
    """Name of the stack: the tower that the path names, else its side, else what the input and the masks make of it.

    The text of an encoder-decoder has two sides: "encoder" and "decoder". Of a model of pictures or sounds alone the
    encoder goes by what it reads.
    """
    words = [word for step in path.split(".") for word in step.lower().split("_")]
    tower = next((TOWERS[word] for word in words if word in TOWERS), None)
    side = next((word for word in words if word in SIDES), None)
    if tower not in (None, "text"):
        return str(tower)
    if _two_sided(module, path):
        return side or "decoder"
    if tower is not None:
        return tower
    main_input = getattr(module, "main_input_name", "input_ids")
    read = {"pixel_values": "vision", "input_features": "audio", "input_values": "audio"}.get(str(main_input))
    if read is not None:
        return "decoder" if side == "decoder" else read
    config = getattr(module, "config", None)
    return "decoder" if _causal(module, part) or _writes(config) else "encoder"


def _two_sided(module: nn.Module, path: str) -> bool:
    """Whether the model, or the innermost whole model around a part, is an encoder-decoder."""
    steps = path.split(".")
    inner = [".".join(steps[:end]) for end in range(1, len(steps))]
    parts = dict(module.named_modules())
    around = [module, *(parts[name] for name in inner if name in parts)]
    configs = [config for part in around if isinstance(config := getattr(part, "config", None), PretrainedConfig)]
    return any(getattr(config, "is_encoder_decoder", False) for config in configs)


def _writes(config: Any) -> bool:
    """Whether models of this type predict the next token, and none of them a masked one."""
    name = getattr(config, "model_type", None)
    return name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and name not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
