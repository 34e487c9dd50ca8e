"""The words of the house: registries, targets, examples, captures, errors."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnprobe.attention.seam import Keep
from attnprobe.capture import Capture, Check
from attnprobe.errors import CaptureError, InputError, NumericsError
from attnprobe.models import load
from attnprobe.registry import Registry
from attnprobe.target import Target
from tests import tiny


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert", "sdpa")


class TestRegistry:
    def test_a_misspelt_name_names_the_nearest(self):
        registry = Registry("thing", None)
        registry.add(family="f", source="s")(lambda: None).__name__  # noqa: B018

        @registry.add(family="f", source="s")
        def rollout():
            """Says nothing."""

        with pytest.raises(InputError, match="no thing is named 'rolout'; did you mean 'rollout'"):
            registry["rolout"]

    def test_two_functions_of_one_name_are_a_mistake(self):
        registry = Registry("thing", None)

        def make():
            def f():
                pass

            return f

        registry.add(family="f", source="s")(make())
        registry.add(family="f", source="s")(make())  # the same cell run again

        def f():
            pass

        with pytest.raises(InputError, match="exists already"):
            registry.add(family="f", source="s")(f)

    def test_options_are_checked_by_name(self):
        registry = Registry("thing", None)

        @registry.add(family="f", source="s")
        def f(x, *, width: int = 3, height: int): ...

        with pytest.raises(InputError, match="no option 'widht'; did you mean 'width'"):
            registry["f"].check_options({"widht": 1})
        with pytest.raises(InputError, match="needs the option 'height'"):
            registry["f"].check_options({})
        assert registry["f"].check_options({"height": 1}) == {"width": 3, "height": 1}


class TestTarget:
    def test_scales_are_logit_log_probability_and_probability(self, bert):
        example = bert.example(tiny.IDS)
        logits = bert.capture(example).logits
        for scale, expected in (
            ("logit", logits[:, 1]),
            ("log_probability", logits.log_softmax(-1)[:, 1]),
            ("probability", logits.softmax(-1)[:, 1]),
        ):
            assert torch.equal(bert.resolve(example, Target(label=1, scale=scale))(logits), expected)

    def test_a_contrast_is_the_difference(self, bert):
        example = bert.example(tiny.IDS)
        logits = bert.capture(example).logits
        target = bert.resolve(example, Target(label="LABEL_2", against=0))
        assert torch.equal(target(logits), logits[:, 2] - logits[:, 0])
        assert target.description == "logit of LABEL_2 rather than LABEL_0"

    def test_none_means_the_predicted_class(self, bert):
        example = bert.example(tiny.IDS)
        target = bert.resolve(example)
        assert target.label == target.predicted == int(bert.capture(example).logits.argmax())
        assert math.isclose(
            target.label_probability, float(bert.capture(example).logits.softmax(-1).max()), rel_tol=1e-5
        )

    def test_a_causal_model_answers_at_its_last_token(self):
        model = tiny.loaded("gpt2")
        target = model.resolve(model.example(tiny.IDS))
        assert target.position == len(tiny.IDS) - 1
        assert model.resolve(model.example(tiny.IDS), Target(position=-3)).position == len(tiny.IDS) - 3

    def test_an_encoder_decoder_explains_the_log_probability_of_its_answer(self):
        module = tiny.build("t5")
        model = load(module)
        example = model.example(tiny.IDS, answer=[4, 5, 6])
        target = model.resolve(example)
        with torch.no_grad():
            out = module(input_ids=torch.tensor([tiny.IDS]), decoder_input_ids=torch.tensor([[0, 4, 5]])).logits
        expected = sum(out[0, i].log_softmax(-1)[t] for i, t in enumerate([4, 5, 6]))
        torch.testing.assert_close(target(out)[0], expected)

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            (Target(label="LABEL_7"), "did you mean 'LABEL_"),
            (Target(label=9), "outside of the model's 3 outputs"),
            (Target(label=1, against=1), "against itself"),
            (Target(position=2), "one answer for the whole input"),
        ],
    )
    def test_what_the_model_does_not_have_is_an_error(self, bert, target, message):
        with pytest.raises(InputError, match=message):
            bert.resolve(bert.example(tiny.IDS), target)

    def test_a_scale_that_does_not_exist_is_an_error(self):
        with pytest.raises(InputError, match="did you mean 'probability'"):
            Target(scale="probabilty")  # type: ignore[arg-type]

    def test_a_function_of_the_logits_is_a_target(self, bert):
        example = bert.example(tiny.IDS)
        target = bert.resolve(example, Target(function=lambda logits: logits.pow(2).sum(-1)))
        logits = bert.capture(example).logits
        assert torch.equal(target(logits), logits.pow(2).sum(-1))


class TestCapture:
    def test_what_is_saved_is_what_is_loaded(self, bert, tmp_path):
        capture = bert.capture(bert.example(tiny.IDS), keep=Keep.of("weights", "z"))
        again = Capture.load(capture.save(tmp_path / "capture"))
        assert torch.equal(again.weights(), capture.weights()) and torch.equal(again.logits, capture.logits)
        assert again.checks == capture.checks and again.example.tokens == capture.example.tokens
        assert torch.equal(again.sites[2].z, capture.sites[2].z)
        assert [s.place for s in again.sites] == [s.place for s in capture.sites]
        assert sorted(p.suffix for p in (tmp_path / "capture").iterdir()) == [".json", ".safetensors"]

    def test_the_frame_has_a_row_a_weight(self, bert):
        capture = bert.capture(bert.example(tiny.IDS))
        frame = capture.to_frame()
        assert len(frame) == 3 * 4 * 12 * 12
        row = frame[(frame.layer == 2) & (frame["head"] == 1) & (frame.query_index == 4) & (frame.key_index == 7)]
        assert row.weight.item() == pytest.approx(float(capture.weights()[2, 1, 4, 7]))

    def test_what_was_not_kept_is_an_error(self, bert):
        capture = bert.capture(bert.example(tiny.IDS))
        with pytest.raises(CaptureError, match="'z' was not kept"):
            capture.tensor("z")
        with pytest.raises(InputError, match="no cross-attention was kept"):
            capture.weights("encoder", "cross")
        with pytest.raises(InputError, match="no tensor 'weight'; did you mean 'weights'"):
            Keep.of("weight")

    def test_a_nan_never_passes_a_check(self):
        assert not Check("c", "here", math.nan, 1.0).passed

    def test_not_a_capture_folder_is_an_error(self, tmp_path):
        with pytest.raises(InputError, match=r"no capture\.json"):
            Capture.load(tmp_path)


class TestReading:
    def test_the_same_input_in_every_accepted_form(self, bert):
        ids = torch.tensor([tiny.IDS])
        forms = [tiny.IDS, ids, {"input_ids": ids}, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
        logits = [bert.capture(bert.example(form)).logits for form in forms]
        assert all(torch.equal(one, logits[0]) for one in logits)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (list(range(5, 40)) * 3, "has 105 tokens, the model takes 64"),
            ({"input_ids": torch.ones(2, 5, dtype=torch.long)}, "a batch of 2"),
            ({"attention_mask": torch.ones(1, 5)}, "needs input_ids"),
            ("some words", "no tokenizer"),
        ],
    )
    def test_what_cannot_be_read_is_an_error_that_says_why(self, bert, given, message):
        with pytest.raises(InputError, match=message):
            bert.example(given)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6))
def test_softmax_of_visible_keys_is_torchs_and_a_blind_row_is_zeros(values):
    from attnprobe.site import softmax

    scores = torch.tensor([values, [-math.inf] * len(values)])
    weights = softmax(scores)
    torch.testing.assert_close(weights[0], torch.softmax(scores[0], -1))
    assert bool((weights[1] == 0).all())


def test_values_that_are_not_finite_name_the_place():
    from attnprobe.capture import finite

    with pytest.raises(NumericsError, match="somewhere: 1 of 2 values"):
        finite("somewhere", torch.tensor([1.0, math.nan]))
