"""Planted models: every number is known in advance and must come out.

Those of the handbook that need more than these tables, and our own: `test_planted_circuits`. In other sizes, orders
and bases: `test_planted_variants`.
"""

import itertools
import math

import pytest
import torch
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.intervention import zero_value
from attnprobe.models.evaluator import differentiable
from attnprobe.models.planted import NAMES, PLANS, PlantedModel, acts_one_by_one, planted
from attnprobe.models.rows import Row

EXACT = 1e-12
Y = {"P1": 1, "P1c": 1, "P2": 2, "P3A": 2.7, "P3B": 2.7, "P5": 0.815} | {
    "P4": 4.8, "P6": 1, "P7": 1, "P8": -1, "P9": 1, "P9_unequal": -1, "P10": 1, "P11": 1,
    "P13A": 0.6, "P13B": 0.6, "P13C": 0.6,
}  # fmt: skip
TABLED = tuple(Y)
Y_WITHOUT_CONTENT = dict.fromkeys(NAMES, 0) | {"P9": -1, "P9_unequal": -1}

# Attention of the token that is read, in each layer and head.
THIRD = (1 / 3, 1 / 3, 1 / 3)
ATTENTION = {
    "P1": [[(0.1, 0.7, 0.1, 0.1)]],
    "P1c": [[(0.1, 0.7, 0.1, 0.1)]],
    "P2": [[(0.05, 0.9, 0.05)]],
    "P3A": [[(0.1, 0.8, 0.1), (0.1, 0.25, 0.65)]],
    "P3B": [[(0.1, 0.2, 0.7), (0.1, 0.55, 0.35)]],
    "P4": [[(1, 0, 0), (0.2, 0.6, 0.2)]],
    "P5": [[(0.9, 0.05, 0.05)], [(0.05, 0.05, 0.9)]],
    "P11": [[(0.25, 0.5, 0.25), (0.25, 0.25, 0.5)]],
    "P13A": [[(0.7, 0.1, 0.1, 0.1)]],
    "P13B": [[(0.4, 0.6, 0, 0)]],
    "P13C": [[(0.8, 0, 0, 0.2)]],
} | {name: [[THIRD]] for name in ("P6", "P7", "P8", "P9", "P9_unequal", "P10")}

_SIXTH = math.log(7) * 0.7  # P1c: d y / d (score of S) = -0.7, and both [CLS] and S carry that score
GRADIENT_TIMES_INPUT = {
    "P1": (0, 0, 1, 0),
    "P1c": (-_SIXTH, -_SIXTH, 1, 0),
    "P2": (2, 0, 0),
    "P3A": (0, 1.3, 1.4),
    "P3B": (0, 1.3, 1.4),
    "P4": (4, 0.6, 0.2),
    "P5": (0, 0.815, 0),
    "P6": (0, 0, 0),
    "P7": (0, 1, 1),
    "P8": (0, -1, -2),
    "P9": (0, 1, 1),
    "P9_unequal": (0, 0, 0),
    "P10": (0, 0, 0),
    "P11": (0, 1, 0),
    "P13A": (0, 0.1, 0.2, 0.3),
    "P13B": (0, 0.6, 0, 0),
    "P13C": (0, 0, 0, 0.6),
}
LEAVE_ONE_OUT_ZERO = GRADIENT_TIMES_INPUT | {
    "P1c": (-1.5, -1.5, 1, 0),
    "P9_unequal": (0, -1, -1),
    "P10": (0, 1, 0),
    "P11": (0, 0.1, 0),
}
# Keys taken out of the softmax; the entry of [CLS] is left open in the source, and so is None here.
LEAVE_ONE_OUT_KEY = {
    "P1": (None, 1 - 1 / 0.3, 1, 1 - 1 / 0.9),
    "P3A": (None, 2.7 - 1 / 2 - 2 * 0.65 / 0.75, 2.7 - 0.8 / 0.9 - 2 * 0.25 / 0.35),
    "P3B": (None, 2.7 - 0.7 / 0.8 - 2 * 0.35 / 0.45, 2.7 - 0.2 / 0.3 - 2 * 0.55 / 0.65),
    "P5": (None, 0.815, 0.815 - 0.5 * (0.05 / 0.95 + 0.5)),
    "P6": (None, 0, 0),
    "P7": (None, 0.5, 0.5),
    "P8": (None, 0, -1.5),
    "P9": (None, 0.5, 0.5),
    "P9_unequal": (None, -1.5, -1.5),
    "P10": (None, 1, 0),
}
ZERO_VALUE = {
    "P1": (0, 0, 1, 0),
    "P1c": (0, 0, 1, 0),
    "P3A": (0, 1.3, 1.4),
    "P3B": (0, 1.3, 1.4),
    "P5": (0.0025, 0.815, 0.81),
}
SHAPLEY = {
    "P1": (0, 0, 1, 0),
    "P1c": (-0.5, -0.5, 2, 0),
    "P2": (2, 0, 0),
    "P3A": (0, 1.3, 1.4),
    "P3B": (0, 1.3, 1.4),
    "P4": (4, 0.6, 0.2),
    "P5": (0, 0.815, 0),
    "P6": (0, 0.5, 0.5),
    "P7": (0, 0.5, 0.5),
    "P8": (0, 0, -1),
    "P9": (0, 1, 1),
    "P9_unequal": (0, 0, 0),
    "P10": (0, 1, 0),
    "P11": (0, 0.55, 0.45),
    "P13A": (0, 0.1, 0.2, 0.3),
    "P13B": (0, 0.6, 0, 0),
    "P13C": (0, 0, 0, 0.6),
}
INTEGRATED_GRADIENTS = SHAPLEY | {"P1c": (-0.508, -0.508, 2.015, 0), "P11": (0, 1, 0)}
ONE_BY_ONE = {"P1", "P2", "P3A", "P3B", "P4", "P5", "P9", "P10", "P13A", "P13B", "P13C", "P15", "P16", "P17", "P18"}


def y_of(made: PlantedModel, rows: list[Row]) -> Tensor:
    return made.model.targets(rows, made.model.resolve(made.example, made.target))


def rows_without_one(made: PlantedModel, operator: str) -> list[Row]:
    kept = ~torch.eye(made.example.n_tokens, dtype=torch.bool)
    return [Row(made.example, kept=keep, operator=operator) for keep in kept]


def leave_one_out(made: PlantedModel, operator: str) -> Tensor:
    return y_of(made, [Row(made.example)]) - y_of(made, rows_without_one(made, operator))


def close(got: Tensor, want: tuple[float | None, ...], tolerance: float = EXACT) -> bool:
    return all(w is None or abs(float(g) - w) < tolerance for g, w in zip(got.detach(), want, strict=True))


def test_the_names_are_those_of_the_handbook_and_of_our_own():
    assert set(NAMES) == set(Y) | {"P12", "P14", "P15", "P16", "P17", "P18", "P19", "P20"}
    with pytest.raises(InputError, match="did you mean 'P9_unequal'"):
        planted("P9_uneqal")


@pytest.mark.parametrize("name", TABLED)
def test_y_and_attention_are_as_planted(name: str):
    made = planted(name)
    capture = made.model.capture(made.example, keep=Keep.of("weights", "value", "z"))
    assert capture.logits.dtype == torch.float64
    assert abs(float(capture.logits) - Y[name]) < EXACT
    assert made.answer == pytest.approx(Y[name], abs=EXACT)
    rows = torch.tensor(ATTENTION[name], dtype=torch.float64)
    assert (capture.weights()[:, :, made.plan.read] - rows).abs().max() < 1e-15
    assert all(check.passed for check in capture.checks)
    nothing = Row(made.example, kept=torch.zeros(made.example.n_tokens, dtype=torch.bool), operator="zero")
    assert abs(float(y_of(made, [nothing])) - Y_WITHOUT_CONTENT[name]) < EXACT


def test_the_first_layer_of_p5_is_planted_row_by_row():
    made = planted("P5")
    first = made.model.capture(made.example).weights()[0, 0]
    want = torch.tensor([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9], [0.05, 0.9, 0.05]], dtype=torch.float64)
    assert (first - want).abs().max() < 1e-15


@pytest.mark.parametrize("name", TABLED)
def test_gradient_times_input_is_as_planted(name: str):
    made = planted(name)
    embeddings = made.model.embed(made.example).clone().requires_grad_()
    answer, _ = differentiable(made.model, [Row(made.example, embeddings=embeddings)])
    (gradient,) = torch.autograd.grad(answer[0, 0], embeddings)
    assert close((gradient * embeddings).sum(-1), GRADIENT_TIMES_INPUT[name])


@pytest.mark.parametrize("name", TABLED)
def test_leaving_one_content_out_is_as_planted(name: str):
    assert close(leave_one_out(planted(name), "zero"), LEAVE_ONE_OUT_ZERO[name])


@pytest.mark.parametrize("name", LEAVE_ONE_OUT_KEY)
def test_leaving_one_key_out_is_as_planted(name: str):
    assert close(leave_one_out(planted(name), "attention_mask"), LEAVE_ONE_OUT_KEY[name])


@pytest.mark.parametrize("name", ZERO_VALUE)
def test_zeroing_one_value_is_as_planted(name: str):
    made = planted(name)
    layers = range(made.model.stacks[0].n_layers)
    edits = [tuple(zero_value(t, layers=layer) for layer in layers) for t in range(made.example.n_tokens)]
    changed = y_of(made, [Row(made.example, edits=edit) for edit in edits])
    assert close(y_of(made, [Row(made.example)]) - changed, ZERO_VALUE[name])


def shapley(worth: dict[tuple[bool, ...], float], n: int) -> list[float]:
    """Over coalitions, weighted by how many orders have them first: |S|! (n - |S| - 1)! / n!."""
    values = [0.0] * n
    for coalition in worth:
        for token in range(n):
            if not coalition[token]:
                size, joined = sum(coalition), tuple(c or t == token for t, c in enumerate(coalition))
                weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
                values[token] += weight * (worth[joined] - worth[coalition])
    return values


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_is_the_shapley_value_against_zero_contents(name: str):
    made = planted(name)
    n = made.example.n_tokens
    coalitions = list(itertools.product([False, True], repeat=n))
    rows = [Row(made.example, kept=torch.tensor(c), operator="zero") for c in coalitions]
    worth = dict(zip(coalitions, y_of(made, rows).tolist(), strict=True))
    found = shapley(worth, n)
    assert close(torch.tensor(found, dtype=torch.float64), tuple(made.truth.tolist()), 2e-12)
    assert name not in SHAPLEY or close(made.truth, SHAPLEY[name])
    additive = all(
        abs(y - worth[coalitions[0]] - sum(v for v, there in zip(found, c, strict=True) if there)) < 1e-9
        for c, y in worth.items()
    )
    assert acts_one_by_one(made) == additive == (name in ONE_BY_ONE)
    moving = {
        t
        for t in range(n)
        for c, y in worth.items()
        if not c[t] and abs(worth[(*c[:t], True, *c[t + 1 :])] - y) > EXACT
    }
    assert moving == set(made.plan.players)


@pytest.mark.parametrize("name", TABLED)
def test_integrated_gradients_from_zero_contents_are_as_planted(name: str):
    made, steps = planted(name), 2000
    whole = made.model.embed(made.example)
    shares = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    path = (shares[:, None, None] * whole).requires_grad_()
    answer, _ = differentiable(made.model, [Row(made.example, embeddings=point) for point in path])
    (gradients,) = torch.autograd.grad(answer.sum(), path)
    assert close((gradients.mean(0) * whole).sum(-1), INTEGRATED_GRADIENTS[name], 1e-3)


def test_the_twins_give_one_answer_on_every_input_and_different_attention():
    twin, other = planted("P3A"), planted("P3B")
    contents = [torch.randn(3, 2, dtype=torch.float64) for _ in range(50)]
    answers = [y_of(made, [Row(made.example, embeddings=c) for c in contents]) for made in (twin, other)]
    assert (answers[0] - answers[1]).abs().max() <= 1e-15 * 10
    means = [made.model.capture(made.example).weights()[0, :, 0].mean(0).tolist() for made in (twin, other)]
    assert means[0] == pytest.approx([0.1, 0.525, 0.375])
    assert means[1] == pytest.approx([0.1, 0.375, 0.525])


def test_in_p1c_both_truths_are_told():
    assert planted("P1c").other_truth["value path"].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("name", NAMES)
def test_building_a_planted_model_leaves_the_random_numbers_alone(name: str):
    before = torch.random.get_rng_state()
    planted(name)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_model_reads_its_own_tokens_and_zero_is_its_only_filler(name: str):
    made = planted(name)
    assert made.model.example(" ".join(PLANS[name].tokens)).tokens == PLANS[name].tokens
    assert list(made.model.fillers) == ["zero"]
    assert made.model.outputs.names == (None if made.plan.causal else ("y",))
    assert len(made.story) > 80 and not set(made.right) & set(made.misled)
    with pytest.raises(InputError, match="no 'mask' embedding"):
        leave_one_out(made, "mask")
    with pytest.raises(InputError, match=r"reads exactly|is explained"):
        leave_one_out(made, "delete")
    with pytest.raises(InputError, match="reads exactly"):
        made.model.example([PLANS[name].tokens[0]])


def test_rows_a_small_step_apart_are_two_rows():
    """Central differences in float64: rows that float32 would not tell apart are evaluated both."""
    made, step = planted("P1"), 1e-9
    target = made.model.resolve(made.example)
    shifts = [torch.zeros(4, 2, dtype=torch.float64), torch.zeros(4, 2, dtype=torch.float64)]
    shifts[0][2, 0], shifts[1][2, 0] = step, -step
    rows = [Row(made.example, embeddings=made.model.embed(made.example) + shift) for shift in shifts]
    up, down = made.model.targets(rows, target).tolist()
    assert (up - down) / (2 * step) == pytest.approx(0.1, abs=1e-5)
