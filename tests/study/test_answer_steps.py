"""Attributions of each token of an answer: exact, cheap, kept with the study, and held beside cross-attention."""

import json
import shutil

import pytest
import torch

from attnprobe import answer_steps as module
from attnprobe import running
from attnprobe.answer_steps import AnswerSteps, answer_ids, answer_steps, step_agreement, units_of
from attnprobe.attention.encoder_decoder import EncoderDecoder
from attnprobe.attributing import attribute
from attnprobe.comparison import compare
from attnprobe.errors import InputError
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, batch_rows
from attnprobe.models.own import OwnModel
from attnprobe.models.tasks import dates
from tests import tiny

QUICK = {"n_random": 4, "n_resamples": 50, "oracle": False, "verdicts": False, "progress": False, "operators": "mean"}
METHODS = ["raw_attention", "leave_one_out"]


@pytest.fixture(scope="module", params=["t5", "bart"])
def pretrained(request):
    model = load(tiny.build(request.param))
    return model, tiny.example(model, request.param)


@pytest.fixture(scope="module")
def own():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = EncoderDecoder(len(dates.INPUTS.tokens), len(dates.OUTPUTS.tokens), d_model=16, n_heads=2, n_layers=2)
    return OwnModel(network.eval(), vocabulary=dates.INPUTS, target_vocabulary=dates.OUTPUTS, answer_length=4)


def plain_steps(module, example):
    """log p of each step by the model alone, and its gradient times the embeddings, one step after the other."""
    table = module.get_input_embeddings()
    embeddings = table(example.inputs["input_ids"]).detach().requires_grad_()
    given = {"decoder_input_ids": example.inputs["decoder_input_ids"]}
    values, products = [], []
    for step, token in enumerate(example.notes["answer_ids"]):
        logits = module(inputs_embeds=embeddings, **given).logits
        value = logits[0, step].log_softmax(-1)[token]
        (gradient,) = torch.autograd.grad(value, embeddings)
        values.append(value.item())
        products.append((gradient * embeddings)[0].sum(-1).detach())
    return torch.tensor(values), torch.stack(products)


def close(found, expected):
    return (found - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))


def test_each_step_is_the_gradient_of_its_own_token_by_a_plain_loop(pretrained):
    model, example = pretrained
    found = answer_steps(model, example)
    values, products = plain_steps(model.module, example)
    assert close(found.log_probabilities, values)
    assert close(found.input_x_gradient, products)
    assert found.leave_one_out is None and found.dependent.all()


def test_removal_is_the_fall_of_each_step_by_a_plain_loop(pretrained):
    model, example = pretrained
    ids, found = torch.tensor(example.notes["answer_ids"]), answer_steps(model, example, "mean")
    table = model.module.get_input_embeddings()
    embeddings, units = table(example.inputs["input_ids"]).detach(), units_of(example)
    given = {"decoder_input_ids": example.inputs["decoder_input_ids"]}

    def ask(vectors):
        with torch.no_grad():
            logits = model.module(inputs_embeds=vectors, **given).logits[0]
        return logits.log_softmax(-1)[torch.arange(len(ids)), ids]

    for place in range(example.n_tokens):
        without = embeddings.clone()
        without[0, place] = model.fillers["mean"]
        expected = ask(embeddings) - ask(without) if units[place] else torch.zeros(len(ids))
        assert (found.leave_one_out[:, place] - expected).abs().max() < 1e-5


def test_steps_add_up_to_the_whole_answer(pretrained):
    model, example = pretrained
    found = answer_steps(model, example, "mean")
    whole = attribute(model, example, "input_x_gradient")
    assert close(found.input_x_gradient.sum(0), whole.scores)
    assert close(found.leave_one_out.sum(0), attribute(model, example, "leave_one_out", operator="mean").scores)


def test_a_step_takes_one_pass_each_way_and_a_token_one_forward(own):
    example = own.example("3 mar 1987")
    with Meter() as meter:
        found = answer_steps(own, example)
    assert (meter.forward, meter.backward) == (4, 4) == (found.forward_passes, found.backward_passes)
    found = answer_steps(own, example, "mean")
    assert (found.forward_passes, found.backward_passes) == (4 + 1 + int(units_of(example).sum()), 4)


def test_batches_change_nothing(own):
    example = own.example("3 mar 1987")
    whole = answer_steps(own, example, "mean")
    for rows in (1, 3):
        with batch_rows(rows):
            parts = answer_steps(own, example, "mean")
        for name, matrix in whole.maps.items():
            assert (parts.maps[name] - matrix).abs().max() < 1e-6


def test_a_sure_step_keeps_its_gradient():
    # In float32 the probability is 1 and the gradient of its logarithm 0; the difference of the two logits is 30.
    logits = torch.tensor([[30.0, 0.0]], requires_grad=True)
    value = module.log_probability(logits, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.item() == pytest.approx(-9.3576e-14, rel=1e-3)
    assert gradient[0, 1].item() == pytest.approx(-9.3576e-14, rel=1e-3)


def test_there_are_no_steps_without_an_answer_to_a_text(monkeypatch, own):
    bert = load(tiny.build("bert"))
    assert answer_ids(bert, tiny.example(bert, "bert")) == ()
    assert answer_steps(bert, tiny.example(bert, "bert")) is None
    example = own.example("3 mar 1987")
    assert len(answer_ids(own, example)) == 4
    monkeypatch.setattr(module, "MOST_STEPS", 3)
    assert answer_steps(own, example) is None


def test_long_texts_have_the_gradient_alone(monkeypatch, own):
    monkeypatch.setattr(module, "MOST_TAKEN", 3)
    found = answer_steps(own, own.example("3 mar 1987"), "mean")
    assert list(found.maps) == ["input_x_gradient"] and found.operator == ""


def steps_of(rows):
    scores = torch.tensor(rows)
    return AnswerSteps(tuple(range(len(rows))), torch.zeros(len(rows)), scores, scores)


def test_agreement_is_by_size_over_units_and_leaves_out_what_does_not_depend_on_the_text():
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1], [0.25] * 4])
    answer = steps_of([[0.1, 0.2, -0.3, 9.0], [1.0, -2.0, 3.0, 0.0], [0.009, 0.001, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    units = torch.tensor([True, True, True, False])
    assert answer.dependent.tolist() == [True, True, False, True]
    found = step_agreement(weights, answer, "leave_one_out", units)
    assert found.kendall_tau[:2] == (1.0, -1.0) and found.same_top[:2] == (1.0, 0.0)
    assert all(value != value for value in (*found.kendall_tau[2:], *found.same_top[2:]))


@pytest.fixture(scope="module")
def finished(own, tmp_path_factory):
    """A comparison of two texts with its folder."""
    folder = tmp_path_factory.mktemp("answers")
    return compare(own, ["3 mar 1987", "1 may 1950"], METHODS, folder=folder, **QUICK), folder


def test_a_comparison_keeps_them_and_reads_them_from_its_folder(own, finished, monkeypatch):
    comparison, folder = finished
    assert comparison.failures.empty
    monkeypatch.setattr(running.Work, "study", lambda *given: pytest.fail("it is on disk"))
    again = compare(own, ["3 mar 1987", "1 may 1950"], METHODS, folder=folder, **QUICK)
    for one, other in zip(comparison.studies, again.studies, strict=True):
        assert one.answer.facts() == other.answer.facts()
        assert list(one.answer.maps) == list(other.answer.maps) == ["leave_one_out", "input_x_gradient"]
        assert all(torch.equal(matrix, other.answer.maps[name]) for name, matrix in one.answer.maps.items())


def test_a_folder_from_before_there_were_any_opens(own, finished, tmp_path, monkeypatch):
    folder = shutil.copytree(finished[1], tmp_path / "old")
    for path in folder.glob("finished/*/study.json"):
        facts = json.loads(path.read_text("utf-8"))
        del facts["answer"]
        path.write_text(json.dumps(facts), encoding="utf-8")
    monkeypatch.setattr(running.Work, "study", lambda *given: pytest.fail("it is on disk"))
    again = compare(own, ["3 mar 1987", "1 may 1950"], METHODS, folder=folder, **QUICK)
    assert [study.answer for study in again.studies] == [None, None]


def test_what_goes_wrong_there_is_a_failure_and_the_comparison_goes_on(own, monkeypatch):
    def refuse(*given):
        raise InputError("no gradient reaches the answer")

    monkeypatch.setattr(running, "answer_steps", refuse)
    found = compare(own, "3 mar 1987", METHODS, **QUICK)
    assert found.studies[0].answer is None and set(found.methods) == set(METHODS)
    assert found.failures.method.tolist() == [running.ANSWER]
    assert "no gradient" in found.failures.error.iloc[0]
