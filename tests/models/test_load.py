"""load(): every form that a model comes in, and a clear no for the rest."""

import pytest
import torch
import transformers
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
        ("", "no model '': there is no such folder, and it is no name"),
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


class Headed(torch.nn.Module):
    """A pretrained body under a head of somebody's own, behind a table that is not the body's embedding."""

    def __init__(self, body, n_outputs):
        super().__init__()
        self.regions = torch.nn.Embedding(60, 32)
        self.body, self.head, self.config = body, torch.nn.Linear(32, n_outputs), body.config

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        states = self.body(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state
        return self.head(states[:, 0]) + 0 * self.regions(input_ids[:, :1]).sum()


@pytest.mark.parametrize("wrap", [torch.nn.DataParallel, lambda m: torch.compile(m, backend="eager")])
def test_what_spreads_or_compiles_a_model_keeps_its_names(module, tokenizer, wrap):
    model, plain = load((wrap(module), tokenizer)), load((module, tokenizer))
    assert model.outputs.names == plain.outputs.names == ("LABEL_0", "LABEL_1", "LABEL_2")
    example = model.example("a good film")
    assert model.resolve(example).description == plain.resolve(plain.example("a good film")).description


@pytest.mark.parametrize("n_outputs", [2, 3, 5])
def test_outputs_are_named_by_the_configuration_only_where_it_has_as_many(module, tokenizer, n_outputs):
    model = load((Headed(module.bert, n_outputs).eval(), tokenizer))
    names = [f"LABEL_{i}" if n_outputs == 3 else str(i) for i in range(n_outputs)]
    assert list(model.outputs.names) == names
    assert model.resolve(model.example("a good film"), "1").label == 1


def test_a_hidden_state_is_no_word(module, tokenizer):
    model = load((module.bert, tokenizer))
    assert len(model.outputs.names) == 32 and model.outputs.name(7) == "7"


def test_as_many_outputs_as_words_are_words(module, tokenizer):
    model = load((Headed(module.bert, len(tokenizer)).eval(), tokenizer))
    assert model.outputs.names is None and model.outputs.index("film") == WORDS.index("film")


def test_the_embedding_is_the_bodys_own(module, tokenizer):
    model = load((Headed(module.bert, 2).eval(), tokenizer))
    assert model.embedding is module.bert.embeddings.word_embeddings


def test_without_a_body_the_embedding_is_the_table_that_is_called_with_the_ids():
    class Bare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.positions, self.words = torch.nn.Embedding(16, 8), torch.nn.Embedding(16, 8)

        def forward(self, input_ids):
            return (self.words(input_ids) + self.positions(torch.arange(input_ids.shape[1]))).sum(1)

    network = Bare()
    assert load(network).embedding is network.words


def test_a_class_of_ones_own_answers_like_the_one_it_extends(tokenizer):
    class Mine(transformers.GPT2LMHeadModel):
        pass

    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=4, vocab_size=len(tokenizer), n_positions=64)
    model = load((Mine(config).eval(), tokenizer))
    example = model.example("a good film")
    assert model.outputs.names is None and model.resolve(example, "film").position == example.n_tokens - 1


def test_lm_in_the_name_of_a_model_without_a_head_makes_no_words(tokenizer):
    config = transformers.XLMRobertaConfig(**{**tiny._BERT, "vocab_size": len(tokenizer)}, pad_token_id=0)
    assert load((transformers.XLMRobertaModel(config).eval(), tokenizer)).outputs.name(7) == "7"
