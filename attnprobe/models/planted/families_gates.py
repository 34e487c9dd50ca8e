"""Families in which an MLP decides: P6 to P10, P11, P20. Attention brings the inputs to the token that is read."""

from collections.abc import Callable, Sequence

from attnprobe.models.planted.families_scene import Scene, Stage, as_row
from attnprobe.models.planted.plan import Head, Layer, Unit

_NAMES = ("a", "b", "c")


def _gate(
    stage: Stage,
    story: str,
    inputs: Sequence[tuple[float, float]],
    units: Sequence[tuple[Sequence[int], float, float]],
    offset: float,
    scale: float,
) -> Scene:
    """inputs: each input's content here, and what it is in half of the other inputs. units: weights of the inputs,
    bias, and what the ReLU is worth. scale: about how much the strongest input changes y."""
    (read,), acting = stage.places(), stage.places(len(inputs))
    row = stage.row(acting)
    size = stage.uniform(0.5, 4.0)
    names = _NAMES[: len(inputs)]
    values = {}
    for name, place, (here, elsewhere) in zip(names, acting, inputs, strict=True):
        stage.put_switch(place, name, here, elsewhere)
        values[name, f"s{name}"] = 1 / row[place]
    stage.murmur(acting, row, scale=scale * size)
    head = Head((as_row(row),), {**values, ("val", "out"): 1.0})
    made = tuple(
        Unit({f"s{name}": float(w) for name, w in zip(names, weights, strict=True) if w}, bias, size * out)
        for weights, bias, out in units
    )
    dims = (*names, *(f"s{name}" for name in names), "val", "out", *stage.idle)
    layer = Layer((head,), made, size * offset)
    return Scene(story, dims, (layer,), stage.tokens, tuple(acting), read)


def either(stage: Stage) -> Scene:
    """P6."""
    inputs = [(1.0, 0.0)] * 2
    return _gate(stage, "OR: each of two tokens is enough.", inputs, [((-1, -1), 1.0, -1.0)], 1.0, 0.12)


def both(stage: Stage) -> Scene:
    """P7."""
    return _gate(stage, "AND: two tokens are needed.", [(1.0, 0.0)] * 2, [((1, 1), -1.0, 1.0)], 0.0, 0.2)


def negation(stage: Stage) -> Scene:
    """P8."""
    units = [((1, 0), 0.0, 1.0), ((1, 1), -1.0, -2.0)]
    return _gate(stage, "Negation: good, but not.", [(1.0, 0.0)] * 2, units, 0.0, 0.5)


def equality(stage: Stage) -> Scene:
    """P9."""
    signs = [stage.sign() for _ in range(2)]
    units = [((1, 1), 0.0, 1.0), ((-1, -1), 0.0, 1.0)]
    story = "Equality of two signs: each decides, given the other."
    return _gate(stage, story, [(sign, -sign) for sign in signs], units, -1.0, 0.9)


def saturation(stage: Stage) -> Scene:
    """P10."""
    return _gate(stage, "Saturation: twice as much as is needed.", [(1.0, 0.0)], [((-2,), 1.0, -1.0)], 1.0, 0.5)


def majority(stage: Stage) -> Scene:
    """P20."""
    units = [((1, 1, 1), -1.0, 1.0), ((1, 1, 1), -2.0, -1.0)]
    return _gate(stage, "Majority: two of three are enough.", [(1.0, 0.0)] * 3, units, 0.0, 0.2)


def backup(stage: Stage) -> Scene:
    """P11."""
    second = stage.uniform(0.8, 1.0)
    units = [((1, 0), 0.0, 1.0), ((-1, 1), 0.0, 1.0)]
    story = "A backup: the second token takes over where the first is gone."
    return _gate(stage, story, [(1.0, 0.0), (second, 0.0)], units, 0.0, 0.12)


RECIPES: dict[str, Callable[[Stage], Scene]] = {
    "P6": either,
    "P7": both,
    "P8": negation,
    "P9": equality,
    "P10": saturation,
    "P11": backup,
    "P20": majority,
}
