"""Families in which attention and values do the work: P1, P1c, P2, P3, P5, P15, P16, positional, copying, two-layer."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from attnprobe.models.planted.families_scene import Scene, Stage, as_row
from attnprobe.models.planted.plan import Head, Layer

_OUT = {("val", "out"): 1.0}


def _several(stage: Stage, most: int = 3) -> list[int]:
    return stage.places(int(stage.draw.integers(1, most + 1)))


def _values(stage: Stage, acting: Sequence[int], reach: Sequence[float], dim: str = "val") -> None:
    """Contents of which the acting tokens' parts of y are 0.5 to 1 in size, and those of the others small."""
    sizes = [1.0, *(stage.uniform(0.5, 1.0) for _ in acting[1:])]
    for place, size in zip(acting, sizes, strict=True):
        stage.put_scaled(place, dim, stage.sign() * size / reach[place])
    stage.murmur(acting, reach, dim)


def _one_head(stage: Stage, mode: str | None, story: str) -> Scene:
    acting = _several(stage)
    row = stage.row(acting, mode)
    _values(stage, acting, row)
    head = Head((as_row(row),), _OUT)
    return Scene(story, ("val", "out", *stage.idle), (Layer((head,)),), stage.tokens, tuple(acting), stage.places()[0])


def value_null(stage: Stage) -> Scene:
    """P1."""
    story = "Weights that the tokens do not change; values decide, and the loudest token may have next to none."
    return _one_head(stage, str(stage.draw.choice(["against", "against", "partly", "with"])), story)


def positional(stage: Stage) -> Scene:
    """Attention by place, where the values are."""
    return _one_head(stage, "with", "Attention looks at fixed places, and what is there makes the answer.")


def content_keys(stage: Stage) -> Scene:
    """P1c."""
    (read, quiet), acting = stage.places(2), stage.places(1)
    n, (speaker,) = stage.n, acting
    louder = stage.uniform(1.0, 3.0) * n if stage.chance(0.5) else stage.uniform(0.2, 1.0)
    suppressor = stage.uniform(6.0, 20.0) * (n + louder)
    stage.put_switch(quiet, "key", math.log(suppressor))
    stage.put_always(speaker, "key", math.log(louder))
    reach = [1 / n] * n
    reach[speaker] = louder / (n - 1 + louder)
    stage.put_scaled(speaker, "val", stage.sign() / reach[speaker])
    stage.murmur((speaker, quiet), reach, scale=1.0 if stage.boundary else 0.7)
    positions = tuple({"ask": 1.0} if place == read else {} for place in range(n))
    head = Head(((1 / n,) * n,), _OUT, {("ask", "key"): 1.0})
    story = "Weights made by contents: one token takes the attention away from the one that speaks, so both act."
    dims = ("val", "out", "key", "ask", *stage.idle)
    layers = (Layer((head,)),)
    return Scene(story, dims, layers, stage.tokens, (speaker, quiet), read, positions=positions)


def bypass(stage: Stage) -> Scene:
    """P2."""
    (read,) = stage.places()
    row = stage.row([read])
    stage.put_scaled(read, "lab", stage.sign())
    stage.murmur([read], row)
    for place in range(stage.n):
        stage.put_scaled(place, "jin", stage.uniform(1.0, 5.0))
    head = Head((as_row(row),), _OUT | {("jin", "jout"): 1.0})
    story = "The answer is in the token that is read and stays there; attention moves what the answer does not read."
    dims = ("val", "out", "lab", "jin", "jout", *stage.idle)
    readout = {"y": {"lab": 1.0, "out": 1.0}}
    return Scene(story, dims, (Layer((head,)),), stage.tokens, (read,), read, readout)


def twins(stage: Stage) -> Scene:
    """P3: first + 2 second is the same in both."""
    acting = stage.places(2)
    first, second = (np.array(stage.row(acting)) for _ in range(2))
    both = first + 2 * second
    share = stage.uniform(0.0, 0.3)
    other = share * first + (1 - share) * second
    stage_reach = [float(x) for x in both]
    sizes = (1.0, stage.uniform(0.4, 1.0))
    for place, size in zip(acting, sizes, strict=True):
        stage.put_scaled(place, "val", stage.sign() * size / stage_reach[place])
    stage.murmur(acting, stage_reach)
    heads = [_pair(first, second), _pair(other, (both - other) / 2)]
    story = "Two heads, one of them twice as strong; a twin with other weights gives the same y on every input."
    layers = [(Layer(pair),) for pair in heads]
    dims = ("val", "out", *stage.idle)
    return Scene(story, dims, layers[0], stage.tokens, tuple(acting), stage.places()[0], twin=layers[1])


def _pair(first: np.ndarray, second: np.ndarray) -> tuple[Head, Head]:
    return Head((as_row(first),), _OUT), Head((as_row(second),), {("val", "out"): 2.0})


def cancelling(stage: Stage) -> Scene:
    """P16: what one head adds at the loudest tokens another takes away."""
    acting, loud = _several(stage, 2), stage.places(2)
    adds = np.array(stage.row(acting, "against"))
    adds[loud] = stage.draw.uniform(0.2, 0.3, 2)
    takes = adds * stage.draw.uniform(0.98, 1.02, stage.n)
    takes[acting] *= stage.uniform(0.2, 0.4)
    adds, takes = adds / adds.sum(), takes / takes.sum()
    reach = adds - takes
    for place, size in zip(acting, (1.0, stage.uniform(0.5, 1.0)), strict=False):
        stage.put_scaled(place, "val", stage.sign() * size / reach[place])
    # What the loud tokens say is as large as what the others say.
    size = float(np.mean([abs(stage.tokens[place].main["val"]) for place in acting]))
    for place, share in stage.shares(acting).items():
        most = share if share > 0.07 else max(share, 0.05)
        stage.put_scaled(
            place, "val", stage.sign() * min(size if share <= 0.07 else math.inf, most / abs(reach[place]))
        )
    heads = (Head((as_row(adds),), _OUT), Head((as_row(takes),), {("val", "out"): -1.0}))
    story = "Two heads look at the same tokens, and one takes away what the other adds there."
    dims = ("val", "out", *stage.idle)
    return Scene(story, dims, (Layer(heads),), stage.tokens, tuple(acting), stage.places()[0])


def copying(stage: Stage) -> Scene:
    """A mark in the content draws the attention, and the value there is copied."""
    (read,), acting = stage.places(), stage.places(1)
    n = stage.n
    strength = math.log(n * stage.uniform(2.0, 12.0))
    stage.put_always(acting[0], "mark", 1.0)
    factor = math.exp(strength)
    reach = [1 / (n - 1 + factor)] * n
    reach[acting[0]] = factor / (n - 1 + factor)
    stage.put_scaled(acting[0], "val", stage.sign() / reach[acting[0]])
    stage.murmur(acting, reach, scale=0.9 if stage.boundary else 0.3)
    positions = tuple({"ask": strength} if place == read else {} for place in range(n))
    head = Head(((1 / n,) * n,), _OUT, {("ask", "mark"): 1.0})
    story = "One token is marked by its content, attention goes where the mark is and copies what is there."
    dims = ("val", "out", "mark", "ask", *stage.idle)
    return Scene(story, dims, (Layer((head,)),), stage.tokens, tuple(acting), read, positions=positions)


def two_hop(stage: Stage) -> Scene:
    """P5: carriers fetch what sources say, and the answer is read from the carriers."""
    (read,) = stage.places()
    sources = _several(stage, 2)
    carriers = stage.places(len(sources))
    stay = stage.uniform(0.85, 0.95)
    rows = _self_looking(stage, stay)
    for source, carrier in zip(sources, carriers, strict=True):
        rows[carrier] = (1 - stay) / (stage.n - 1)
        rows[carrier, source] = stay
    last = np.array(stage.row(carriers, "with"))
    last[carriers] = stage.uniform(0.85, 0.95) / len(carriers)
    others = [place for place in range(stage.n) if place not in carriers]
    last[others] *= (1 - last[carriers].sum()) / last[others].sum()
    reach = [float(x) for x in last @ rows]
    _values(stage, sources, reach, "sig")
    layers = (Layer((Head(tuple(map(as_row, rows)), {("sig", "mov"): 1.0}),)), _last_hop(last))
    story = "Carriers fetch what the sources say, and the answer is read where the carriers stand."
    return Scene(story, ("sig", "mov", "out", *stage.idle), layers, stage.tokens, tuple(sources), read)


def two_layer(stage: Stage) -> Scene:
    """The first layer keeps each token where it is, the second reads the tokens that act."""
    (read,) = stage.places()
    acting = _several(stage)
    rows = _self_looking(stage, stage.uniform(0.8, 0.95))
    last = np.array(stage.row(acting, "with" if stage.chance(0.7) else None))
    _values(stage, acting, [float(x) for x in last @ rows], "sig")
    layers = (Layer((Head(tuple(map(as_row, rows)), {("sig", "mov"): 1.0}),)), _last_hop(last))
    story = "Layer 1 leaves contents where they are, layer 2 reads them."
    return Scene(story, ("sig", "mov", "out", *stage.idle), layers, stage.tokens, tuple(acting), read)


def _self_looking(stage: Stage, stay: float) -> np.ndarray:
    rows = np.full((stage.n, stage.n), (1 - stay) / (stage.n - 1))
    np.fill_diagonal(rows, stay)
    return rows


def _last_hop(row: np.ndarray) -> Layer:
    return Layer((Head((as_row(row),), {("mov", "out"): 1.0}),))


def sink_chain(stage: Stage) -> Scene:
    """P15: every token rests on the first, and contents wander one place a layer to the last."""
    n, n_layers = stage.n, int(stage.draw.integers(2, 4))
    sink, back = stage.uniform(0.45, 0.7), stage.uniform(0.2, 0.3)
    rows = np.zeros((n, n))
    for i in range(n):
        rows[i, : i + 1] = (1 - sink - back) / (i + 1)
        rows[i, 0] += sink
        rows[i, max(i - 1, 0)] += back
    reach = np.linalg.matrix_power(rows, n_layers)[-1]
    acting = [n - 1 - n_layers] if stage.chance(0.4) else [n - 1 - n_layers, n - n_layers]
    _values(stage, acting, [float(x) for x in reach])
    path = ("val", *(f"hop{layer}" for layer in range(1, n_layers)), "out")
    whole = tuple(map(as_row, rows))
    layers = tuple(Layer((Head(whole, {(a, b): 1.0}),)) for a, b in pairwise(path))
    story = "A decoder that rests on its first token; contents wander to the last one beside it."
    readout = {"word": {"out": 1.0}}
    dims = (*path, *stage.idle)
    return Scene(story, dims, layers, stage.tokens, tuple(acting), n - 1, readout, "word", decoder=True)


RECIPES: dict[str, Callable[[Stage], Scene]] = {
    "P1": value_null,
    "P1c": content_keys,
    "P2": bypass,
    "P3": twins,
    "P5": two_hop,
    "P15": sink_chain,
    "P16": cancelling,
    "positional": positional,
    "copying": copying,
    "two_layer": two_layer,
}
