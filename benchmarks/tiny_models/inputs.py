"""Inputs for a model, from the signature of its `forward` and from its config."""

import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import nn

from benchmarks.tiny_models import media
from benchmarks.tiny_models.registry import inputs_of
from benchmarks.tiny_models.tokens import TEXT

LENGTH = 14
Keywords = dict[str, Any]


def candidates(model_type: str, module: nn.Module, config: Any) -> Iterator[Keywords]:
    """Keyword arguments to try, the likeliest first; a recipe's inputs are the only ones."""
    recipe = inputs_of(model_type)
    if recipe is not None:
        made = recipe(module, config)
        yield from [made] if isinstance(made, dict) else made
        return
    yield from generic(module, config)


def text(length: int = LENGTH, shift: int = 0) -> torch.Tensor:
    """Ids of ordinary tokens, all different from their neighbours: [1 token]."""
    low, high = TEXT
    return (torch.arange(length) * 7 + shift).remainder(high - low).add(low)[None]


def names_of(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name, those of `*args` and `**kwargs` left out."""
    found = inspect.signature(function).parameters
    return {name: item for name, item in found.items() if item.kind not in (item.VAR_KEYWORD, item.VAR_POSITIONAL)}


def generic(module: nn.Module, config: Any) -> Iterator[Keywords]:
    """Text, pictures, films and sound as far as the model takes them."""
    names = names_of(module.forward)
    words = _words(names, config)
    kinds = [kind for kind in media.KINDS if media.main_names(kind, names)]
    if not kinds:
        yield words | _hidden(names, config, words)
        yield _hidden(names, config, {})
        return
    if "input_ids" in names and any(_features(module, kind) for kind in kinds):
        yield from _with_placeholders(module, config, names, words, kinds)
    for choice in product(*(list(media.options(kind, names, config)) for kind in kinds[:2])):
        given: Keywords = dict(words)
        for part in choice:
            given |= part
        yield given
    for kind in kinds:
        for part in media.options(kind, names, config):
            yield words | part


def _words(names: dict[str, inspect.Parameter], config: Any) -> Keywords:
    """Token ids, and what goes with them."""
    found: Keywords = {}
    if "input_ids" in names:
        found["input_ids"] = text()
    if "decoder_input_ids" in names:
        found["decoder_input_ids"] = text(9, shift=3)
    if "bbox" in names:
        corners = torch.arange(LENGTH)[:, None] * 3 + torch.tensor([1, 2, 9, 12])
        found["bbox"] = corners[None]
    if "attention_mask" in names and names["attention_mask"].default is inspect.Parameter.empty:
        found["attention_mask"] = torch.ones(1, LENGTH, dtype=torch.long)
    return found


def _hidden(names: dict[str, inspect.Parameter], config: Any, words: Keywords) -> Keywords:
    """Embeddings, for parts of models that start from them."""
    if words.get("input_ids") is not None:
        return {}
    width = getattr(config, "hidden_size", None) or getattr(config, "d_model", 64)
    found = {}
    for name in ("inputs_embeds", "hidden_states", "query_embeds", "x", "encoder_hidden_states"):
        if name in names and not (name == "encoder_hidden_states" and not found):
            found[name] = torch.randn(1, LENGTH, width)
    return found


def with_features(module: nn.Module, config: Any, **options: Keywords) -> Iterator[Keywords]:
    """Text with placeholders for the given arguments of pictures, films, sound (by those names)."""
    found = {}
    for kind, option in options.items():
        count = media.count_features(_features(module, kind), option)
        if count:
            found[kind] = option, count
    yield from _around(config, names_of(module.forward), {}, found)


def _with_placeholders(
    module: nn.Module, config: Any, names: dict[str, inspect.Parameter], words: Keywords, kinds: list[str]
) -> Iterator[Keywords]:
    """Pictures, films and sound with as many placeholder tokens in the text as they have features."""
    found: dict[str, tuple[Keywords, int]] = {}
    for kind in kinds:
        features = _features(module, kind)
        token = media.placeholder(kind, config)
        if features is None or token is None:
            continue
        for option in media.options(kind, names, config):
            count = media.count_features(features, option)
            if count:
                found[kind] = option, count
                break
    for chosen in dict.fromkeys([tuple(found), *((kind,) for kind in found)]):
        yield from _around(config, names, words, {kind: found[kind] for kind in chosen})


def _features(module: nn.Module, kind: str) -> Any:
    """The method that turns a picture, a film, or sound into rows; None where no part of the model has one."""
    owners = (part for part in module.modules() if hasattr(part, f"get_{kind}_features"))
    owner = next(owners, None)
    return getattr(owner, f"get_{kind}_features") if owner is not None else None


def _around(
    config: Any, names: dict[str, inspect.Parameter], words: Keywords, found: dict[str, tuple[Keywords, int]]
) -> Iterator[Keywords]:
    """A text with a run of placeholders for each kind."""
    if not found:
        return
    given: Keywords = {}
    ids = [text(5)[0]]
    types = [torch.zeros(5, dtype=torch.long)]
    for place, (kind, (option, count)) in enumerate(found.items()):
        given |= option
        ids += media.run_of(kind, count, config), text(6, shift=place + 4)[0]
        marks = (ids[-2] == media.placeholder(kind, config)).long() * media.TYPE[kind]
        types += marks, torch.zeros(6, dtype=torch.long)
    given["input_ids"] = torch.cat(ids)[None]
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in names:
            yield words | given | {name: torch.cat(types)[None]}
    yield words | given
    if "attention_mask" in names:
        yield words | given | {"attention_mask": torch.ones_like(given["input_ids"])}
