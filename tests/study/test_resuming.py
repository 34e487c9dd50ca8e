"""A comparison that was interrupted goes on, computes nothing twice, and never mixes what does not belong together."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe import running
from attnprobe.comparison import compare
from attnprobe.errors import InputError
from attnprobe.fingerprint import differences
from attnprobe.models import load
from attnprobe.models.evaluator import Meter
from tests import tiny

METHODS = ["raw_attention", "leave_one_out", "random_scores"]
QUICK = {
    "methods": METHODS,
    "operators": "mean",
    "n_random": 4,
    "n_resamples": 50,
    "verdicts": False,
    "progress": False,
}


@pytest.fixture(scope="module")
def model():
    return tiny.loaded("bert", "sdpa", scale=2.0)


@pytest.fixture(scope="module")
def done(model, tmp_path_factory):
    """A finished comparison, and the folder that it left."""
    folder = tmp_path_factory.mktemp("done")
    return ask(model, folder), folder


@pytest.fixture
def folder(done, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(done[1], tmp_path / "copy")


def given(model):
    return [model.example(tiny.IDS[:6]), model.example(tiny.IDS[2:8]), model.example(tiny.IDS[4:])]


def ask(model, folder=None, **options):
    options = QUICK | options
    return compare(model, options.pop("examples", None) or given(model), folder=folder, **options)


def stopped(monkeypatch, after):
    """The n-th study raises, as Ctrl-C does."""
    plain, calls = running.Work.study, []

    def study(self, index):
        calls.append(index)
        if len(calls) > after:
            raise KeyboardInterrupt
        return plain(self, index)

    monkeypatch.setattr(running.Work, "study", study)
    return calls


def same(one, other):
    for name, table in one.tables.items():
        again = other.tables[name]
        # What is looked up or checked once a model is not so again in the second run.
        kept = {"checks": ["check", "tolerance", "passed"], "costs": ["method", "family"]}
        table, again = (t[kept.get(name, list(t.columns))] for t in (table, again))
        table, again = (t.drop(columns="seconds", errors="ignore") for t in (table, again))
        pd.testing.assert_frame_equal(table, again, check_dtype=False, rtol=1e-3, atol=1e-6, obj=name)


@pytest.mark.parametrize("verdicts", [False, True])
def test_what_was_interrupted_goes_on_and_ends_as_if_it_had_not_been(model, done, tmp_path, monkeypatch, verdicts):
    texts = [model.example(tiny.IDS[:5]), model.example(tiny.IDS[2:7])]
    options = {"examples": texts, "verdicts": verdicts, "operators": ["mean", "attention_mask"]}
    whole = ask(model, **options)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stopped(patch, after=1)
        ask(model, tmp_path, **options)
    assert [path.name for path in (tmp_path / "finished").iterdir()] == ["00000"]
    calls = stopped(monkeypatch, after=9)
    again = ask(model, tmp_path, **options)
    assert calls == [1]
    same(whole, again)
    assert again.verdicts.empty != verdicts
    assert len(pd.read_csv(tmp_path / "attributions.csv")) == len(again.to_frame())


def test_a_finished_comparison_is_read_back_without_a_pass_for_its_orders(model, done, folder):
    first = done[0]
    with Meter() as meter:
        again = ask(model, folder)
    assert meter.forward <= 2 * 3  # reading each text: its prediction, and that the operator works
    same(first, again)
    for one, other in zip(first.studies, again.studies, strict=True):
        for a, b in zip(one.attributions, other.attributions, strict=True):
            assert torch.equal(a.scores, b.scores) and a.options == b.options and a.warnings == b.warnings
            assert (a.map is None) == (b.map is None) and a.example is not None
        assert torch.equal(one.capture.logits, other.capture.logits)
        assert np.array_equal(one.judged[0].curves["alone"], other.judged[0].curves["alone"], equal_nan=True)
    assert again.report(folder / "page.html").is_file()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_random": 5}, "n_random was 4, is 5"),
        ({"seed": 3}, "seed was 0, is 3"),
        ({"operators": "zero"}, "operators was mean, is zero"),
        ({"methods": METHODS[:2]}, "methods: random_scores is gone"),
        ({"options": {"random_scores": {"seed": 3}}}, "methods: random_scores was .*seed: 0.* is .*seed: 3"),
        ({"target": "LABEL_0"}, "target was"),
        ({"verdicts": True}, "verdicts was False, is True"),
    ],
)
def test_other_settings_are_refused_by_name(model, folder, change, said):
    with pytest.raises(InputError, match=f"holds a comparison of something else: .*{said}.*resume=False"):
        ask(model, folder, **change)


def test_other_texts_and_other_parameters_are_refused(model, folder):
    with pytest.raises(InputError, match="text 2 is another one"):
        changed = given(model)
        changed[1] = model.example(tiny.IDS[1:7])
        ask(model, folder, examples=changed)
    with pytest.raises(InputError, match="there were 3 texts, now there are 2"):
        ask(model, folder, examples=given(model)[:2])
    other = load(tiny.build("bert", "sdpa", scale=2.0))
    ask(other, folder)  # the same parameters
    with torch.no_grad():
        next(other.module.parameters()).mul_(1.5)
    with pytest.raises(InputError, match="the model is another one, or its parameters have changed"):
        ask(other, folder)


def test_another_function_of_the_same_name_is_refused(model, tmp_path):
    def make(number):
        def mine(model, example, target):
            return torch.full((example.n_tokens,), 1.0) * number + torch.arange(example.n_tokens)

        return mine

    def other(model, example, target):
        return torch.arange(example.n_tokens).flip(0)

    other.__name__ = other.__qualname__ = "mine"
    ask(model, tmp_path, methods=[make(1)])
    ask(model, tmp_path, methods=[make(1)])
    with pytest.raises(InputError, match="methods: mine was"):
        ask(model, tmp_path, methods=[other])


def test_begun_anew_nothing_of_before_stays(model, folder):
    found = ask(model, folder, methods=["rollout"], examples=given(model)[:2], resume=False)
    assert set(pd.read_csv(folder / "attributions.csv").method) == {"rollout"} and found.methods == ("rollout",)
    assert len(list((folder / "finished").iterdir())) == 2


@pytest.mark.parametrize("broken", ["study.json", "study.st", "tensors.safetensors", "capture.json"])
def test_an_example_that_was_half_written_is_done_again(model, done, folder, broken, monkeypatch):
    path = folder / "finished" / "00001" / broken
    path.write_bytes(path.read_bytes()[:20])
    (folder / "finished" / ".00001").mkdir()  # what an interruption while writing leaves
    calls = stopped(monkeypatch, after=9)
    same(done[0], ask(model, folder))
    assert calls == [1]


def test_half_written_settings_begin_anew(model, done, folder):
    (folder / "settings.json").write_text('{"model": ', "utf-8")
    same(done[0], ask(model, folder))
    assert json.loads((folder / "settings.json").read_text("utf-8"))["n_random"] == 4


@pytest.mark.parametrize("said", ["[]", '"a"', "3", "null"])
def test_settings_that_are_no_settings_begin_anew(model, done, folder, said):
    (folder / "settings.json").write_text(said, "utf-8")
    same(done[0], ask(model, folder))


@pytest.mark.parametrize("name", ["study.json", "capture.json"])
@pytest.mark.parametrize("said", ["null", "[]", '{"attributions": null}', '{"attributions": [{"colour": 1}]}'])
def test_an_example_whose_file_says_something_else_is_done_again(model, done, folder, name, said):
    (folder / "finished" / "00001" / name).write_text(said, "utf-8")
    same(done[0], ask(model, folder))
    assert json.loads((folder / "finished" / "00001" / name).read_text("utf-8")) != json.loads(said)


def test_a_file_in_the_place_of_an_example_gives_way(model, done, folder):
    shutil.rmtree(folder / "finished" / "00001")
    (folder / "finished" / "00001").write_text("x", "utf-8")
    same(done[0], ask(model, folder))


def test_more_resamples_are_no_other_comparison(model, folder, monkeypatch):
    calls = stopped(monkeypatch, after=0)
    ask(model, folder, n_resamples=70)
    assert calls == []


@pytest.mark.filterwarnings("ignore:.*gave no answer")
def test_failures_are_read_back(model, tmp_path):
    def fails(model, example, target):
        raise ValueError("no")

    first = ask(model, tmp_path, methods=["raw_attention", fails])
    pd.testing.assert_frame_equal(first.failures, ask(model, tmp_path, methods=["raw_attention", fails]).failures)


def test_differences_are_all_named():
    assert differences({"seed": 0, "methods": {"a": "x"}}, {"seed": 1, "methods": {"b": "y"}}) == [
        "seed was 0, is 1",
        "methods: a is gone",
        "methods: b is new",
    ]
