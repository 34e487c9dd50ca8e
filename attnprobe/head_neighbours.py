"""Heads that are like a head: by their scores, by their maps on a text, and those that it composes with."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.capture import Capture, head_numbers
from attnprobe.errors import InputError
from attnprobe.head_profile import HeadProfile
from attnprobe.heads import head_pairs
from attnprobe.heads.addresses import Head
from attnprobe.heads.sides import shares
from attnprobe.models.model import Model, Stack

NO_SPREAD = 1e-9


def like_by_scores(profile: HeadProfile, head: Head, k: int) -> pd.DataFrame:
    """The k heads of its stack that score most alike: head, distance (root mean square, in standard deviations).

    Used are the scores, not effects, that have a number for every head and differ between heads.
    """
    frame = profile.to_frame()
    frame = frame[(frame["stack"] == head.stack) & (frame["kind"] == head.kind)].reset_index(drop=True)
    names = [name for name in profile.scores if profile.facts[name].form != "effect"]
    values = frame[names].to_numpy(dtype=float)
    spread = values.std(0)
    told = np.isfinite(spread) & (spread > NO_SPREAD * np.maximum(1.0, np.abs(values).max(0, initial=0.0)))
    if not told.any():
        return _nearest({}, k)
    standard = values[:, told] / spread[told]
    at = frame.index[(frame["layer"] == head.layer) & (frame["head"] == head.head)][0]
    distances = np.sqrt(((standard - standard[at]) ** 2).mean(1))
    heads = [Head(*row) for row in frame[["stack", "kind", "layer", "head"]].itertuples(index=False)]
    return _nearest({other: float(d) for other, d in zip(heads, distances, strict=True) if other != head}, k)


def like_by_maps(capture: Capture, head: Head, k: int) -> pd.DataFrame:
    """The k heads of its stack with the nearest maps: head, distance.

    The mean over queries of the Jensen-Shannon distance between their rows: 0 where they are one, 1 where no key has
    weight in both. capture: of the stack, whole maps; layers with other queries or keys are left out.
    """
    maps = {
        Head(head.stack, head.kind, site.place.layer, number): site.need("weights")[0, at].double().cpu()
        for site in capture.select(head.stack, head.kind)
        for at, number in enumerate(head_numbers(site))
    }
    mine = maps.pop(head)
    return _nearest({o: js_distance(mine, theirs) for o, theirs in maps.items() if theirs.shape == mine.shape}, k)


def js_distance(a: Float[Tensor, "query key"], b: Float[Tensor, "query key"]) -> float:
    """Mean over rows of √(JS divergence / ln 2), each scaled to sum to 1; rows without weight in either are left out.

    >>> js_distance(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]]))
    0.5
    """
    p, q = (shares(weights.double().clamp(min=0)) for weights in (a, b))
    middle = (p + q) / 2
    both = (torch.xlogy(x, x / middle.where(middle > 0, 1.0)).sum(-1) / 2 for x in (p, q))
    rows = (sum(both, torch.zeros(())) / math.log(2)).clamp(min=0, max=1).sqrt()
    known = (p.sum(-1) > 0) & (q.sum(-1) > 0)
    return float(rows[known].mean()) if bool(known.any()) else math.nan


def partners(model: Model, stack: Stack, head: Head, k: int) -> pd.DataFrame:
    """The k heads that it composes with most, for each way and direction: score, direction, head, value.

    direction: "writes for" a head of a later layer, or "reads from" one of an earlier layer. Errors: those of
    the scores of pairs, for a stack whose maps were not found.
    """
    rows: list[tuple[Any, ...]] = []
    for entry in head_pairs.values():
        values = entry.function(model, stack, **entry.check_options({}))
        sides = {"writes for": values[head.layer, head.head], "reads from": values[:, :, head.layer, head.head]}
        for direction, numbers in sides.items():
            rows += [(str(entry.facts["label"]), direction, *pair) for pair in _highest(numbers, head, k)]
    return pd.DataFrame(rows, columns=["score", "direction", "head", "value"])


def _highest(numbers: Float[Tensor, "layer head"], head: Head, k: int) -> list[tuple[str, float]]:
    known = (~numbers.isnan()).nonzero().tolist()
    found = sorted(((float(numbers[layer, at]), layer, at) for layer, at in known), reverse=True)[:k]
    return [(str(Head(head.stack, head.kind, layer, at)), value) for value, layer, at in found]


def _nearest(distances: dict[Head, float], k: int) -> pd.DataFrame:
    if k < 1:
        raise InputError(f"k is at least 1, got {k}")
    known = sorted((d, head) for head, d in distances.items() if math.isfinite(d))[:k]
    rows: list[tuple[Any, ...]] = [(str(head), distance) for distance, head in known]
    return pd.DataFrame(rows, columns=["head", "distance"])
