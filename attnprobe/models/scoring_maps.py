"""Finds which linear maps make the queries and the keys of a layer, also where positions turn them afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor, nn

from attnprobe.models.linear_maps import Call
from attnprobe.models.matching import Match, Use, along, distinct, merged, placed, use_of, where
from attnprobe.models.rotations import Turned, length_ratio
from attnprobe.site import Place, Site


@dataclass(frozen=True, eq=False)
class Scoring:
    """Where the queries (or keys) of one layer come from; turned: what positions made of them, None for nothing.

    groups: the key head of each query head. factor: what they were multiplied by.
    """

    use: Use | str
    groups: tuple[int, ...]
    factor: float = 1.0
    turned: Turned | None = None


def scoring(parts: Sequence[Site], calls: Sequence[Call], root: nn.Module, name: str) -> Scoring:
    """The map of the queries (keys): as they are used, as they are at the first position alone, and times a factor."""
    place, letter, whole = parts[0].place, name[0].upper(), merged(parts, name)
    several = f", put together from {len(parts)} parts" if len(parts) > 1 else ""
    what = "queries" if name == "query" else "keys"
    makes = f"W_{letter}: no linear map gave the {what} as they are used{several}"
    if not whole:
        return Scoring(f"W_{letter}: this attention does not show its {what}.", tuple(range(parts[0].n_heads)))
    every = tuple(range(parts[0].n_heads))
    heads, groups = distinct(whole[0]) if name == "key" else (list(every), every)
    wanted = [tensor[:, heads] for tensor in whole]
    found = placed(place, calls, root, wanted, "y", makes)
    if not isinstance(found, str):
        return Scoring(use_of(found, wanted[0]), groups)
    near = [call for call in calls if call.path.startswith(f"{place.path}.")] or calls
    scaled = placed(place, near, root, wanted, "y", makes, match=along)
    if not isinstance(scaled, str):
        call, index = scaled
        factor = length_ratio(wanted[0].flatten(1).flatten(), call.y[:, index].flatten())
        return Scoring(use_of(scaled, wanted[0]), groups, factor)
    if len(parts) > 1:
        return Scoring(found, groups)
    used = parts[0].need(name).cpu()[:, heads].transpose(1, 2)
    turning = _turning(place, near, root, used, makes)
    return Scoring(found, groups) if turning is None else replace(turning, groups=groups)


def _turning(place: Place, calls: Sequence[Call], root: nn.Module, used: Tensor, makes: str) -> Scoring | None:
    """The map that gave the first position, where vectors are as long as it gave them at every other position too."""
    n_rows, n_tokens = used.shape[:2]

    def at_first(match: Match, wanted: Tensor, pool: Tensor) -> Tensor | None:
        by_token = pool.unflatten(0, (n_rows, n_tokens)) if len(pool) == n_rows * n_tokens else None
        return None if by_token is None else match(wanted, by_token[:, 0])

    for match in (where, along):
        found = placed(place, calls, root, [used[:, 0]], "y", makes, match=partial(at_first, match))
        if isinstance(found, str):
            continue
        call, index = found
        turned = Turned(call.y[:, index].view_as(used), used)
        if turned.keeps_lengths:
            return Scoring(use_of(found, used[:, 0]), (), turned.factor, turned)
    return None
