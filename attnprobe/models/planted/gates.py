"""Planted gates: attention is uniform and the same for all, an MLP decides (P6 to P10, P20); P11, a backup head."""

from collections.abc import Callable, Sequence

from attnprobe.models.planted.plan import Head, Layer, Plan, Unit, grow, padded, shapley, with_distractors

_SAME = " Attention is uniform in all gates, so attention alone says the same about all of them."
_NAMES = ("a", "b", "c")
_BLIND = ("raw_attention", "rollout")
_EXACT = ("shapley_exact",)
_FAIR = ("integrated_gradients", *_EXACT)


def _relu(x: float) -> float:
    return max(x, 0.0)


def _gate(
    name: str,
    title: str,
    story: str,
    formula: Callable[..., float],
    units: Sequence[Unit],
    inputs: dict[str, float],
    n_tokens: int | None,
    *,
    offset: float = 0.0,
    right: tuple[str, ...] = _FAIR,
    misled: tuple[str, ...] = (),
    other_truth: dict[str, tuple[float, ...]] | None = None,
) -> Plan:
    """formula: y of the inputs; the MLP computes it from their copies sa, sb, … at [CLS]."""
    names = _NAMES[: len(inputs)]
    n, tokens, dims, idle = with_distractors(
        n_tokens, ("[CLS]", *inputs), (*names, *(f"s{name}" for name in names), "out")
    )
    # The values are n times the contents and the weights 1/n, so that sa = a and sb = b at [CLS].
    mix = Head(((1 / n,) * n,), {(name, f"s{name}"): float(n) for name in names})

    def worth(*present: bool) -> float:
        return formula(*(x * here for x, here in zip(inputs.values(), present, strict=True)))

    contents = {token: {name: x} for name, (token, x) in zip(names, inputs.items(), strict=True) if x}
    return Plan(
        name=name,
        title=title,
        story=story + _SAME,
        tokens=tokens,
        dims=dims,
        contents={**contents, **idle},
        layers=(Layer((mix,), tuple(units), offset),),
        answer=formula(*inputs.values()),
        truth=padded((0.0, *shapley(worth, len(inputs))), n),
        players=tuple(place for place, x in enumerate(inputs.values(), 1) if x),
        other_truth={name: padded((0.0, *values), n) for name, values in (other_truth or {}).items()},
        right=right,
        misled=(*_BLIND, *misled),
    )


def _unit(a: float, b: float, bias: float, out: float) -> Unit:
    return Unit({"sa": a, "sb": b}, bias, out)


def p6(n_tokens: int | None = None, *, a: float = 1.0, b: float = 1.0) -> Plan:
    """OR."""
    return _gate(
        "P6",
        "OR",
        "OR: y = 1 - relu(1 - a - b). Each token alone is enough, so taking one away changes nothing: leave-one-out "
        "and the gradient see no token at all, Shapley and integrated gradients share the 1 between them.",
        lambda a, b: 1 - _relu(1 - a - b),
        (_unit(-1.0, -1.0, 1.0, -1.0),),
        {"a": a, "b": b},
        n_tokens,
        offset=1.0,
        misled=("leave_one_out", "input_x_gradient", "attention_x_gradient", "chefer_2021b"),
    )


def p7(n_tokens: int | None = None, *, a: float = 1.0, b: float = 1.0) -> Plan:
    """AND."""
    return _gate(
        "P7",
        "AND",
        "AND: y = relu(a + b - 1). Both tokens are needed, so leave-one-out and gradient x input give each the whole 1 "
        "and add up to 2; Shapley and integrated gradients share it. As an order of the tokens all are right.",
        lambda a, b: _relu(a + b - 1),
        (_unit(1.0, 1.0, -1.0, 1.0),),
        {"a": a, "b": b},
        n_tokens,
        right=(*_FAIR, "leave_one_out", "input_x_gradient", "attention_x_gradient"),
    )


def p8(n_tokens: int | None = None, *, a: float = 1.0, b: float = 1.0) -> Plan:
    """Negation: good, but not."""
    return _gate(
        "P8",
        "negation",
        "Negation: y = relu(a) - 2 relu(a + b - 1), where good says a = 1 and not says b = 1. Good alone "
        "gives 1, not good gives -1. Leave-one-out and gradient x input say (-1, -2), Shapley and integrated "
        "gradients (0, -1).",
        lambda a, b: _relu(a) - 2 * _relu(a + b - 1),
        (_unit(1.0, 0.0, 0.0, 1.0), _unit(1.0, 1.0, -1.0, -2.0)),
        {"good": a, "not": b},
        n_tokens,
        right=_EXACT,
        misled=("leave_one_out", "input_x_gradient", "attention_x_gradient", "chefer_2021b"),
        other_truth={"one at a time": (-1.0, -2.0)} if (a, b) == (1.0, 1.0) else None,
    )


_EQUAL = (_unit(1.0, 1.0, 0.0, 1.0), _unit(-1.0, -1.0, 0.0, 1.0))


def _equal(a: float, b: float) -> float:
    return _relu(a + b) + _relu(-a - b) - 1


def p9(n_tokens: int | None = None, *, a: float = 1.0, b: float = 1.0) -> Plan:
    """Equality of two signs, both +."""
    return _gate(
        "P9",
        "XNOR, equal signs",
        "Equality of two signs: y = relu(a + b) + relu(-a - b) - 1, here (+, +). Against zero contents (y = -1) each "
        "token gives 1; against two flipped signs (y = 1) the same methods say 0.",
        _equal,
        _EQUAL,
        {"a": a, "b": b},
        n_tokens,
        offset=-1.0,
        right=(*_FAIR, "leave_one_out", "input_x_gradient", "attention_x_gradient"),
    )


def p9_unequal(n_tokens: int | None = None, *, a: float = 1.0, b: float = -1.0) -> Plan:
    """Equality of two signs, + and -."""
    return _gate(
        "P9_unequal",
        "XNOR, unequal signs",
        "The gate of P9 at (+, -): y = -1, as with zero contents, so Shapley is 0 for both, although either token "
        "taken away raises y to 0 (leave-one-out -1, -1), a truth as well. The input lies on a kink, a + b = 0.",
        _equal,
        _EQUAL,
        {"a": a, "minus_b": b},
        n_tokens,
        offset=-1.0,
        right=(*_FAIR, "input_x_gradient"),
        misled=("leave_one_out",),
        other_truth={"one at a time": (-1.0, -1.0)} if (a, b) == (1.0, -1.0) else None,
    )


def p10(n_tokens: int | None = None, *, a: float = 1.0) -> Plan:
    """Saturation."""
    return _gate(
        "P10",
        "saturation",
        "Saturation: y = 1 - relu(1 - 2a). Token a alone decides, twice as strongly as needed, so that the gradient is "
        "0 at the input; leave-one-out, Shapley and integrated gradients give it the whole 1.",
        lambda a, b: 1 - _relu(1 - 2 * a),
        (_unit(-2.0, 0.0, 1.0, -1.0),),
        {"a": a, "none": 0.0},
        n_tokens,
        offset=1.0,
        right=(*_FAIR, "leave_one_out"),
        misled=("input_x_gradient", "attention_x_gradient", "saliency", "chefer_2021b"),
    )


def p20(n_tokens: int | None = None, *, votes: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Plan:
    """The majority of three: two are enough, so that none is missed."""
    return _gate(
        "P20",
        "majority of three",
        "Majority: y = relu(s - 1) - relu(s - 2) of s = a + b + c votes, 1 from two votes on. With three votes none is "
        "missed and the gradient is 0, so leave-one-out and gradients see nothing; of all orders in which the three "
        "may come each decides in a third, so the truth is 1/3 each. It takes two away at a time to see it.",
        lambda a, b, c: _relu(a + b + c - 1) - _relu(a + b + c - 2),
        tuple(Unit({"sa": 1.0, "sb": 1.0, "sc": 1.0}, bias, out) for bias, out in ((-1.0, 1.0), (-2.0, -1.0))),
        dict(zip(_NAMES, votes, strict=True)),
        n_tokens,
        misled=("leave_one_out", "input_x_gradient", "attention_x_gradient", "saliency", "chefer_2021b"),
    )


def p11(n_tokens: int | None = None, *, first: float = 1.0, second: float = 0.9) -> Plan:
    """A backup head: y = h1 + relu(h2 - h1), so that the second takes over where the first is lost."""
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "a", "b"), ("va", "vb", "p", "q", "out"))
    heads = (
        Head(grow(((0.25, 0.5, 0.25),), n), {("va", "p"): 2 * first}),
        Head(grow(((0.25, 0.25, 0.5),), n), {("vb", "q"): 2 * second}),
    )

    def worth(a: bool, b: bool) -> float:
        return first * a + _relu(second * b - first * a)

    return Plan(
        name="P11",
        title="backup head",
        story=(
            f"Head 1 reads a ({first:g}), head 2 reads b ({second:g}), and y = h1 + relu(h2 - h1): the larger of the "
            "two. What b gives shows only where a is lost, so gradients and leave-one-out give b nothing, and a only "
            f"the {first - second:.3g} that b does not make up for; over both orders of coming they share y."
        ),
        tokens=tokens,
        dims=dims,
        contents={"a": {"va": 1.0}, "b": {"vb": 1.0}, **idle},
        layers=(Layer(heads, (Unit({"q": 1.0, "p": -1.0}, 0.0, 1.0),)),),
        answer=worth(True, True),
        truth=padded((0.0, *shapley(worth, 2)), n),
        players=(1, 2),
        readout={"y": {"p": 1.0, "out": 1.0}},
        other_truth={"heads as they are": padded((0.0, first, 0.0), n)} if first > second else {},
        right=_EXACT,
        misled=("raw_attention", "leave_one_out", "input_x_gradient"),
    )
