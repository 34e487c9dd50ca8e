"""Maps in the form in which a page can carry them.

full: every weight. Beyond that, pooled: the mean over blocks, 64 a side at most, and top: the largest weights of each
row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnprobe.capture import head_numbers
from attnprobe.heads import head_scores
from attnprobe.site import Site
from attnprobe.viewer.groups import Group, Numbered
from attnprobe.viewer.measures import Measures, where
from attnprobe.viewer.packing import SIGNED, Buffer, Scale, scale_of, sixteen
from attnprobe.viewer.sides import Side, side_of

POOLED = 64
TOP = 8
VECTOR_NUMBERS = 600_000  # of queries, keys and values that are carried for the view of one cell


@dataclass(frozen=True)
class Form:
    """How maps are carried: steps of the scale, whether all are full, the heads that are so otherwise.

    top: whether heads that are not full keep their largest weights. vectors: heads in the order in which their queries,
    keys and values are carried, while there is room.
    """

    n: int
    all_full: bool
    full: frozenset[Numbered] = frozenset()
    top: bool = True
    vectors: tuple[Numbered, ...] = ()


class Packer:
    """Puts the maps of a text into one buffer and tells the page's script where they are."""

    def __init__(self, form: Form, measures: Measures) -> None:
        self.form, self.measures, self.buffer = form, measures, Buffer()
        self.sides: list[Side] = []
        self._room = VECTOR_NUMBERS

    def group(self, number: int, group: Group) -> dict[str, Any]:
        """The facts of one group."""
        scale = scale_of([s.need("weights") for s in group.sites], self.form.n)
        effects = [e for s in group.sites if (e := self.measures.effects.get(where(s.place))) is not None]
        effect = scale_of(effects, self.form.n) if effects else None
        effect = effect and replace(effect, signed=True, n=min(effect.n, SIGNED))
        layers = [self._layer(number, group, site, scale, effect) for site in group.sites]
        first = group.sites[0].place
        facts: dict[str, Any] = {"name": group.name, "kind": first.kind, "scale": scale.facts, "layers": layers}
        return facts | ({"effect": effect.facts} if effect else {})

    def _layer(self, number: int, group: Group, site: Site, scale: Scale, effect: Scale | None) -> dict[str, Any]:
        weights = site.need("weights")[0].detach().float().cpu()
        queries, keys = weights.shape[-2:]
        q, k = (self._side(side_of(group.capture, site, w, n)) for w, n in (("query", queries), ("key", keys)))
        facts: dict[str, Any] = {"layer": site.place.layer, "q": q, "k": k}
        table = group.scores[group.scores["layer"] == site.place.layer]
        rows = table.set_index("head")[list(head_scores)].to_dict("index")
        effects = self.measures.effects.get(where(site.place))
        heads = []
        for at, head in enumerate(head_numbers(site)):
            scores = [None if math.isnan(v) else round(v, 4) for v in rows[head].values()]
            entry: dict[str, Any] = {"head": head, "scores": scores}
            full = self.form.all_full or (number, site.place.layer, head) in self.form.full
            entry |= self._map(weights[at], scale, full)
            if effects is not None and effect is not None:
                entry["effect"] = self._map(effects[at], effect, full, like=weights[at])
            if full and site.scores is not None:
                entry["score"] = self._scores(site.scores[0, at])
            heads.append(entry)
        return facts | {"heads": heads} | self._norms(site)

    def vectors(self, found: Sequence[Group], stacks: list[dict[str, Any]]) -> None:
        """Queries, keys and values of the most interesting heads, in 254 even steps, put into their facts."""
        for number, layer, head in self.form.vectors:
            site = next(s for s in found[number].sites if s.place.layer == layer)
            entry = next(e for e in stacks[number]["layers"] if e["layer"] == layer)
            at = head_numbers(site).index(head)
            parts = {
                n: t[0, at].detach().float().cpu()
                for n in ("query", "key", "value")
                if (t := getattr(site, n)) is not None
            }
            self._room -= sum(part.numel() for part in parts.values())
            if self._room < 0 or not parts:
                return
            entry["heads"][at]["vectors"] = {n: self._vector(part) for n, part in parts.items()}

    def _vector(self, part: Tensor) -> list[int | float]:
        peak = float(part.abs().max())
        codes = (part / (peak or 1.0) * 127).round().clamp(-127, 127) + 127
        return [self.buffer.add(codes.to(torch.uint8)), peak, part.shape[-1]]

    def _side(self, side: Side) -> int:
        if side not in self.sides:
            self.sides.append(side)
        return self.sides.index(side)

    def _map(self, values: Tensor, scale: Scale, full: bool, like: Tensor | None = None) -> dict[str, Any]:
        """Where a map is: in full, or its blocks' means and its top keys (those of `like`)."""
        if full:
            return {"full": self.buffer.add(scale.codes(values))}
        size = (min(values.shape[0], POOLED), min(values.shape[1], POOLED))
        pooled = torch.nn.functional.adaptive_avg_pool2d(values[None], size)[0]
        own = replace(scale, peak=float(pooled.abs().max()))  # means are far smaller than the largest weight
        facts: dict[str, Any] = {"pool": self.buffer.add(own.codes(pooled)), "size": list(size), "peak": own.peak}
        if self.form.top:
            keys = (values if like is None else like).abs().topk(min(TOP, values.shape[1]), dim=-1).indices
            facts["top"] = [self.buffer.add(keys.to(torch.int32)), keys.shape[1]]
            self.buffer.add(scale.codes(values.gather(-1, keys)))
        return facts

    def _scores(self, scores: Tensor) -> list[int | float]:
        """Scores before the normalizer in 254 even steps from low to high; code 0 is a key that is hidden."""
        scores = scores.detach().float().cpu()
        seen = torch.isfinite(scores) & (scores > torch.finfo(torch.float32).min / 2)
        known = scores[seen]
        low, high = (float(known.min()), float(known.max())) if known.numel() else (0.0, 0.0)
        codes = ((scores - low) / ((high - low) or 1.0) * 254).round().nan_to_num(0.0, 0.0, 0.0).clamp(0, 254) + 1
        return [self.buffer.add(codes.masked_fill(~seen, 0).to(torch.uint8)), low, high]

    def _norms(self, site: Site) -> dict[str, Any]:
        """Lengths of values, and of what they write, by head and key."""
        facts: dict[str, Any] = {}
        for name, found in (("value", self.measures.values), ("written", self.measures.written)):
            norms = found.get(where(site.place))
            if norms is not None:
                peak = float(norms.max())
                facts[name] = [self.buffer.add(sixteen(norms, peak)), peak]
        return facts
