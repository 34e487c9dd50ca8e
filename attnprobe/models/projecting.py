"""Finds, in one watched pass, which linear maps make queries, keys and values of a layer, and which takes its z."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import CaptureError, RowsError
from attnprobe.example import Example
from attnprobe.models.evaluator import count
from attnprobe.models.linear_maps import Call, watched
from attnprobe.models.matching import Use, distinct, merged, order_of, pick_rows, use_of_map, where
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.models.scoring_maps import Scoring, scoring
from attnprobe.site import Place, Site

# The same input several times: each row gets noise of its own, which tells columns apart in bfloat16 too.
N_ROWS = 3
N_TOKENS = 6


@dataclass(frozen=True, eq=False)
class Found:
    """Where the projections of one layer are, or why they were not found; groups: the value head of each query head.

    rotary: queries and keys are turned by position; turn: one step of that, where it was told.
    """

    place: Place
    groups: tuple[int, ...]
    value: Use | str
    output: Use | str
    query: Scoring
    key: Scoring
    rotary: bool
    turn: Float[Tensor, "d_head d_head"] | None


def probe(model: Model) -> Example:
    """A short input that the model reads: its own probe where it has one, else a few ids."""
    own = getattr(model, "_probe", None)
    if own is not None:
        return own()
    words = getattr(getattr(model, "vocabulary", None), "tokens", range(N_TOKENS))
    length = getattr(model.module, "fixed_length", None) or N_TOKENS
    return model.example([len(words) - 1 - index % len(words) for index in range(length)])


def find(model: Model, example: Example) -> tuple[Found, ...]:
    """Where the projections of every attention layer are: one pass of several rows of the example."""
    try:
        sites, calls = _watch(model, example, N_ROWS)
    except (CaptureError, RowsError):  # some attention lays several inputs out in its own way
        sites, calls = _watch(model, example, 1)
    if not sites:
        raise CaptureError(f"no attention of {model.name} was seen")
    layers: dict[tuple[str, str, int], list[Site]] = {}
    for site in sites:
        layers.setdefault((site.place.stack, site.place.kind, site.place.layer), []).append(site)
    return tuple(_of_layer(parts, calls, model.module) for parts in layers.values())


def _watch(model: Model, example: Example, n_rows: int) -> tuple[list[Site], list[Call]]:
    tape = Tape(keep=Keep.of("query", "key", "value", "z"), check=False)
    count(forward=n_rows)
    with torch.no_grad(), watched(model.module) as calls:
        model.forward([Row(example)] * n_rows, tape)
    return tape.sites, calls + _together(calls)


def _together(calls: Sequence[Call]) -> list[Call]:
    """The calls of each map that ran several times as one: some values are made piece by piece."""
    by_path: dict[str, list[Call]] = {}
    for call in calls:
        by_path.setdefault(call.path, []).append(call)
    several = [same for same in by_path.values() if len(same) > 1 and len({call.widths for call in same}) == 1]
    return [_joined(same) for same in several]


def _joined(same: Sequence[Call]) -> Call:
    x, y, before = (torch.cat([getattr(call, name) for call in same]) for name in ("x", "y", "before"))
    return replace(same[0], x=x, y=y, before=before)


def _of_layer(parts: Sequence[Site], calls: Sequence[Call], root: nn.Module) -> Found:
    """One layer; parts: its windows or images where it keeps them apart."""
    place, values, z = parts[0].place, merged(parts, "value"), merged(parts, "z")
    heads, groups = distinct(values[0]) if values else ([], tuple(range(parts[0].n_heads)))
    several = f", put together from {len(parts)} parts" if len(parts) > 1 else ""
    makes = f"W_V: no linear map gave the values as they are used{several}"
    takes = f"W_O: no linear map takes z as its heads made it{several}"
    value = use_of_map(place, calls, root, [tensor[:, heads] for tensor in values], "y", makes)
    output = use_of_map(place, calls, root, z, "x", takes)
    query, key = (scoring(parts, calls, root, name) for name in ("query", "key"))
    turn = None if query.turned is None or key.turned is None else query.turned.one_step()
    turn = None if turn is None or key.turned is None or not key.turned.fits(turn) else turn
    rotary = query.turned is not None or key.turned is not None
    query, key = replace(query, turned=None), replace(key, turned=None)  # what is found is remembered for long
    return Found(place, groups, value, output, query, key, rotary, turn)


__all__ = ["Found", "Use", "find", "order_of", "pick_rows", "probe", "where"]
