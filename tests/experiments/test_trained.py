"""Experiments that train: the task has the truth it says, and the published trends are there."""

import pytest
import torch

from attnprobe.attributing import attribute
from attnprobe.experiments.cues import CUES, HELD_OUT, LABELS, MARKER, draw, encode, mass_on
from attnprobe.experiments.diagnostic import diagnostic_network
from attnprobe.experiments.frozen_uniform import frozen_uniform_training
from attnprobe.experiments.permuted import permuted_attention
from attnprobe.experiments.reader import Reader, as_model, read_texts, train_reader
from attnprobe.experiments.twins import SEED_ALONE, trained_twins

STEPS = 100


@pytest.fixture(scope="module")
def base():
    return train_reader("recurrent", n_steps=STEPS)


@pytest.fixture(scope="module")
def twins(base):
    return trained_twins(base, lambdas=(0.01,), n_steps=STEPS, n_texts=100)


def test_the_label_is_that_of_the_cue_behind_the_marker():
    for one in draw(50, 3):
        words = one.text.split()
        assert words[one.marker] == MARKER
        assert one.other < one.marker < one.deciding
        assert words[one.deciding] in CUES[LABELS[one.label]]
        assert sum(word in (*CUES["negative"], *CUES["positive"]) for word in words) == 2


def test_nothing_held_out_was_learned_from():
    assert not {one.text for one in draw(2000, 0)} & {one.text for one in draw(200, HELD_OUT)}


def test_a_reader_reads_a_text_alone_as_in_a_batch(base):
    texts = draw(3, 9)
    batch, model = read_texts(base, texts), as_model(base)
    for row, one in enumerate(texts):
        capture = model.capture(model.example(one.text))
        n = len(one.text.split())
        assert capture.logits.softmax(-1)[0].tolist() == pytest.approx(batch.probabilities[row].tolist(), abs=1e-5)
        assert capture.weights()[0, 0, 0].tolist() == pytest.approx(batch.weights[row, :n].tolist(), abs=1e-5)
        assert float(batch.weights[row, n:].abs().sum()) == 0


def test_a_trained_reader_is_right_and_looks_at_the_word_that_decides(base):
    texts = draw(200, HELD_OUT)
    found = read_texts(base, texts)
    assert (found.probabilities.argmax(-1) == encode(texts)[2]).float().mean() > 0.95
    assert mass_on(found.weights, texts).mean() > 0.5


def test_methods_and_experiments_run_on_a_trained_reader(base):
    model, texts = as_model(base), [one.text for one in draw(6, 5)]
    assert attribute(model, texts[0], "leave_one_out").scores.shape[0] == len(texts[0].split())
    found = permuted_attention(model, texts, n_permutations=10)
    assert found.n == 6
    assert found.of("max_weight").between(0, 1).all()


def test_a_twin_predicts_alike_and_looks_elsewhere(twins):
    assert twins.of("same_decision", variant="0.01").mean() > 0.95
    assert twins.of("jsd", variant="0.01").mean() > twins.of("jsd", variant=SEED_ALONE).mean()
    assert set(twins.to_frame().n) == {100}


def test_training_is_what_its_seed_makes_it():
    a, b, c = (train_reader("average", n_steps=5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a.classifier.weight, b.classifier.weight)
    assert not torch.equal(a.classifier.weight, c.classifier.weight)


def test_trained_weights_help_a_network_without_context_and_a_twins_do_not(base, twins):
    found = diagnostic_network(base, twins.twins[0.01], n_steps=STEPS, n_texts=100)
    table = found.to_frame()
    right = table[table.measure == "right"].set_index("variant")["mean"]
    assert right["trained"] > 0.9
    assert right["trained"] > right["uniform"] > right["adversarial"]
    assert right["learned"] < 0.9  # no weights of its own can tell the two cues apart


def test_without_context_uniform_attention_stays_near_three_of_four():
    found = frozen_uniform_training(encoders=("average",), n_seeds=1, n_steps=STEPS, n_texts=100)
    table = found.to_frame().set_index(["variant", "measure"])
    assert 0.6 < table.loc[("average, uniform", "right"), "mean"] < 0.9
    gain = table.loc[("average", "gain"), "mean"]
    rights = [table.loc[(f"average, {looks}", "right"), "mean"] for looks in ("learned", "uniform")]
    assert gain == pytest.approx(rights[0] - rights[1])


def test_an_encoder_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="encoder is one of"):
        Reader("transformer", "learned")
