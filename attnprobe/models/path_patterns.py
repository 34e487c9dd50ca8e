"""Paths of modules that differ in their numbers only, as one pattern: encoder.layer.{0-11}.attention."""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise


def path_pattern(paths: Sequence[str]) -> str:
    """One pattern for paths that differ in their numbers only.

    >>> path_pattern(["encoder.0.self", "encoder.1.self", "encoder.2.self"])
    'encoder.{0-2}.self'
    """
    columns = [list(dict.fromkeys(column)) for column in zip(*map(_steps, paths), strict=True)]
    return "".join(c[0] if len(c) == 1 else f"{{{numbers(int(step) for step in c)}}}" for c in columns)


def families(paths: Iterable[str]) -> list[list[str]]:
    """Different paths in groups of which one pattern names each, and names no path besides.

    >>> families(["a.0.x", "b.0", "a.1.x", "a.1.y"])
    [['a.0.x', 'a.1.x'], ['b.0'], ['a.1.y']]
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for path in dict.fromkeys(paths):
        alike.setdefault(tuple(_steps(path)[::2]), []).append(path)
    return [family for group in alike.values() for family in _exact(group)]


def _exact(paths: list[str]) -> list[list[str]]:
    """Paths apart by the first number that differs, where one pattern would name more than these."""
    numbered = [_steps(path)[1::2] for path in paths]
    choices = [set(column) for column in zip(*numbered, strict=True)]
    if math.prod(map(len, choices)) == len(paths):
        return [paths]
    differing = next(index for index, choice in enumerate(choices) if len(choice) > 1)
    apart: dict[str, list[str]] = {}
    for path, found in zip(paths, numbered, strict=True):
        apart.setdefault(found[differing], []).append(path)
    return [family for group in apart.values() for family in _exact(group)]


def _steps(path: str) -> list[str]:
    """A path cut at its numbers: every second entry is one. "09" is two, since a pattern would write it as 9."""
    return re.split(r"(0|[1-9]\d*)", path)


def numbers(given: Iterable[int]) -> str:
    """Whole numbers as runs; even steps, from four numbers on, by their beginning and end.

    >>> numbers([0, 1, 2, 5]), numbers([3, 7, 11, 15, 19])
    ('0-2,5', '3,7,…,19')
    """
    known = sorted(set(given))
    steps = {after - before for before, after in pairwise(known)}
    if len(known) > 3 and len(steps) == 1 and steps != {1}:
        return f"{known[0]},{known[1]},…,{known[-1]}"
    runs: list[list[int]] = []
    for number in known:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
