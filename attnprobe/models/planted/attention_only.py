"""Planted models in which attention alone does the work, and raw attention still misleads (P1, P1c, P2, P3, P5)."""

import math

from attnprobe.models.planted.plan import Head, Layer, Plan

_SAME = ((1.0, 1.0, 1.0, 1.0),)

P1 = Plan(
    name="P1",
    story=(
        "Token S gets 0.7 of the attention whatever the tokens say, but its value is zero: it adds nothing. "
        "Token A gets 0.1 and carries all of y. Raw attention and rollout point at S; what looks at values points at A."
    ),
    tokens=("[CLS]", "S", "A", "N"),
    dims=("val", "out"),
    contents={"A": {"val": 10.0}},
    layers=(Layer((Head(((0.1, 0.7, 0.1, 0.1),), {("val", "out"): 1.0}),)),),
    answer=1.0,
    truth=(0.0, 0.0, 1.0, 0.0),
)

P1C = Plan(
    name="P1c",
    story=(
        "The same weights as in P1, but made by what the tokens say: [CLS] asks and S answers. S still adds nothing by "
        "its value, yet it takes attention away from A: without its key y would be 2.5. Two truths hold: on the value "
        "path only A acts; on the whole function [CLS] and S take 0.5 each away from the 2 that A gives."
    ),
    tokens=("[CLS]", "S", "A", "N"),
    dims=("val", "out", "key", "query"),
    contents={"A": {"val": 10.0}, "S": {"key": math.log(7.0)}, "[CLS]": {"query": 1.0}},
    layers=(Layer((Head(_SAME, {("val", "out"): 1.0}, query_dim="query", key_dim="key"),)),),
    answer=1.0,
    truth=(-0.5, -0.5, 2.0, 0.0),
    other_truth={"value path": (0.0, 0.0, 1.0, 0.0)},
)

P2 = Plan(
    name="P2",
    story=(
        "The label is in the content of [CLS] and reaches y through the residual stream. Attention moves something "
        "large from A (weight 0.9), into a dimension that y does not read. Whatever does not look at the output "
        "points at A; the truth is [CLS]."
    ),
    tokens=("[CLS]", "A", "B"),
    dims=("lab", "jin", "jout"),
    contents={"[CLS]": {"lab": 2.0}, "A": {"jin": 5.0}, "B": {"jin": 1.0}},
    layers=(Layer((Head(((0.05, 0.9, 0.05),), {("jin", "jout"): 1.0}),)),),
    answer=2.0,
    truth=(2.0, 0.0, 0.0),
    readout="lab",
)


def _twin(name: str, first: tuple[float, ...], second: tuple[float, ...]) -> Plan:
    return Plan(
        name=name,
        story=(
            "One of two twins, P3A and P3B, that give the same y on every input: two heads add their values once and "
            "twice, and p1 + 2 p2 = (0.3, 1.3, 1.4) in both. The mean of the attention ranks a over b in twin A and b "
            "over a in twin B; both cannot be right. What weighs a head by what it passes on calls them alike."
        ),
        tokens=("[CLS]", "a", "b"),
        dims=("val", "out"),
        contents={"a": {"val": 1.0}, "b": {"val": 1.0}},
        layers=(Layer((Head((first,), {("val", "out"): 1.0}), Head((second,), {("val", "out"): 2.0}))),),
        answer=2.7,
        truth=(0.0, 1.3, 1.4),
    )


P3A = _twin("P3A", (0.1, 0.8, 0.1), (0.1, 0.25, 0.65))
P3B = _twin("P3B", (0.1, 0.2, 0.7), (0.1, 0.55, 0.35))

P5 = Plan(
    name="P5",
    story=(
        "Two hops. In layer 1 position T fetches the signal of A (weight 0.9); in layer 2 [CLS] reads position T "
        "(weight 0.9). All content is A's, T only carries it. The last layer's attention points at T, and rollout with "
        "half identity too; rollout without identity and all that follows the gradient point at A."
    ),
    tokens=("[CLS]", "A", "T"),
    dims=("sig", "mov", "out"),
    contents={"A": {"sig": 1.0}},
    layers=(
        Layer((Head(((0.9, 0.05, 0.05), (0.05, 0.05, 0.9), (0.05, 0.9, 0.05)), {("sig", "mov"): 1.0}),)),
        Layer((Head(((0.05, 0.05, 0.9),), {("mov", "out"): 1.0}),)),
    ),
    answer=0.815,
    truth=(0.0, 0.815, 0.0),
)

ATTENTION_ONLY = (P1, P1C, P2, P3A, P3B, P5)
