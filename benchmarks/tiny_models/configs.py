"""A tiny config of a model type: every field shrunken by its name, nested configs too."""

import copy
import dataclasses
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.tiny_models.indices import indices
from benchmarks.tiny_models.registry import settings_of, start_of, tweaks_of
from benchmarks.tiny_models.sizes import LAYERS, absent, small
from benchmarks.tiny_models.tokens import Ids

Config = transformers.PreTrainedConfig
_LISTS_BY_LAYER = ("layer_types", "mlp_layer_types", "indexer_types", "layers_block_type")


def tiny_config(model_type: str) -> Config:
    """A config of the type with small sizes.

    Only fields that shrink are given to the constructor, so that what it derives from them fits them.
    """
    begin = start_of(model_type) or CONFIG_MAPPING[model_type]
    return _shrink(begin(), Ids())


def _shrink(config: Config, ids: Ids) -> Config:
    fields = {field.name for field in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else set()
    before = dict(vars(config))
    changed: dict[str, Any] = {}
    for name, old in before.items():
        if name.startswith("_") or name in ("id2label", "label2id"):
            continue
        if isinstance(old, Config):
            changed[name] = _without_timm(old) or _shrink(old, ids)
            continue
        new = ids.of(name, small(name, old)) if old is not None else absent(name, config)
        if type(new) is not type(old) or new != old:
            changed[name] = new
    changed |= _in_proportion(config, changed)
    changed |= indices(config, changed)
    changed |= copy.deepcopy(settings_of(config.model_type))
    arguments = _unusual(config, fields) | {name: value for name, value in changed.items() if name in fields}
    arguments |= copy.deepcopy(settings_of(config.model_type))
    if "out_indices" in changed:
        arguments |= {"out_indices": changed["out_indices"], "out_features": None}
    mixed = _mixed_layers(before, changed, fields)
    shrunken = _construct(config, [arguments | mixed, arguments], changed)
    _keep_extras(config, before, shrunken, fields)
    _fit_lists(before, shrunken)
    _fit_rope(shrunken)
    for name, value in settings_of(config.model_type).items():
        if name not in fields and not hasattr(shrunken, name):
            setattr(shrunken, name, copy.deepcopy(value))
    for change in tweaks_of(config.model_type):
        change(shrunken)
    return shrunken


def _keep_extras(config: Config, before: dict[str, Any], shrunken: Config, fields: set[str]) -> None:
    """Attributes that the model around it gave to a part, beyond the fields of its class."""
    for name, value in before.items():
        if not name.startswith("_") and name not in fields and name not in vars(shrunken):
            setattr(shrunken, name, value)


def _unusual(config: Config, fields: set[str]) -> dict[str, Any]:
    """The fields whose values are not those of the class: a part may be set up by the model around it."""
    try:
        usual = type(config)()
    except Exception:
        return {}
    found = {name: _get(config, name) for name in fields if not isinstance(_get(config, name), Config)}
    found |= {name: getattr(config, name) for name in ("out_features", "out_indices") if hasattr(config, f"_{name}")}
    return {name: value for name, value in found.items() if value != _get(usual, name)}


def _without_timm(config: Config) -> Config | None:
    """A tiny ResNet with as many outputs where the config asks for a backbone of the package timm."""
    if config.model_type != "timm_backbone":
        return None
    count = len(getattr(config, "out_indices", None) or [4])
    return transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 24, 32, 64], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=[f"stage{stage}" for stage in range(5 - count, 5)],
    )  # fmt: skip


def _get(config: Config, name: str, default: Any = None) -> Any:
    """The field; the default where it is not there or differs from layer to layer."""
    try:
        return getattr(config, name)
    except Exception:
        return default


def _mixed_layers(before: dict[str, Any], changed: dict[str, Any], fields: set[str]) -> dict[str, Any]:
    """Lists of kinds of layers for fewer layers, where the first layers alone would not show each kind."""
    old, new = before.get("num_hidden_layers"), changed.get("num_hidden_layers")
    found = {}
    for name in _LISTS_BY_LAYER:
        value = before.get(name)
        if name in fields and name not in changed and isinstance(new, int) and value and len(value) == old:
            found[name] = type(value)(_one_of_each(list(value), new))
    return found


def _construct(config: Config, attempts: list[dict[str, Any]], changed: dict[str, Any]) -> Config:
    """A new config from the first arguments that the class takes; else the old one with its fields set."""
    shrunken = config
    arguments: dict[str, Any] = {}
    for attempt in attempts:
        try:
            shrunken = type(config)(**attempt)
        except Exception:
            continue
        arguments = attempt
        break
    for name, value in changed.items():
        # What stayed as it was is no field, and not derived from one.
        if name not in arguments and (
            shrunken is config or isinstance(value, Config) or _stayed(name, config, shrunken)
        ):
            try:
                setattr(shrunken, name, value)
            except Exception:
                continue
    return shrunken


def _stayed(name: str, old: Config, new: Config) -> bool:
    return name in vars(new) and vars(new)[name] == vars(old).get(name)


def _in_proportion(config: Config, changed: dict[str, Any]) -> dict[str, Any]:
    """Fields whose small value hangs on others: pictures and patches, windows that follow."""
    found: dict[str, Any] = {}
    size = getattr(config, "image_size", None)
    patch = getattr(config, "patch_size", None)
    if isinstance(patch, int) and patch > 8:
        found["patch_size"] = patch = 8
    elif isinstance(patch, (list, tuple)) and all(isinstance(item, int) and item > 8 for item in patch):
        found["patch_size"] = type(patch)(8 for _ in patch)
    target = 64 if hasattr(config, "depths") or hasattr(config, "hidden_sizes") else 32
    if isinstance(_get(config, "depths"), (list, tuple)):
        if isinstance(_get(config, "embed_dim"), int):
            found["embed_dim"] = 16
        if isinstance(window := _get(config, "window_size"), int) and window > 4:
            found["window_size"], target = 4, 128
    if isinstance(size, int) and size > target:
        found["image_size"] = target
    elif isinstance(size, (list, tuple)) and size and isinstance(size[0], int):
        found["image_size"] = type(size)(target for _ in size)
    lists = [value for name in _LISTS_BY_LAYER if isinstance(value := getattr(config, name, None), (list, tuple))]
    kinds = max((len(set(value)) for value in lists), default=0)
    if kinds > LAYERS:
        found["num_hidden_layers"] = min(kinds, 4)
    window = vars(config).get("window_size") if hasattr(config, "patch_size") else None
    if isinstance(window, int) and window > 4 and "window_size" not in found:
        # Of pixels (two merged patches) where some blocks see all; else of patches.
        found["window_size"] = 32 if hasattr(config, "fullatt_block_indexes") else 2
    rope = _get(config, "qk_rope_head_dim")
    if rope and rope == _get(config, "head_dim"):
        found["head_dim"] = changed.get("qk_rope_head_dim", rope)
    kv, heads = _get(config, "num_key_value_heads"), _get(config, "num_attention_heads")
    if isinstance(kv, int) and kv == heads:
        found["num_key_value_heads"] = changed.get("num_attention_heads", heads)
    return found


def _fit_lists(old: dict[str, Any], new: Config) -> None:
    """Lists with an entry a layer get the new number of layers, and keep one of each kind where they can."""
    before = old.get("num_hidden_layers")
    after = _get(new, "num_hidden_layers")
    if not isinstance(after, int) or not isinstance(before, int):
        return
    for name, value in list(vars(new).items()):
        if name.startswith("_") or not isinstance(value, (list, tuple)) or name in settings_of(new.model_type):
            continue
        original = old.get(name)
        if (
            not isinstance(original, (list, tuple))
            or not original
            or not isinstance(original[0], (str, int, float, bool))
        ):
            continue
        if len(original) == before and (len(value) != after or name in _LISTS_BY_LAYER):
            setattr(new, name, type(value)(_one_of_each(list(value if len(value) == before else original), after)))


def _one_of_each(entries: list[Any], count: int) -> list[Any]:
    """The first entries, changed from the back until each kind is there or the places are used up."""
    kinds = list(dict.fromkeys(entries))
    if len(set(entries[:count])) == len(kinds):
        return entries[:count]
    chosen = sorted(kinds[:count], key=entries.index)
    while len(chosen) < count:
        chosen.append(chosen[-1])
    return chosen


def _fit_rope(config: Config) -> None:
    """Rotary sections and per-frequency factors get the length of the small heads."""
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, dict):
        return
    heads = _get(config, "num_attention_heads") or 4
    width = _get(config, "head_dim") or _get(config, "hidden_size", 64) // heads
    for part in [rope, *(value for value in rope.values() if isinstance(value, dict))]:
        half = int(width * (part.get("partial_rotary_factor") or 1.0)) // 2
        if "mrope_section" in (getattr(config, "ignore_keys_at_rope_validation", None) or ()):
            part.setdefault("mrope_section", [16, 24, 24])
        for name in ("mrope_section", "xdrope_section"):
            if part.get(name):
                part[name] = _sections(list(part[name]), half)
        for name in ("short_factor", "long_factor"):
            if part.get(name):
                part[name] = list(part[name])[:half]


def _sections(old: list[int], total: int) -> list[int]:
    new = [max(1, total * part // sum(old)) for part in old]
    new[0] += total - sum(new)
    return new
