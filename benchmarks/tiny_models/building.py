"""From a model type to a model that has run once."""

import difflib
import random
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.tiny_models.built import Built, NotBuilt
from benchmarks.tiny_models.classes import choose, model_types
from benchmarks.tiny_models.configs import tiny_config
from benchmarks.tiny_models.inputs import candidates
from benchmarks.tiny_models.outputs import tensors
from benchmarks.tiny_models.parameters import randomise, spread
from benchmarks.tiny_models.registry import part_of

MOST_PARAMETERS = 6_000_000
NO_EAGER = ("qwen2_5_omni_dit", "qwen2_5_omni_token2wav")  # look their function up by name, and "eager" is none
LIBRARIES = ("torchvision", "torchaudio", "timm")


def build(model_type: str, seed: int = 0) -> Built:
    """A tiny random model of the type and inputs that it runs on; NotBuilt where there is none."""
    if model_type not in CONFIG_MAPPING:
        near = difflib.get_close_matches(model_type, model_types(), 1)
        raise NotBuilt(f"no model type {model_type!r}" + (f"; the nearest is {near[0]!r}" if near else ""))
    others = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)
            return _build(model_type)
    finally:
        random.setstate(others[0])
        np.random.set_state(others[1])


def _build(model_type: str) -> Built:
    config = _named("config", tiny_config, model_type)
    config._attn_implementation = "sdpa" if model_type in NO_EAGER else "eager"
    kind = choose(model_type)
    if (part := part_of(model_type)) is not None:
        config = getattr(config, part[0])
    module = _named("model", kind, config).float().eval()
    count = sum(parameter.numel() for parameter in module.parameters())
    if count > MOST_PARAMETERS:
        raise NotBuilt(f"too large: {count / 1e6:.1f} million parameters")
    module.requires_grad_(False)
    randomise(module)
    original = spread(module)
    inputs = _named("inputs", _first_that_runs, model_type, module, config)
    if not _finite(module, inputs):
        for parameter, old in original:
            parameter.copy_(old)
        if not _finite(module, inputs):
            raise NotBuilt("output is not finite")
    if not _repeats(module, inputs):
        raise NotBuilt("two forward passes differ")
    module.requires_grad_(True)
    return Built(model_type, kind.__name__, module, inputs)


def _named(what: str, function: Any, *arguments: Any) -> Any:
    """The result of the call; a failure of it as NotBuilt, in one line."""
    try:
        return function(*arguments)
    except NotBuilt:
        raise
    except ImportError as error:
        raise NotBuilt(f"missing dependency: {_line(error)}") from error
    except NotImplementedError as error:
        raise NotBuilt(f"no forward: {_line(error)}") from error
    except NameError as error:
        reason = "missing dependency" if error.name in LIBRARIES else what
        raise NotBuilt(f"{reason}: {_line(error)}") from error
    except Exception as error:
        raise NotBuilt(f"{what}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@torch.no_grad()
def _first_that_runs(model_type: str, module: nn.Module, config: Any) -> dict[str, Any]:
    first: Exception | None = None
    for attempt in candidates(model_type, module, config):
        try:
            module(**attempt)
        except Exception as error:
            first = first or error
        else:
            return attempt
    raise first or NotBuilt("input unknown")


@torch.no_grad()
def _finite(module: nn.Module, inputs: dict[str, Any]) -> bool:
    found = [item for item in tensors(module(**inputs)) if item.is_floating_point()]
    return all(bool(torch.isfinite(item).all()) for item in found)


@torch.no_grad()
def _repeats(module: nn.Module, inputs: dict[str, Any]) -> bool:
    pairs = zip(tensors(module(**inputs)), tensors(module(**inputs)), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)
