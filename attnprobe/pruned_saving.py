"""A pretrained model without some of its heads, saved so that `from_pretrained` loads it."""

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.heads.addresses import Head, heads_named
from attnprobe.models import load
from attnprobe.models.model import Model
from attnprobe.models.projecting import Found, Use, find, probe
from attnprobe.site import Kind

RECORD = "pruned_heads.json"
Place = tuple[str, Kind, int]  # stack, kind, layer


def save_pruned(model: Any, heads: Any, folder: str | Path, *, example: Example | None = None) -> Path:
    """Save a copy of a model in which these heads write nothing: their rows of the output projection are 0.

    Its answers are those under `prune(model, heads)`; shapes, biases and the number of heads stay as they are. The
    tokenizer (or image processor) is saved too where there is one, and the heads in pruned_heads.json. The model itself
    is not touched. example: watch the model on this input to find the projections, where a short one does not run.
    Errors: `InputError` for no head, for a model that is not of transformers, a folder that holds a model already, and
    heads of layers whose parameters other heads use as well; `CaptureError` where a layer's output projection was not
    found.
    """
    model = load(model)
    named, folder = heads_named(model, heads), Path(folder)
    if not named:
        raise InputError("heads is empty, so nothing would be pruned; name at least one head, such as '5.1'")
    if not hasattr(model.module, "save_pretrained"):
        raise InputError(
            f"{model.name} is no model of transformers, so from_pretrained cannot load it; use the edits of prune()"
        )
    if folder.is_file() or (folder / "config.json").exists():
        there = "is a file" if folder.is_file() else "holds a model already"
        raise InputError(f"{folder} {there}; give the name of a new folder")
    state = without_heads(model, named, find(model, probe(model) if example is None else example))
    with _own_config(model.module):
        model.module.save_pretrained(folder, state_dict=state)
    reader: Any = getattr(model, "processor", None)
    if hasattr(reader, "save_pretrained"):
        reader.save_pretrained(folder)
    record = {"heads": [str(head) for head in named], "of": Path(model.name).name}
    (folder / RECORD).write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
    return folder


def without_heads(model: Model, heads: Sequence[Head], found: Sequence[Found]) -> dict[str, Tensor]:
    """The model's state in which the rows of these heads are 0; what is not changed is the model's own tensor."""
    layers: dict[Place, set[int]] = {}
    for head in heads:
        layers.setdefault((head.stack, head.kind, head.layer), set()).add(head.head)
    uses = {(f.place.stack, f.place.kind, f.place.layer): f for f in found}
    _check_shared(layers, uses)
    state: dict[str, Tensor] = dict(model.module.state_dict())
    copied: dict[str, Tensor] = {}
    for place, numbers in layers.items():
        use = _output(uses[place])
        source = use.linear.weight
        if source.name not in copied:
            source.read(model.module)  # says why where it holds no plain numbers
            copied[source.name] = _copied(model, state, source.name)
        whole = copied[source.name]
        part = whole if source.view is None else _view(whole, source.view, int(state[source.name].storage_offset()))
        weight = part if use.linear.in_first else part.T
        weight[use.index[sorted(numbers)].flatten()] = 0
    return state | copied


def _view(whole: Tensor, view: tuple[tuple[int, ...], tuple[int, ...], int], start: int) -> Tensor:
    """The part of a copied tensor that a view of the model's own is; start: where that tensor lies in its storage."""
    size, stride, offset = view
    return whole.as_strided(size, stride, offset - start)


def _check_shared(layers: dict[Place, set[int]], uses: dict[Place, Found]) -> None:
    """`InputError` where a layer shares its parameters with others in which the same heads are to stay."""
    by_weight: dict[tuple[str, Any], list[Place]] = {}
    for place, found in uses.items():
        if isinstance(found.output, Use):
            source = found.output.linear.weight
            by_weight.setdefault((source.name, source.view), []).append(place)
    for same in by_weight.values():
        asked = {place: layers.get(place, set()) for place in same}
        if len({frozenset(numbers) for numbers in asked.values()}) > 1:
            (stack, kind, _), number = same[0], min(set().union(*asked.values()))
            raise InputError(
                f"layers {', '.join(str(place[2]) for place in same)} of {stack} {kind}-attention share their "
                f"parameters, so a head goes from all of them or from none: name it in each (as "
                f"{', '.join(f'{place[2]}.{number}' for place in same)}), or use the edits of prune()"
            )


def _output(found: Found) -> Use:
    if isinstance(found.output, str):
        raise CaptureError(f"{found.place}: {found.output} Use the edits of prune() instead of a saved model")
    return found.output


def _copied(model: Model, state: dict[str, Tensor], name: str) -> Tensor:
    """A copy of a tensor of the state, with the same layout; `InputError` where something else uses it too."""
    if name not in state:
        raise CaptureError(f"'{name}' is no part of the state of {model.name}; use the edits of prune()")
    whole = state[name]
    twins = [
        other for other, tensor in state.items()
        if other != name and tensor.data_ptr() == whole.data_ptr() and tensor.numel() == whole.numel()
    ]  # fmt: skip
    if twins:
        raise InputError(f"'{name}' is '{twins[0]}' as well; what it does there would change too. Use prune()'s edits")
    made = torch.empty_strided(whole.shape, whole.stride(), dtype=whole.dtype, device=whole.device)
    return made.copy_(whole)


@contextmanager
def _own_config(module: nn.Module) -> Iterator[None]:
    """Saving writes into a model's configuration; within the block it writes into a copy."""
    before: Any = getattr(module, "config", None)
    module.config = copy.deepcopy(before)
    try:
        yield
    finally:
        module.config = before
