"""Which columns of which linear map a tensor is made of, bit for bit, or but for a factor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.errors import CaptureError
from attnprobe.models.linear_maps import Call, LinearMap
from attnprobe.site import Place, Site

MOST_ROWS = 64
# How far the directions of two columns may differ (1 - cos) that are the same but for a factor.
SAME_DIRECTION = 1e-11
# Fewer rows than this tell no directions apart.
FEWEST = 3

Match = Callable[[Tensor, Tensor], Tensor | None]


@dataclass(frozen=True, eq=False)
class Use:
    """A linear map, and which columns of its output (of W_O: of its input) belong to each head."""

    linear: LinearMap
    index: Int[Tensor, "head d_value"]


def merged(parts: Sequence[Site], name: str) -> list[Float[Tensor, "_ head d_value"]]:
    """A tensor of a layer by token: of all its parts together where they are alike, and of the first part alone."""
    if getattr(parts[0], name) is None:
        return []
    rows = [part.need(name).cpu().transpose(1, 2).flatten(0, 1) for part in parts]
    alike = len({(tuple(part.shape[1:]), part.dtype) for part in rows}) == 1
    return [torch.cat(rows), rows[0]] if alike and len(rows) > 1 else rows[:1]


def distinct(value: Float[Tensor, "row head d_value"]) -> tuple[list[int], tuple[int, ...]]:
    """The first query head of each value head, and the value head of each query head."""
    first: list[int] = []
    groups = []
    for head in range(value.shape[1]):
        same = next((group for group, other in enumerate(first) if torch.equal(value[:, head], value[:, other])), None)
        if same is None:
            first.append(head)
        groups.append(len(first) - 1 if same is None else same)
    return first, tuple(groups)


def use_of_map(
    place: Place,
    calls: Sequence[Call],
    root: nn.Module,
    wanted: Sequence[Float[Tensor, "_ head d_value"]],
    side: str,
    otherwise: str,
) -> Use | str:
    """The map whose output ("y") holds the wanted columns, or whose input ("x") is made of them; else the reason.

    wanted: what may be looked for, the first that is found counts.
    """
    if not wanted:
        return f"{otherwise[:3]}: this attention does not show {'its values' if side == 'y' else 'z'}."
    found = placed(place, calls, root, wanted, side, otherwise)
    return found if isinstance(found, str) else use_of(found, wanted[0])


def use_of(found: tuple[Call, Tensor], wanted: Float[Tensor, "_ head d_value"]) -> Use:
    call, index = found
    return Use(call.linear, index.view(wanted.shape[1:]))  # type: ignore[arg-type]


def placed(
    place: Place,
    calls: Sequence[Call],
    root: nn.Module,
    wanted: Sequence[Float[Tensor, "_ head d_value"]],
    side: str,
    otherwise: str,
    *,
    match: Match | None = None,
) -> tuple[Call, Int[Tensor, " column"]] | str:
    """The one call that fits, and where in it each wanted column is; else the reason."""
    match = where if match is None else match
    hits = next((found for tensor in wanted if (found := _hits(calls, tensor.flatten(1), side, match))), [])
    maps = {call.path: (call, index) for call, index in hits if call.linear is not None}
    if len(maps) > 1:
        inside = {path: hit for path, hit in maps.items() if path.startswith(f"{place.path}.")}
        maps = inside if len(inside) == 1 else maps
    if len(maps) != 1:
        seen = [call for call in calls if _same_numbers(wanted[0], getattr(call, side))] or [call for call, _ in hits]
        return _reason(otherwise, side, seen, list(maps))
    ((call, index),) = maps.values()
    try:
        call.check(root)
    except CaptureError as error:
        return f"{otherwise[:3]}: {error}."
    return call, index


def _hits(calls: Sequence[Call], columns: Tensor, side: str, match: Match) -> list[tuple[Call, Tensor]]:
    """The calls with the wanted columns in their output, or with nothing else than these in their input."""
    if side == "x":
        calls = [call for call in calls if call.x.shape[1] == columns.shape[1]]
    return [(call, index) for call in calls if (index := match(columns, getattr(call, side))) is not None]


def _reason(otherwise: str, side: str, hits: Sequence[Call], maps: Sequence[str]) -> str:
    if maps:
        return f"{otherwise[:3]}: several maps fit and none alone lies in the attention module: {', '.join(maps)}."
    if hits:
        return f"{otherwise}; they come out of {hits[0]}." if side == "y" else f"{otherwise}; it goes into {hits[0]}."
    return f"{otherwise}; something else (a norm, a rotation, a gate, a sum) stands between, and is not undone."


def _same_numbers(wanted: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers in any layout: what a norm of each head gives, for one."""
    alike = wanted.numel() == other.numel() and wanted.dtype == other.dtype
    return alike and torch.equal(wanted.flatten().sort().values, other.flatten().sort().values)


def where(wanted: Float[Tensor, "row column"], pool: Float[Tensor, "other_row d"]) -> Int[Tensor, " column"] | None:
    """Where each wanted column is in the pool, bit for bit; None unless each is there exactly once.

    The pool's rows may be more (padding) and in another order (tokens before inputs), the same for all columns. Of very
    many rows some are looked at.
    """
    if pool.shape[0] < wanted.shape[0] or pool.shape[1] < wanted.shape[1] or pool.dtype != wanted.dtype:
        return None
    there = (pool == wanted[0, 0]).nonzero()[:, 1].unique().tolist()
    some = torch.linspace(0, len(wanted) - 1, min(len(wanted), MOST_ROWS)).long()
    in_order = [some] if there and pool.shape[0] == wanted.shape[0] else []
    wanted = wanted[some]
    elsewhere = (rows for column in there if (rows := _rows_at(wanted[:, 0], pool[:, column])) is not None)
    found = (_at(wanted, pool[rows]) for rows in chain(in_order, elsewhere))
    return next((chosen for chosen in found if chosen is not None), None)


def along(wanted: Float[Tensor, "row column"], pool: Float[Tensor, "other_row d"]) -> Int[Tensor, " column"] | None:
    """Where each wanted column is in the pool times one positive number, the same for all; None unless each is once."""
    if pool.shape[0] != wanted.shape[0] or len(wanted) < FEWEST or pool.dtype != wanted.dtype:
        return None
    if pool.shape[1] < wanted.shape[1] or pool.dtype not in (torch.float32, torch.float64):
        return None
    wanted, pool = wanted.double(), pool.double()
    lengths = pool.norm(dim=0).clamp(min=1e-30)
    found = []
    for columns in wanted.split(256, dim=1):
        size = columns.norm(dim=0).clamp(min=1e-30)
        same = (columns / size).T @ (pool / lengths) >= 1 - SAME_DIRECTION
        if not bool((same.sum(1) == 1).all()):
            return None
        found.append(same.int().argmax(1))
    index = torch.cat(found)
    ratio = wanted.norm(dim=0) / lengths[index]
    return index if bool(((ratio - ratio[0]).abs() <= 1e-5 * ratio[0]).all()) else None


def _rows_at(wanted: Tensor, column: Tensor) -> Tensor | None:
    """In which row of a column each wanted number is; None where one is missing."""
    ordered, order = column.sort()
    rows = order[torch.searchsorted(ordered, wanted.contiguous()).clamp(max=len(column) - 1)]
    return rows if torch.equal(column[rows], wanted) else None


def _at(wanted: Tensor, pool: Tensor) -> Tensor | None:
    """Where each wanted column is in a pool of the same rows; None unless each is there exactly once."""
    places: dict[bytes, list[int]] = {}
    for index, column in enumerate(_columns(pool)):
        places.setdefault(column, []).append(index)
    found = [places.get(column, []) for column in _columns(wanted)]
    return torch.tensor([at[0] for at in found]) if all(len(at) == 1 for at in found) else None


def _columns(matrix: Tensor) -> list[bytes]:
    """Each column as bytes; 0 added, so that -0 and 0 are alike."""
    return [column.tobytes() for column in (matrix + 0.0).T.contiguous().view(torch.uint8).numpy()]


def pick_rows(matrix: Float[Tensor, "row column"], index: Int[Tensor, "a b"]) -> Float[Tensor, "a b column"]:
    """matrix[index], as a view where the index goes in even steps.

    >>> pick_rows(torch.arange(8.0).view(4, 2), torch.tensor([[0, 1], [2, 3]])).tolist()
    [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]]
    """
    (a, b), start = index.shape, int(index[0, 0])
    by_a = int(index[1, 0]) - start if a > 1 else 0
    by_b = int(index[0, 1]) - start if b > 1 else 0
    even = start + by_a * torch.arange(a)[:, None] + by_b * torch.arange(b)
    if by_a < 0 or by_b < 0 or not torch.equal(even, index):
        return matrix[index.to(matrix.device)]
    row, column = matrix.stride()
    size, stride = (a, b, matrix.shape[1]), (by_a * row, by_b * row, column)
    return matrix.as_strided(size, stride, matrix.storage_offset() + start * row)


def order_of(index: Int[Tensor, "head d_value"]) -> str:
    """How heads lie in the input of W_O: "head d_value", "d_value head", or "mixed".

    >>> order_of(torch.tensor([[0, 2], [1, 3]]))
    'd_value head'
    """
    n_heads, d_value = index.shape
    if torch.equal(index, torch.arange(n_heads * d_value).view(n_heads, d_value)):
        return "head d_value"
    transposed = torch.arange(n_heads * d_value).view(d_value, n_heads).T
    return "d_value head" if torch.equal(index, transposed) else "mixed"
