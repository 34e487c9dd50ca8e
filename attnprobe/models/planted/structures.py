"""Planted models of another build: a constant head (P4), shared keys and values (P16), cross-attention (P17), and one
layer that runs three times (P18)."""

import math

from attnprobe.models.planted.attention_only import ONE_BY_ONE
from attnprobe.models.planted.plan import Head, Layer, Plan, Row, grow, padded, with_distractors

_VALUES = {("val", "out"): 1.0}


def p4(n_tokens: int | None = None, *, constant: float = 4.0, first: float = 1.0, second: float = 1.0) -> Plan:
    """A head as a bias: head 1 always reads the constant of [BOS]; head 2 reads the two tokens."""
    n, tokens, dims, idle = with_distractors(n_tokens, ("[BOS]", "s1", "s2"), ("const", "val", "out"))
    heads = (
        Head(grow(((1.0, 0.0, 0.0),), n, neutral=None), {("const", "out"): 1.0}),
        Head(grow(((0.2, 0.6, 0.2),), n), _VALUES),
    )
    truth = (constant, 0.6 * first, 0.2 * second)
    return Plan(
        name="P4",
        title="constant head",
        story=(
            f"Head 1 looks at [BOS] alone, and its output is always {constant:g}: a bias, and no news about the input. "
            "Head 2 carries the signs of s1 and s2. Set to zero, head 1 matters most; set to its mean over inputs, it "
            "does not matter at all. Of the tokens' contents, [BOS] has the largest effect against zero, and none "
            "against what it always is. There is no residual connection."
        ),
        tokens=tokens,
        dims=dims,
        contents={"[BOS]": {"const": constant}, "s1": {"val": first}, "s2": {"val": second}, **idle},
        layers=(Layer(heads, residual=False),),
        answer=math.fsum(truth),
        truth=padded(truth, n),
        players=(0, 1, 2),
        read=2,
        other_truth={"against what [BOS] always is": padded((0.0, *truth[1:]), n)},
        right=("value_norms", "attention_x_gradient", *ONE_BY_ONE),
        misled=("rollout",),
    )


def p16(n_tokens: int | None = None) -> Plan:
    """Four query heads on two heads of keys and values, one of which adds and one takes away."""
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "a", "b", "c"), ("val", "out"))
    rows: tuple[Row, ...] = ((0.1, 0.7, 0.1, 0.1), (0.1, 0.5, 0.3, 0.1), (0.1, 0.6, 0.1, 0.2), (0.15, 0.55, 0.05, 0.25))
    adds, takes = {("val", "out"): 5.0}, {("val", "out"): -5.0}
    heads = tuple(Head(grow((row,), n), value) for row, value in zip(rows, (adds, adds, takes, takes), strict=True))
    truth = tuple(5 * (rows[0][j] + rows[1][j] - rows[2][j] - rows[3][j]) for j in range(1, 4))
    return Plan(
        name="P16",
        title="grouped heads that cancel",
        story=(
            "Grouped-query attention: heads 1 and 2 share one head of keys and values, heads 3 and 4 another, which "
            "writes the opposite. All heads look mostly at a, but what two add the others take away: of a little is "
            "left, b is for y and c against it. Attention, and norms taken head by head, point at a. "
            "Truth: 5 (p1 + p2 - p3 - p4), exact, since contents act one by one."
        ),
        tokens=tokens,
        dims=dims,
        contents={name: {"val": 1.0} for name in ("a", "b", "c")} | idle,
        layers=(Layer(heads, shared=2),),
        answer=math.fsum(truth),
        truth=padded((0.0, *truth), n),
        players=(1, 2, 3),
        right=("attention_x_gradient", *ONE_BY_ONE),
        misled=("raw_attention", "rollout"),
    )


def p17(n_tokens: int | None = None, *, against: float = -0.4) -> Plan:
    """Alignment: the decoder reads the place of 'cat', where the encoder has put what 'black' says."""
    n, tokens, dims, idle = with_distractors(n_tokens, ("[S]", "the", "black", "cat"), ("sig", "mov", "said", "out"))
    encoder: tuple[Row, ...] = (
        (0.85, 0.05, 0.05, 0.05),
        (0.05, 0.85, 0.05, 0.05),
        (0.05, 0.05, 0.05, 0.85),
        (0.05, 0.05, 0.85, 0.05),
    )
    step = (0.05, 0.05, 0.05, 0.85)
    reach = tuple(math.fsum(step[k] * encoder[k][j] for k in range(4)) for j in range(4))
    truth = (0.0, against * reach[1], reach[2], 0.0)
    return Plan(
        name="P17",
        title="alignment of the wrong place",
        story=(
            "An encoder-decoder. In the encoder the place of 'cat' has fetched the signal of 'black'; the decoder's "
            "last step looks at the place of 'cat' (0.85). The alignment says 'cat', the content is that of 'black': "
            "cross-attention tells where a state is read, and not which word it came from. Truth: content times the "
            "product of cross-attention and the encoder's attention."
        ),
        tokens=tokens,
        dims=dims,
        contents={"the": {"sig": against}, "black": {"sig": 1.0}, **idle},
        layers=(
            Layer((Head(grow(encoder, n), {("sig", "mov"): 1.0}),)),
            Layer((Head(((1.0, 0.0), (0.5, 0.5)), {("said", "said"): 1.0}),), side="steps"),
            Layer((Head(grow((step,), n), {("mov", "out"): 1.0}),), side="cross"),
        ),
        answer=math.fsum(truth),
        truth=padded(truth, n),
        players=(1, 2),
        steps=({"said": 1.0}, {}),
        right=("input_x_gradient", "integrated_gradients", "leave_one_out"),
        misled=("raw_attention", "attention_x_gradient"),
    )


def p18(n_tokens: int | None = None) -> Plan:
    """One layer that runs three times: (1 + A W)^3, so each token's content has another way to go."""
    n, tokens, dims, idle = with_distractors(n_tokens, ("[CLS]", "far", "mid", "near"), ("s0", "s1", "s2", "out"))
    rows: tuple[Row, ...] = (
        (0.1, 0.2, 0.1, 0.6),
        (0.1, 0.5, 0.2, 0.2),
        (0.1, 0.7, 0.1, 0.1),
        (0.1, 0.1, 0.7, 0.1),
    )
    twice = _times(rows[0], rows)
    thrice = _times(twice, rows)
    truth = (0.0, 10 * thrice[1], -4 * 3 * twice[2], 2 * 3 * rows[0][3])
    hops = {("s0", "s1"): 1.0, ("s1", "s2"): 1.0, ("s2", "out"): 1.0}
    return Plan(
        name="P18",
        title="one layer, three times",
        story=(
            "The same layer three times, as in ALBERT: the stream after it is (1 + A W)^3 x, and W^4 = 0. The content "
            "of 'far' needs all three runs (A^3), that of 'mid' two of three (3 A^2, against y), that of 'near' one of "
            "three (3 A). Whoever takes one parameter for one layer, or the last map for the whole, gets another "
            "order. Attention has no sign and does not see that 'mid' is against y."
        ),
        tokens=tokens,
        dims=dims,
        contents={"far": {"s0": 10.0}, "mid": {"s1": -4.0}, "near": {"s2": 2.0}, **idle},
        layers=(Layer((Head(grow(rows, n), hops),)),) * 3,
        answer=math.fsum(truth),
        truth=padded(truth, n),
        players=(1, 2, 3),
        right=ONE_BY_ONE,
        misled=("raw_attention", "rollout"),
    )


def _times(row: Row, rows: tuple[Row, ...]) -> Row:
    """The row times the matrix."""
    return tuple(math.fsum(row[k] * rows[k][j] for k in range(len(rows))) for j in range(len(row)))
