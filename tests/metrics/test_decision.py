"""decision_flip beside the model's own decisions on every set of tokens."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from attnprobe.attributing import attribute
from attnprobe.metrics import faithfulness
from attnprobe.models import load
from attnprobe.models.planted import planted
from tests import tiny

N = 6
flip = faithfulness["decision_flip"].function


def embeddings_without(module, gone):
    table = module.get_input_embeddings().weight.detach()
    embeddings = table[tiny.IDS[:N]].clone()
    embeddings[list(gone)] = table.mean(0)
    return embeddings


def wavering():
    """A model whose outputs are shifted so that it decides otherwise on many sets of the tokens, and its decisions."""
    module = tiny.build("bert", "eager", seed=4, scale=2.0)
    sets = [gone for k in range(N + 1) for gone in itertools.combinations(range(N), k)]
    with torch.no_grad():
        logits = module(inputs_embeds=torch.stack([embeddings_without(module, gone) for gone in sets])).logits
        middle = logits.median(0).values
        module.classifier.bias -= middle
    return load(module), dict(zip(sets, logits - middle, strict=True))


@pytest.fixture(scope="module")
def made():
    model, logits = wavering()
    return model, attribute(model, model.example(tiny.IDS[:N]), "random_scores"), logits


def ordered(attribution, order):
    scores = torch.zeros(attribution.example.n_tokens)
    scores[list(order)] = torch.arange(len(order), 0, -1.0)
    return replace(attribution, scores=scores)


def changed(order, decide):
    """Whether the decision is another one with the first 1, 2, … tokens gone."""
    return [decide(order[:k]) != decide(()) for k in range(1, len(order) + 1)]


def share(changes):
    return (changes.index(True) + 1) / len(changes) if True in changes else 1.0


def test_a_decision_flips_where_the_likeliest_output_first_changes(made):
    model, attribution, logits = made
    orders = list(itertools.permutations(range(N)))
    changes = {order: changed(order, lambda gone: int(logits[tuple(sorted(gone))].argmax())) for order in orders}
    back = next(o for o, c in changes.items() if True in c and False in c[c.index(True) :])
    chosen = [back, *orders[::90]]
    found = [flip(model, ordered(attribution, order), operator="mean") for order in chosen]
    assert found == [share(changes[order]) for order in chosen] and len(set(found)) > 1


@pytest.mark.parametrize("label", [0, 1, 2])
def test_labels_that_do_not_exclude_one_another_flip_at_a_half(made, label):
    model, attribution, logits = made
    several = replace(attribution, target=replace(attribution.target, exclusive=False, label=label))
    for order in list(itertools.permutations(range(N)))[::200]:
        expected = share(changed(order, lambda gone: bool(logits[tuple(sorted(gone))][label] > 0)))
        assert flip(model, ordered(several, order), operator="mean") == expected


def test_a_decision_that_nothing_flips_counts_as_all_tokens(made):
    _, attribution, _ = made
    constant = load(tiny.build("bert", "eager", seed=4, scale=2.0))
    constant.module.classifier.weight.data.zero_()
    constant.module.classifier.bias.data = torch.tensor([0.0, 1.0, 0.0])
    example = constant.example(tiny.IDS[:N])
    assert flip(constant, replace(attribution, example=example, target=constant.resolve(example))) == 1.0


def test_a_model_that_gives_one_number_decides_nothing():
    planned = planted("P4")
    truth = attribute(planned.model, planned.example, lambda m, e, t: planned.truth, planned.target)
    assert math.isnan(flip(planned.model, truth))


def test_a_decision_follows_the_explained_position_when_tokens_are_deleted():
    llama, ids = tiny.loaded("llama"), torch.tensor(tiny.IDS[:N])
    example = replace(llama.example(tiny.IDS[:N]), is_special=(False,) * (N - 1) + (True,))
    given = attribute(llama, example, "random_scores")

    def decide(gone):
        with torch.no_grad():
            return int(llama.module(ids[[i for i in range(N) if i not in gone]][None]).logits[0, -1].argmax())

    found = {}
    for order in list(itertools.permutations(range(N - 1)))[::30]:
        found[flip(llama, ordered(given, order), operator="delete")] = share(changed(order, decide))
    assert all(key == expected for key, expected in found.items()) and min(found) < 1
