"""What compare() takes, and what it refuses before any method runs."""

from collections import UserDict
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe import running
from attnprobe.comparison import compare
from attnprobe.errors import InputError
from attnprobe.planning import inputs_of
from attnprobe.target import Target
from tests import tiny


@pytest.fixture(scope="module")
def model():
    return tiny.loaded("bert", "sdpa", scale=2.0)


def rollout(model, example, target):
    """Not the registered one."""
    return torch.ones(example.n_tokens)


def test_a_target_that_one_text_does_not_have_names_the_text(model):
    given = {model.resolve(e).label: e for i in range(3, 59) for e in [model.example([i, i + 1, i])]}
    assert len(given) > 1
    with pytest.raises(InputError, match=r"text 2 of 2: the target is '.*' against itself"):
        compare(model, list(given.values())[:2], ["raw_attention"], Target(against=list(given)[1]), progress=False)


def test_deleting_the_explained_position_is_told_before_any_method_runs():
    model = tiny.loaded("gpt2")
    with pytest.raises(InputError, match=r"text 1 of 2: .*delete"):
        compare(model, [tiny.IDS, tiny.IDS[3:]], ["raw_attention"], operators="delete", progress=False)


def test_one_input_is_one_example_in_every_form(model):
    ids = torch.tensor([tiny.IDS])
    forms = [tiny.IDS, tuple(tiny.IDS), ids[0], ids, ids[0].numpy(), pd.Series(tiny.IDS), {"input_ids": ids}]
    forms += [UserDict(input_ids=ids), model.example(tiny.IDS)]
    for form in forms:
        found = [model.example(item) for item in inputs_of(form)]
        assert [example.inputs["input_ids"].tolist() for example in found] == [[tiny.IDS]], form


def test_many_inputs_are_one_example_each_in_every_form():
    texts = ["a film", "a plot"]
    forms = [texts, tuple(texts), (t for t in texts), pd.Series(texts), np.array(texts), dict.fromkeys(texts).keys()]
    assert all(list(inputs_of(form)) == texts for form in forms)
    assert list(inputs_of("a film")) == ["a film"] and list(inputs_of([[5, 6], [7]])) == [[5, 6], [7]]
    picture = np.zeros((4, 4, 3))
    assert next(iter(inputs_of(picture))) is picture


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["rolout"]}, "did you mean 'rollout'"),
        ({"methods": []}, "no method was named"),
        ({"examples": []}, "there is no text"),
        ({"examples": [tiny.IDS, list(range(3, 50)) * 2]}, "text 2 of 2: the .* has 94 tokens, the model takes 64"),
        ({"target": "LABEL_5"}, "did you mean 'LABEL_"),
        ({"options": {"rollout": {}}}, "not among the methods"),
        ({"options": {"raw_attention": {"headz": 1}}}, "did you mean 'heads'"),
        ({"operators": "mask"}, "no 'mask' embedding"),
        ({"operators": "delete"}, "every token would be deleted"),
        ({"target": Target(against="LABEL_0", label=0)}, "against itself"),
        ({"operators": "masc"}, "no removal operator is named 'masc'; did you mean 'mask'"),
        ({"operators": ["mean", "masc"]}, "no removal operator is named 'masc'"),
        ({"operators": []}, "no operator was named"),
        ({"operators": ["mask", "unk"]}, "no operator works here; 'mask': .*no 'mask' embedding"),
        ({"methods": ["rollout", "rollout"]}, "'rollout' is among the methods 2 times"),
        (
            {"methods": [lambda m, e, t: None, lambda m, e, t: None]},
            "'<lambda>' is among the methods 2 times.*__name__",
        ),
        ({"methods": [partial(rollout), partial(rollout)]}, "'partial' is among the methods 2 times"),
        ({"methods": [rollout]}, "a registered method is named 'rollout' too.*__name__"),
        ({"options": {"raw_attention": {"layer": "5"}}}, "layer of raw_attention is a whole number or 'mean', got '5'"),
        ({"options": {"raw_attention": {"layer": True}}}, "layer of raw_attention is .*, got True"),
        ({"options": {"raw_attention": {"layer": 2.5}}}, "layer of raw_attention is .*, got 2.5"),
        ({"options": {"raw_attention": {"read": "rows"}}}, "read of raw_attention is 'row' or .*did you mean 'row'"),
        ({"n_random": -1}, "n_random is a whole number of at least 0, got -1"),
        ({"n_random": True}, "n_random is a whole number of at least 0, got True"),
        ({"n_resamples": 0}, "n_resamples is a whole number of at least 1, got 0"),
        ({"folder": __file__}, "is a file; give a folder"),
        ({"folder": f"{__file__}/below"}, "is a file; give a folder"),
        ({"examples": pd.DataFrame({"review": ["a"]})}, "one of its columns.*it has review"),
        ({"examples": b"a film"}, "decode it first"),
        ({"n_random": 10**9}, "n_random is at most 10000"),
    ],
)
def test_bad_input_is_one_error_before_any_method_runs(model, arguments, message, monkeypatch):
    monkeypatch.setattr(running, "attribute", None)
    given = {
        "examples": [model.example(tiny.IDS)],
        "methods": ["raw_attention"],
        "progress": False,
        "n_random": 2,
    } | arguments
    with pytest.raises(InputError, match=message):
        compare(model, **given)
