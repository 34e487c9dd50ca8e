"""One head on 16 sentences: its start, its training and its questions, against slow versions written here."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from attnprobe.attributing import attribute
from attnprobe.declaration_figure import attribution_panels, declaration_picture, runs_picture
from attnprobe.errors import InputError
from attnprobe.models.declaration import (
    CLAIMS,
    SENTENCES,
    VOCABULARY,
    as_model,
    claims,
    over_roundings,
    over_seeds,
    stored_head,
    train,
    untrained,
    word_at,
    words,
)
from attnprobe.models.declaration.stored import keep
from attnprobe.models.declaration.training import LOSSES
from attnprobe.models.evaluator import logits, targets
from attnprobe.models.rows import Row

GUARD = 1e-12


@pytest.fixture(scope="module")
def stored():
    return stored_head()


def drawn(seed: int) -> list[Tensor]:
    """E, W_Q, W_K, W_V, W_O as the recipe draws them."""
    np.random.seed(seed)
    shapes = [(98, 24), (24, 24), (24, 24), (24, 24), (24, 98)]
    return [torch.tensor(0.1 * np.random.randn(*shape)) for shape in shapes]


def sentence_by_sentence(matrices: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Weights of each sentence, and the probabilities of its true words: no batch, no mask but a huge negative."""
    E, W_Q, W_K, W_V, W_O = matrices
    weights, right = [], []
    for sentence in SENTENCES:
        ids = [VOCABULARY.index(word) for word in re.findall("[a-z]+", sentence.lower())]
        X = E[ids]
        scores = (X @ W_Q) @ (X @ W_K).T / 24**0.5
        scores = scores.masked_fill(torch.eye(len(ids), dtype=torch.bool), -1e9)
        weights.append(scores.softmax(-1))
        right.append((weights[-1] @ (X @ W_V) @ W_O).softmax(-1)[range(len(ids)), ids])
    return weights, right


def slow_training(seed: int, gradient: str, steps: int) -> tuple[list[Tensor], list[float]]:
    """Adam written out, the loss summed sentence by sentence; parameters and the loss a word before each step."""
    matrices = [matrix.requires_grad_() for matrix in drawn(seed)]
    first = [torch.zeros_like(matrix) for matrix in matrices]
    second = [torch.zeros_like(matrix) for matrix in matrices]
    curve = []
    for step in range(1, steps + 1):
        p = torch.cat(sentence_by_sentence(matrices)[1])
        loss = -(p + GUARD).log().sum() if gradient == "guarded" else -p.log().sum()
        curve.append(float(-(p.detach() + GUARD).log().mean()))
        gradients = torch.autograd.grad(loss / 16, matrices)
        with torch.no_grad():
            for matrix, m, v, g in zip(matrices, first, second, gradients, strict=True):
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                matrix -= 0.02 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
    return [matrix.detach() for matrix in matrices], curve


def test_the_corpus_is_16_sentences_of_98_words_and_the_first_is_the_one_displayed():
    assert len(SENTENCES) == 16
    assert len(VOCABULARY) == 98
    assert list(VOCABULARY) == sorted(VOCABULARY)
    assert sum(len(words(sentence)) for sentence in SENTENCES) == 206
    tokens = words(SENTENCES[0])
    assert tokens == ("all", "human", "beings", "are", "born", "free", "and", "equal", "in", "dignity", "and", "rights")
    for name, (query, key) in CLAIMS.items():
        assert name == f"{tokens[query]} → {tokens[key]}"


@pytest.mark.parametrize("seed", [0, 7])
def test_the_start_is_numpys_numbers_in_the_order_of_the_recipe(seed: int):
    E, *rest = drawn(seed)
    found, *others = untrained(seed).matrices()
    assert torch.equal(found, E)
    for matrix, wanted in zip(others, rest, strict=True):
        assert torch.equal(matrix, wanted.T)


def test_a_start_leaves_the_callers_random_numbers_alone():
    np.random.seed(3)
    torch.manual_seed(3)
    wanted = np.random.rand(), float(torch.rand(()))
    np.random.seed(3)
    torch.manual_seed(3)
    untrained(0)
    assert (np.random.rand(), float(torch.rand(()))) == wanted


def test_roundings_move_some_embeddings_by_that_share_and_nothing_else():
    E, *rest = (matrix.detach() for matrix in untrained(0).matrices())
    moved, *others = (matrix.detach() for matrix in untrained(0, roundings=1).matrices())
    shares = (moved / E - 1).abs()
    assert 0 < float(shares.max()) < 5e-16
    assert 0.3 < float((shares > 0).double().mean()) < 0.9
    assert all(torch.equal(a, b) for a, b in zip(rest, others, strict=True))


@pytest.mark.parametrize("gradient", ["guarded", "cross_entropy"])
def test_training_in_one_pass_is_training_sentence_by_sentence(gradient: str):
    steps = 60  # beyond some hundred, roundings have grown so far that no two ways of summing agree
    trained = train(0, gradient=gradient, steps=steps)
    wanted, curve = slow_training(0, gradient, steps)
    assert torch.allclose(trained.loss_curve, torch.tensor(curve, dtype=torch.float64), rtol=0, atol=1e-8)
    E, *rest = wanted
    for matrix, slow in zip(trained.network.matrices(), [E, *(matrix.T for matrix in rest)], strict=True):
        assert torch.allclose(matrix, slow, rtol=0, atol=1e-6)
    assert curve[-1] < curve[0] - 3


def test_a_word_below_the_guard_is_pulled_back_by_cross_entropy_only():
    log_p = torch.tensor([-60.0, -1.0], dtype=torch.float64, requires_grad=True)
    (guarded,) = torch.autograd.grad(LOSSES["guarded"](log_p).sum(), log_p)
    (plain,) = torch.autograd.grad(LOSSES["cross_entropy"](log_p).sum(), log_p)
    p = log_p.detach().exp()
    assert torch.allclose(guarded, -p / (p + GUARD), rtol=1e-9)
    assert plain.tolist() == [-1, -1]
    assert abs(float(guarded[0])) < 1e-13


# ---------------------------------------------------------------- the stored head


def test_the_stored_head_has_the_three_weights_of_the_figure(stored):
    found = claims(stored)
    assert found["rights → beings"] == pytest.approx(1.0, abs=0.01)
    assert found["beings → rights"] == pytest.approx(0.0, abs=0.01)
    assert found["all → are"] > 0.9


def test_what_is_said_of_the_stored_head_holds_sentence_by_sentence(stored):
    E, *rest = stored.network.matrices()
    weights, right = sentence_by_sentence([E, *(matrix.T for matrix in rest)])
    p = torch.cat(right)
    assert torch.allclose(stored.weights, weights[0], rtol=0, atol=1e-10)
    assert stored.loss_per_token == pytest.approx(float(-(p + GUARD).log().mean()), abs=1e-10)
    assert stored.n_lost == int((p < GUARD).sum())
    assert stored.n_right >= int((p > 0.5).sum())


def test_no_word_looks_at_itself_and_every_row_is_a_distribution(stored):
    assert torch.equal(stored.weights.diagonal(), torch.zeros(12, dtype=torch.float64))
    assert torch.allclose(stored.weights.sum(-1), torch.ones(12, dtype=torch.float64))
    model = as_model(stored.network)
    capture = model.capture(model.example(SENTENCES[3]), check="full")
    assert all(check.passed for check in capture.checks)


def test_a_head_that_was_kept_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trained = train(5, gradient="guarded", steps=3, roundings=2)
    keep(trained, tmp_path / "head.safetensors")
    monkeypatch.setattr("attnprobe.models.declaration.stored.FILE", tmp_path / "head.safetensors")
    back = stored_head()
    assert (back.seed, back.gradient, back.roundings) == (5, "guarded", 2)
    assert back.loss_per_token == trained.loss_per_token
    assert torch.equal(back.weights, trained.weights)


# ---------------------------------------------------------------- asking it


def test_the_question_is_the_log_probability_of_the_word_at_its_place(stored):
    model = as_model(stored.network)
    example = model.example(SENTENCES[0])
    right = logits(model, [Row(example)])[0].log_softmax(-1)
    for position in (0, 7, 11):
        target = model.resolve(example, word_at(example, position))
        word = VOCABULARY.index(example.tokens[position])
        assert target.last_seen is None  # words on both sides count
        assert float(targets(model, [Row(example)], target)) == pytest.approx(float(right[position, word]), abs=1e-12)
    with pytest.raises(InputError, match="words 0 to 11"):
        word_at(example, 12)


def test_attention_gives_the_word_itself_nothing_and_the_query_says_otherwise():
    """Replacing the embedding of the asked word changes its query alone, yet it changes the answer."""
    network = train(0, gradient="cross_entropy", steps=150).network
    model = as_model(network)
    example = model.example(SENTENCES[0])
    target = word_at(example, 11)
    assert float(attribute(model, example, "raw_attention", target).scores[11]) == 0
    ablated = attribute(model, example, "leave_one_out", target, operator="zero")
    E, W_Q, W_K, W_V, W_O = (m if n == 0 else m.T for n, m in enumerate(network.matrices()))
    X = E[example.inputs["input_ids"][0]]
    scores = (torch.zeros_like(X[11]) @ W_Q @ (X @ W_K).T) / 24**0.5
    weights = scores[:11].softmax(-1)
    answer = (weights @ (X[:11] @ W_V) @ W_O).log_softmax(-1)[VOCABULARY.index("rights")]
    whole = targets(model, [Row(example)], model.resolve(example, target))
    assert float(ablated.scores[11]) == pytest.approx(float(whole - answer), rel=1e-5)
    assert abs(float(ablated.scores[11])) > 0.1


@pytest.mark.parametrize(
    "method", ["value_zeroing", "attention_x_gradient", "integrated_gradients", "shapley_sampling"]
)
def test_every_family_answers(stored, method: str):
    model = as_model(stored.network)
    example = model.example(SENTENCES[3])
    scores = attribute(model, example, method, word_at(example, 5)).scores
    assert scores.shape == (9,)


# ---------------------------------------------------------------- other runs, and refusals


def test_a_table_has_a_row_a_run_with_the_weights_of_that_run():
    table = over_seeds([0, 1], steps=5, progress=False)
    trained = train(1, gradient="cross_entropy", steps=5)
    assert table.seed.tolist() == [0, 1]
    assert {name: table[name][1] for name in CLAIMS} == claims(trained)
    assert table.loss_per_token[1] == trained.loss_per_token
    again = over_roundings([0, 4], gradient="guarded", steps=5, progress=False)
    assert (again.roundings.tolist(), again.seed.tolist(), set(again.gradient)) == ([0, 4], [0, 0], {"guarded"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient": "crossentropy"}, "did you mean 'cross_entropy'"),
        ({"steps": 0}, "at least 1 step"),
        ({"rate": float("nan")}, "rate above 0"),
        ({"seed": -1}, "seeds from 0"),
    ],
)
def test_training_that_makes_no_sense_is_refused(options: dict, message: str):
    with pytest.raises(InputError, match=message):
        train(**options)


def test_the_picture_holds_the_weights_their_words_and_how_the_head_stands(stored):
    axes = declaration_picture(stored)
    drawn_weights = axes.collections[0].get_array().reshape(12, 12)
    assert np.allclose(drawn_weights, stored.weights.numpy())
    assert [label.get_text() for label in axes.get_yticklabels()] == list(words(SENTENCES[0]))
    assert axes.collections[0].colorbar.ax.get_ylabel().startswith("attention weight")
    (caption,) = axes.figure.texts
    assert f"names {stored.n_right}" in caption.get_text()
    assert "Limits" in caption.get_text()


def test_panels_show_shares_and_runs_show_every_run():
    maps = {"raw_attention": torch.tensor([[0.0, 2.0], [1.0, 1.0]]), "leave_one_out": torch.tensor([[-3.0, 1.0]] * 2)}
    figure = attribution_panels(maps, ["a", "b"], {"raw_attention": False, "leave_one_out": True})
    shares = figure.axes[1].collections[0].get_array().reshape(2, 2)
    assert shares.tolist() == [[-0.75, 0.25], [-0.75, 0.25]]
    table = over_seeds([0, 1], steps=2, progress=False).assign(runs="seeds")
    axes = runs_picture(table)
    assert sum(len(dots.get_offsets()) for dots in axes.collections) == 6
    with pytest.raises(InputError, match="missing: runs"):
        runs_picture(table.drop(columns="runs"))
