"""What stands beside the weights: lengths of values, of what they write, and what the target owes to each weight."""

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.capture import Capture, head_numbers
from attnprobe.errors import AttnprobeError
from attnprobe.methods.attention_gradient import weight_gradients
from attnprobe.models.model import Model
from attnprobe.models.projections import projections
from attnprobe.site import Place, Site
from attnprobe.target import ResolvedTarget

Where = tuple[str, str, int, int, int]


def where(place: Place) -> Where:
    """What tells sites of one capture apart."""
    return place.stack, place.kind, place.layer, place.part, place.step


@dataclass(frozen=True)
class Measures:
    """By place: |v| and |v W_O| of each head and key, attention × gradient of each weight; notes: what is missing."""

    values: dict[Where, Float[Tensor, "head key"]] = field(default_factory=dict)
    written: dict[Where, Float[Tensor, "head key"]] = field(default_factory=dict)
    effects: dict[Where, Float[Tensor, "head query key"]] = field(default_factory=dict)
    target: str = ""
    notes: tuple[str, ...] = ()


def measures(capture: Capture, model: Model | None = None, target: ResolvedTarget | None = None) -> Measures:
    """All that is known beside the weights.

    Lengths of values need values in the capture, or the model, which is then run again where nothing was edited. What
    they write needs the model as well, effects a target.
    """
    notes: list[str] = []
    sites = {where(s.place): s for s in capture.sites if s.value is not None}
    if model is not None and not sites and not capture.edits:
        again = model.capture(capture.example, keep=Keep.of("value"))
        sites = {where(s.place): s for s in again.sites}
    values = {at: _of(site, site.need("value")[0]).norm(dim=-1) for at, site in sites.items()}
    written, effects = {}, {}
    if model is not None and sites:
        try:
            written = _written(model, capture, sites)
        except AttnprobeError as error:
            notes.append(f"What values write is not shown: {error}")
    if model is not None and target is not None:
        if capture.edits:
            notes.append("Effects are not shown: the capture was edited, and they are those of the model as it is.")
        else:
            try:
                effects = _effects(model, capture, target)
            except AttnprobeError as error:
                notes.append(f"Effects are not shown: {error}")
    return Measures(values, written, effects, target.description if target and effects else "", tuple(notes))


def _of(site: Site, tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu()


def _written(model: Model, capture: Capture, sites: dict[Where, Site]) -> dict[Where, Any]:
    """|v W_O| of each head and key: times a weight, it is the length of what the key writes (Kobayashi et al. 2020)."""
    found = {(p.stack, str(p.kind), p.layer): p for p in projections(model)}
    norms = {}
    for at, site in sites.items():
        projection = found.get(at[:3])
        if projection is None:
            continue
        value = _of(site, site.need("value")[0])
        matrix = projection.need("W_O").detach().float().cpu()[list(head_numbers(site))]
        norms[at] = (value @ matrix).norm(dim=-1)
    return norms


def _effects(model: Model, capture: Capture, target: ResolvedTarget) -> dict[Where, Any]:
    wanted = {where(s.place): list(head_numbers(s)) for s in capture.sites}
    found = weight_gradients(model, capture.example, target)
    effects = {where(g.place): g.product.float().cpu() for g in found}
    return {at: effect[wanted[at]] for at, effect in effects.items() if at in wanted}
