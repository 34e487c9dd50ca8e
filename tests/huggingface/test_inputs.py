"""What a transformers model reads: encodings, masks, pairs, pictures; and where its attention and its answer are."""

import numpy as np
import PIL.Image
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from attnprobe import attribute, load
from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import InputError
from attnprobe.models.huggingface.places import kind_of, locator
from attnprobe.models.reading import read_rows
from attnprobe.target import Target
from tests import tiny

PICTURE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 12,
    "patch_size": 4,
}


@pytest.fixture(scope="module")
def sentiment():
    return load("attnprobe/sentiment")


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert", "sdpa")


@pytest.fixture(scope="module")
def gpt2():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder, made.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=270, special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(["hello world good film"] * 20, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<end>", eos_token="<end>", unk_token="<end>"
    )
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=len(tokenizer), n_positions=64)
    return load((transformers.GPT2LMHeadModel(config).eval(), tokenizer))


class TestEncodings:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"return_tensors": "pt"},
            {"return_offsets_mapping": True},
            {"return_special_tokens_mask": True},
            {"padding": "max_length", "max_length": 20, "return_offsets_mapping": True},
        ],
    )
    def test_an_encoding_has_the_words_of_its_text(self, sentiment, options):
        text = "A wonderfully zzxqj film"
        whole, given = sentiment.example(text), sentiment.example(sentiment.tokenizer(text, **options))
        assert given.tokens == whole.tokens and given.words == whole.words
        assert set(given.inputs) == {"input_ids", "attention_mask", "token_type_ids"}
        assert torch.equal(sentiment.capture(given).logits, sentiment.capture(whole).logits)

    def test_an_encoded_pair_has_the_words_of_both_texts(self, sentiment):
        pair = ("wonderfully bad", "zzxqj film")
        assert sentiment.example(sentiment.tokenizer(*pair)).words == sentiment.example(*pair).words

    def test_labels_are_left_out_and_said_to_be(self, sentiment):
        example = sentiment.example({**sentiment.tokenizer("a film"), "labels": 1})
        assert "labels" not in example.inputs and example.notes["left_out"] == ("labels",)

    def test_ids_may_be_numpy_or_one_row(self, bert):
        forms = [np.array(tiny.IDS), [tiny.IDS], torch.tensor(tiny.IDS, dtype=torch.int32)]
        assert all(len(bert.example(form).tokens) == len(tiny.IDS) for form in forms)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"input_ids": [[5, 6, 7]], "attention_mask": [[1, 1]]}, "attention_mask is of 2 tokens, input_ids of 3"),
            ([5, 60, 7], "no token with the id 60 .* 0 to 59"),
            ([5, -1, 7], "no token with the id -1"),
            ([5.0, 6.0], "whole numbers, got float"),
            ([True, False], "whole numbers, got bool"),
            (b"good", "got bytes"),
            ({"input_ids": [[[5, 6], [7, 8]]]}, r"shape \[1 token\], got \[1, 2, 2\]"),
            ({"input_ids": [[5]], "inputs_embeds": torch.rand(1, 1, 32)}, "no tokens to explain"),
            ({"input_ids": [[5, 6]], "attention_mask": [[0, 0]]}, "hides every token"),
        ],
    )
    def test_what_the_model_cannot_read_is_refused_with_the_reason(self, bert, given, message):
        with pytest.raises(InputError, match=message):
            bert.example(given)

    def test_an_unknown_option_names_the_nearest(self, sentiment):
        with pytest.raises(InputError, match="no option 'trunc'; did you mean 'truncate'"):
            sentiment.example("a film", trunc=True)

    def test_a_list_of_words_covers_its_text(self, sentiment):
        words = ["A", "wonderfully", "zzxqj", "film"]
        example = sentiment.example(words)
        assert attribute(sentiment, example, "random_scores").words().word[1:-1].tolist() == words
        pair = sentiment.example(["zzxqj", "bad"], ["good", "film"])
        assert "".join(pair.pieces).replace("[CLS]", "").replace("[SEP]", "") == "zzxqjbadgoodfilm"
        assert pair.words == sentiment.example("zzxqj bad", "good film").words


class TestPairsAndSpecialTokens:
    def test_the_pieces_of_a_pair_are_those_of_its_texts(self, sentiment):
        example = sentiment.example("good", "bad film")
        assert example.pieces == ("[CLS]", "good", "[SEP]", "bad", "film", "[SEP]")
        assert example.words == (None, 0, None, 1, 2, None)

    def test_a_pair_without_a_token_between_keeps_its_words_apart(self, gpt2):
        example = gpt2.example("hello", "world good")
        assert "".join(example.pieces) == "helloworld good"
        groups = ["".join(example.pieces[i] for i in group) for group in example.word_groups()]
        assert groups == ["hello", "world", " good"]

    def test_a_token_that_begins_and_stands_for_the_unknown_is_special(self, gpt2):
        assert gpt2.example("<end>hello").is_special[0]

    def test_unknown_and_masked_words_are_not_special(self, sentiment):
        example = sentiment.example("a [MASK] [UNK] film")
        assert example.is_special == (True, False, False, False, False, True)


class TestMasks:
    def test_padding_is_cut_and_a_hidden_token_stays_as_given(self, sentiment):
        hidden = {"input_ids": [[2, 700, 800, 3, 0, 0]], "attention_mask": [[0, 1, 1, 1, 0, 0]]}
        example = sentiment.example(hidden)
        assert example.tokens[0] == "[CLS]" and example.n_tokens == 4
        assert "hides 1 of 4" in example.notes["attention_mask"]
        with torch.no_grad():
            own = sentiment.module(**{name: torch.tensor(value) for name, value in hidden.items()}).logits
        torch.testing.assert_close(sentiment.capture(example).logits, own)

    def test_without_a_tokenizer_masked_ends_are_padding(self, bert):
        mask = torch.tensor([[0, 0] + [1] * 8 + [0, 0]])
        assert bert.example({"input_ids": torch.tensor([tiny.IDS]), "attention_mask": mask}).n_tokens == 8

    def test_which_rows_are_read_is_watched_on_each_example(self):
        config = transformers.ModernBertConfig(
            **tiny._BERT, **tiny._SPECIAL, cls_token_id=1, sep_token_id=2, classifier_pooling="mean"
        )
        model = load(transformers.ModernBertForSequenceClassification(config).eval())
        for hidden in ([4, 5], [1, 2]):
            mask = torch.ones(1, 12, dtype=torch.long)
            mask[0, hidden] = 0
            example = model.example({"input_ids": torch.tensor([tiny.IDS]), "attention_mask": mask})
            rows = read_rows(model, example, model.resolve(example)).tolist()
            assert rows == [i for i in range(12) if i not in hidden]

    @pytest.mark.parametrize(
        "name", ["XLMRobertaXL", "Xmod", "Data2VecText", "RobertaPreLayerNorm", "MPNet", "Camembert", "Roberta"]
    )
    def test_positions_that_begin_behind_the_padding_leave_room_for_fewer_tokens(self, name):
        languages = {"languages": ["en_XX"], "default_language": "en_XX"} if name == "Xmod" else {}
        config = getattr(transformers, f"{name}Config")(**tiny._BERT, **languages, pad_token_id=1)
        model = load(getattr(transformers, f"{name}ForSequenceClassification")(config).eval())
        with pytest.raises(InputError, match="63 tokens, the model takes 62"):
            model.example([5] * 63)
        with torch.no_grad():
            assert model.module(**model.example([5] * 62).inputs).logits.shape == (1, 3)


class TestWhereAttentionIs:
    @pytest.mark.parametrize("name", ["gpt2", "llama"])
    @pytest.mark.parametrize("implementation", ["eager", "sdpa"])
    def test_attention_to_cached_keys_is_self_attention(self, name, implementation):
        model, tape = load(tiny.build(name, implementation)), Tape(keep=Keep())
        with torch.no_grad(), model.listening(tape):
            model.module.generate(torch.tensor([tiny.IDS]), max_new_tokens=3, do_sample=False, pad_token_id=0)
        assert {site.place.kind for site in tape.sites} == {"self"}
        assert [tuple(site.weights.shape[-2:]) for site in tape.sites[::3]] == [(12, 12), (1, 13), (1, 14)]

    def test_a_cross_encoder_is_not_cross_attention(self):
        class Wrapped(torch.nn.Module):
            def __init__(self):
                super().__init__()
                whole = tiny.build("bert")
                self.cross_encoder, self.head, self.config = whole.bert, torch.nn.Linear(32, 2), whole.config

            def forward(self, input_ids, attention_mask=None):
                return self.head(self.cross_encoder(input_ids, attention_mask=attention_mask).last_hidden_state[:, 0])

        model = load(Wrapped().eval())
        assert [stack.kind for stack in model.stacks] == ["self"]
        assert attribute(model, model.example(tiny.IDS), "raw_attention").used == {"read_rows": [0]}

    @pytest.mark.parametrize("name", ["t5", "bart"])
    def test_encoder_decoders_have_self_and_cross_stacks(self, name):
        stacks = load(tiny.build(name)).stacks
        assert [(s.name, s.kind) for s in stacks] == [("encoder", "self"), ("decoder", "self"), ("decoder", "cross")]

    def test_berts_crossattention_is_cross_whatever_the_lengths(self):
        config = transformers.BertConfig(**tiny._BERT, is_decoder=True, add_cross_attention=True)
        module = transformers.BertLMHeadModel(config)
        locate, parts = locator(module), dict(module.named_modules())
        for differ in (True, False):
            for path, kind in (("attention", "self"), ("crossattention", "cross")):
                part = parts[f"bert.encoder.layer.0.{path}.self"]
                assert locate(part, differ)[1] == kind

    def test_where_nothing_is_said_the_lengths_decide(self):
        module = torch.nn.Sequential(torch.nn.Identity())
        assert kind_of(module, module[0], "mixer.0", True) == "cross"
        assert kind_of(module, module[0], "mixer.0", False) == "self"


class TestReadRowsOfADecoder:
    @pytest.mark.parametrize("name", ["t5", "bart"])
    def test_cross_attention_is_read_where_the_target_is(self, name):
        model = load(tiny.build(name))
        example = model.example(tiny.IDS, answer=[4, 5, 6])
        weights = model.capture(example).weights("decoder", "cross")[-1].mean(0)
        for target, rows in ((None, [0, 1, 2]), (Target(label=7, position=1), [1]), (Target(label=7), [2])):
            found = attribute(model, example, "raw_attention", target)
            assert found.used == {"read_rows": rows}
            torch.testing.assert_close(found.scores, weights[rows].mean(0))

    def test_a_classifier_reads_its_last_row(self):
        config = transformers.BartConfig(**{**tiny.build("bart").config.to_dict(), "num_labels": 3})
        model = load(transformers.BartForSequenceClassification(config).eval())
        example = model.example([5, 6, 7, 2])
        assert attribute(model, example, "raw_attention").used == {"read_rows": [3]}

    @pytest.mark.parametrize(
        ("answer", "message"),
        [("good", "no tokenizer"), ([], "at least one token"), ([99], "no token with the id 99"), (5, "in one list")],
    )
    def test_an_answer_that_cannot_be_read_is_refused(self, answer, message):
        model = load(tiny.build("t5"))
        with pytest.raises(InputError, match=message):
            model.example(tiny.IDS, answer=answer)

    def test_only_an_encoder_decoder_takes_an_answer(self, bert):
        with pytest.raises(InputError, match="takes no answer"):
            bert.example(tiny.IDS, answer=[4])


class TestPictures:
    @pytest.mark.parametrize(
        ("name", "options", "special"),
        [
            ("ViT", {}, ("[CLS]",)),
            ("DeiT", {}, ("[CLS]", "[DIST]")),
            ("Dinov2WithRegisters", {"num_register_tokens": 3}, ("[CLS]", "[REG0]", "[REG1]", "[REG2]")),
            ("IJepa", {}, ()),
        ],
    )
    def test_tokens_are_the_keys_and_no_special_position_is_a_patch(self, name, options, special):
        sizes = {k: v for k, v in PICTURE.items() if k != "intermediate_size" or "Dino" not in name}
        config = getattr(transformers, f"{name}Config")(**sizes, **options)
        model = load(getattr(transformers, f"{name}ForImageClassification")(config).eval())
        example = model.example(torch.rand(3, 12, 12))
        patches = tuple(f"{row},{column}" for row in range(3) for column in range(3))
        assert example.tokens == (*special, *patches)
        assert example.is_special == (True,) * len(special) + (False,) * 9
        assert model.capture(example).weights().shape[-1] == example.n_tokens

    def test_positions_that_cannot_be_told_apart_are_numbered_and_said_to_be(self):
        model = load(transformers.ViTMAEModel(transformers.ViTMAEConfig(**PICTURE, mask_ratio=0.5)).eval())
        example = model.example(torch.rand(3, 12, 12))
        assert example.tokens[0] == "position 0" and not any(example.is_special)
        assert "could not be told" in example.notes["positions"]

    def test_a_patch_size_may_be_said_in_the_vision_part_only(self):
        small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
        config = transformers.SiglipConfig(vision_config=PICTURE, text_config={**small, "vocab_size": 60})
        model = load(transformers.SiglipForImageClassification(config).eval())
        assert model.example(torch.rand(3, 12, 12)).tokens[:2] == ("0,0", "0,1")

    def test_pixels_are_in_the_numbers_of_the_model(self):
        model = load(tiny.build("vit").bfloat16())
        assert model.capture(model.example(torch.rand(3, 12, 12))).logits.dtype == torch.bfloat16

    @pytest.mark.parametrize(
        ("picture", "message"),
        [
            (torch.rand(3, 20, 20), "does not read a picture of"),
            (torch.rand(2, 3, 12, 12), "give one at a time"),
            (torch.rand(12, 12), "give one at a time"),
            ("cat.png", "this model reads pictures"),
            (PIL.Image.new("RGB", (12, 12)), r"got Image: .*image processor, .*preprocessor_config.json.*pixel_values"),
        ],
    )
    def test_what_is_no_picture_for_this_model_is_refused(self, picture, message):
        with pytest.raises(InputError, match=message):
            load(tiny.build("vit")).example(picture)


def test_a_multiple_choice_model_is_refused_with_the_reason():
    module = transformers.BertForMultipleChoice(transformers.BertConfig(**tiny._BERT)).eval()
    with pytest.raises(InputError, match="chooses among several texts"):
        load(module).example(tiny.IDS)


def test_question_answering_has_a_start_and_an_end_at_every_token():
    from transformers import BertConfig, BertForQuestionAnswering

    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=60)
    module = BertForQuestionAnswering(config).eval()
    model = load(module)
    example = model.example(tiny.IDS)
    with torch.no_grad():
        expected = module(**example.inputs)
    logits = model.capture(example).logits
    assert torch.equal(logits[..., 0], expected.start_logits) and torch.equal(logits[..., 1], expected.end_logits)
    target = model.resolve(example, Target(label=1, position=3))
    assert target(logits)[0] == expected.end_logits[0, 3]


def test_half_of_a_letter_is_refused_with_the_mend():
    model = load("attnprobe/sentiment")
    text = "a \ud83d good film"
    with pytest.raises(InputError, match=r"character 2 of the text is half of a letter .*surrogatepass"):
        model.example(text)
    assert "good" in model.example(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")).text
