"""One model type: built, captured, checked, edited, restored."""

from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

import attnprobe
from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import AttnprobeError
from attnprobe.example import Example
from attnprobe.site import Site
from benchmarks.covering.references import (
    largest_difference,
    nearest_map,
    own_functions,
    own_maps,
    readers_of,
    without_head,
)
from benchmarks.tiny_models import Built, NotBuilt, build
from benchmarks.tiny_models.outputs import tensors

KEPT = ("weights", "value", "z")
# Bars: an edit against the projection's input; z against weights @ value where the model offers no map.
CLOSE = 1e-5


@dataclass(frozen=True)
class Measured:
    """One row of coverage.csv. attention: whether any attention ran. sites: how many. exact: whether all held.

    max_weights_diff: to the model's own maps, or its own eager functions, or |weights @ value - z| relative to z where
    it offers neither (reference says which). max_logits_diff: over all outputs, with and without capture. edit_diff:
    one head silenced at the seam against its part of the projection's input set to zero, relative to the outputs.
    """

    model_type: str
    model_class: str = ""
    built: bool = False
    attention: bool = False
    sites: int = 0
    exact: bool = False
    max_weights_diff: float | str = ""
    max_logits_diff: float | str = ""
    edit_diff: float | str = ""
    restored: bool | str = ""
    route: str = ""
    reason: str = ""
    reference: str = ""


COLUMNS = tuple(f.name for f in fields(Measured))


def measure(model_type: str) -> Measured:
    """Build a type and measure it; what fails is a reason, never an exception."""
    row = Measured(model_type)
    try:
        built = build(model_type)
    except NotBuilt as error:
        return replace(row, reason=_line(error))
    row = replace(row, built=True, model_class=built.model_class)
    # Some models draw: samples of keys, noise of a decoder. Every pass draws the same.
    built.module.register_forward_pre_hook(lambda *_: torch.manual_seed(0) and None)
    own_maps(built)  # the first time, transformers leaves hooks of its own on the model
    before = _state(built)
    try:
        row = _captured(row, built)
    except AttnprobeError as error:
        row = replace(row, reason=f"{type(error).__name__}: {_line(error)}")
    except Exception as error:
        row = replace(row, attention=True, reason=f"crash: {type(error).__name__}: {_line(error)}")
    restored = _state(built) == before
    return replace(row, restored=restored, exact=row.exact and restored)


def example_of(built: Built) -> Example:
    """The inputs of a tiny model as an example; what its tokens are called does not matter here."""
    ids = built.inputs.get("input_ids")
    n = ids.shape[-1] if isinstance(ids, Tensor) else 1
    return Example("tiny", built.inputs, ("x",) * n, (None,) * n, (False,) * n, (None,) * n)


def _captured(row: Measured, built: Built) -> Measured:
    model = attnprobe.load(built.module)
    try:
        capture = model.capture(example_of(built), keep=Keep.of(*KEPT), check="full")
    except AttnprobeError as error:
        return replace(row, attention=_attends(built, model), reason=f"{type(error).__name__}: {_line(error)}")
    row = replace(
        row, attention=True, sites=len(capture.sites), route="+".join(sorted({s.place.route for s in capture.sites}))
    )
    sites = _whole_sites(built, model)
    row = _with_weights(row, built, sites)
    row = replace(row, max_logits_diff=_outputs_difference(built, model))
    row = _with_edit(row, built, model, sites)
    return replace(row, exact=not row.reason and _exact(row), reason=row.reason or _why_not(row))


def _with_weights(row: Measured, built: Built, sites: list[Site]) -> Measured:
    maps = own_maps(built)
    with torch.no_grad(), own_functions() as called:
        built.module(**built.inputs)
    worst, used = 0.0, set()
    for site in sites:
        weights = site.need("weights")
        found = {"output_attentions": nearest_map(weights, maps), "own function": nearest_map(weights, called)}
        reference = min(found, key=lambda name: found[name])
        # The own functions of some models return weights from before a sink took its share.
        comparable = site.place.route == "registry" and site.normalizer.row_sum == "one"
        offered = found[reference] == 0.0 or (comparable and found[reference] < float("inf"))
        if not offered:
            reference = "weights @ value"
            z = site.need("z")
            found[reference] = largest_difference(weights @ site.need("value"), z) / max(1.0, float(z.abs().max()))
        worst = max(worst, found[reference])
        used.add(reference)
    missing = [found for found in maps if _missed(found, sites)]
    reason = f"{len(missing)} of {len(maps)} maps of its own were not captured" if missing else ""
    return replace(row, max_weights_diff=worst, reference="+".join(sorted(used)), reason=reason)


def _missed(found: Tensor, sites: list[Site]) -> bool:
    """Whether a map that the model gives out is one that was not captured; of a layout, sums need not be bit-equal."""
    rivals = [site for site in sites if site.need("weights").shape == found.shape]
    laid_out = [site.need("weights") for site in rivals if site.place.route == "layout"]
    sums = float(found.sum(-1).min())
    if not rivals or (len(laid_out) == len(rivals) and sums < 1 - 1e-3):
        return False  # cut, or in axes of its own (sampled points, bands): no key map to compare with
    if all(site.normalizer.row_sum == "at_most_one" for site in rivals) and sums > 1 - 1e-3:
        return False  # from before a sink took its share
    if nearest_map(found, [site.need("weights") for site in rivals]) == 0.0:
        return False
    # The model may give the rows of sampled queries in the order of the sample.
    return min((_farthest_row(found, weights) for weights in laid_out), default=1.0) > CLOSE


def _farthest_row(found: Tensor, weights: Tensor) -> float:
    """How far the worst row of a map is from the nearest row of the same head of another."""
    distances = torch.cdist(found.flatten(0, 1).double(), weights.flatten(0, 1).double(), p=float("inf"))
    return float(distances.min(-1).values.max())


def _attends(built: Built, model: Any) -> bool:
    """Whether any attention runs, seen or not, in a model whose capture was refused."""
    tape = Tape(n_rows=1, keep=Keep(frozenset()), check=False)
    with torch.no_grad(), model.listening(tape):
        built.module(**built.inputs)
    return bool(tape.seen or model.unseen)


def _whole_sites(built: Built, model: Any) -> list[Site]:
    """Every site as the pass made it, windows and images in one batch axis."""
    whole: list[Site] = []

    def keep(site: Site) -> dict[str, Tensor]:
        whole.append(site)
        return {}

    with torch.no_grad(), model.listening(Tape(n_rows=1, keep=Keep(reduce=keep))):
        built.module(**built.inputs)
    return whole


def _outputs_difference(built: Built, model: Any) -> float:
    with torch.no_grad():
        plain = list(tensors(built.module(**built.inputs)))
    with torch.no_grad(), model.listening(Tape(n_rows=1)):
        listened = list(tensors(built.module(**built.inputs)))
    return max((largest_difference(a, b) for a, b in zip(listened, plain, strict=True)), default=float("inf"))


def _with_edit(row: Measured, built: Built, model: Any, whole: list[Site]) -> Measured:
    """One head silenced at the seam against the plain model with that head's part of the projection's input at zero."""
    read = ((site, readers_of(built, site.need("z"))) for site in whole)
    site, readers = next((found for found in read if found[1]), (whole[0], []))
    head = site.n_heads - 1
    edit = _Silence(site.place, head)
    with torch.no_grad(), model.listening(Tape(n_rows=1, edits=[edit], keep=Keep(frozenset()))):
        edited = list(tensors(built.module(**built.inputs)))
    if not readers:
        return replace(row, edit_diff="", reference=f"{row.reference}; nothing reads z whole")
    expected = without_head(built, readers, site.need("z"), head)
    pairs = list(zip(edited, expected, strict=True))
    size = max(1.0, *(float(b.abs().max()) for _, b in pairs if b.numel() and b.is_floating_point()))
    return replace(row, edit_diff=max(largest_difference(a, b) for a, b in pairs) / size)


@dataclass(frozen=True, eq=False)
class _Silence:
    """One head of one site set to zero."""

    place: Any
    head: int

    def acts_at(self, place: Any) -> bool:
        return place == self.place

    def __call__(self, site: Site) -> Site:
        weights = site.need("weights").clone()
        weights[:, self.head] = 0
        return site.replace(weights=weights)


def _exact(row: Measured) -> bool:
    map_offered = "weights @ value" not in row.reference
    weights = float(row.max_weights_diff) == 0.0 if map_offered else float(row.max_weights_diff) <= CLOSE
    return weights and float(row.max_logits_diff) == 0.0 and (row.edit_diff == "" or float(row.edit_diff) <= CLOSE)


def _why_not(row: Measured) -> str:
    return "" if _exact(row) else "a difference is too large"


def _state(built: Built) -> tuple[Any, ...]:
    """What must be as it was: outputs, hooks, modes, configuration, the registry, the random state."""
    hooks = sum(_n_hooks(part) for part in built.module.modules())
    with torch.no_grad():
        outputs = [t.clone() for t in tensors(built.module(**built.inputs))]
    config = getattr(built.module, "config", None)
    return (
        hooks,
        any(part.training for part in built.module.modules()),
        str(config.to_dict()) if isinstance(config, PretrainedConfig) else "",
        AttentionInterface.get_interface,
        torch.get_rng_state().numpy().tobytes(),
        _Bits(outputs),
    )


@dataclass(eq=False)
class _Bits:
    outputs: list[Tensor]

    def __eq__(self, other: object) -> bool:
        pairs = (
            zip(self.outputs, other.outputs, strict=True)
            if isinstance(other, _Bits)
            else [(torch.ones(1), torch.zeros(1))]
        )
        return all(torch.equal(a, b) for a, b in pairs)


def _n_hooks(part: nn.Module) -> int:
    return len(part._forward_hooks) + len(part._forward_pre_hooks) + len(part._backward_hooks)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def row_of(measured: Measured) -> tuple[Any, ...]:
    """A row of the table, numbers as they are."""
    return astuple(measured)
