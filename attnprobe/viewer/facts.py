"""A capture as the viewer's script reads it: names, scores, and all maps in one buffer of bytes."""

from collections.abc import Sequence
from typing import Any

from attnprobe.appearance import NARROW_SPACE, number
from attnprobe.capture import Capture
from attnprobe.heads import head_scores
from attnprobe.viewer.carrying import TOP, Form, Packer
from attnprobe.viewer.groups import FULL_WEIGHTS, Group, Numbered, chosen, fitting, groups, is_long, numbered
from attnprobe.viewer.measures import Measures
from attnprobe.viewer.nouns import nouns_of
from attnprobe.viewer.packing import BUDGET, STEPS, Budget, Scale, as_text
from attnprobe.viewer.sides import picture_of

# Compressed bytes above which a single text takes coarser steps, so that a page stays below 2 MB.
ONE_TEXT = 1_250_000
SMALL = "The maps of the texts before this one fill the page; a report of this text alone shows its maps."
NO_ROOM = "The maps of this text do not fit into the bytes that the page was given for maps (map_bytes)."
TOO_LARGE = (
    "This text’s attention is too large to be kept for a page; capture() with the layers that you want gives it."
)
NOTHING = Measures()


def score_facts() -> list[dict[str, str]]:
    """The registered head scores: name, label, unit, description."""
    return [
        {"name": e.name, "label": e.facts["label"], "unit": e.facts["unit"], "description": e.description}
        for e in head_scores.values()
    ]


def facts(
    capture: Capture,
    budget: Budget | None = None,
    *,
    beside: Measures = NOTHING,
    first: Sequence[tuple[str, str, int, int]] = (),
    every_step: bool = False,
) -> tuple[dict[str, Any], str]:
    """What the viewer shows of one capture, and why there is nothing where there is nothing ({}).

    budget: compressed bytes that are left on the page. first: heads (stack, kind, layer, head) that stay full on long
    texts, the first of them opened. every_step: later passes of a generation too.
    """
    budget = Budget(BUDGET) if budget is None else budget
    size = sum(s.weights[0].numel() for s in capture.sites if s.weights is not None)
    said = nouns_of([capture.example]).said
    if not size:
        return {}, said(TOO_LARGE)
    full_page = said(NO_ROOM if budget.left == budget.given else SMALL)
    if budget.refuses(size):
        return {}, full_page
    found = groups(capture, every_step)
    wanted = numbered(found, first)
    for form in _forms(found, wanted, budget.left):
        packer = Packer(form, beside)
        stacks = [packer.group(i, g) for i, g in enumerate(found)]
        packer.vectors(found, stacks)
        data = packer.buffer.packed()
        if len(data) > ONE_TEXT and form.all_full and form.n > STEPS[-1]:
            continue
        if budget.take(len(data)):
            return _told(capture, packer, stacks, data, wanted), ""
    budget.refused = size
    return {}, full_page


def _forms(found: Sequence[Group], wanted: Sequence[Numbered], left: int) -> list[Form]:
    """How the maps may be carried, the best first."""
    size = sum(s.need("weights")[0].numel() for g in found for s in g.sites)
    long = is_long(found) and size > FULL_WEIGHTS
    # Ranking the heads takes time; where all are full, it only tells whose vectors come first.
    ranked = long or any(s.query is not None for g in found for s in g.sites)
    order = chosen(found, wanted) if ranked else tuple(wanted)
    full = [] if long or size > 8 * left else [Form(n, True, vectors=order) for n in STEPS]
    some, least = fitting(found, order), fitting(found, order[:1])
    return [
        *full,
        Form(STEPS[0], False, some, vectors=order[: len(some)]),
        Form(STEPS[2], False, least),
        Form(STEPS[2], False, top=False),
    ]


def _told(
    capture: Capture, packer: Packer, stacks: list[dict[str, Any]], data: bytes, wanted: Sequence[Numbered]
) -> dict[str, Any]:
    beside, form = packer.measures, packer.form
    told: dict[str, Any] = {
        "stacks": stacks,
        "sides": [side.facts() for side in packer.sides],
        "bytes": as_text(data),
        "rounding": rounding(form.n, max(float(stack["scale"]["peak"]) for stack in stacks)),
        "notes": [*([] if form.all_full else [nouns_of([capture.example]).said(kept(form))]), *beside.notes],
        "target": beside.target,
    }
    if wanted:
        told["open"] = list(wanted[0])
    picture = picture_of(capture.example)
    return told | ({"picture": picture} if picture else {})


def rounding(n: int, peak: float = 1.0) -> str:
    """What the page rounds, in words; peak: the largest weight.

    >>> "off by at most 0.39_% at 100_%, 0.12_% at 10_%, 0.04_% at 1_%;" in rounding(255).replace(NARROW_SPACE, "_")
    True
    """
    scale = Scale(peak, n)
    ends = [f"{_short(scale.error(at))} at {_short(at)}" for at in (peak, peak / 10, peak / 100)]
    return (
        f"Weights are drawn from {n} steps that are even in their square root, off by at most {', '.join(ends)}; "
        "a weight that is not 0 is never drawn as 0. Tables hold full precision."
    )


def _short(share: float) -> str:
    """A share in percent with two digits."""
    text = number(float(f"{100 * share:.2g}"), 6)
    return (text.rstrip("0").rstrip(".") or "0") + NARROW_SPACE + "%"


def kept(form: Form) -> str:
    """Which heads are carried in full, in words."""
    few = "No head is kept in full"
    if form.full:
        few = f"{len(form.full)} heads, the highest by each score, are kept in full (a dot marks them)"
    rest = f"by the {TOP} largest weights of each row" if form.top else "no further"
    return f"A long text: every head is an overview averaged over blocks. {few}; the others are known {rest}."
