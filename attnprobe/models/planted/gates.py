"""Planted gates: attention is uniform and the same for all, an MLP behind it decides (P6 to P10)."""

from attnprobe.models.planted.plan import Head, Layer, Plan, Unit

# The values are 3 times the contents and the weights 1/3, so that sa = a and sb = b at [CLS].
_MIX = Head(((1.0, 1.0, 1.0),), {("a", "sa"): 3.0, ("b", "sb"): 3.0})
_CONTENTS: dict[str, dict[str, float]] = {
    "a": {"a": 1.0},
    "b": {"b": 1.0},
    "good": {"a": 1.0},
    "not": {"b": 1.0},
    "minus_b": {"b": -1.0},
    "none": {},
}


def _gate(
    name: str,
    story: str,
    units: tuple[Unit, ...],
    offset: float,
    answer: float,
    truth: tuple[float, float],
    tokens: tuple[str, str] = ("a", "b"),
) -> Plan:
    return Plan(
        name=name,
        story=story + " Attention is uniform in all gates, so attention alone says the same about all of them.",
        tokens=("[CLS]", *tokens),
        dims=("a", "b", "sa", "sb", "out"),
        contents=_CONTENTS,
        layers=(Layer((_MIX,), units, offset),),
        answer=answer,
        truth=(0.0, *truth),
    )


def _unit(a: float, b: float, bias: float, out: float) -> Unit:
    return Unit({"sa": a, "sb": b}, bias, out)


_EQUAL = (_unit(1.0, 1.0, 0.0, 1.0), _unit(-1.0, -1.0, 0.0, 1.0))

GATES = (
    _gate(
        "P6",
        "OR: y = 1 - relu(1 - a - b). Each token alone is enough, so taking one away changes nothing: leave-one-out "
        "and the gradient see no token at all, Shapley and integrated gradients share the 1 between them.",
        (_unit(-1.0, -1.0, 1.0, -1.0),),
        offset=1.0,
        answer=1.0,
        truth=(0.5, 0.5),
    ),
    _gate(
        "P7",
        "AND: y = relu(a + b - 1). Both tokens are needed, so leave-one-out and gradient x input give each the whole 1 "
        "and add up to 2; Shapley and integrated gradients share it.",
        (_unit(1.0, 1.0, -1.0, 1.0),),
        offset=0.0,
        answer=1.0,
        truth=(0.5, 0.5),
    ),
    _gate(
        "P8",
        "Negation: y = relu(a) - 2 relu(a + b - 1), where good says a = 1 and not says b = 1. Good alone "
        "gives 1, not good gives -1. Leave-one-out and gradient x input say (-1, -2), Shapley and integrated "
        "gradients (0, -1).",
        (_unit(1.0, 0.0, 0.0, 1.0), _unit(1.0, 1.0, -1.0, -2.0)),
        offset=0.0,
        answer=-1.0,
        truth=(0.0, -1.0),
        tokens=("good", "not"),
    ),
    _gate(
        "P9",
        "Equality of two signs: y = relu(a + b) + relu(-a - b) - 1, here (+, +). Against zero contents (y = -1) each "
        "token gives 1; against two flipped signs (y = 1) the same methods say 0.",
        _EQUAL,
        offset=-1.0,
        answer=1.0,
        truth=(1.0, 1.0),
    ),
    _gate(
        "P9_unequal",
        "The gate of P9 at (+, -): y = -1, as with zero contents, so Shapley is 0 for both, although either token "
        "taken away raises y to 0 (leave-one-out -1, -1). The input lies on a kink, a + b = 0.",
        _EQUAL,
        offset=-1.0,
        answer=-1.0,
        truth=(0.0, 0.0),
        tokens=("a", "minus_b"),
    ),
    _gate(
        "P10",
        "Saturation: y = 1 - relu(1 - 2a). Token a alone decides, twice as strongly as needed, so that the gradient is "
        "0 at the input; leave-one-out, Shapley and integrated gradients give it the whole 1.",
        (_unit(-2.0, 0.0, 1.0, -1.0),),
        offset=1.0,
        answer=1.0,
        truth=(1.0, 0.0),
        tokens=("a", "none"),
    ),
)
