"""Planted models in which attention alone does the work, and misleads (P1, P1c, P2, P3, P5, P13, P19)."""

import math

from attnprobe.errors import InputError
from attnprobe.models.planted.plan import Head, Layer, Plan, Row, grow, padded, shapley, with_distractors

# What is right wherever tokens act one by one on the path of the values.
ONE_BY_ONE = (
    "input_x_gradient",
    "integrated_gradients",
    "leave_one_out",
    "shapley_exact",
    "shapley_sampling",
    "kernel_shap",
)
_VALUES = {("val", "out"): 1.0}


def p1(n_tokens: int | None = None, *, weight: float = 0.7, value: float = 10.0) -> Plan:
    """A value-null token: S gets `weight` of the attention and adds nothing, A gets 0.1 and carries all of y."""
    if not 0 < weight < 0.8:
        raise InputError(f"weight is what S gets beside 0.2 for [CLS] and A, between 0 and 0.8, got {weight}")
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "S", "A", "N"), ("val", "out"))
    rows = grow(((0.1, weight, 0.1, 0.8 - weight),), n, neutral=3)
    return Plan(
        name="P1",
        title="value-null token",
        story=(
            f"Token S gets {weight:g} of the attention whatever the tokens say, but its value is zero: it adds "
            "nothing. Token A gets 0.1 and carries all of y. Raw attention and rollout point at S; what looks at "
            "values points at A. Contents act one by one, so y = 0.1 · value of A, and that is the truth."
        ),
        tokens=tokens,
        dims=dims,
        contents={"A": {"val": value}, **idle},
        layers=(Layer((Head(rows, _VALUES),)),),
        answer=0.1 * value,
        truth=padded((0.0, 0.0, 0.1 * value, 0.0), n),
        players=(2,),
        right=("value_norms", "attention_x_gradient", *ONE_BY_ONE),
        misled=("raw_attention", "rollout", "saliency"),
    )


def p1c(n_tokens: int | None = None, *, factor: float = 7.0, value: float = 10.0) -> Plan:
    """P1 with its weights made by contents: [CLS] asks, S answers, and so takes attention away from A."""
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "S", "A", "N"), ("val", "out", "key", "query"))
    asked, unasked = value / (n - 1 + factor), value / n
    third = (asked - unasked) / 3
    return Plan(
        name="P1c",
        title="the same, made by contents",
        story=(
            f"Weights as in P1, but made by what the tokens say: [CLS] asks and S answers. S still adds nothing by its "
            f"value, yet it takes attention away from A: without its key y would be {unasked:g}. Two truths hold: on "
            f"the value path only A acts; on the whole function [CLS] and S each take a third of the fall, "
            f"{-third:.3g}, from what A gives."
        ),
        tokens=tokens,
        dims=dims,
        contents={"A": {"val": value}, "S": {"key": math.log(factor)}, "[CLS]": {"query": 1.0}, **idle},
        layers=(Layer((Head(((1 / n,) * n,), _VALUES, {("query", "key"): 1.0}),)),),
        answer=asked,
        truth=padded((third, third, unasked + third, 0.0), n),
        players=(0, 1, 2),
        other_truth={"value path": padded((0.0, 0.0, asked, 0.0), n)},
        right=("integrated_gradients", "shapley_exact"),
        misled=("raw_attention", "rollout"),
    )


def p2(n_tokens: int | None = None, *, weight: float = 0.9, label: float = 2.0, large: float = 5.0) -> Plan:
    """The label passes through the residual stream; attention moves something large that y does not read."""
    rest = (1 - weight) / 2
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "A", "B"), ("lab", "jin", "jout"))
    return Plan(
        name="P2",
        title="residual bypass",
        story=(
            "The label is in the content of [CLS] and reaches y through the residual stream. Attention moves something "
            f"large from A (weight {weight:g}), into a dimension that y does not read. Whatever does not look at the "
            "output points at A; attention times gradient says 0; the truth is [CLS]."
        ),
        tokens=tokens,
        dims=dims,
        contents={"[CLS]": {"lab": label}, "A": {"jin": large}, "B": {"jin": 1.0}, **idle},
        layers=(Layer((Head(grow(((rest, weight, rest),), n), {("jin", "jout"): 1.0}),)),),
        answer=label,
        truth=padded((label, 0.0, 0.0), n),
        players=(0,),
        readout={"y": {"lab": 1.0}},
        right=ONE_BY_ONE,
        misled=("raw_attention", "value_norms", "value_norms_residual", "attention_x_gradient"),
    )


def _twin(name: str, first: Row, second: Row, n_tokens: int | None) -> Plan:
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "a", "b"), ("val", "out"))
    heads = (Head(grow((first,), n), _VALUES), Head(grow((second,), n), {("val", "out"): 2.0}))
    return Plan(
        name=name,
        title=f"twin {name[-1]} of two",
        story=(
            "One of two twins, P3A and P3B, that give the same y on every input: two heads add their values once and "
            "twice, and p1 + 2 p2 = (0.3, 1.3, 1.4) in both. The mean of the attention ranks a over b in twin A and b "
            "over a in twin B; both cannot be right. What weighs a head by what it passes on calls them alike."
        ),
        tokens=tokens,
        dims=dims,
        contents={"a": {"val": 1.0}, "b": {"val": 1.0}, **idle},
        layers=(Layer(heads),),
        answer=2.7,
        truth=padded((0.0, 1.3, 1.4), n),
        players=(1, 2),
        right=("value_norms", "attention_x_gradient", *ONE_BY_ONE),
        misled=("rollout", "raw_attention") if name == "P3A" else ("rollout",),
    )


def p3a(n_tokens: int | None = None) -> Plan:
    """The twin whose mean attention puts a first."""
    return _twin("P3A", (0.1, 0.8, 0.1), (0.1, 0.25, 0.65), n_tokens)


def p3b(n_tokens: int | None = None) -> Plan:
    """The twin whose mean attention puts b first."""
    return _twin("P3B", (0.1, 0.2, 0.7), (0.1, 0.55, 0.35), n_tokens)


def p5(n_tokens: int | None = None, *, weight: float = 0.9, content: float = 1.0) -> Plan:
    """Two hops: T fetches the signal of A, [CLS] reads T."""
    rest = (1 - weight) / 2
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "A", "T"), ("sig", "mov", "out"))
    first = ((weight, rest, rest), (rest, rest, weight), (rest, weight, rest))
    y = content * (weight**2 + 2 * rest**2)
    return Plan(
        name="P5",
        title="two hops",
        story=(
            f"Two hops. In layer 1 position T fetches the signal of A (weight {weight:g}); in layer 2 [CLS] reads "
            f"position T (weight {weight:g}). All content is A's, T only carries it. The last layer's attention points "
            "at T, and rollout with half identity too; rollout without identity and all that follows the gradient to "
            "the input point at A. y = content · (A2 A1)_{[CLS], A}."
        ),
        tokens=tokens,
        dims=dims,
        contents={"A": {"sig": content}, **idle},
        layers=(
            Layer((Head(grow(first, n), {("sig", "mov"): 1.0}),)),
            Layer((Head(grow(((rest, rest, weight),), n), {("mov", "out"): 1.0}),)),
        ),
        answer=y,
        truth=padded((0.0, y, 0.0), n),
        players=(1,),
        right=ONE_BY_ONE,
        misled=("raw_attention", "rollout", "attention_x_gradient", "chefer_2021b"),
    )


_SAME_ANSWER = {"A": (0.7, 0.1, 0.1, 0.1), "B": (0.4, 0.6, 0.0, 0.0), "C": (0.8, 0.0, 0.0, 0.2)}


def _unidentified(which: str, n_tokens: int | None, values: Row) -> Plan:
    weights = _SAME_ANSWER[which]
    n, tokens, dims, idle = with_distractors(n_tokens, ("zero", "one", "two", "three"), ("val", "out"))
    given = tuple(w * v for w, v in zip(weights, values, strict=True))
    if len(values) != len(weights) or values[0]:
        raise InputError(f"values has {len(weights)} numbers, the first of them 0, got {values}")
    return Plan(
        name=f"P13{which}",
        title=f"same output, {which} of three",
        story=(
            "Four tokens with values 0, 1, 2, 3 in a single dimension. P13A, P13B and P13C have other weights and the "
            "same y here (0.6): from the output alone the weights cannot be told, and effective attention gives all "
            "three the same (0, 0.043, 0.086, 0.129). As functions of the tokens they differ, and the truth of each is "
            "weight times value; what looks at weights and values together finds it."
        ),
        tokens=tokens,
        dims=dims,
        contents={**{token: {"val": v} for token, v in zip(tokens, values, strict=False)}, **idle},
        layers=(Layer((Head(grow((weights,), n), _VALUES),)),),
        answer=math.fsum(given),
        truth=padded(given, n),
        players=tuple(j for j, effect in enumerate(given) if effect),
        right=("value_norms", "attention_x_gradient", *ONE_BY_ONE),
        misled=("raw_attention",) + (("effective_attention",) if which != "A" else ()),
    )


def p13a(n_tokens: int | None = None, *, values: Row = (0.0, 1.0, 2.0, 3.0)) -> Plan:
    """Most weight on the token that carries nothing."""
    return _unidentified("A", n_tokens, values)


def p13b(n_tokens: int | None = None, *, values: Row = (0.0, 1.0, 2.0, 3.0)) -> Plan:
    """All of y from the second token."""
    return _unidentified("B", n_tokens, values)


def p13c(n_tokens: int | None = None, *, values: Row = (0.0, 1.0, 2.0, 3.0)) -> Plan:
    """All of y from the last token."""
    return _unidentified("C", n_tokens, values)


def p19(n_tokens: int | None = None, *, chosen: float = 2.0, other: float = -1.0, beta: float = 60.0) -> Plan:
    """A switch: whether [CLS] reads a or b is decided by what it read in the layer before."""
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "if", "a", "b"), ("on", "asks", "key", "val", "out"))
    # Layer 2: b has half of beta by its place, a has beta where the switch is on and a is there.
    half = tuple(math.exp(beta / 2 * (j == 3)) for j in range(4))
    place = tuple(p / math.fsum(half) for p in half)
    fetch = (0.05, 0.85, 0.05, 0.05)

    def worth(on: bool, a: bool, b: bool) -> float:
        return chosen if on and a else other * b

    return Plan(
        name="P19",
        title="switch",
        story=(
            "Words that act on one another. In layer 1 [CLS] fetches whether 'if' is there; in layer 2 it reads a "
            "where it is, else b: y = a if 'if' and a, else b. The softmax is saturated, so no gradient reaches 'if' "
            "at the input; taking it away, or a path from zero, shows that it decides. Raw attention sees a alone. "
            f"Shapley: 'if' and a share {chosen:g}, and b, which is never read here, is what they keep out."
        ),
        tokens=tokens,
        dims=dims,
        contents={"if": {"on": 1.0}, "a": {"key": 1.0, "val": chosen}, "b": {"val": other}, **idle},
        layers=(
            Layer((Head(grow((fetch,), n), {("on", "asks"): 1 / 0.85}),)),
            Layer((Head(_spread(place, n), {("val", "out"): 1.0}, {("asks", "key"): beta}),)),
        ),
        answer=chosen,
        truth=padded((0.0, *shapley(worth, 3)), n),
        players=(1, 2, 3),
        right=("shapley_exact",),
        misled=("raw_attention", "rollout", "input_x_gradient", "attention_x_gradient", "saliency"),
    )


def _spread(row: Row, n: int) -> tuple[Row, ...]:
    """The row with distractors that score as [CLS] does, as content scores 0 there."""
    wide = [*row, *[row[0]] * (n - len(row))]
    return (tuple(p / math.fsum(wide) for p in wide),)
