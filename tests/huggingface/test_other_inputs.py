"""What a transformers model reads beyond text: pictures, sounds, series, and several of them together."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from attnprobe import attribute, load
from attnprobe.errors import CaptureError, InputError
from attnprobe.models.huggingface.encodings import inputs_of
from attnprobe.models.huggingface.given import Readers
from attnprobe.models.huggingface.inputs import input_device, model_inputs
from attnprobe.models.huggingface.probing import probe_example
from attnprobe.models.rows import Row
from attnprobe.target import Target
from tests.huggingface.inputs_beyond_text import BUILDERS, IMAGE_ID, PICTURE, build, noise, picture_and_text, series

SOUND = np.random.default_rng(0).standard_normal(2000).astype("float32")
TOGETHER = ("clip", "llava", "qwen2vl")


@pytest.fixture(scope="module")
def listener():
    reader = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1, hop_length=400)
    return load((build("whisper"), reader))


def own(model, example):
    """The model's own output on an example's inputs."""
    with torch.no_grad():
        return model.module(**example.inputs)


class TestMappings:
    @pytest.mark.parametrize(
        ("name", "inputs"),
        [
            ("beit", {"pixel_values": noise(1, 3, 12, 12)}),
            ("videomae", {"pixel_values": noise(1, 4, 3, 12, 12)}),
            ("hubert", {"input_values": noise(1, 2000)}),
            ("ast", {"input_values": noise(1, 24, 16)}),
            ("whisper", {"input_features": noise(1, 8, 40), "decoder_input_ids": torch.tensor([[3, 4, 5]])}),
            ("captioner", {"pixel_values": noise(1, 3, 12, 12), "decoder_input_ids": torch.tensor([[1, 5]])}),
            ("series", series()),
            *[(name, picture_and_text(name)) for name in TOGETHER],
        ],
    )
    def test_the_models_own_inputs_pass_on_untouched(self, name, inputs):
        model = load(build(name))
        example = model.example(inputs)
        assert set(example.inputs) == set(inputs)
        assert all(torch.equal(example.inputs[n], v) and example.inputs[n].dtype == v.dtype for n, v in inputs.items())

    def test_flags_and_lists_pass_on_as_they_are(self):
        model = load(transformers.ViTModel(transformers.ViTConfig(**PICTURE)).eval())
        given = {"pixel_values": noise(1, 3, 20, 20), "interpolate_pos_encoding": True}
        example = model.example(given)
        assert example.inputs["interpolate_pos_encoding"] is True
        assert example.text == "picture of 5 \N{MULTIPLICATION SIGN} 5 patches"
        assert torch.equal(model.forward([Row(example)] * 2)[1], own(model, example).last_hidden_state[0])

    def test_arrays_of_a_feature_extractor_become_tensors(self):
        reader = transformers.Wav2Vec2FeatureExtractor()
        listed = load(build("hubert")).example(reader(SOUND, sampling_rate=16000))
        tensors = load((build("hubert"), reader)).example(SOUND)
        assert torch.equal(listed.inputs["input_values"], tensors.inputs["input_values"])

    def test_floats_come_in_the_numbers_of_the_model_and_masks_keep_theirs(self):
        model = load(build("llava").bfloat16())
        hidden = torch.zeros(1, 1, 12, 12)
        example = model.example(picture_and_text("llava") | {"attention_mask": hidden.to(torch.bfloat16)})
        assert example.inputs["pixel_values"].dtype == torch.bfloat16
        kept = inputs_of({"pixel_values": hidden, "attention_mask": hidden}, torch.bfloat16)
        assert (kept["pixel_values"].dtype, kept["attention_mask"].dtype) == (torch.bfloat16, torch.float32)

    @pytest.mark.parametrize(
        ("name", "inputs", "message"),
        [
            ("beit", {"pixel_values": noise(2, 3, 12, 12)}, "give one at a time"),
            ("beit", {"labels": 1}, "needs input_ids, or tensors of floats"),
            ("beit", {"input_ids": [[1, 2]]}, "reads pixel_values"),
            ("series", {"past_values": noise(1, 11)}, "does not read past_values .*past_time_features"),
            ("clip", {"input_ids": [[5, 6, 2]]}, "reads more than text"),
            ("llava", {"input_ids": [[5, IMAGE_ID, 6]], "pixel_values": noise(1, 3, 12, 12)}, "do not match"),
            ("bart", {"input_ids": [[5, 6, 7]]}, r"end token \(id 2\)"),
            ("t5", {"input_ids": [[5, 6, 7]]}, r"end token \(id 1\)"),
        ],
    )
    def test_what_the_model_cannot_read_is_refused_with_the_reason(self, name, inputs, message):
        with pytest.raises(InputError, match=message):
            load(build(name)).example(inputs)


class TestTextAndPicture:
    @pytest.mark.parametrize("name", TOGETHER)
    def test_rows_run_together_answer_as_they_do_alone(self, name):
        model = load(build(name))
        examples = [model.example(picture_and_text(name, seed)) for seed in (0, 1)]
        with torch.no_grad():
            together = model.forward([Row(example) for example in examples])
            alone = [model.forward([Row(example)])[0] for example in examples]
        torch.testing.assert_close(together, torch.stack(alone), atol=1e-4, rtol=1e-4)
        assert not torch.allclose(alone[0], alone[1], atol=1e-3)

    def test_a_comparing_model_answers_for_its_own_picture_and_text(self):
        model = load(build("clip"))
        example = model.example(picture_and_text("clip"))
        assert torch.equal(model.capture(example).logits, own(model, example).logits_per_image)

    @pytest.mark.parametrize(("name", "n_places", "n"), [("llava", 9, 12), ("qwen2vl", 4, 8)])
    def test_places_of_the_picture_are_tokens_that_removal_leaves_alone(self, name, n_places, n):
        model = load(build(name))
        example = model.example(picture_and_text(name))
        assert example.n_tokens == n and sum(example.is_special) == n_places
        assert f"{n_places} of {n} tokens" in example.notes["picture_places"]
        scores = attribute(model, example, "leave_one_out", Target(label=4, position=n - 1)).scores
        assert [bool(score == 0) for score in scores] == list(example.is_special)

    def test_a_text_alone_goes_where_the_model_takes_it(self):
        assert load(build("llava")).example([5, 6, 7]).tokens == ("5", "6", "7")
        assert load(build("clip_text")).example([5, 6, 2]).n_tokens == 3

    def test_a_picture_alone_is_refused_by_a_model_that_reads_text_first(self):
        with pytest.raises(InputError, match="its processor makes of the text and the picture"):
            load(build("clip")).example(Image.new("RGB", (12, 12)))

    def test_the_explained_stack_is_that_of_the_text(self):
        model = load(build("clip"))
        example = model.example(picture_and_text("clip"))
        assert attribute(model, example, "raw_attention", Target(label=0)).scores.shape == (4,)

    def test_a_row_run_again_keeps_no_keys_of_the_run_before(self):
        model = load(build("llava"))
        example = model.example(picture_and_text("llava"))
        seen = []
        handle = model.module.register_forward_hook(lambda *given: seen.append(given[-1].past_key_values))
        model.forward([Row(example)])
        handle.remove()
        assert seen == [None]


class TestRows:
    def test_a_flag_that_differs_between_rows_is_refused(self):
        model = load(transformers.ViTModel(transformers.ViTConfig(**PICTURE)).eval())
        given = {"pixel_values": noise(1, 3, 12, 12)}
        rows = [Row(model.example(given | {"interpolate_pos_encoding": flag})) for flag in (True, False)]
        with pytest.raises(InputError, match="the same interpolate_pos_encoding, got True"):
            model.forward(rows)

    @pytest.mark.parametrize("operator", ["delete", "attention_mask"])
    def test_no_token_is_taken_away_where_there_are_no_ids(self, operator):
        model = load(build("beit"))
        example = model.example(noise(3, 12, 12))
        with pytest.raises(InputError, match="no token ids"):
            model.forward([Row(example, kept=torch.arange(10) > 4, operator=operator)])

    def test_positions_in_three_axes_have_their_rows_on_the_second(self):
        model = load(build("qwen2vl"))
        positions = torch.arange(8).expand(3, 1, 8).clone()
        examples = [model.example(picture_and_text("qwen2vl", seed) | {"position_ids": positions}) for seed in (0, 1)]
        batch, _ = model_inputs(model, [Row(example) for example in examples])
        assert batch["position_ids"].shape == (3, 2, 8) and batch["pixel_values"].shape == (32, 96)

    def test_inputs_go_where_a_spread_model_says_that_it_runs(self):
        module = build("llava")
        module.get_input_embeddings().to("meta")
        assert input_device(module) == torch.device("cpu")
        module._hf_hook = SimpleNamespace(execution_device="cuda:1")
        assert input_device(module) == torch.device("cuda:1")


class TestPictures:
    @pytest.mark.parametrize("kind", ["RGB", "L", "RGBA", "array", "floats"])
    def test_any_kind_of_picture_goes_through_the_image_processor(self, kind):
        model = load((build("beit"), transformers.ViTImageProcessorPil(size={"height": 12, "width": 12})))
        arrays = {"array": np.zeros((20, 30, 3), "uint8"), "floats": np.random.rand(20, 30, 3)}
        example = model.example(arrays[kind] if kind in arrays else Image.new(kind, (30, 20)))
        assert example.inputs["pixel_values"].shape == (1, 3, 12, 12) and example.tokens[:2] == ("[CLS]", "0,0")

    @pytest.mark.parametrize("picture", [np.zeros((20, 30, 3), "uint8"), torch.zeros(3, 12, 12, dtype=torch.uint8)])
    def test_without_an_image_processor_a_picture_is_floats(self, picture):
        with pytest.raises(InputError, match="a tensor of floats"):
            load(build("beit")).example(picture)

    @pytest.mark.parametrize(("name", "side", "grid"), [("segformer", 64, 2), ("pvt", 64, 2), ("segformer", 96, 3)])
    def test_keys_made_fewer_are_a_coarser_grid_and_said_to_be(self, name, side, grid):
        model = load(build(name))
        example = model.example(noise(3, side, side))
        assert example.n_tokens == grid * grid == model.capture(example).sites[0].need("weights").shape[-1]
        assert "names no size of a patch" in example.notes["positions"]

    def test_windows_are_said_to_be_apart(self):
        example = load(build("swin")).example(noise(3, 32, 32))
        assert example.tokens[0] == "0,0" and example.n_tokens == 64
        assert "4 groups" in example.notes["positions"]

    @pytest.mark.parametrize("name", ["resnet", "convnext"])
    def test_a_network_without_attention_is_refused(self, name):
        with pytest.raises(CaptureError, match="attention"):
            load(build(name)).example(noise(3, 64, 64))

    def test_a_video_has_steps_of_time_before_rows_and_columns(self):
        example = load(build("videomae")).example(noise(4, 3, 12, 12)[None])
        assert example.tokens[0] == "0,0,0" and example.tokens[-1] == "1,2,2" and example.n_tokens == 18


class TestSounds:
    def test_frames_lie_as_far_apart_as_the_strides_say(self):
        model = load((build("wav2vec2"), transformers.Wav2Vec2FeatureExtractor()))
        example = model.example(SOUND)
        assert example.axis == "frames" and example.tokens[2] == "frame 2 (0.003 s)"  # 2 * 5 * 4 / 16000
        assert model.capture(example).weights().shape[-1] == example.n_tokens

    def test_without_a_rate_frames_have_a_number(self):
        assert load(build("wav2vec2")).example(SOUND).tokens[1] == "frame 1"

    def test_a_listener_has_frames_of_the_sound_and_tokens_of_the_answer(self, listener):
        example = listener.example(SOUND, answer=[5, 6, 7])
        assert example.tokens[:2] == ("frame 0 (0.000 s)", "frame 1 (0.050 s)") and example.n_tokens == 20
        assert example.notes["decoder_tokens"] == ("3", "5", "6")
        found = attribute(listener, example, "raw_attention")
        weights = listener.capture(example).weights("decoder", "cross")[-1].mean(0)
        torch.testing.assert_close(found.scores, weights.mean(0))

    def test_the_greedy_answer_is_what_the_model_says_token_by_token(self, listener):
        example = listener.example(SOUND)
        said = own(listener, example).logits[0].argmax(-1).tolist()
        assert list(example.notes["answer_ids"]) == said

    @pytest.mark.parametrize(
        ("name", "sound", "message"),
        [
            ("wav2vec2", np.stack([SOUND, SOUND]), "give one channel"),
            ("wav2vec2", SOUND[:5], "does not read input_values"),
            ("wav2vec2", [1, 2, 3], "samples of a sound are floats"),
            ("wav2vec2", "hello.wav", "a sound is an array of samples, got str"),
            ("wav2vec2", SOUND[:0], "empty"),
            ("whisper", SOUND, "load it with its feature extractor"),
            ("ast", SOUND, "load it with its feature extractor"),
        ],
    )
    def test_what_is_no_sound_for_this_model_is_refused(self, name, sound, message):
        with pytest.raises(InputError, match=message):
            load(build(name)).example(sound)

    def test_methods_that_need_words_say_so(self):
        model = load((build("hubert"), transformers.Wav2Vec2FeatureExtractor()))
        assert attribute(model, SOUND, "raw_attention").scores.shape == (100,)
        for method in ("leave_one_out", "integrated_gradients"):
            with pytest.raises(InputError, match="embedding"):
                attribute(model, SOUND, method)

    def test_patches_of_a_spectrum_are_no_frames(self):
        assert load(build("ast")).example(noise(24, 16)).tokens[0] == "position 0"


def test_channels_of_a_series_are_said_to_be_apart():
    example = load(build("patchtst")).example({"past_values": noise(1, 16, 2)})
    assert example.tokens[-1] == "position 3" and "2 groups" in example.notes["positions"]


def test_a_processor_is_taken_apart_into_what_it_holds():
    class Processor:
        tokenizer = load("attnprobe/sentiment").tokenizer
        image_processor = transformers.ViTImageProcessorPil()

    readers = Readers.of(Processor())
    assert readers == Readers(texts=Processor.tokenizer, pictures=Processor.image_processor)
    assert Readers.of(Processor.tokenizer) == Readers(texts=Processor.tokenizer)
    assert Readers.of(Processor.image_processor).texts is None
    model = load((load("attnprobe/sentiment").module, Processor()))
    assert model.example("a film").tokens == ("[CLS]", "a", "film", "[SEP]")


@pytest.mark.parametrize("name", [name for name in BUILDERS if name not in ("resnet", "convnext")])
def test_every_model_runs_on_an_input_made_from_its_configuration(name):
    model = load(build(name))
    example = probe_example(model)
    assert example is not None and model.forward([Row(example)]).shape[0] == 1
    assert model.stacks and sum(stack.n_layers for stack in model.stacks) >= 2


@pytest.mark.parametrize("name", ["resnet", "convnext"])
def test_no_input_makes_attention_where_there_is_none(name):
    with pytest.raises(CaptureError, match="attention"):
        probe_example(load(build(name)))
