"""What may be given as a target, and what each scale means for each kind of model."""

import numpy as np
import pytest
import torch
import transformers

from attnprobe import attribute, load
from attnprobe.errors import InputError
from attnprobe.target import Target, as_target
from tests import tiny


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert", "sdpa")


@pytest.mark.parametrize("given", [0, np.int64(0), np.uint8(0), torch.tensor(0), "LABEL_0", "0", Target(label=0)])
def test_a_label_may_be_a_name_or_any_whole_number(bert, given):
    example = bert.example(tiny.IDS)
    assert bert.resolve(example).label != 0
    assert bert.resolve(example, given).label == 0
    assert attribute(bert, example, "random_scores", given).target.label_name == "LABEL_0"


@pytest.mark.parametrize("given", [1, np.int64(1), "LABEL_1"])
def test_an_encoder_decoder_takes_a_label_as_well(given):
    model = tiny.loaded("t5")
    example = model.example(tiny.IDS, answer=[4, 5, 6])
    if isinstance(given, str):
        with pytest.raises(InputError, match="without a tokenizer a label is a number"):
            model.resolve(example, given)
    else:
        assert model.resolve(example, given).label == 1


def test_a_target_keeps_plain_numbers():
    target = Target(label=np.int64(1), against=np.int32(0), position=np.int64(2))
    assert [type(v) for v in (target.label, target.against, target.position)] == [int, int, int]


@pytest.mark.parametrize("given", [True, False, 1.0, np.float32(1), np.bool_(True), torch.tensor(True), [0], b"x"])
def test_what_is_no_label_is_refused(bert, given):
    with pytest.raises(InputError, match="label is the name of an output or its whole number, got"):
        as_target(given)
    with pytest.raises(InputError, match="label is the name of an output"):
        attribute(bert, bert.example(tiny.IDS), "random_scores", given)


def test_a_position_that_is_no_whole_number_is_refused():
    with pytest.raises(InputError, match=r"position is a whole number, got 1\.5"):
        Target(position=1.5)  # type: ignore[arg-type]


def test_labels_that_do_not_exclude_one_another_are_judged_by_sigmoid():
    module = tiny.build("bert", "sdpa")
    module.config.problem_type = "multi_label_classification"
    model = load(module)
    example = model.example(tiny.IDS)
    logits = model.capture(example).logits
    on = {scale: model.resolve(example, Target(1, scale=scale)) for scale in ("probability", "log_probability")}
    torch.testing.assert_close(on["probability"](logits), logits.sigmoid()[:, 1])
    torch.testing.assert_close(on["probability"].probability(logits), logits.sigmoid()[:, 1])
    torch.testing.assert_close(on["log_probability"](logits), logits.sigmoid().log()[:, 1])
    assert on["probability"].label_probability == pytest.approx(float(logits.sigmoid()[0, 1]), rel=1e-5)
    assert on["probability"].predicted_probability == pytest.approx(float(logits.sigmoid().max()), rel=1e-5)


@pytest.mark.parametrize("scale", ["probability", "log_probability"])
def test_one_number_has_no_probability(scale):
    config = transformers.BertConfig(**{**tiny._BERT, "num_labels": 1})
    model = load(transformers.BertForSequenceClassification(config).eval())
    assert model.resolve(model.example(tiny.IDS)).scale == "logit"
    with pytest.raises(InputError, match=f"has no {scale.replace('_', '-')}; use the scale 'logit'"):
        model.resolve(model.example(tiny.IDS), Target(scale=scale))


@pytest.mark.parametrize("scale", ["logit", "log_probability", "probability"])
def test_a_whole_answer_is_explained_on_the_scale_asked_for(scale):
    model = tiny.loaded("t5")
    example = model.example(tiny.IDS, answer=[4, 5, 6])
    target, logits = model.resolve(example, Target(scale=scale)), model.capture(example).logits
    log = sum(logits[0, i].log_softmax(-1)[t] for i, t in enumerate([4, 5, 6]))
    torch.testing.assert_close(target(logits)[0], log.exp() if scale == "probability" else log)
    assert target.scale == ("probability" if scale == "probability" else "log_probability")
    assert target.description.startswith("the function probability" if scale == "probability" else "the function log")


def test_inference_mode_is_refused_and_no_grad_changes_nothing(bert):
    example = bert.example(tiny.IDS)
    with torch.inference_mode(), pytest.raises(InputError, match="leave it"):
        attribute(bert, example, "raw_attention")
    for method in ("raw_attention", "rollout", "input_x_gradient", "attention_x_gradient"):
        fresh = load(bert.module)
        expected = attribute(fresh, example, method).scores
        with torch.no_grad():
            torch.testing.assert_close(attribute(load(bert.module), example, method).scores, expected)


def test_probabilities_of_half_precision_logits_are_those_of_float32():
    from attnprobe.target import ResolvedTarget

    target = ResolvedTarget(0, "a", None, None, None, "log_probability", 0, "a", 0.5, 0.5)
    logits = torch.tensor([[9.0, -3.0, 0.25], [8.9375, -3.0, 0.25]], dtype=torch.bfloat16)
    assert torch.equal(target(logits), logits.float().log_softmax(-1)[:, 0]) and target(logits)[0] != target(logits)[1]
