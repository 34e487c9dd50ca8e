"""Where an attention module of a transformers model belongs: its stack, its kind, its path."""

import re

from torch import nn

from attnprobe.attention.seam import Locate
from attnprobe.site import Kind

# Word parts that name the tower of a composite model, in module paths.
TOWERS = {
    "vision": "vision",
    "visual": "vision",
    "text": "text",
    "audio": "audio",
    "encoder": "encoder",
    "decoder": "decoder",
}
CROSS = re.compile(r"cross|encdec|enc_dec|encoder_attn|encoder_decoder", re.IGNORECASE)


def locator(module: nn.Module) -> Locate:
    """A function that says (stack, kind, path) of an attention module inside `module`."""
    paths = {id(part): path for path, part in module.named_modules()}

    def locate(part: nn.Module, lengths_differ: bool) -> tuple[str, Kind, str]:
        path = paths.get(id(part), type(part).__name__)
        named_cross = CROSS.search(path.rsplit(".", 1)[-1]) or CROSS.search(type(part).__name__)
        # A parent such as "crossattention.self" (BERT) or "layer.1.EncDecAttention" (T5) says it as well.
        cross = bool(named_cross or CROSS.search(path)) or lengths_differ
        return stack_of(module, part, path), "cross" if cross else "self", path

    return locate


def stack_of(module: nn.Module, part: nn.Module, path: str) -> str:
    """Name of the stack: the tower that the path names, else what the input and the masks make of it."""
    config = getattr(module, "config", None)
    steps = [TOWERS[name] for step in path.split(".") for name in step.lower().split("_") if name in TOWERS]
    if getattr(config, "is_encoder_decoder", False):
        return next((step for step in steps if step in ("encoder", "decoder")), "decoder")
    towers = [step for step in steps if step not in ("encoder", "decoder")]
    if towers:
        return towers[0]
    main_input = getattr(module, "main_input_name", "input_ids")
    if main_input == "pixel_values":
        return "vision"
    if main_input in ("input_features", "input_values"):
        return "audio"
    causal = getattr(part, "is_causal", getattr(config, "is_decoder", False))
    return "decoder" if causal else "encoder"
