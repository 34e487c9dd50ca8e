"""Planted decoders: induction (P12), induction with two prefixes that match (P14), a chain beside a sink (P15)."""

import math
from collections.abc import Sequence
from itertools import pairwise

from attnprobe.errors import InputError
from attnprobe.models.planted.plan import IDLE, Head, Layer, Plan, Row, shapley

_BOS = "[BOS]"


def _circuit(words: Sequence[str], beta: float, spare: tuple[str, ...] = ()) -> dict[str, object]:
    """An induction circuit over these words: what of a `Plan` does not depend on which word is explained.

    spare: words of the vocabulary that the input does not have.
    Residual stream: token | place | previous token | output, all one-hot. Head 1 looks one place back (its query and
    key are places) and writes that token as the previous one. Head 2 looks where the previous token is its own
    token, and writes the token there to the output. Contents are tokens alone: places are never taken away.
    """
    names, n = tuple(dict.fromkeys((*words, *spare))), len(words)
    parts = {kind: {word: f"{kind}:{word}" for word in names} for kind in ("tok", "prev", "out")}
    places = [f"place:{i}" for i in range(n)]
    one_back = Head(
        ((1.0,) * n,),
        {(parts["tok"][w], parts["prev"][w]): 1.0 for w in names},
        {(places[i], places[i - 1]): beta for i in range(1, n)},
    )
    matching = Head(
        ((1.0,) * n,),
        {(parts["tok"][w], parts["out"][w]): 1.0 for w in names},
        {(parts["tok"][w], parts["prev"][w]): beta for w in names},
    )
    return {
        "tokens": tuple(words),
        "dims": (*parts["tok"].values(), *places, *parts["prev"].values(), *parts["out"].values()),
        "contents": {w: {parts["tok"][w]: 1.0} for w in names},
        "layers": (Layer((one_back,)), Layer((matching,))),
        "readout": {w: {parts["out"][w]: 1.0} for w in names},
        "causal": True,
        "positions": tuple({place: 1.0} for place in places),
    }


def _words(default: int, n_tokens: int | None) -> list[str]:
    """Words that come once, before what was planted, to make the input as long as asked for."""
    n = default if n_tokens is None else n_tokens
    if n < default:
        raise InputError(f"n_tokens is at least {default}, got {n_tokens}")
    return [f"d{number + 1}" for number in range(n - default)]


def p12(n_tokens: int | None = None, *, period: int = 4, beta: float = 30.0) -> Plan:
    """The induction circuit: a sequence of `period` words, said twice; the explained token is the last but one."""
    if period < 3:
        raise InputError(f"period is at least 3, got {period}")
    before, said = _words(2 * period + 1, n_tokens), [str(number) for number in range(period)]
    words = [_BOS, *before, *said, *said]
    read = len(words) - 2
    source, match, seen = read - period + 1, read - period, read + 1

    def worth(match: bool, source: bool, query: bool) -> float:
        return source * (1.0 if match and query else 1 / seen)

    truth, path = [0.0] * len(words), [0.0] * len(words)
    for place, value in zip((match, source, read), shapley(worth, 3), strict=True):
        truth[place] = value
    path[source] = 1.0
    return Plan(
        name="P12",
        title="induction",
        story=(
            f"An induction circuit. At '{words[read]}' head 2 finds the token whose predecessor was '{words[read]}' "
            f"and gives it on, so '{words[source]}' is predicted. The softmax is saturated: gradient x input gives all "
            "to that source token and sees nothing of the two tokens that had to match. Taken away, either of them "
            f"lets the logit fall from 1 to 1/{seen}. Path of the values: the source alone; whole function: all three."
        ),
        answer=1.0,
        truth=tuple(truth),
        players=(match, source, read),
        label=words[source],
        read=read,
        other_truth={"value path": tuple(path)},
        right=("shapley_exact",) if len(words) <= 12 else (),
        misled=("input_x_gradient", "attention_x_gradient", "rollout"),
        **_circuit(words, beta, (str(period),)),  # type: ignore[arg-type]
    )


def p14(n_tokens: int | None = None, *, beta: float = 30.0) -> Plan:
    """Induction with two prefixes that match: [BOS] x one x two x; the logit of `one`."""
    before = _words(6, n_tokens)
    words = [_BOS, *before, "x", "one", "x", "two", "x"]
    n, first = len(words), 1 + len(before)
    players = (first, first + 1, first + 2, n - 1)

    def worth(match: bool, source: bool, rival: bool, query: bool) -> float:
        # Weight on `one`: shared where both prefixes match, none where only the rival does, even where nothing does.
        weight = 1 / n if not query or not (match or rival) else match / (match + rival)
        return source * weight

    truth, path = [0.0] * n, [0.0] * n
    for place, value in zip(players, shapley(worth, 4), strict=True):
        truth[place] = value
    path[first + 1] = 0.5
    return Plan(
        name="P14",
        title="induction, two prefixes",
        story=(
            "Induction with two prefixes that match: x was followed by 'one' and by 'two', and each gets half of the "
            "attention. Of the logit of 'one': the first x makes it found, the second x takes half of it away, so one "
            "token of the same word is for it and the other against it. Attention gives 'one' and 'two' the same."
        ),
        answer=0.5,
        truth=tuple(truth),
        players=players,
        label="one",
        read=n - 1,
        other_truth={"value path": tuple(path)},
        right=("shapley_exact",) if n <= 12 else (),
        misled=("raw_attention", "rollout", "input_x_gradient", "attention_x_gradient"),
        **_circuit(words, beta),  # type: ignore[arg-type]
    )


def p15(n_tokens: int | None = None, *, sink: float = 0.6, back: float = 0.3, n_layers: int = 3) -> Plan:
    """A causal chain beside a sink: in each layer every token puts `sink` on [BOS] and `back` on the one before it."""
    if not (sink > 0 and back > 0 and sink + back < 1):
        raise InputError(f"sink and back are above 0 and together below 1, got {sink} and {back}")
    before = _words(6, n_tokens)
    words = (_BOS, *before, "plus", "minus", "a", "b", "c")
    n = len(words)
    rows = tuple(_sink_row(i, n, sink, back) for i in range(n))
    reach = rows[-1]
    for _ in range(n_layers - 1):
        reach = tuple(math.fsum(reach[k] * rows[k][j] for k in range(n)) for j in range(n))
    signs = tuple({"plus": 1.0, "minus": -1.0}.get(word, 0.0) for word in words)
    truth = tuple(p * s * 10 for p, s in zip(reach, signs, strict=True))
    path = ("sig", *(f"hop{layer}" for layer in range(1, n_layers)), "out")
    layers = tuple(Layer((Head(rows, {(a, b): 1.0}),)) for a, b in pairwise(path))
    return Plan(
        name="P15",
        title="chain beside a sink",
        story=(
            f"A decoder in which every token of every layer puts {sink:g} of its attention on [BOS], whose value is "
            f"null, and {back:g} on the token before it. In {n_layers} layers the contents of 'plus' and 'minus' "
            "wander to the last token, one for y and one against it. Attention and rollout point at the sink. Every "
            "hop is linear, so the truth is content times the product of the layers' weights."
        ),
        tokens=words,
        dims=(*path, IDLE) if before else path,
        contents={"plus": {"sig": 10.0}, "minus": {"sig": -10.0}} | {word: {IDLE: 1.0} for word in before},
        layers=layers,
        answer=math.fsum(truth),
        truth=truth,
        players=tuple(i for i, s in enumerate(signs) if s),
        readout={"c": {"out": 1.0}},
        label="c",
        read=n - 1,
        causal=True,
        right=("input_x_gradient", "integrated_gradients", "leave_one_out", "shapley_exact"),
        misled=("raw_attention", "rollout"),
    )


def _sink_row(i: int, n: int, sink: float, back: float) -> Row:
    """What token i looks at: [BOS], the one before it, and the rest evenly; the first two may be one."""
    row = [0.0] * n
    for j in range(i + 1):
        row[j] = (1 - sink - back) / (i + 1)
    row[0] += sink
    row[max(i - 1, 0)] += back
    return tuple(row)
