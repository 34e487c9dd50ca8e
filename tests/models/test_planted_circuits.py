"""Planted models whose point needs more than a table of the first token: heads, circuits, and those of our own."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.attributing import attribute
from attnprobe.intervention import mean_head, patch, silence_head
from attnprobe.models.evaluator import differentiable
from attnprobe.models.planted import PlantedModel, build, planted
from attnprobe.models.rows import Row

EXACT = 1e-9


def y_of(made: PlantedModel, rows: list[Row]) -> Tensor:
    return made.model.targets(rows, made.model.resolve(made.example, made.target))


def gradient_times_input(made: PlantedModel) -> list[float]:
    embeddings = made.model.embed(made.example).clone().requires_grad_()
    target = made.model.resolve(made.example, made.target)
    answer, _ = differentiable(made.model, [Row(made.example, embeddings=embeddings)])
    (gradient,) = torch.autograd.grad(target(answer)[0], embeddings)
    return (gradient * embeddings).sum(-1).tolist()


def leave_one_out(made: PlantedModel) -> list[float]:
    kept = ~torch.eye(made.example.n_tokens, dtype=torch.bool)
    rows = [Row(made.example), *(Row(made.example, kept=keep, operator="zero") for keep in kept)]
    y = y_of(made, rows)
    return (y[0] - y[1:]).tolist()


def gates(made: PlantedModel, weights: tuple[float, ...]) -> float:
    """y with head h of layer 0 scaled by weights[h]."""

    def scale(site):
        z = site.need("z") * torch.tensor(weights, dtype=torch.float64)[None, :, None, None]
        return site.replace(z=z)

    return float(y_of(made, [Row(made.example, edits=(scale,))]))


# ---------------------------------------------------------------- P4


def test_p4_the_constant_head_matters_most_at_zero_and_not_at_all_at_its_mean():
    inputs = [planted("P4", first=a, second=b) for a, b in itertools.product((-1.0, 1.0), repeat=2)]
    captures = [made.model.capture(made.example, keep=Keep.of("weights", "value", "z")) for made in inputs]
    whole = [float(y_of(made, [Row(made.example)])) for made in inputs]
    assert whole == pytest.approx([3.2, 3.6, 4.4, 4.8])

    def effect(edit) -> float:
        changed = [float(y_of(m, [Row(m.example, edits=(edit,))])) for m in inputs]
        return sum(abs(a - b) for a, b in zip(whole, changed, strict=True)) / len(inputs)

    for head, zero, mean, other in ((0, 4.0, 0.0, 0.0), (1, 0.6, 0.6, 0.7)):
        assert effect(silence_head(0, head)) == pytest.approx(zero, abs=EXACT)
        assert effect(mean_head(0, head, captures, per_position=True)) == pytest.approx(mean, abs=EXACT)
        resampled = [effect(patch(c, "z", layers=0, heads=head)) for c in captures]
        assert sum(resampled) / len(resampled) == pytest.approx(other, abs=EXACT)
    assert gates(inputs[3], (1, 1)) - gates(inputs[3], (0, 1)) == pytest.approx(4.0, abs=EXACT)  # linear in its gate


# ---------------------------------------------------------------- P11


def test_p11_the_backup_head_makes_up_for_most_of_the_first():
    made = planted("P11")
    y = {gate: gates(made, gate) for gate in itertools.product((0.0, 1.0), repeat=2)}
    whole = y[1.0, 1.0]
    assert whole == pytest.approx(1.0)
    assert whole - y[0.0, 1.0] == pytest.approx(0.1)
    assert whole - y[1.0, 0.0] == pytest.approx(0.0)
    assert whole - y[0.0, 0.0] == pytest.approx(1.0)
    shapley = 0.5 * (y[1.0, 0.0] - y[0.0, 0.0] + whole - y[0.0, 1.0])
    assert (shapley, whole - shapley) == pytest.approx((0.55, 0.45))
    step = 1e-4
    slopes = [(gates(made, tuple(1 + step * (h == k) for k in (0, 1))) - whole) / step for h in (0, 1)]
    assert slopes == pytest.approx([1.0, 0.0], abs=1e-6)


# ---------------------------------------------------------------- P12, P14


def test_p12_is_an_induction_circuit_with_the_numbers_of_the_handbook():
    made = planted("P12")
    assert made.example.tokens == ("[BOS]", "0", "1", "2", "3", "0", "1", "2", "3")
    capture = made.model.capture(made.example)
    weights = capture.weights()
    assert [float(weights[1, 0, i, i - 3]) for i in (5, 6, 7, 8)] == pytest.approx([1.0] * 4, abs=1e-9)
    words = made.plan.vocabulary
    assert [words[i] for i in capture.logits[0, 5:9].argmax(-1)] == ["1", "2", "3", "0"]
    assert gradient_times_input(made) == pytest.approx([0, 0, 0, 0, 1, 0, 0, 0, 0], abs=EXACT)
    assert leave_one_out(made) == pytest.approx([0, 0, 0, 0.875, 1, 0, 0, 0.875, 0], abs=EXACT)
    # Source: u/8 + 7/8 u of all three; either match: the latter alone.
    assert made.truth.tolist() == pytest.approx([0, 0, 0, 7 / 24, 1 / 8 + 7 / 24, 0, 0, 7 / 24, 0])
    assert made.other_truth["value path"].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]


@torch.no_grad()
def test_p12_composes_by_keys_alone_and_copies():
    network = planted("P12").model.module
    blocks = [block.attention for block in network.blocks]
    d = network.readout.in_features
    qk = [a.query.weight.T @ a.key.weight for a in blocks]
    ov = [a.value.weight.T @ a.output.weight.T for a in blocks]
    assert qk[0].shape == ov[0].shape == (d, d) == (27, 27)

    def composition(product: Tensor, *factors: Tensor) -> float:
        return float(product.norm() / math.prod(float(factor.norm()) for factor in factors))

    assert composition(qk[1] @ ov[0].T, qk[1], ov[0]) == pytest.approx(1 / math.sqrt(6), abs=1e-12)
    assert composition(ov[0] @ qk[1], ov[0], qk[1]) == composition(ov[0] @ ov[1], ov[0], ov[1]) == 0
    copying = network.token_embedding.weight @ ov[1] @ network.readout.weight.T
    assert torch.equal(copying, torch.eye(6, dtype=torch.float64))


def test_p12_without_bos_does_not_find_the_first_repeat():
    """Position 0 looks at itself, so its word stands as its own predecessor too."""
    plan = planted("P12").plan
    first, second = plan.layers

    def cut(layer):
        return replace(layer, heads=tuple(replace(h, probabilities=(h.probabilities[0][1:],)) for h in layer.heads))

    short = replace(
        plan,
        tokens=plan.tokens[1:],
        layers=(cut(first), cut(second)),
        truth=plan.truth[1:],
        other_truth={},
        players=(2, 3, 6),
        read=6,
        positions=plan.positions[1:],
    )
    made = build(short)
    weights = made.model.capture(made.example).weights()
    assert float(weights[1, 0, 4, 1]) == pytest.approx(0.5, abs=1e-9)
    assert float(weights[1, 0, 6, 3]) == pytest.approx(1.0, abs=1e-9)


def test_p14_the_second_prefix_takes_half_of_the_attention_away():
    made = planted("P14")
    assert made.example.tokens == ("[BOS]", "x", "one", "x", "two", "x")
    weights = made.model.capture(made.example).weights()
    assert weights[1, 0, 5].tolist() == pytest.approx([0, 0, 0.5, 0, 0.5, 0], abs=1e-9)
    assert made.truth.tolist() == pytest.approx([0, 7 / 36, 11 / 36, -5 / 36, 0, 5 / 36])
    assert leave_one_out(made) == pytest.approx([0, 0.5, 0.5, -0.5, 0, 0.5 - 1 / 6], abs=EXACT)


# ---------------------------------------------------------------- P13


@pytest.mark.parametrize("which", "ABC")
def test_p13_three_maps_give_one_output_and_one_effective_attention(which: str):
    made = planted(f"P13{which}")
    assert float(y_of(made, [Row(made.example)])) == pytest.approx(0.6)
    weights = made.model.capture(made.example).weights()[0, 0, 0]
    value = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    # The part of a row that the values see: its projection on them, and on them and the row of ones.
    for basis, wanted in (
        (value[:, None], [0, 0.0429, 0.0857, 0.1286]),
        (torch.stack([value, torch.ones(4, dtype=torch.float64)], 1), [0.52, 0.34, 0.16, -0.02]),
    ):
        seen = basis @ torch.linalg.lstsq(basis, weights[:, None]).solution
        assert seen[:, 0].tolist() == pytest.approx(wanted, abs=5e-5)


# ---------------------------------------------------------------- of our own


def test_p15_content_wanders_by_the_product_of_the_layers():
    made = planted("P15")
    weights = made.model.capture(made.example).weights()[:, 0]
    n = made.example.n_tokens
    for i in range(n):  # sink, the one before, the rest evenly; the first token is both
        rest = torch.full((i + 1,), 0.1 / (i + 1), dtype=torch.float64)
        rest[0] += 0.6
        rest[max(i - 1, 0)] += 0.3
        torch.testing.assert_close(weights[0, i, : i + 1], rest, atol=1e-12, rtol=0)
        assert not bool(weights[:, i, i + 1 :].any())
    reach = (weights[2] @ weights[1] @ weights[0])[-1]
    signs = torch.tensor([0, 10, -10, 0, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(made.truth, reach * signs, atol=1e-12, rtol=0)
    assert gradient_times_input(made) == pytest.approx(made.truth.tolist(), abs=EXACT)
    assert float(weights[-1, -1].argmax()) == 0


def test_p16_heads_share_keys_and_values_and_cancel():
    made = planted("P16")
    block = made.model.module.blocks[0]
    assert block.attention.value[0].weight.shape[0] * 2 == block.attention.output.weight.shape[1]
    sites = made.model.capture(made.example, keep=Keep.of("weights", "value")).sites
    values, weights = sites[0].need("value")[0], sites[0].need("weights")[0, :, 0]
    assert torch.equal(values[0], values[1]) and torch.equal(values[2], values[3])
    assert torch.equal(values[0], -values[2])
    assert int(weights.mean(0).argmax()) == 1  # a
    truth = 5 * (weights[0] + weights[1] - weights[2] - weights[3])
    truth[0] = 0
    torch.testing.assert_close(made.truth, truth, atol=1e-12, rtol=0)
    assert made.truth.tolist() == pytest.approx([0, 0.25, 1.25, -1.25])


def test_p17_the_alignment_points_at_the_place_and_not_at_the_content():
    made = planted("P17")
    assert [(s.name, s.kind, s.n_layers) for s in made.model.stacks] == [
        ("encoder", "self", 1),
        ("decoder", "self", 1),
        ("decoder", "cross", 1),
    ]
    capture = made.model.capture(made.example)
    cross, encoder = capture.maps("decoder", "cross")[0][0], capture.maps("encoder", "self")[0][0]
    assert made.example.tokens[int(cross[-1].argmax())] == "cat"
    assert made.example.tokens[int(made.truth.argmax())] == "black"
    content = torch.tensor([0, -0.4, 1, 0], dtype=torch.float64)
    torch.testing.assert_close(made.truth, (cross.double() @ encoder.double())[-1] * content, atol=1e-7, rtol=0)
    assert made.truth.tolist() == pytest.approx([0, -0.4 * 0.09, 0.73, 0])
    assert gradient_times_input(made) == pytest.approx(made.truth.tolist(), abs=EXACT)
    assert attribute(made.model, made.example, "raw_attention", made.target).scores.argmax() == 3


def test_p18_runs_one_layer_three_times():
    made = planted("P18")
    assert len({id(block) for block in made.model.module.blocks}) == 1
    assert made.model.stacks[0].n_layers == 3
    a = made.model.capture(made.example).weights()[0, 0]
    ways = torch.stack([torch.zeros(4, dtype=torch.float64), 10 * (a @ a @ a)[0], -12 * (a @ a)[0], 6 * a[0]])
    torch.testing.assert_close(made.truth, ways.diagonal(), atol=1e-12, rtol=0)
    assert gradient_times_input(made) == pytest.approx(made.truth.tolist(), abs=EXACT)


def test_p19_a_word_decides_which_other_word_is_read():
    made = planted("P19")
    last = made.model.capture(made.example).weights()[1, 0, 0]
    assert last.tolist() == pytest.approx([0, 0, 1, 0], abs=1e-9)
    without = Row(made.example, kept=torch.tensor([True, False, True, True]), operator="zero")
    assert y_of(made, [Row(made.example), without]).tolist() == pytest.approx([2.0, -1.0], abs=1e-9)
    assert gradient_times_input(made) == pytest.approx([0, 0, 2, 0], abs=1e-6)
    assert leave_one_out(made) == pytest.approx([0, 3, 3, 0], abs=1e-9)
    assert made.truth.tolist() == pytest.approx([0, 4 / 3, 4 / 3, -2 / 3])


def test_p20_no_single_vote_is_missed():
    made = planted("P20")
    assert gradient_times_input(made) == leave_one_out(made) == [0, 0, 0, 0]
    assert made.truth.tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    two = planted("P20", votes=(1.0, 1.0, 0.0))
    assert two.truth.tolist() == pytest.approx([0, 0.5, 0.5, 0])
