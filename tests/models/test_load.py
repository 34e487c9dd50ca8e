"""load(): every form that a model comes in, and a clear no for the rest."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, pipeline

from attnprobe import load
from attnprobe.attention.transformer import TransformerClassifier
from attnprobe.errors import InputError
from attnprobe.models.huggingface import HuggingFaceModel
from attnprobe.models.own import OwnModel, Vocabulary
from tests import tiny

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "film", "bad", "plot"]


@pytest.fixture(scope="module")
def tokenizer():
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


@pytest.fixture(scope="module")
def module():
    return tiny.build("bert", "sdpa")


@pytest.fixture(scope="module")
def folder(module, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    module.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_a_folder_a_pair_and_a_pipeline_are_the_same_model(folder, module, tokenizer):
    classify = pipeline("text-classification", model=module, tokenizer=tokenizer)
    found = [load(folder), load(str(folder)), load((module, tokenizer)), load(module, tokenizer), load(classify)]
    logits = [m.capture(m.example("a good film")).logits for m in found]
    assert all(torch.equal(one, logits[0]) for one in logits)
    assert load(found[0]) is found[0]


def test_a_dtype_may_be_asked_for(folder):
    assert load(folder, dtype="float64").capture(load(folder).example("a film")).logits.dtype == torch.float64


def test_a_network_of_ours_comes_with_its_vocabulary():
    network = TransformerClassifier(10, 2, d_model=16, n_heads=2, n_layers=2, max_length=16)
    model = load((network, Vocabulary.of(["a good film"])), labels=("no", "yes"))
    assert isinstance(model, OwnModel)
    assert model.capture(model.example("a good film")).weights().shape[:2] == (2, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no-such-model", "no model 'no-such-model'"),
        ("./no/such/folder", "no model './no/such/folder'"),
        (42, "load takes a name"),
        ([1, 2, 3], "load takes a name"),
        (None, "load takes a name"),
    ],
)
def test_what_is_no_model_is_an_error_that_says_what_load_takes(given, message):
    with pytest.raises(InputError, match=message):
        load(given)


def test_a_folder_without_a_configuration_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"has no config\.json"):
        load(tmp_path)


def test_a_mask_token_is_the_default_removal_where_there_is_one(folder):
    model = load(folder)
    assert isinstance(model, HuggingFaceModel) and next(iter(model.fillers)) == "mask"


def test_a_pair_of_texts_has_spans_and_words_of_both(folder):
    example = load(folder).example("a good film", "a bad plot")
    assert example.pieces == ("[CLS]", "a", "good", "film", "[SEP]", "a", "bad", "plot", "[SEP]")
    assert len({w for w in example.words if w is not None}) == 6


def test_a_list_of_words_is_read_as_words(folder):
    model = load(folder)
    assert model.example(["a", "good", "film"]).tokens == model.example("a good film").tokens
