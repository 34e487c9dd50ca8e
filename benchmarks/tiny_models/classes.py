"""Which class to build for a model type."""

import importlib
import inspect
import typing
from functools import cache
from pathlib import Path
from typing import Any

import transformers
from torch import nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.tiny_models.built import NotBuilt
from benchmarks.tiny_models.registry import class_of, part_of

_HEADS = (
    "CAUSAL_LM", "MULTIMODAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "CTC", "RNNT",
    "TDT", "PRETRAINING", "MASKED_LM", "OBJECT_DETECTION", "UNIVERSAL_SEGMENTATION", "DEPTH_ESTIMATION",
    "IMAGE_CLASSIFICATION", "KEYPOINT_DETECTION", "KEYPOINT_MATCHING", "MASK_GENERATION", "TEXT_TO_WAVEFORM",
    "RETRIEVAL",
)  # fmt: skip


def model_types() -> list[str]:
    """Every model type that transformers has a config for, parts of models included, sorted."""
    return sorted(CONFIG_MAPPING.keys())


def choose(model_type: str) -> type[nn.Module]:
    """The bare model of the type, else its most natural head, else the module that its config is written for."""
    config_class = CONFIG_MAPPING[model_type]
    part = part_of(model_type)
    named = part[1] if part else class_of(model_type)
    for name in [named] if named else _mapped(model_type):
        found = _lookup(name, config_class)
        if found is not None:
            return found
    found = _written_for(config_class)
    if found is None:
        raise NotBuilt("no model class")
    return found


def _mapped(model_type: str) -> list[str]:
    """Names of classes in the automatic mappings, the bare model first."""
    names = ["MODEL_MAPPING_NAMES", *(f"MODEL_FOR_{head}_MAPPING_NAMES" for head in _HEADS)]
    names += sorted(
        name
        for name in dir(modeling_auto)
        if name.startswith("MODEL_FOR_") and name.endswith("_NAMES") and name not in names
    )
    found = []
    for name in names:
        mapping = getattr(modeling_auto, name, None)
        entry = mapping.get(model_type) if isinstance(mapping, dict) else None
        if entry:
            found.append(entry if isinstance(entry, str) else entry[0])
    return found


def _lookup(name: str, config_class: type) -> type[nn.Module] | None:
    folder, _, name = name.rpartition(".")
    if folder:
        return getattr(importlib.import_module(f"transformers.models.{folder}.modeling_{folder}"), name)
    found = getattr(transformers, name, None)
    if isinstance(found, type):
        return found
    return next((kind for module in _modeling(config_class) if (kind := getattr(module, name, None))), None)


@cache
def _modeling(config_class: type) -> list[Any]:
    """The modeling files that stand beside the config's file."""
    package = config_class.__module__.rpartition(".")[0]
    files = importlib.import_module(package).__path__
    names = sorted(file.stem for path in files for file in Path(path).glob("*.py"))
    names = [name for name in names if name.startswith("modeling_") or name in ("vision", "perceiver")]
    return [importlib.import_module(f"{package}.{name}") for name in names]


def _written_for(config_class: type) -> type[nn.Module] | None:
    """The module of the modeling file that takes this config: a whole model before a part."""
    models, parts = [], []
    for module in _modeling(config_class):
        for kind in vars(module).values():
            if not isinstance(kind, type) or not issubclass(kind, nn.Module) or kind.__module__ != module.__name__:
                continue
            if issubclass(kind, transformers.PreTrainedModel):
                if getattr(kind, "config_class", None) is config_class and "PreTrained" not in kind.__name__[-15:]:
                    models.append(kind)
            elif _first_parameter(kind) is config_class:
                parts.append(kind)
    stem = config_class.__name__.removesuffix("Config")
    for kinds in (models, parts):
        exact = [kind for kind in kinds if kind.__name__ in (stem, f"{stem}Model")]
        if exact:
            return exact[0]
        if kinds:
            return min(kinds, key=lambda kind: (stem not in kind.__name__, "For" in kind.__name__, len(kind.__name__)))
    return None


def _first_parameter(kind: type) -> Any:
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    others = [parameter for parameter in parameters[1:] if parameter.default is inspect.Parameter.empty]
    if not parameters or any(
        parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) for parameter in others
    ):
        return None
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        annotation = vars(importlib.import_module(kind.__module__)).get(annotation)
    return next((item for item in typing.get_args(annotation) if isinstance(item, type)), annotation)
