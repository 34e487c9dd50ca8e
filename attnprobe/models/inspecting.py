"""inspect(): what there is to probe in a model, layer by layer, and what there is not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.models import load
from attnprobe.models.model import Model, Stack, facts_of
from attnprobe.models.path_patterns import families, numbers, path_pattern
from attnprobe.models.rows import Row

if TYPE_CHECKING:
    from attnprobe.models.huggingface.mapless import Mapless

# How attention is reached, in words.
ROUTES = {
    "registry": "through transformers' attention registry",
    "softmax": "watched at the model's own softmax",
    "sdpa": "computed beside the fused kernel that the model calls",
    "layout": "laid out from the blocks or samples that the model computes",
    "seam": "built on attnprobe's own attention",
}
UNSEEN = (
    "attention that could not be reached (edits are refused, captures fail; try attn_implementation='eager', or see "
    "the rest with check='warn'):"
)
BLANK = "modules that call themselves attention and showed no weights (no softmax over keys, or no attention at all):"
MADE_UP = "an input made up for it"
COLUMNS = ("stack", "kind", "layer", "n_heads", "n_kv_heads", "n_parts", "route", "path", "missing")


@dataclass(frozen=True)
class Inspection:
    """What there is to probe in a model, as one input showed it; printed, it is a table.

    architecture: class of the network. implementation: of its attention, as the configuration names it. probed: the
    input that was looked at, in words. mapless: layers that mix positions without attention weights. unseen: paths of
    attention that could not be reached; blank: of modules that call themselves attention and showed no weights.
    reason: why no attention could be shown, None where it was or there is none.
    """

    model: str
    architecture: str
    n_parameters: int
    dtype: str
    implementation: str
    probed: str
    stacks: tuple[Stack, ...] = ()
    mapless: "tuple[Mapless, ...]" = ()
    unseen: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    reason: str | None = None

    def to_frame(self) -> pd.DataFrame:
        """A row a layer: stack, kind, layer, n_heads, n_kv_heads, n_parts, route, path, missing (names of tensors)."""
        return pd.DataFrame([row for stack in self.stacks for row in _layers(stack)], columns=list(COLUMNS))

    def __str__(self) -> str:
        parts = (self._attention(), self._without_weights(), self._out_of_reach(), self._facts())
        return "\n\n".join(part for part in parts if part)

    def _attention(self) -> str:
        if not self.stacks:
            return f"attention weights: {self.reason or 'none'}"
        rows = [row for stack in self.stacks for row in _rows(stack)]
        routes = dict.fromkeys(str(row["route"]) for row in rows)
        legend = [f"route {name}: {ROUTES[name]}" for name in routes if name in ROUTES]
        if any(row["parts"] != "1" for row in rows):
            legend.append("parts: images, windows or blocks that a layer keeps apart on this input")
        return "\n".join([_table(rows), "", *legend])

    def _without_weights(self) -> str:
        kinds: dict[tuple[str, str], list[str]] = {}
        for layer in self.mapless:
            kinds.setdefault((layer.layer_class, layer.reason), []).append(layer.path)
        rows = [
            {"count": str(len(family)), "class": name, "path": path_pattern(family) or "the model itself", "what": what}
            for (name, what), paths in kinds.items()
            for family in families(paths)
        ]
        if rows:
            return f"layers without attention weights:\n{_table(rows)}"
        return "" if self.stacks or self.reason else "No softmax over keys ran, and no module calls itself attention."

    def _out_of_reach(self) -> str:
        """Paths that were not seen, under what to do about them."""
        lists = [
            "\n".join([head, *(f"  {path_pattern(family) or 'the model itself'}" for family in families(paths))])
            for head, paths in ((UNSEEN, self.unseen), (BLANK, self.blank))
            if paths
        ]
        return "\n\n".join(lists)

    def _facts(self) -> str:
        name = "" if self.model == self.architecture else f"{self.model}, "
        implementation = f", attention: {self.implementation}" if self.stacks else ""
        what = f"{self.architecture}, {self.n_parameters:,} parameters, {self.dtype}"
        return f"model: {name}{what}{implementation}\ninput: {self.probed}"


def inspect(model: Any, example: Any = None, **options: Any) -> Inspection:
    """What there is to probe in a model: its stacks, layers and heads, how they are reached, and what is missing.

    model: anything that `load` takes, options as well. example: an input of your own, where no short input is known, or
    where its size matters (windows, images).
    Errors: `InputError` for what is no model, or an example that it does not read. A model whose attention cannot be
    shown is none: `reason` says why.
    """
    loaded = load(model, **options)
    stacks: tuple[Stack, ...] = ()
    probed, reason = MADE_UP if example is None else "an input of your own", None
    try:
        stacks, probed = _seen(loaded, example)
    except InputError as error:
        if example is not None:
            raise
        probed, reason = "no input", str(error)
    except CaptureError as error:
        reason = None if _attends_nowhere(loaded) else str(error)
    absent: dict[str, Any] = {
        "mapless": tuple(loaded.mapless),
        "unseen": tuple(loaded.unseen),
        "blank": tuple(loaded.blank),
    }
    return Inspection(model=loaded.name, probed=probed, stacks=stacks, reason=reason, **_facts(loaded), **absent)


def _seen(model: Model, given: Any) -> tuple[tuple[Stack, ...], str]:
    """The stacks that a pass of an input shows, by default (None) a short one, and the input in words."""
    from attnprobe.models.huggingface.model import HuggingFaceModel
    from attnprobe.models.huggingface.probing import probe_example

    if given is not None:
        example = model.example(given)
        return _stacks_of(model, example), _in_words(example)
    if not isinstance(model, HuggingFaceModel):
        return model.stacks, "a short input of its own"
    made = probe_example(model)
    if made is None:
        raise InputError(
            f"{model.name}: no short input is known for such a model; give one of your own (example=, or --text)"
        )
    return _stacks_of(model, made), f"{MADE_UP}: {_shapes(made)}"


def _stacks_of(model: Model, example: Example) -> tuple[Stack, ...]:
    tape = Tape(keep=Keep(reduce=facts_of), check=False, n_rows=1)
    with torch.no_grad():
        model.forward([Row(example)], tape)
    return Stack.of_pass(tape)


def _in_words(example: Example) -> str:
    """The input of the caller's own: how a text begins, or what else it is, and its tensors."""
    text = example.text if len(example.text) <= 40 else f"{example.text[:39]}…"
    shown = repr(text) if example.axis in ("source", "target") else text
    return f"{shown}: {_shapes(example)}"


def _shapes(example: Example) -> str:
    sizes = {name: list(value.shape) for name, value in example.inputs.items() if isinstance(value, Tensor)}
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _attends_nowhere(model: Model) -> bool:
    """Whether nothing in a model that showed no attention can be attention with weights.

    What calls itself attention and is a layer without weights, or a part of one, or around one, is none.
    """
    from attnprobe.models.huggingface.runs import is_attention

    known = [layer.path for layer in model.mapless]
    named = [path for path, part in model.module.named_modules() if is_attention(part)]
    accounted = all(any(_within(path, k) or _within(k, path) for k in known) for path in named)
    return accounted and not model.unseen


def _within(path: str, outer: str) -> bool:
    return path == outer or not outer or path.startswith(f"{outer}.")


def _facts(model: Model) -> dict[str, Any]:
    """What is known of a model without running it."""
    parameters = list(model.module.parameters())
    sizes: Counter[str] = Counter()
    for parameter in parameters:
        sizes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    configs = [getattr(part, "config", None) for part in model.module.modules()]
    named = dict.fromkeys(getattr(config, "_attn_implementation", None) for config in configs)
    return {
        "architecture": type(model.module).__name__,
        "n_parameters": sum(sizes.values()),
        "dtype": sizes.most_common(1)[0][0] if sizes else "no dtype",
        "implementation": " and ".join(str(name) for name in named if name) or "its own",
    }


def _layers(stack: Stack) -> list[dict[str, Any]]:
    """A row of `COLUMNS` for each layer; a model of somebody's own need not say more than heads and paths."""
    n = stack.n_layers
    columns = {
        "stack": [stack.name] * n,
        "kind": [stack.kind] * n,
        "layer": range(n),
        "n_heads": stack.n_heads,
        "n_kv_heads": stack.n_kv_heads or stack.n_heads,
        "n_parts": stack.n_parts or [1] * n,
        "route": stack.routes or ["seam"] * n,
        "path": stack.paths,
        "missing": [", ".join(names) for names in stack.missing or [()] * n],
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _rows(stack: Stack) -> list[dict[str, str]]:
    """Layers that are alike in all but their numbers, as one row of text."""
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for layer in _layers(stack):
        key = tuple(layer[name] for name in COLUMNS if name not in ("layer", "path"))
        alike.setdefault(key, []).append(layer)
    found = []
    for layers in alike.values():
        for family in families([layer["path"] for layer in layers]):
            found.append([layer for layer in layers if layer["path"] in family])
    return [_row(family) for family in sorted(found, key=lambda family: family[0]["layer"])]


def _row(family: Sequence[dict[str, Any]]) -> dict[str, str]:
    first, paths = family[0], [layer["path"] for layer in family]
    n_heads, n_kv_heads = first["n_heads"], first["n_kv_heads"]
    n_calls, n_modules = len(paths), len(set(paths))
    shared = f" ({n_calls} calls of {n_modules} module{'s'[: n_modules - 1]})" if n_calls > n_modules else ""
    return {
        "stack": first["stack"],
        "kind": first["kind"],
        "layers": numbers(layer["layer"] for layer in family),
        "heads": f"{n_heads}" if n_kv_heads == n_heads else f"{n_heads} on {n_kv_heads} kv",
        "parts": str(first["n_parts"]),
        "route": first["route"],
        "not seen": first["missing"],
        "path": (path_pattern(paths) or "the model itself") + shared,
    }


def _table(rows: Sequence[dict[str, str]]) -> str:
    """Rows under their names, two spaces between; parts and what is not seen only where there is such a thing."""
    dull = {"parts": "1", "not seen": ""}
    names = [name for name in rows[0] if any(row[name] != dull.get(name) for row in rows)]
    cells = [names, *([row[name] or "-" for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)
