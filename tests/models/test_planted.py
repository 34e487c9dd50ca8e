"""Planted models: every number is known in advance and must come out."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.intervention import zero_value
from attnprobe.models.evaluator import differentiable, logits
from attnprobe.models.planted import NAMES, PLANS, PlantedModel, planted
from attnprobe.models.rows import Row

EXACT = 1e-12
Y = {"P1": 1, "P1c": 1, "P2": 2, "P3A": 2.7, "P3B": 2.7, "P5": 0.815} | {
    "P6": 1, "P7": 1, "P8": -1, "P9": 1, "P9_unequal": -1, "P10": 1
}  # fmt: skip
Y_WITHOUT_CONTENT = dict.fromkeys(NAMES, 0) | {"P9": -1, "P9_unequal": -1}

# Attention of [CLS] in each layer and head.
THIRD = (1 / 3, 1 / 3, 1 / 3)
ATTENTION = {
    "P1": [[(0.1, 0.7, 0.1, 0.1)]],
    "P1c": [[(0.1, 0.7, 0.1, 0.1)]],
    "P2": [[(0.05, 0.9, 0.05)]],
    "P3A": [[(0.1, 0.8, 0.1), (0.1, 0.25, 0.65)]],
    "P3B": [[(0.1, 0.2, 0.7), (0.1, 0.55, 0.35)]],
    "P5": [[(0.9, 0.05, 0.05)], [(0.05, 0.05, 0.9)]],
} | {name: [[THIRD]] for name in ("P6", "P7", "P8", "P9", "P9_unequal", "P10")}

_SIXTH = math.log(7) * 0.7  # P1c: d y / d (score of S) = -0.7, and both [CLS] and S carry that score
GRADIENT_TIMES_INPUT = {
    "P1": (0, 0, 1, 0),
    "P1c": (-_SIXTH, -_SIXTH, 1, 0),
    "P2": (2, 0, 0),
    "P3A": (0, 1.3, 1.4),
    "P3B": (0, 1.3, 1.4),
    "P5": (0, 0.815, 0),
    "P6": (0, 0, 0),
    "P7": (0, 1, 1),
    "P8": (0, -1, -2),
    "P9": (0, 1, 1),
    "P9_unequal": (0, 0, 0),
    "P10": (0, 0, 0),
}
LEAVE_ONE_OUT_ZERO = GRADIENT_TIMES_INPUT | {
    "P1c": (-1.5, -1.5, 1, 0),
    "P9_unequal": (0, -1, -1),
    "P10": (0, 1, 0),
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
    "P5": (0, 0.815, 0),
    "P6": (0, 0.5, 0.5),
    "P7": (0, 0.5, 0.5),
    "P8": (0, 0, -1),
    "P9": (0, 1, 1),
    "P9_unequal": (0, 0, 0),
    "P10": (0, 1, 0),
}
INTEGRATED_GRADIENTS = SHAPLEY | {"P1c": (-0.508, -0.508, 2.015, 0)}


def y_of(made: PlantedModel, rows: list[Row]) -> Tensor:
    with torch.no_grad():
        return logits(made.model, rows)[:, 0]


def rows_without_one(made: PlantedModel, operator: str) -> list[Row]:
    kept = ~torch.eye(made.example.n_tokens, dtype=torch.bool)
    return [Row(made.example, kept=keep, operator=operator) for keep in kept]


def leave_one_out(made: PlantedModel, operator: str) -> Tensor:
    return y_of(made, [Row(made.example)]) - y_of(made, rows_without_one(made, operator))


def close(got: Tensor, want: tuple[float | None, ...], tolerance: float = EXACT) -> bool:
    return all(w is None or abs(float(g) - w) < tolerance for g, w in zip(got.detach(), want, strict=True))


def test_the_names_are_those_of_the_handbook():
    assert set(NAMES) == set(Y)
    with pytest.raises(InputError, match="did you mean 'P9_unequal'"):
        planted("P9_uneqal")


@pytest.mark.parametrize("name", NAMES)
def test_y_and_attention_are_as_planted(name: str):
    made = planted(name)
    capture = made.model.capture(made.example, keep=Keep.of("weights", "value", "z"))
    assert capture.logits.dtype == torch.float64
    assert abs(float(capture.logits) - Y[name]) < EXACT
    assert made.answer == Y[name]
    rows = torch.tensor(ATTENTION[name], dtype=torch.float64)
    assert (capture.weights()[:, :, 0] - rows).abs().max() < 1e-15
    assert all(check.passed for check in capture.checks)
    nothing = Row(made.example, kept=torch.zeros(made.example.n_tokens, dtype=torch.bool), operator="zero")
    assert abs(float(y_of(made, [nothing])) - Y_WITHOUT_CONTENT[name]) < EXACT


def test_the_first_layer_of_p5_is_planted_row_by_row():
    made = planted("P5")
    first = made.model.capture(made.example).weights()[0, 0]
    want = torch.tensor([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9], [0.05, 0.9, 0.05]], dtype=torch.float64)
    assert (first - want).abs().max() < 1e-15


@pytest.mark.parametrize("name", NAMES)
def test_gradient_times_input_is_as_planted(name: str):
    made = planted(name)
    embeddings = made.model.embed(made.example).clone().requires_grad_()
    answer, _ = differentiable(made.model, [Row(made.example, embeddings=embeddings)])
    (gradient,) = torch.autograd.grad(answer[0, 0], embeddings)
    assert close((gradient * embeddings).sum(-1), GRADIENT_TIMES_INPUT[name])


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_is_the_shapley_value_against_zero_contents(name: str):
    made = planted(name)
    n = made.example.n_tokens
    coalitions = list(itertools.product([False, True], repeat=n))
    rows = [Row(made.example, kept=torch.tensor(c), operator="zero") for c in coalitions]
    worth = dict(zip(coalitions, y_of(made, rows).tolist(), strict=True))
    for token in range(n):
        orders = list(itertools.permutations(range(n)))
        gains = []
        for order in orders:
            before = tuple(order.index(t) < order.index(token) for t in range(n))
            gains.append(worth[tuple(b or t == token for t, b in enumerate(before))] - worth[before])
        assert abs(sum(gains) / len(orders) - SHAPLEY[name][token]) < EXACT
    assert close(made.truth, SHAPLEY[name])


@pytest.mark.parametrize("name", NAMES)
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
    assert made.model.outputs.names == ("y",)
    assert len(made.story) > 80
    with pytest.raises(InputError, match="no 'mask' embedding"):
        leave_one_out(made, "mask")
    with pytest.raises(InputError, match="reads exactly"):
        leave_one_out(made, "delete")
    with pytest.raises(InputError, match="reads exactly"):
        made.model.example(["[CLS]"])


def test_rows_a_small_step_apart_are_two_rows():
    """Central differences in float64: rows that float32 would not tell apart are evaluated both."""
    made, step = planted("P1"), 1e-9
    target = made.model.resolve(made.example)
    shifts = [torch.zeros(4, 2, dtype=torch.float64), torch.zeros(4, 2, dtype=torch.float64)]
    shifts[0][2, 0], shifts[1][2, 0] = step, -step
    rows = [Row(made.example, embeddings=made.model.embed(made.example) + shift) for shift in shifts]
    up, down = made.model.targets(rows, target).tolist()
    assert (up - down) / (2 * step) == pytest.approx(0.1, abs=1e-5)
