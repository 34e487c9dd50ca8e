"""Cutting what a position may look at, in windows of layers."""

import math

import numpy as np
import pytest
import torch

from attnprobe import intervention
from attnprobe.errors import EditError, InputError
from attnprobe.heads.information_flow import information_flow
from attnprobe.models.planted import planted
from attnprobe.target import Target
from tests import tiny

# P5: weights of both layers, [CLS], A and T; A's signal is fetched by T in the first, T is read by [CLS] in the second.
FIRST = np.array([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9], [0.05, 0.9, 0.05]])
SECOND = np.array([[0.05, 0.05, 0.9]] * 3)


def without(weights, query, keys):
    """The weights with some edges cut, the rest of the row scaled up to sum to 1."""
    cut = weights.copy()
    cut[query, list(keys)] = 0
    return cut / cut.sum(-1, keepdims=True)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_two_hops_are_cut_where_they_are_made(window):
    made = planted("P5")
    sources = {"A": [1], "T": [2], "both": [1, 2]}
    found = information_flow(made.model, made.example, made.target, sources=sources, window=window)
    assert found.to == (0,) and found.target == pytest.approx(0.815)
    for number, keys in enumerate(sources.values()):
        for layer in range(2):
            first = without(FIRST, 0, keys) if 0 in found.windows[layer] else FIRST
            second = without(SECOND, 0, keys) if 1 in found.windows[layer] else SECOND
            assert found.targets[number, layer].item() == pytest.approx((second @ first)[0, 1])
    assert found.windows == {1: ((0,), (1,)), 2: ((0,), (0, 1)), 3: ((0, 1), (0, 1))}[window]
    assert math.isnan(found.probability) and found.relative.isnan().all()  # it gives a single number


def test_cutting_what_is_hidden_changes_nothing():
    model = tiny.loaded("gpt2")
    example = model.example(tiny.IDS)
    found = information_flow(model, example, sources=[4, 9], to=3, window=3)
    assert found.targets.shape == (2, 3) and found.change.abs().max().item() == pytest.approx(0, abs=1e-6)
    seen = information_flow(model, example, sources=[2], to=3, window=3)
    assert seen.change.abs().max() > 1e-6


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit"])
def test_every_architecture_flows_as_the_edit_says(name):
    model = tiny.loaded(name)
    example = tiny.example(model, name)
    target = model.resolve(example, 1)
    found = information_flow(model, example, target, window=2)
    assert found.targets.shape == (len(found.sources), 3) == found.relative.shape
    where = {"stack": found.stack, "kind": found.kind}
    name_of, keys = list(found.sources.items())[2]
    edit = intervention.knock_out(list(found.to), list(keys), layers=[1, 2], **where)
    logits = model.capture(example, edits=[edit]).logits.detach()
    assert found.windows[2] == (1, 2)
    assert found.targets[2, 2].item() == pytest.approx(target(logits).item(), abs=1e-5)
    lost = target.probability(logits).item() / found.probability - 1
    assert found.relative[2, 2].item() == pytest.approx(lost, abs=1e-4)
    table = found.to_frame()
    assert list(table) == ["source", "layer", "first", "last", "answer", "change", "relative"]
    assert len(table) == found.targets.numel() and name_of in set(table.source)
    torch.testing.assert_close(found.change, found.targets - found.target)


def test_all_tokens_that_can_be_seen_are_sources_but_the_query():
    model = tiny.loaded("gpt2")
    example = model.example(tiny.IDS)
    assert list(information_flow(model, example).sources.values()) == [(i,) for i in range(11)]
    early = information_flow(model, example, Target(3, position=5))
    assert early.to == (5,) and list(early.sources.values()) == [(i,) for i in range(5)]
    last = information_flow(model, example, Target(3, position=5), to="last", sources={"first": [0]})
    assert last.to == (11,) and last.change.abs().max().item() == pytest.approx(0, abs=1e-6)


def test_what_cannot_be_cut_is_refused():
    model = tiny.loaded("gpt2")
    example = model.example(tiny.IDS)
    with pytest.raises(EditError, match="nothing to look at"):
        information_flow(model, example, sources={"all": range(12)})
    for window in (0, True):
        with pytest.raises(InputError, match="window is"):
            information_flow(model, example, window=window)
    with pytest.raises(InputError, match="sources are tokens"):
        information_flow(model, example, sources=[12])
    for sources in ([], {"none": []}):
        with pytest.raises(InputError, match="sources is empty"):
            information_flow(model, example, sources=sources)
    with pytest.raises(InputError, match="to is"):
        information_flow(model, example, to="first")
    t5 = tiny.loaded("t5")
    with pytest.raises(InputError, match="read in an encoder"):
        information_flow(t5, tiny.example(t5, "t5"), stack="encoder")
