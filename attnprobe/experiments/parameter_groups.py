"""The parameters of a model from top to bottom: what runs behind the last attention layer, each layer, what is before.

Where a parameter belongs is watched in one pass. Layers that share their parameters are one group; a parameter that is
used in two places (a tied embedding) belongs to the lower one.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from torch import nn

from attnprobe.errors import InputError
from attnprobe.experiments.asking import Asked
from attnprobe.models.rows import Row

TOP, BOTTOM = "head", "embeddings"


@dataclass(frozen=True)
class Group:
    """Some parameters by name. name: "head" (all behind the last layer), "layer 2", "layers 0 to 3" where they share
    their parameters, "embeddings" (all before the first)."""

    name: str
    parameters: tuple[str, ...]


def groups_from_top(one: Asked) -> list[Group]:
    """Groups of parameters in the order of a cascade, top first; those without parameters are left out.

    Errors: `InputError` for a model of several stacks, in which top and bottom are not one line.
    """
    model = one.model
    names = {stack.name for stack in model.stacks}
    if len(names) > 1:
        raise InputError(
            f"{model.name} has several stacks ({', '.join(sorted(names))}), so its layers are not one cascade from top "
            "to bottom; randomise a model of one stack"
        )
    folders = _folders(one.stack.paths)
    found: dict[str, list[str]] = {label: [] for label in (TOP, *reversed(folders.values()), BOTTOM)}
    for path, label in _owners(model.module, folders, _order_of_calls(one)).items():
        own = model.module.get_submodule(path).named_parameters(recurse=False)
        found[label] += [f"{path}.{name}" if path else name for name, _ in own]
    return _without_ties(model.module, found)


def _folders(paths: Sequence[str]) -> dict[str, str]:
    """The path of each layer's module, as far as it tells layers apart, and what to call it."""
    unique = list(dict.fromkeys(paths))
    if len(unique) == 1:
        parts, last = unique[0].split("."), len(paths) - 1
        numbered = [index for index, part in enumerate(parts) if part.isdigit()]
        end = numbered[-1] + 1 if numbered else max(1, len(parts) - 1)
        return {".".join(parts[:end]): f"layers 0 to {last}" if last else "layer 0"}
    parts_of = [path.split(".") for path in unique]
    n_shared = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, zip(*parts_of, strict=False)))
    folders: dict[str, list[int]] = {}
    for number, path in enumerate(paths):
        folders.setdefault(".".join(path.split(".")[: n_shared + 1]), []).append(number)
    return {
        folder: f"layer{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
        for folder, numbers in folders.items()
    }


def _order_of_calls(one: Asked) -> list[str]:
    """Paths of the modules with parameters of their own, in the order in which one pass first runs them."""
    order: dict[str, None] = {}
    with ExitStack() as hooks:
        for path, part in _with_parameters(one.model.module):

            def note(_: nn.Module, __: Any, path: str = path) -> None:
                order.setdefault(path)

            hooks.callback(part.register_forward_pre_hook(note).remove)
        one.answers([Row(one.example)])
    return list(order)


def _with_parameters(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return [
        (path, part) for path, part in module.named_modules() if next(part.parameters(recurse=False), None) is not None
    ]


def _owners(module: nn.Module, folders: Mapping[str, str], order: Sequence[str]) -> dict[str, str]:
    """The group of each module with parameters of its own.

    One that never runs (a table that is read directly, embeddings that a pass is given ready-made) goes by where it
    stands in the model.
    """
    paths = [path for path, _ in _with_parameters(module)]
    inside = {path: folder for path in paths for folder in folders if path == folder or path.startswith(f"{folder}.")}
    ran = [index for index, path in enumerate(order) if path in inside]
    stood = [index for index, path in enumerate(paths) if path in inside]
    found = {path: folders[folder] for path, folder in inside.items()}
    for index, path in enumerate(paths):
        if path not in inside:
            place, last = (order.index(path), ran[-1]) if path in order and ran else (index, stood[-1])
            found[path] = TOP if place > last else BOTTOM
    return found


def _without_ties(module: nn.Module, found: Mapping[str, list[str]]) -> list[Group]:
    """The groups, each parameter in the lowest that uses it; none that is empty."""
    known: set[int] = set()
    groups = []
    for label, names in reversed(list(found.items())):
        own = [name for name in names if id(module.get_parameter(name)) not in known]
        known |= {id(module.get_parameter(name)) for name in own}
        groups.append(Group(label, tuple(own)))
    return [group for group in reversed(groups) if group.parameters]
