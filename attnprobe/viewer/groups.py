"""The maps of a capture, one stack after the other: one map a layer, or one for each window, picture or step."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import pandas as pd

from attnprobe.capture import Capture
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.heads import head_scores, score_heads
from attnprobe.heads.whole import whole
from attnprobe.site import Site

LONGEST = 128  # tokens a side up to which every map is kept in full
FULL_WEIGHTS = 2_400_000  # of the heads that stay full where the others do not
RANKS = 8  # places of each score that are asked for
WORDS = {"self": "self-attention", "cross": "cross-attention"}

Numbered = tuple[int, int, int]  # group, layer, head


@dataclass(frozen=True, eq=False)
class Group:
    """The sites of one stack, kind, step and part: one of each layer."""

    name: str
    capture: Capture
    scores: pd.DataFrame

    @property
    def sites(self) -> tuple[Site, ...]:
        """One a layer."""
        return self.capture.sites


_tables: WeakKeyDictionary[Capture, pd.DataFrame] = WeakKeyDictionary()


def head_table(capture: Capture) -> pd.DataFrame:
    """`score_heads` of a capture, computed once as long as the capture lives."""
    if capture not in _tables:
        _tables[capture] = score_heads(capture)
    return _tables[capture]


def groups(capture: Capture, every_step: bool = False) -> list[Group]:
    """The stacks, kinds, steps and parts of a capture; layers whose parts are rows of one map are put together.

    every_step: the later passes of a generation too, each a group; else the first alone.
    """
    sites = [s for s in capture.sites if s.weights is not None and (every_step or s.place.step == 0)]
    some, found = replace(capture, sites=tuple(sites)), []
    steps = len({s.place.step for s in sites}) > 1
    for stack, kind in some.stacks() if sites else ():
        mine = [s for s in sites if (s.place.stack, s.place.kind) == (stack, kind)]
        for step in dict.fromkeys(s.place.step for s in mine):
            now = replace(some, sites=tuple(s for s in mine if s.place.step == step))
            name = f"{stack.capitalize()}, {WORDS[kind]}" + (f", step {step}" if steps else "")
            for more, part in _parts(now):
                alone = bool(more) or steps or len(sites) < len(capture.sites)
                table = score_heads(part) if alone else _of_stack(head_table(capture), stack, kind)
                found.append(Group(name + more, part, table))
    return found


def _of_stack(table: pd.DataFrame, stack: str, kind: str) -> pd.DataFrame:
    return table[(table["stack"] == stack) & (table["kind"] == kind)]


def _parts(capture: Capture) -> Iterator[tuple[str, Capture]]:
    """One capture where a layer has one map, else one for each window, picture or block."""
    try:
        joined = _marked(whole(capture), capture)
    except AttnprobeError:  # windows or pictures, which are no rows of one map
        joined = capture
    counts = pd.Series([s.place.layer for s in joined.sites]).value_counts()
    if int(counts.max()) == 1:
        yield "", joined
        return
    for part in sorted({s.place.part for s in capture.sites}):
        mine = tuple(s for s in capture.sites if s.place.part == part)
        name = next((s.place.name for s in mine if s.place.name), "part")
        yield f", {name} {part}", replace(capture, sites=mine)


def _marked(joined: Capture, capture: Capture) -> Capture:
    """Maps that were put together get part -1: no value and no gradient belongs to one as it is."""
    sites = [
        s if any(s is own for own in capture.sites) else replace(s, place=replace(s.place, part=-1))
        for s in joined.sites
    ]
    return replace(joined, sites=tuple(sites))


def is_long(found: Sequence[Group]) -> bool:
    """Whether a map has more tokens a side than are kept in full."""
    return max(max(s.need("weights").shape[-2:]) for g in found for s in g.sites) > LONGEST


def chosen(found: Sequence[Group], first: Sequence[Numbered] = ()) -> tuple[Numbered, ...]:
    """Heads by interest: those asked for, then the highest of each head score in turn, then the second of each."""
    table = pd.concat([g.scores.assign(group=i) for i, g in enumerate(found)], ignore_index=True)
    names = [name for name in head_scores if table[name].notna().any()]
    ranked = [table.nlargest(RANKS, name)[["group", "layer", "head"]].to_numpy().tolist() for name in names]
    turns = [tuple(rows[place]) for place in range(RANKS) for rows in ranked if place < len(rows)]
    return tuple(dict.fromkeys([*first, *turns]))  # type: ignore[arg-type]


def fitting(found: Sequence[Group], order: Sequence[Numbered], weights: int = FULL_WEIGHTS) -> frozenset[Numbered]:
    """The first heads of an order whose maps have that many weights in all, at most."""
    sizes = {(i, s.place.layer): math.prod(s.need("weights").shape[-2:]) for i, g in enumerate(found) for s in g.sites}
    kept: list[Numbered] = []
    for head in order:
        weights -= sizes[head[:2]]
        if weights < 0:
            break
        kept.append(head)
    return frozenset(kept)


def _held(group: Group) -> str:
    """What can be named: layers and heads, as ranges where none between is missing."""
    layers, heads = (_range(group.scores[name].unique().tolist()) for name in ("layer", "head"))
    return f"{group.name.lower()}: layers {layers}, heads {heads}"


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low} to {high}" if len(numbers) == high - low + 1 > 1 else ", ".join(map(str, sorted(numbers)))


def numbered(found: Sequence[Group], heads: Sequence[tuple[str, str, int, int]]) -> list[Numbered]:
    """Heads (stack, kind, layer, head) by the number of their group; `InputError` for one that was not kept."""
    known: dict[tuple[str, str, int, int], Numbered] = {}
    for i, g in enumerate(found):
        place = g.sites[0].place
        for layer, head in zip(g.scores["layer"].tolist(), g.scores["head"].tolist(), strict=True):
            known.setdefault((place.stack, place.kind, layer, head), (i, layer, head))
    for stack, kind, layer, head in heads:
        if (stack, kind, layer, head) not in known:
            raise InputError(
                f"the capture holds no weights of {stack} {kind}-attention, layer {layer}, head {head}; "
                f"it has {'; '.join(map(_held, found))}"
            )
    return [known[head] for head in heads]
