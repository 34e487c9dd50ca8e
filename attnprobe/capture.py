"""Capture: the attention of one forward pass, with the proof that it is what the model used."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor

from attnprobe.errors import CaptureError, InputError, NumericsError, nearest
from attnprobe.example import Example
from attnprobe.site import TENSORS, Kind, Place, Site


@dataclass(frozen=True)
class Check:
    """One measurement of a self-check: its value, the largest value that is all right, and whether it passed.

    reused: measured in an earlier capture of the same model and configuration, not again in this one.
    """

    name: str
    where: str
    value: float
    tolerance: float
    reused: bool = False

    @property
    def passed(self) -> bool:
        """Whether the value is within the tolerance (a NaN is not)."""
        return self.value <= self.tolerance

    def __str__(self) -> str:
        return f"{self.name} at {self.where}: {self.value:.3g}, allowed {self.tolerance:.3g}"


@dataclass(frozen=True, eq=False)
class Capture:
    """What was kept of one forward pass of one example.

    sites: in the order in which they ran, batch axis 1. reduced: statistics in place of tensors.
    logits: of this pass, edits included, batch axis 1. checks: what was measured. edits: what was changed.
    """

    example: Example
    model: str
    sites: tuple[Site, ...] = field(repr=False)
    logits: Tensor = field(repr=False)
    checks: tuple[Check, ...] = field(repr=False)
    edits: tuple[str, ...] = ()
    reduced: tuple[tuple[Place, dict[str, Tensor]], ...] = field(default=(), repr=False)

    def stacks(self) -> list[tuple[str, Kind]]:
        """The (stack, kind) pairs that were kept, in order."""
        return list(dict.fromkeys((s.place.stack, s.place.kind) for s in self.sites))

    def select(self, stack: str | None = None, kind: Kind | None = None) -> list[Site]:
        """The sites of one stack and kind. None: the only one there is, or the one of the explained axis."""
        if not self.sites:
            raise CaptureError("nothing was kept in this capture; say keep=Keep.of('weights')")
        known = self.stacks()
        if stack is None or kind is None:
            stack, kind = next(
                (pair for pair in known if stack in (None, pair[0]) and kind in (None, pair[1])),
                (str(stack), kind or "self"),
            )
        if (stack, kind) not in known:
            raise InputError(
                f"no {kind}-attention was kept of a stack '{stack}'; {nearest(stack, [f'{s} ({k})' for s, k in known])}"
            )
        return [s for s in self.sites if (s.place.stack, s.place.kind) == (stack, kind)]

    def only(self, stack: str, kind: Kind) -> "Capture":
        """The same capture with the sites of one stack and kind alone."""
        return replace(self, sites=tuple(self.select(stack, kind)))

    def tensor(self, name: str, stack: str | None = None, kind: Kind | None = None) -> list[Tensor]:
        """One tensor of each layer, [head ...], batch axis removed."""
        if name not in TENSORS:
            raise InputError(f"a site has no tensor '{name}'; {nearest(name, TENSORS)}")
        found = []
        for site in self.select(stack, kind):
            tensor = getattr(site, name)
            if tensor is None:
                raise CaptureError(f"{site.place}: '{name}' was not kept, or an edit replaced what it led to")
            found.append(tensor[0])
        return found

    def weights(self, stack: str | None = None, kind: Kind | None = None) -> Float[Tensor, "layer head query key"]:
        """Attention weights of a stack whose layers are all of one shape; else use `tensor`, by layer."""
        layers = self.tensor("weights", stack, kind)
        if len({tuple(t.shape) for t in layers}) > 1:
            raise InputError(
                f"the layers differ in shape ({layers[0].shape}, …); use capture.tensor('weights'), a list by layer"
            )
        return torch.stack(layers)

    def to_frame(self) -> pd.DataFrame:
        """A row a weight: stack, kind, layer, head, query_index, key_index, weight."""
        parts = [_frame_of(site) for site in self.sites if site.weights is not None]
        if not parts:
            raise CaptureError("no weights were kept in this capture; say keep=Keep.of('weights')")
        return pd.concat(parts, ignore_index=True)

    def save(self, folder: str | Path) -> Path:
        """Write tensors.safetensors and capture.json into a folder; no pickle."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"logits": self.logits.detach().contiguous().cpu()}
        tensors |= {f"input.{k}": v.contiguous().cpu() for k, v in self.example.inputs.items() if isinstance(v, Tensor)}
        for number, site in enumerate(self.sites):
            for name in (*TENSORS, "visible"):
                tensor = getattr(site, name)
                if tensor is not None:
                    tensors[f"site.{number}.{name}"] = tensor.detach().clone().contiguous().cpu()
        save_file(tensors, folder / "tensors.safetensors")
        facts: dict[str, Any] = {k: getattr(self.example, k) for k in _EXAMPLE_FACTS}
        record = {
            "model": self.model,
            "edits": self.edits,
            "example": facts,
            "checks": [asdict(c) for c in self.checks],
            "sites": [asdict(s.place) | {"row_sum": s.normalizer.row_sum} for s in self.sites],
        }
        (folder / "capture.json").write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Capture":
        """Read what `save` wrote."""
        folder = Path(folder)
        if not (folder / "capture.json").is_file():
            raise InputError(f"{folder} holds no capture.json; give the folder that Capture.save wrote")
        record = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "tensors.safetensors")
        facts = record["example"]
        facts["spans"] = tuple(None if s is None else tuple(s) for s in facts["spans"])
        lists = ("tokens", "is_special", "words", "in_pair")
        facts |= {name: tuple(facts[name]) for name in lists if facts[name] is not None}
        inputs = {k.removeprefix("input."): v for k, v in tensors.items() if k.startswith("input.")}
        return cls(
            example=Example(inputs=inputs, **facts),
            model=record["model"],
            sites=tuple(_site_of(number, place, tensors) for number, place in enumerate(record["sites"])),
            logits=tensors["logits"],
            checks=tuple(Check(**c) for c in record["checks"]),
            edits=tuple(record["edits"]),
        )


_EXAMPLE_FACTS = ("text", "pair", "in_pair", "tokens", "spans", "is_special", "words", "axis", "n_truncated")


def _site_of(number: int, facts: dict[str, Any], tensors: dict[str, Tensor]) -> Site:
    facts = {k: v for k, v in facts.items() if k != "row_sum"}
    kept = {name: tensors.get(f"site.{number}.{name}") for name in (*TENSORS, "visible")}
    return Site(Place(**facts), **kept)  # type: ignore[arg-type]


def _frame_of(site: Site) -> pd.DataFrame:
    weights = site.need("weights")[0].detach().float().cpu()
    heads, queries, keys = weights.shape
    index = pd.MultiIndex.from_product(
        [range(heads), range(queries), range(keys)], names=["head", "query_index", "key_index"]
    )
    frame = pd.DataFrame({"weight": weights.reshape(-1).numpy()}, index=index).reset_index()
    place = site.place
    frame.insert(0, "stack", place.stack)
    frame.insert(1, "kind", place.kind)
    frame.insert(2, "layer", place.layer)
    return frame


def require(checks: Iterable[Check]) -> None:
    """Raise a `CaptureError` that names the first failed check, with its place and both numbers."""
    failed = [check for check in checks if not check.passed]
    if failed:
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise CaptureError(f"what was captured is not what the model used: {failed[0]}{more}")


def finite(where: str, values: Tensor) -> Tensor:
    """The values, or a `NumericsError` that counts what is not finite and says where it appeared."""
    if not torch.isfinite(values).all():
        bad = int((~torch.isfinite(values)).sum())
        raise NumericsError(f"{where}: {bad} of {values.numel()} values are NaN or infinite; try float32 or bfloat16")
    return values
