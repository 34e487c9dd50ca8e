"""Families in which contents find one another: P12 (induction), P19 (a switch), retrieval by key."""

import math
from collections.abc import Callable

import numpy as np

from attnprobe.models.planted.causal import _circuit as circuit
from attnprobe.models.planted.families_scene import N_OTHERS, Content, Scene, Stage, Token, as_row
from attnprobe.models.planted.plan import Head, Layer

# Keys that a query may ask for: so many that a token of another input rarely has the one that is asked for.
N_KEYS = 32


def induction(stage: Stage) -> Scene:
    """P12."""
    n, draw = stage.n, stage.draw
    read = n - 1 - int(draw.integers(0, max(1, n // 4)))
    match = int(draw.integers(1, read - 2))
    names = [f"t{number}" for number in range(2 * n)]
    words = [f"t{number}" for number in range(n)]
    words[read] = words[match]
    others = [[str(word) for word in draw.permutation(names)[:n]] for _ in range(N_OTHERS)]
    parts = circuit(["[BOS]", *words[1:]], stage.uniform(25, 35), tuple(names))
    tokens = [Token(_word(words[i]), [_word(text[i]) for text in others]) for i in range(n)]
    # The first place can look at itself alone: what is there is never a word.
    tokens[0] = Token(_word("[BOS]"), [_word("[BOS]")] * N_OTHERS)
    story = "Induction: what came after the same word before is said again; word, match and source act."
    causal = (match, match + 1, read)
    return Scene(
        story,
        parts["dims"],  # type: ignore[arg-type]
        parts["layers"],  # type: ignore[arg-type]
        tokens,
        causal,
        read,
        parts["readout"],  # type: ignore[arg-type]
        words[match + 1],
        decoder=True,
        positions=parts["positions"],  # type: ignore[arg-type]
    )


def _word(name: str) -> Content:
    return {f"tok:{name}": 1.0}


def retrieval(stage: Stage) -> Scene:
    """A query asks for a key, and the value of the token that has it is the answer."""
    (read, item), n = stage.places(2), stage.n
    keys = stage.draw.permutation(N_KEYS)
    strength = math.log(n * stage.uniform(8, 40))
    asked = int(keys[0])
    _key(stage, read, "query", asked, strength)
    for place in range(n):
        _key(stage, place, "key", asked if place == item else int(stage.draw.choice(keys[1:])), 1.0)
        stage.put_scaled(place, "val", stage.sign() * stage.uniform(0.7, 1.3) if place != read else 0.0)
    stage.tokens[item].main["val"] = stage.sign() * stage.uniform(1, 1.5)
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
    n, beta, size = stage.n, 60.0, stage.uniform(0.5, 3)
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
