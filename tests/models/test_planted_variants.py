"""Planted models in other sizes, orders and bases, with noise, and as transformers models: the truth stays known."""

import random

import pytest
import torch

from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.models.planted import NAMES, RECIPES, PlantedModel, planted, to_huggingface, worths
from attnprobe.models.planted.building import orthogonal
from attnprobe.models.planted.plan import IDLE, shapley
from attnprobe.models.rows import Row

SIZED = [(name, n) for name in NAMES for n in (12, 40)]
EXPORTED = [name for name in NAMES if name != "P17"]


def check_truth(made: PlantedModel) -> None:
    """y and truth by all coalitions of the players; the others change nothing, alone or together."""
    players = made.plan.players
    worth = worths(made, players)
    assert worth[(True,) * len(players)] == pytest.approx(made.answer, abs=1e-10)
    wanted = torch.zeros(made.example.n_tokens, dtype=torch.float64)
    wanted[list(players)] = torch.tensor(shapley(lambda *there: worth[there], len(players)), dtype=torch.float64)
    torch.testing.assert_close(made.truth, wanted, atol=1e-10, rtol=0)
    rest = tuple(i for i in range(made.example.n_tokens) if i not in players)
    draw = torch.rand(8, len(rest), generator=torch.Generator().manual_seed(0)) < 0.5
    kept = torch.ones(8, made.example.n_tokens, dtype=torch.bool)
    kept[:, list(rest)] = draw
    target = made.model.resolve(made.example, made.target)
    found = made.model.targets([Row(made.example, kept=row, operator="zero") for row in kept], target)
    assert (found - made.answer).abs().max() < 1e-10


@pytest.mark.parametrize(("name", "n"), SIZED)
def test_distractors_have_content_and_no_influence(name: str, n: int):
    made = planted(name, n_tokens=n)
    assert made.example.n_tokens == n and made.variant == {"n_tokens": n}
    assert made.answer == pytest.approx(planted(name).answer) or name in ("P1c", "P15")  # a share of 1/n
    check_truth(made)
    more = [i for i, token in enumerate(made.example.tokens) if token.startswith("d") and token[1:].isdigit()]
    assert len(more) == n - planted(name).example.n_tokens
    assert not bool(made.truth[more].any()) and bool((made.model.embed(made.example)[more].abs().sum(-1) > 0).all())
    assert (IDLE in made.plan.dims) == (name not in ("P12", "P14"))  # there they are words
    weights = made.model.capture(made.example).maps(made.model.stacks[-1].name, made.model.stacks[-1].kind)[0]
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_p1c_has_its_closed_form_at_every_size():
    for n in (4, 9, 40):
        made = planted("P1c", n_tokens=n)
        third = (10 / (n + 6) - 10 / n) / 3
        assert made.truth[:3].tolist() == pytest.approx([third, third, 10 / n + third])


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("P12", "P14", "P15")])
def test_tokens_in_another_order_keep_their_truth(name: str):
    plain = planted(name, n_tokens=9)
    order = list(range(9))
    random.Random(0).shuffle(order)
    made = planted(name, n_tokens=9, order=order)
    assert made.example.tokens == tuple(plain.example.tokens[i] for i in order)
    assert made.truth.tolist() == plain.truth[order].tolist()
    check_truth(made)
    if made.plan.steps:
        return
    for before, after in zip(
        plain.model.capture(plain.example).weights(), made.model.capture(made.example).weights(), strict=True
    ):
        torch.testing.assert_close(after, before[:, order][:, :, order], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["P12", "P14", "P15"])
def test_the_order_of_a_causal_plan_is_a_part_of_it(name: str):
    with pytest.raises(InputError, match="is causal"):
        planted(name, order=range(9))


@pytest.mark.parametrize("name", NAMES)
def test_another_basis_is_the_same_function_with_the_same_attention(name: str):
    plain, turned = planted(name), planted(name, rotation=7)
    check_truth(turned)
    assert turned.truth.tolist() == plain.truth.tolist()
    size = len(plain.plan.dims)
    turn = orthogonal(size, 7)
    torch.testing.assert_close(turn @ turn.T, torch.eye(size, dtype=torch.float64))
    draw = torch.randn(plain.example.n_tokens, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ys = [m.model.forward([Row(m.example, embeddings=x)]) for m, x in ((plain, draw), (turned, draw @ turn))]
    torch.testing.assert_close(ys[0], ys[1], atol=1e-9, rtol=1e-9)
    stack = plain.model.stacks[-1]
    maps = [m.model.capture(m.example).maps(stack.name, stack.kind) for m in (plain, turned)]
    for a, b in zip(*maps, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "method", ["input_x_gradient", "attention_x_gradient", "leave_one_out", "saliency", "value_norms"]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_looks_at_the_function_or_at_norms_does_not_depend_on_the_basis(method: str):
    for name in ("P1", "P2", "P5", "P8"):
        plain, turned = (
            attribute(m.model, m.example, method, m.target).scores for m in (planted(name), planted(name, rotation=3))
        )
        torch.testing.assert_close(plain, turned, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_noise_moves_y_and_the_truth_is_that_of_the_noisy_network(name: str):
    made = planted(name, noise=0.1, seed=4, n_tokens=11)
    check_truth(made)
    assert made.answer != planted(name, n_tokens=11).answer
    again, other = (planted(name, noise=0.1, seed=seed, n_tokens=11) for seed in (4, 5))
    assert again.answer == made.answer != other.answer
    assert made.other_truth == {}
    check_truth(planted(name, noise=0.1, seed=4, rotation=2))


def test_constants_change_y_as_the_story_says():
    assert planted("P1", value=20.0).answer == pytest.approx(2.0)
    assert planted("P11", first=1.0, second=0.5).truth.tolist() == pytest.approx([0, 0.75, 0.25])
    assert planted("P12", period=6).example.n_tokens == 13
    for made in (
        planted("P1", weight=0.2),
        planted("P1c", factor=3.0),
        planted("P5", weight=0.5),
        planted("P6", a=0.4, b=0.7),
        planted("P12", period=3, n_tokens=9),
        planted("P15", sink=0.2, back=0.5, n_layers=2),
        planted("P19", chosen=-3.0, other=2.0),
    ):
        check_truth(made)


def test_what_cannot_be_planted_is_an_error_that_says_what_can():
    for arguments, message in (
        ({"n_tokens": 3}, "n_tokens is at least 4"),
        ({"noise": -0.1}, "0 or more"),
        ({"order": [0, 1]}, "every token of 4 once"),
        ({"wieght": 0.5}, "did you mean 'weight'"),
        ({"weight": 0.9}, "between 0 and 0.8"),
    ):
        with pytest.raises(InputError, match=message):
            planted("P1", **arguments)
    with pytest.raises(InputError, match="at least 9"):
        planted("P12", n_tokens=8)
    assert set(RECIPES) == set(NAMES)


# ---------------------------------------------------------------- as transformers models


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", EXPORTED)
def test_a_planted_model_as_a_transformers_model_has_the_same_y_and_weights(name: str, dtype: torch.dtype):
    made = planted(name)
    theirs = to_huggingface(made, dtype=dtype)
    assert type(theirs.model.module).__module__.startswith("transformers.models.")
    capture = theirs.model.capture(theirs.example)
    weights, ours = capture.weights(), made.model.capture(made.example).weights()
    assert (weights[:, : ours.shape[1]] - ours).abs().max() < 1e-4
    target = theirs.model.resolve(theirs.example, theirs.target)
    kept = torch.cat([torch.ones(1, made.example.n_tokens), 1 - torch.eye(made.example.n_tokens)]).bool()
    rows = [[Row(m.example, kept=keep, operator="zero") for keep in kept] for m in (theirs, made)]
    ys = (
        theirs.model.targets(rows[0], target),
        made.model.targets(rows[1], made.model.resolve(made.example, made.target)),
    )
    torch.testing.assert_close(ys[0].double(), ys[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("name", "n"), [("P1", 10), ("P3A", 7), ("P12", 12), ("P15", 9)])
@pytest.mark.parametrize("method", ["raw_attention", "input_x_gradient", "attention_x_gradient", "leave_one_out"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_methods_say_the_same_of_the_transformers_model(name: str, n: int, method: str):
    made = planted(name, n_tokens=n)
    for attention in ("eager", "sdpa"):
        theirs = to_huggingface(made, attention=attention)
        found, wanted = (attribute(m.model, m.example, method, m.target).scores for m in (theirs, made))
        if method == "raw_attention" and name == "P3A":  # as many heads here as there
            assert theirs.model.stacks[0].n_heads == made.model.stacks[0].n_heads
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_what_has_no_form_in_transformers_says_why():
    with pytest.raises(InputError, match="cross-attention that is aligned by place"):
        to_huggingface(planted("P17"))
    with pytest.raises(InputError, match="without noise and rotation"):
        to_huggingface(planted("P1", rotation=1, noise=0.1))
