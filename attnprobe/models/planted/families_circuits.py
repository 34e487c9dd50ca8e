"""Families in which contents find one another: P12 (induction), P19 (a switch), retrieval by key."""

import math
from collections.abc import Callable

import numpy as np

from attnprobe.models.planted.families_scene import N_OTHERS, Scene, Stage, as_row
from attnprobe.models.planted.plan import Head, Layer

# Keys that a query may ask for: so many that a token of another input rarely has the one that is asked for.
N_KEYS = 48


def induction(stage: Stage) -> Scene:
    """P12."""
    n, draw = stage.n, stage.draw
    read = n - 1 - int(draw.integers(0, max(1, n // 4)))
    match = int(draw.integers(1, read - 2))
    n_words = n + 4
    words = [*range(n)]
    words[read] = words[match]
    # The first place can look at itself alone: what is there, word 0, is nowhere else.
    others = [[0, *(1 + draw.permutation(n_words - 1)[: n - 1])] for _ in range(N_OTHERS)]
    for place, token in enumerate(stage.tokens):
        token.main[f"tok{words[place]}"] = 1.0
        for content, text in zip(token.others, others, strict=True):
            content[f"tok{text[place]}"] = 1.0
    story = "Induction: what came after the same word before is said again; word, match and source act."
    dims = (*(f"{kind}{word}" for kind in ("tok", "prev") for word in range(n_words)), "out", *stage.idle)
    layers = _circuit(n, n_words, words[match + 1], stage.uniform(25.0, 35.0))
    readout = {"source": {"out": 1.0}}
    return Scene(story, dims, layers, stage.tokens, (match, match + 1, read), read, readout, "source", decoder=True)


def _circuit(n: int, n_words: int, source: int, beta: float) -> tuple[Layer, Layer]:
    """Head 1 looks one place back and keeps the word there; head 2 looks where the word before was its own word."""
    back = np.eye(n, k=-1)
    back[0, 0] = 1.0
    pairs = [(f"tok{word}", f"prev{word}") for word in range(n_words)]
    one_back = Head(tuple(map(as_row, back)), dict.fromkeys(pairs, 1.0))
    same = dict.fromkeys(pairs, beta)
    return Layer((one_back,)), Layer((Head(((1.0,) * n,), {(f"tok{source}", "out"): 1.0}, same),))


def retrieval(stage: Stage) -> Scene:
    """A query asks for a key, and the value of the token that has it is the answer."""
    (read, item), n = stage.places(2), stage.n
    keys = stage.draw.permutation(N_KEYS)
    strength = math.log(n * stage.uniform(8.0, 40.0))
    asked = int(keys[0])
    _key(stage, read, "query", asked, strength)
    for place in range(n):
        _key(stage, place, "key", asked if place == item else int(stage.draw.choice(keys[1:])), 1.0)
        stage.put_scaled(place, "val", stage.sign() * stage.uniform(0.2, 0.6) if place != read else 0.0)
    stage.put_scaled(item, "val", stage.sign() * stage.uniform(1.0, 1.5))
    head = Head(((1 / n,) * n,), {("val", "out"): 1.0}, {(f"query{k}", f"key{k}"): 1.0 for k in range(N_KEYS)})
    story = "Retrieval: a query asks for a key, and what the token with that key says is the answer."
    dims = ("val", "out", *(f"{kind}{k}" for kind in ("query", "key") for k in range(N_KEYS)), *stage.idle)
    return Scene(story, dims, (Layer((head,)),), stage.tokens, (read, item), read)


def _key(stage: Stage, place: int, kind: str, number: int, size: float) -> None:
    """A one-hot key: this one here, any in the other inputs."""
    token = stage.tokens[place]
    token.main[f"{kind}{number}"] = size
    for content, other in zip(token.others, stage.draw.integers(0, N_KEYS, N_OTHERS), strict=True):
        content[f"{kind}{int(other)}"] = size


def switch(stage: Stage) -> Scene:
    """P19: what was read in layer 1 decides which of two tokens is read in layer 2."""
    (read,), (condition, first, second) = stage.places(), stage.places(3)
    n, beta, size = stage.n, 60.0, stage.uniform(0.5, 3.0)
    fetch = np.array(stage.row([condition], "with"))
    stage.put_switch(condition, "on", 1.0)
    stage.put_switch(first, "key", 1.0)
    stage.put_scaled(first, "val", size * stage.uniform(0.9, 1.2))
    stage.put_scaled(second, "val", -size * stage.uniform(0.9, 1.2))
    place = np.ones(n)
    place[second] = math.exp(beta / 2)
    head = Head((as_row(fetch),), {("on", "asks"): 1 / float(fetch[condition]), ("weak", "out"): 1.0})
    stage.murmur((condition, first, second), [float(x) for x in fetch], "weak", 0.4 * size)
    chosen = Head((as_row(place / place.sum()),), {("val", "out"): 1.0}, {("asks", "key"): beta})
    story = "A switch: whether the first or the second token is read depends on a third."
    dims = ("on", "asks", "key", "val", "weak", "out", *stage.idle)
    layers = (Layer((head,)), Layer((chosen,)))
    return Scene(story, dims, layers, stage.tokens, (condition, first, second), read)


RECIPES: dict[str, Callable[[Stage], Scene]] = {"P12": induction, "P19": switch, "retrieval": retrieval}
