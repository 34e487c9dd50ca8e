"""Capture: the attention of one forward pass, with the proof that it is what the model used."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from attnprobe.errors import CaptureError, InputError, NumericsError, nearest
from attnprobe.example import Example
from attnprobe.packing import packed_notes, unpacked
from attnprobe.placing import made
from attnprobe.site import BESIDE_TEXT, TENSORS, Kind, Normalizer, Place, RowSum, Site


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
            text = "input_ids" in self.example.inputs
            first = [pair for pair in known if not (text and pair[0] in BESIDE_TEXT)] + known
            stack, kind = next(
                (pair for pair in first if stack in (None, pair[0]) and kind in (None, pair[1])),
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

    def tensor(
        self, name: str, stack: str | None = None, kind: Kind | None = None, part: int | None = None
    ) -> list[Tensor]:
        """One tensor of each layer, [head ...], batch axis removed.

        part: which window, image or block, where layers keep several apart.
        """
        if name not in TENSORS:
            raise InputError(f"a site has no tensor '{name}'; {nearest(name, TENSORS)}")
        sites = self.select(stack, kind)
        parts = sorted({site.place.part for site in sites})
        if part is None and len(parts) > 1:
            raise InputError(
                f"{sites[0].place.stack} {sites[0].place.kind}-attention keeps {len(parts)} parts of a layer apart "
                "(windows, images, blocks); say part=0, or another, or go through capture.sites"
            )
        if part is not None and part not in parts:
            raise InputError(f"there are parts {parts[0]} to {parts[-1]}, got part {part}")
        return [_kept(site, name)[0] for site in sites if part in (None, site.place.part)]

    def weights(
        self, stack: str | None = None, kind: Kind | None = None, part: int | None = None
    ) -> Float[Tensor, "layer head query key"]:
        """Attention weights of a stack whose layers are all of one shape; else use `maps`, by layer."""
        layers = self.maps(stack, kind) if part is None else self.tensor("weights", stack, kind, part)
        if len({tuple(t.shape) for t in layers}) > 1:
            raise InputError(
                f"the layers differ in shape ({tuple(layers[0].shape)}, …); use capture.maps(), a list by layer"
            )
        return torch.stack([layer.to(layers[0].device) for layer in layers])

    def maps(self, stack: str | None = None, kind: Kind | None = None) -> list[Float[Tensor, "head query key"]]:
        """Attention weights of each layer.

        Parts that are rows of one map (Longformer's band and its global rows) are put together; of a layout in other
        parts (ProphetNet's streams) the first, which is the main one, is given.
        """
        sites = self.select(stack, kind)
        joined = _joined(sites)
        if joined is None and all(site.place.route == "layout" for site in sites if site.place.part):
            return [_kept(site, "weights")[0] for site in sites if not site.place.part]
        return self.tensor("weights", stack, kind) if joined is None else joined

    def to_frame(self) -> pd.DataFrame:
        """A row a weight: stack, kind, layer, head, query_index, key_index, weight; part, step where they differ."""
        parts = [_frame_of(site) for site in self.sites if site.weights is not None]
        if not parts:
            raise CaptureError("no weights were kept in this capture; say keep=Keep.of('weights')")
        frame = pd.concat(parts, ignore_index=True)
        return frame.drop(columns=[name for name in ("part", "step") if frame[name].nunique() == 1])

    def save(self, folder: str | Path) -> Path:
        """Write tensors.safetensors and capture.json into a folder; no pickle.

        Of a normalizer only its name and what its rows sum to. Notes that JSON cannot hold are left out with a warning.
        """
        folder = made(Path(folder))
        # Copies: two names of one tensor are not allowed in a file.
        tensors = {name: t.detach().cpu().clone().contiguous() for name, t in self._tensors().items()}
        save_file(tensors, folder / "tensors.safetensors")
        facts: dict[str, Any] = {k: getattr(self.example, k) for k in _EXAMPLE_FACTS}
        record = {
            "model": self.model,
            "edits": self.edits,
            "example": facts | {"notes": packed_notes(self.example.notes)},
            "checks": [asdict(c) for c in self.checks],
            "sites": [_facts_of(site) for site in self.sites],
            "reduced": [{"place": asdict(place), "names": list(found)} for place, found in self.reduced],
        }
        (folder / "capture.json").write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
        return folder

    def _tensors(self) -> dict[str, Tensor]:
        """Every tensor by the name that it has in a file."""
        found = {"logits": self.logits}
        found |= {f"input.{k}": v for k, v in self.example.inputs.items() if isinstance(v, Tensor)}
        for number, site in enumerate(self.sites):
            kept = {name: getattr(site, name) for name in (*TENSORS, "visible")}
            found |= {f"site.{number}.{name}": t for name, t in kept.items() if t is not None}
        for number, (_, statistics) in enumerate(self.reduced):
            found |= {f"reduced.{number}.{name}": torch.as_tensor(t) for name, t in statistics.items()}
        return found

    @classmethod
    def load(cls, folder: str | Path) -> "Capture":
        """Read what `save` wrote; a loaded site shows what was, its normalizer refuses to be called."""
        folder = Path(folder)
        if not (folder / "capture.json").is_file():
            raise InputError(f"{folder} holds no capture.json; give the folder that Capture.save wrote")
        try:
            record = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
            tensors = load_file(folder / "tensors.safetensors")
        except (OSError, ValueError, SafetensorError) as error:
            raise InputError(f"{folder} does not hold a whole capture ({error}); save it again") from error
        facts = record["example"]
        facts["spans"] = tuple(None if s is None else tuple(s) for s in facts["spans"])
        lists = ("tokens", "is_special", "words", "in_pair")
        facts |= {name: tuple(facts[name]) for name in lists if facts[name] is not None}
        facts["notes"] = unpacked(facts.get("notes", {}))
        inputs = {k.removeprefix("input."): v for k, v in tensors.items() if k.startswith("input.")}
        return cls(
            example=Example(inputs=inputs, **facts),
            model=record["model"],
            sites=tuple(_site_of(number, place, tensors) for number, place in enumerate(record["sites"])),
            logits=tensors["logits"],
            checks=tuple(Check(**c) for c in record["checks"]),
            edits=tuple(record["edits"]),
            reduced=tuple(
                (Place(**r["place"]), {name: tensors[f"reduced.{number}.{name}"] for name in r["names"]})
                for number, r in enumerate(record.get("reduced", ()))
            ),
        )


_EXAMPLE_FACTS = ("text", "pair", "in_pair", "tokens", "spans", "is_special", "words", "axis", "n_truncated")


def _facts_of(site: Site) -> dict[str, Any]:
    normalizer = {"name": site.normalizer.name, "row_sum": site.normalizer.row_sum}
    return {"place": asdict(site.place), "normalizer": normalizer, "heads": site.heads}


def _site_of(number: int, facts: dict[str, Any], tensors: dict[str, Tensor]) -> Site:
    kept = {name: tensors.get(f"site.{number}.{name}") for name in (*TENSORS, "visible")}
    heads = None if facts["heads"] is None else tuple(facts["heads"])
    return Site(Place(**facts["place"]), **kept, normalizer=_gone(**facts["normalizer"]), heads=heads)  # type: ignore[arg-type]


def _gone(name: str, row_sum: RowSum) -> Normalizer:
    """What is known of the normalizer of a loaded site: all but what it computes."""

    def refuse(scores: Tensor) -> Tensor:
        raise CaptureError(
            f"this site was loaded from a file, which does not hold its normalizer ('{name}'); "
            "to change scores, capture the example again"
        )

    return Normalizer(name, refuse, row_sum)


def head_numbers(site: Site) -> tuple[int, ...]:
    """The model's numbers of the heads that a site holds."""
    return tuple(range(site.n_heads)) if site.heads is None else site.heads


def _frame_of(site: Site) -> pd.DataFrame:
    weights = site.need("weights")[0].detach().float().cpu()
    _, queries, keys = weights.shape
    index = pd.MultiIndex.from_product(
        [head_numbers(site), range(queries), range(keys)], names=["head", "query_index", "key_index"]
    )
    frame = pd.DataFrame({"weight": weights.reshape(-1).numpy()}, index=index).reset_index()
    place = site.place
    frame.insert(0, "stack", place.stack)
    frame.insert(1, "kind", place.kind)
    frame.insert(2, "layer", place.layer)
    frame.insert(3, "part", place.part)
    frame.insert(4, "step", place.step)
    return frame


def _kept(site: Site, name: str) -> Tensor:
    tensor: Tensor | None = getattr(site, name)
    if tensor is None:
        raise CaptureError(f"{site.place}: '{name}' was not kept, or an edit replaced what it led to")
    return tensor


def _joined(sites: Sequence[Site]) -> list[Tensor] | None:
    """One map a layer from parts that share no row of one map; None where there are no such parts."""
    layers: dict[int, list[Tensor]] = {}
    for site in sites:
        if site.place.part and site.place.route != "layout":
            return None
        layers.setdefault(site.place.layer, []).append(_kept(site, "weights")[0])
    if all(len(parts) == 1 for parts in layers.values()):
        return None
    joined = []
    for parts in layers.values():
        if len({tuple(part.shape) for part in parts}) > 1:
            return None
        if bool((sum((part.abs().sum(-1) > 0).int() for part in parts) > 1).any()):  # type: ignore[union-attr, attr-defined]
            return None
        joined.append(torch.stack(parts).sum(0))
    return joined


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
