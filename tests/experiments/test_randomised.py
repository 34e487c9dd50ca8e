"""Cascading randomisation: what is replaced, what is left alone, and what attention alone cannot notice."""

import copy

import pytest
import torch

from attnprobe.attention.transformer import TransformerClassifier
from attnprobe.errors import InputError
from attnprobe.experiments.asking import asked
from attnprobe.experiments.copying import copy_of, randomise
from attnprobe.experiments.parameter_groups import groups_from_top
from attnprobe.experiments.randomised import cascading_randomisation
from attnprobe.experiments.seeds import other_seeds
from attnprobe.models import load
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted import planted
from tests import tiny

ATTENTION_ALONE = ("raw_attention", "rollout")


def loaded(name):
    """A tiny model, its norms no longer constant, so that random numbers replace every parameter."""
    module = tiny.build(name)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return load(module)


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2", "llama", "albert"])
def test_every_parameter_is_in_one_group(name):
    model = loaded(name)
    groups = groups_from_top(asked(model, tiny.IDS)[0])
    inside = [parameter for group in groups for parameter in group.parameters]
    assert len(inside) == len(set(inside))
    assert {id(model.module.get_parameter(p)) for p in inside} == {id(p) for p in model.module.parameters()}


def test_the_cascade_goes_from_the_head_through_the_layers_to_the_embeddings():
    groups = groups_from_top(asked(loaded("bert"), tiny.IDS)[0])
    assert [group.name for group in groups] == ["head", "layer 2", "layer 1", "layer 0", "embeddings"]
    by_name = {group.name: group.parameters for group in groups}
    assert {p.split(".")[0] for p in by_name["head"]} == {"bert", "classifier"}
    assert all("pooler" in p or "classifier" in p for p in by_name["head"])
    assert all(p.startswith("bert.embeddings.") for p in by_name["embeddings"])
    assert all(p.startswith("bert.encoder.layer.1.") for p in by_name["layer 1"])


def test_layers_that_share_their_parameters_are_one_step():
    groups = groups_from_top(asked(loaded("albert"), tiny.IDS)[0])
    assert [group.name for group in groups] == ["head", "layers 0 to 2", "embeddings"]


def test_a_tied_embedding_goes_with_the_embeddings():
    groups = {group.name: group.parameters for group in groups_from_top(asked(loaded("gpt2"), tiny.IDS)[0])}
    assert "transformer.wte.weight" in groups["embeddings"]
    assert set(groups["head"]) == {"transformer.ln_f.weight", "transformer.ln_f.bias"}


def test_the_model_that_was_given_is_never_touched():
    model = loaded("bert")
    before = copy.deepcopy(model.module.state_dict())
    first = model.capture(model.example(tiny.IDS)).logits
    cascading_randomisation(model, tiny.IDS, methods=("raw_attention",))
    assert all(torch.equal(before[name], now) for name, now in model.module.state_dict().items())
    assert torch.equal(model.capture(model.example(tiny.IDS)).logits, first)


def test_what_reads_attention_alone_does_not_notice_a_random_classifier_and_it_is_said():
    found = cascading_randomisation(
        loaded("bert"), [tiny.IDS, tiny.IDS[::-1]], methods=(*ATTENTION_ALONE, "leave_one_out")
    )
    for method in ATTENTION_ALONE:
        assert found.of("spearman", layer="head", variant=method).tolist() == [1, 1]
        assert found.of("unchanged", layer="head", variant=method).tolist() == [1, 1]
    assert found.of("unchanged", layer="head", variant="leave_one_out").max() == 0
    assert found.of("total_variation", layer="head").min() > 0
    assert found.notes[0].startswith("raw_attention, rollout: unchanged on all 2 examples")
    assert found.of("unchanged", layer="layer 2", variant="raw_attention").max() == 0


def test_where_nothing_behind_attention_can_be_replaced_no_method_is_called_blind():
    model = tiny.loaded("gpt2")  # its last norm is constant, its last map is the embedding
    found = cascading_randomisation(model, tiny.IDS, methods=ATTENTION_ALONE)
    assert "leave the output as it was" in found.notes[0]


@pytest.mark.parametrize("how", ["normal", "shuffle"])
def test_random_parameters_follow_from_name_and_seed(how):
    model = loaded("bert")
    groups = groups_from_top(asked(model, tiny.IDS)[0])
    copies = [copy_of(model) for _ in range(3)]
    randomise(copies[0].module, groups, how, 1)
    randomise(copies[1].module, groups[::-1], how, 1)
    randomise(copies[2].module, groups, how, 2)
    for name, parameter in model.module.named_parameters():
        first, second, third = (one.module.get_parameter(name) for one in copies)
        assert torch.equal(first, second)
        assert not torch.equal(first, parameter)
        assert not torch.equal(first, third)
        if how == "shuffle":
            assert torch.equal(first.flatten().sort().values, parameter.flatten().sort().values)


@pytest.mark.parametrize("kind", ["own", "huggingface"])
def test_a_copy_answers_as_the_model_does_and_goes_its_own_way_afterwards(kind):
    made = planted("P5")
    model, given = (made.model, made.example) if kind == "own" else (loaded("bert"), None)
    example = model.example(tiny.IDS) if given is None else given
    before = model.capture(example)
    model.resolve(example)
    other = copy_of(model)
    assert torch.equal(other.capture(example).logits, before.logits)
    assert torch.equal(other.capture(example).weights(), before.weights())
    with torch.no_grad():
        for parameter in other.module.parameters():
            parameter.zero_()
    assert not torch.equal(other.capture(example).logits, before.logits)
    assert float(other.fillers[next(iter(other.fillers))].abs().sum()) == 0 or kind == "own"
    assert torch.equal(model.capture(example).logits, before.logits)


def test_an_encoder_decoder_is_refused_by_name():
    model = loaded("t5")
    with pytest.raises(InputError, match="T5ForConditionalGeneration has several stacks"):
        cascading_randomisation(model, tiny.example(model, "t5"))


def test_a_method_that_fails_is_a_note_and_the_others_go_on():
    def refuses(model, example, target):
        raise InputError("not this one")

    found = cascading_randomisation(loaded("gpt2"), tiny.IDS, methods=(refuses, "raw_attention"))
    assert set(found.values.variant) == {"", "raw_attention"}
    assert "refuses failed: not this one" in found.notes


def test_a_model_agrees_with_its_copy_and_not_with_another_seed():
    model = loaded("bert")
    equal = other_seeds([model, copy_of(model)], [tiny.IDS, tiny.IDS[:6]], methods=("raw_attention", "leave_one_out"))
    assert equal.of("jsd").max() == 0
    assert equal.of("spearman", variant="leave_one_out").min() == 1
    assert equal.of("same_decision").min() == 1
    other = other_seeds([model, load(tiny.build("bert", seed=1))], tiny.IDS, methods=("raw_attention",))
    assert other.of("spearman").iloc[0] < 1
    assert other.of("jsd").iloc[0] > 0
    with pytest.raises(InputError, match="at least 2"):
        other_seeds([model], tiny.IDS)


def test_own_transformers_have_a_cascade_too():
    torch.manual_seed(0)
    network = TransformerClassifier(12, 2, d_model=8, n_heads=2)
    vocabulary = Vocabulary.of(["a b c d e f g h i"])
    model = OwnModel(network, vocabulary, labels=("no", "yes"))
    groups = groups_from_top(asked(model, "a b c d")[0])
    assert [group.name for group in groups] == ["head", "layer 1", "layer 0", "embeddings"]
    assert {p for p in groups[0].parameters if "classifier" in p} == {"classifier.weight", "classifier.bias"}
    assert "token_embedding.weight" in groups[-1].parameters
