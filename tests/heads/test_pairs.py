"""Pairs of inputs: of one length, aligned, with a target that differs between them."""

import pytest
import torch
import transformers as t
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from attnprobe.errors import InputError
from attnprobe.heads.addresses import stack_of
from attnprobe.heads.pair_sets import NAMES, PLACES, SENTENCES, THINGS, induction, subject_object
from attnprobe.heads.pairs import Baselines, baselines, pair, swapped_pairs
from attnprobe.models import load
from attnprobe.models.evaluator import targets
from attnprobe.models.planted import planted
from attnprobe.models.rows import Row
from attnprobe.target import Target
from tests import tiny
from tests.heads.made_pairs import planted_pair, tiny_pair

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = "a good film about a dog in old new york"


def tokenizer(names=NAMES, ends=False):
    """A word a token."""
    words = " ".join([*SENTENCES, TEXT]).replace(",", " ").split()
    known = dict.fromkeys([*SPECIAL, ",", ".", *words, *THINGS, *PLACES, *names, "bad", "cat"])
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(known)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if ends:
        both = [(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
        made.post_processor = TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", both)
    special = ("pad", "unk", "cls", "sep", "mask") if ends else ("pad", "unk")
    return t.PreTrainedTokenizerFast(tokenizer_object=made, **{f"{n}_token": f"[{n.upper()}]" for n in special})


def writer(**options):
    """A GPT-2 that predicts the next word, or (ends) a BERT that fills in a mask."""
    torch.manual_seed(0)
    words = tokenizer(**options)
    if options.get("ends"):
        sizes = {**tiny._BERT, "vocab_size": len(words)}
        return load(t.BertForMaskedLM(t.BertConfig(**sizes)).eval(), tokenizer=words)
    config = t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=len(words), bos_token_id=0, eos_token_id=0)
    return load(t.GPT2LMHeadModel(config).eval(), tokenizer=words)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit"])
def test_a_pair_says_which_tokens_differ(name):
    _, made = tiny_pair(name)
    assert made.changed == ((1,) if name == "vit" else (3,))
    assert made.clean.n_tokens == made.corrupt.n_tokens
    assert [i for i, piece in enumerate(made.pieces) if "/" in piece] == list(made.changed)


def test_without_a_target_the_prediction_of_each_input_is_told_from_that_of_the_other():
    made = planted("P12")
    clean, corrupt = ([*made.example.tokens[:8]], ["[BOS]", "0", "1", "2", "4", "0", "1", "2"])
    clean = [*clean, "3"]
    other = pair(made.model, clean, [*corrupt, "3"], Target(position=7))
    assert other.target.label_name == "3"
    model, found = tiny_pair("gpt2")
    rows = [Row(found.clean), Row(found.corrupt)]
    alone = [model.resolve(row.example).label for row in rows]
    assert found.target.label == alone[0]
    assert found.target.against == (None if alone[0] == alone[1] else alone[1])


def test_baselines_are_the_targets_of_both_inputs():
    model, made = tiny_pair("llama")
    expected = targets(model, [Row(made.clean), Row(made.corrupt)], made.target).tolist()
    found = baselines(model, made)
    assert [found.clean, found.corrupt] == pytest.approx(expected)
    answers = torch.tensor([found.clean, found.corrupt], dtype=torch.float64)
    assert found.share(answers, "denoising").tolist() == pytest.approx([1, 0])
    assert found.share(answers, "noising").tolist() == pytest.approx([0, 1])
    assert Baselines(3.0, 1.0).share(torch.tensor([2.5]), "denoising").item() == 0.75


def test_pairs_that_cannot_be_are_refused():
    model, made = tiny_pair("gpt2")
    with pytest.raises(InputError, match="11 tokens, the example 12"):
        pair(model, tiny.IDS, tiny.IDS[1:])
    with pytest.raises(InputError, match="same to this model"):
        pair(model, tiny.IDS, list(tiny.IDS))
    with pytest.raises(InputError, match="no difference to explain"):
        baselines(*planted_pair("P6", ["[CLS]", "[CLS]", "b"]))  # one of two that can replace one another
    with pytest.raises(InputError, match="direction is"):
        made.ends("backwards")
    with pytest.raises(InputError, match="no one stack"):
        stack_of(model, made.clean, "encoder")


def test_a_word_is_swapped_for_those_that_take_as_many_tokens():
    model = writer()
    found = swapped_pairs(model, TEXT, {"good": ["bad", "new-made"], "dog": "cat"})
    assert [one.corrupt.text for one in found] == [TEXT.replace("good", "bad"), TEXT.replace("dog", "cat")]
    assert [one.changed for one in found] == [(1,), (5,)]
    both = swapped_pairs(model, TEXT, {"a": "in"})
    assert both[0].corrupt.text == "in good film about in dog in old new york" and both[0].changed == (0, 4)
    with pytest.raises(InputError, match="no swap leaves the text with 10 tokens"):
        swapped_pairs(model, TEXT, {"good": ["very bad"]})
    with pytest.raises(InputError, match=r"no word 'goat'; .*good"):
        swapped_pairs(model, TEXT, {"goat": "cat"})


@pytest.mark.parametrize("ends", [False, True])
def test_sentences_ask_for_the_one_who_does_not_give(ends):
    model = writer(ends=ends)
    found = subject_object(model, 12, seed=3)
    assert len(found) == 12
    for one in found:
        words, name = one.clean.text.replace(",", "").split(), one.target.label_name
        people = [word for word in words if word in NAMES]
        assert sorted(people[:2]) == sorted([name, one.target.against_name]) and people[2] == one.target.against_name
        (place,) = one.changed
        assert one.clean.pieces[place] == people[2] and one.corrupt.pieces[place] == name
        at = one.clean.tokens.index("[MASK]") if ends else one.clean.n_tokens - 1
        assert one.target.position == at
    again = subject_object(model, 12, seed=3)
    assert [one.clean.text for one in again] == [one.clean.text for one in found]


def test_names_that_are_no_token_are_left_out():
    found = subject_object(writer(names=("Mary", "John", "Anna")), 5)
    assert {one.target.label_name for one in found} <= {"Mary", "John", "Anna"}
    with pytest.raises(InputError, match="no two of the names"):
        subject_object(writer(names=("Mary",)), 2)
    with pytest.raises(InputError, match="is none"):
        subject_object(tiny.loaded("bert"))


def test_induction_changes_what_came_first():
    model = tiny.loaded("gpt2")
    for one in induction(model, 4, length=6):
        ids, other = (e.inputs["input_ids"][0].tolist() for e in (one.clean, one.corrupt))
        said = ids[-12:]
        assert said[:6] == said[6:] and len(set(said)) == 6
        (place,) = one.changed
        assert place == len(ids) - 7 and one.target.position == len(ids) - 2
        assert (one.target.label, one.target.against) == (ids[-1], other[place]) and other[place] not in ids
    for one in induction(model, 2, length=6, change="match"):
        assert one.changed == (one.clean.n_tokens - 8,) and one.target.against is None


def test_induction_on_the_planted_circuit_is_answered():
    model = planted("P12").model
    for one in induction(model, 3):
        found = baselines(model, one)
        assert [found.clean, found.corrupt] == pytest.approx([1, -1])


def test_induction_is_for_models_that_predict_the_next_token():
    for name in ("bert", "t5", "vit"):
        with pytest.raises(InputError, match="predicts the next token"):
            induction(tiny.loaded(name))
