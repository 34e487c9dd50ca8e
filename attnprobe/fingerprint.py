"""What the numbers of a comparison depend on, in words that are the same in another run, and how two of them differ.

A function of the caller's is known by its code, and by the numbers, texts, tensors, functions and networks that it
takes from around it. Lists and mappings are left out, since they may be where it keeps a log.
"""

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnprobe.metrics import by_default
from attnprobe.metrics import faithfulness as metrics
from attnprobe.models.model import Model
from attnprobe.planning import Plan
from attnprobe.provenance import provenance
from attnprobe.registry import Entry
from attnprobe.study import Settings

# Numbers of a parameter that its fingerprint is made of; of larger ones, so many with equal steps between them.
SAMPLED = 65_536
# What a function may take from around it that its answers depend on, and that no call changes.
FIXED = (bool, int, float, complex, str, bytes, Tensor, np.ndarray, nn.Module, Model)


def fingerprint(plan: Plan, settings: Settings, **more: Any) -> dict[str, Any]:
    """What the numbers of a comparison depend on, as JSON holds it; intervals are made anew, so not what they take."""
    versions = provenance()
    own = {name: _said(e.function) for name, e in by_default(metrics).items() if not _ours(e.function)}
    return {
        "model": _digest_of_model(plan.model),
        "texts": [_digest(example.text, example.pair, dict(example.inputs)) for example in plan.examples],
        "target": str(plan.target) if plan.target.function is None else _said(plan.target.function),
        "methods": {entry.name: _said_method(entry, options) for entry, options in plan.entries},
        "operators": list(plan.operators),
        "n_random": int(settings.n_random),
        "seed": int(settings.seed),
        "versions": {name: versions[name] for name in ("attnprobe", "torch", "transformers", "captum")},
        **({"metrics": own} if own else {}),
        **more,
    }


def _digest_of_model(model: Model) -> str:
    return _digest(model.name, model.module)


def _numbers_of(module: nn.Module) -> str:
    """A digest of a network's parameters and of the buffers that are saved with it."""
    found, saved = hashlib.blake2b(digest_size=8), module.state_dict()
    buffers = [(name, value) for name, value in module.named_buffers() if name in saved]
    for name, value in [*module.named_parameters(), *buffers]:
        flat = value.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // SAMPLED)]
        found.update(f"{name}{tuple(value.shape)}{value.dtype}".encode() + _bytes(sample))
    return found.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _digest(*given: Any) -> str:
    return hashlib.blake2b("\0".join(_said(value) for value in given).encode(), digest_size=8).hexdigest()


def _said_method(entry: Entry, options: Mapping[str, Any]) -> str:
    return f"{_said(entry.function)} {_said(dict(options))}"


def _said(value: Any, seen: tuple[int, ...] = ()) -> str:
    """A value in words that are the same in another run: functions by name and code, tensors by their bytes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_said(value[key], seen)}" for key in sorted(value, key=str)) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return "[" + ", ".join(_said(one, seen) for one in value) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(_said(one, seen) for one in value)) + "}"
    if isinstance(value, Tensor):
        return f"tensor {tuple(value.shape)} {hashlib.blake2b(_bytes(value.reshape(-1)), digest_size=8).hexdigest()}"
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {value.dtype} {hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()}"
    if isinstance(value, Model | nn.Module):
        name, module = (value.name, value.module) if isinstance(value, Model) else (type(value).__name__, value)
        return f"{name} {_numbers_of(module)}"
    if callable(value) and not isinstance(value, type):
        return _said_function(value, seen)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _said_function(value: Callable[..., Any], seen: tuple[int, ...]) -> str:
    """A function by name and code, and what it takes from around it; one that calls itself is said once."""
    if isinstance(value, functools.partial):
        return f"partial {_said([value.func, value.args, value.keywords], seen)}"
    if inspect.ismethod(value):
        return f"method {_said(value.__func__, seen)}"
    if not inspect.isfunction(value):
        called = inspect.getattr_static(type(value), "__call__", None)
        held = {name: one for name, one in getattr(value, "__dict__", {}).items() if isinstance(one, FIXED)}
        code = _said(called, seen) if inspect.isfunction(called) else ""
        return f"{type(value).__module__}.{type(value).__qualname__} {code} {_said(held, seen)}"
    name = f"{value.__module__}.{value.__qualname__}"
    if id(value) in seen or _ours(value):
        return f"{name} "
    around = [f"{key}={_said(one, (*seen, id(value)))}" for key, one in sorted(_around(value).items())]
    words = [*_words_of(value.__code__), _said(value.__defaults__, seen), *around]
    return f"{name} {hashlib.blake2b(' '.join(words).encode(), digest_size=4).hexdigest()}"


def _ours(function: Callable[..., Any]) -> bool:
    """Whether a function is of this package; its code goes with the version."""
    return str(getattr(function, "__module__", "")).startswith("attnprobe.")


def _around(function: Any) -> dict[str, Any]:
    """What a function takes from around it, by name: from functions that it is in, and from its module."""
    code, found = function.__code__, {}
    for name in _names_of(code):
        if name in function.__globals__:
            found[name] = function.__globals__[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not given yet
            continue
    return {name: one for name, one in found.items() if isinstance(one, FIXED) or inspect.isfunction(one)}


def _names_of(code: CodeType) -> set[str]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*(_names_of(one) for one in inner))


def _words_of(code: CodeType) -> Iterator[str]:
    """The code of a function without what differs from run to run: addresses, files, lines, the order of sets."""
    yield code.co_code.hex()
    yield " ".join(code.co_names)
    for one in code.co_consts:
        yield from _words_of(one) if isinstance(one, CodeType) else [_said(one)]


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In what two fingerprints differ, in words.

    >>> differences({"seed": 0, "texts": ["a", "b"]}, {"seed": 1, "texts": ["a", "c"]})
    ['seed was 0, is 1', 'text 2 is another one']
    """
    said = []
    for name in dict.fromkeys([*was, *now]):
        old, new = was.get(name), now.get(name)
        if old == new:
            continue
        if name == "texts" and old and new and len(old) == len(new):
            first = next(i for i, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b)
            said.append(f"text {first} is another one")
        elif name == "texts":
            said.append(f"there were {len(old or ())} texts, now there are {len(new or ())}")
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            said += [f"{name}: {word}" for word in _of_mappings(old, new)]
        elif name == "model":
            said.append("the model is another one, or its parameters have changed")
        else:
            said.append(f"{name} was {_words(old)}, is {_words(new)}")
    return said


def _of_mappings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    gone, added = [n for n in old if n not in new], [n for n in new if n not in old]
    changed = [f"{n} was {old[n]}, is {new[n]}" for n in old if n in new and old[n] != new[n]]
    return [f"{n} is gone" for n in gone] + [f"{n} is new" for n in added] + changed


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
