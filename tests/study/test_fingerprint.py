"""What a resumed comparison is told apart by: a function's own code and numbers, and nothing that a new run changes."""

import functools

import pytest
import torch

from attnprobe.comparison import compare
from attnprobe.errors import InputError
from attnprobe.fingerprint import _said, fingerprint
from attnprobe.metrics import faithfulness
from attnprobe.models import load
from attnprobe.planning import plan_of
from attnprobe.study import Settings
from attnprobe.target import Target
from tests import tiny

PLAIN = "def mine(model, example, target):\n    return torch.arange(example.n_tokens).float()"


def made(source: str, **around):
    """The function of a source, as another run would define it."""
    names = {"torch": torch, "__name__": "notebook", **around}
    exec(source, names)
    return names["mine"]


def scaled(by):
    def mine(model, example, target):
        return torch.arange(example.n_tokens) * by

    return mine


@pytest.mark.parametrize(
    "source",
    [
        PLAIN,
        "def mine(model, example, target):\n    f = lambda n: n * 2\n    return f(torch.ones(example.n_tokens))",
        "def mine(model, example, target):\n    return [float(p in {'a', 'b', 'c', 'the'}) for p in example.pieces]",
        "def mine(model, example, target):\n    return torch.tensor(list(len(p) for p in example.pieces))",
        "def mine(n):\n    return n and mine(n - 1)",
    ],
)
def test_the_same_function_defined_again_is_the_same(source: str):
    found = _said(made(source))
    assert found == _said(made(source)) == _said(made("\n\n" + source)) and " at 0x" not in found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (made(f"{PLAIN}.cos()"), made(f"{PLAIN}.sin()")),
        (made(f"{PLAIN} * 2"), made(f"{PLAIN} * 3")),
        (made(f"{PLAIN} * factor", factor=2), made(f"{PLAIN} * factor", factor=3)),
        (made(f"{PLAIN} * t", t=torch.ones(1)), made(f"{PLAIN} * t", t=torch.zeros(1))),
        (made(f"{PLAIN} * f()", f=lambda: 1), made(f"{PLAIN} * f()", f=lambda: 2)),
        (scaled(1.0), scaled(-2.0)),
        (scaled(torch.nn.Linear(2, 2).eval()), scaled(torch.nn.Linear(2, 2).eval())),
        (functools.partial(made(PLAIN), a=1), functools.partial(made(PLAIN), a=2)),
    ],
)
def test_functions_that_answer_otherwise_differ(one, other):
    assert _said(one) != _said(other)


def test_a_log_that_a_function_keeps_does_not_count():
    log: list[int] = []
    function = scaled(log)
    before = _said(function)
    log.append(1)
    assert _said(function) == before


def test_a_changed_method_is_not_given_the_scores_of_the_old_one(tmp_path):
    model = tiny.loaded("bert", "sdpa", scale=2.0)
    quick = {"operators": "mean", "n_random": 2, "n_resamples": 20, "verdicts": False, "progress": False}
    compare(model, model.example(tiny.IDS[:5]), [scaled(1.0)], folder=tmp_path, **quick)
    with pytest.raises(InputError, match="methods: mine was"):
        compare(model, model.example(tiny.IDS[:5]), [scaled(-1.0)], folder=tmp_path, **quick)


def test_a_buffer_of_the_model_counts_as_a_parameter_does():
    module = tiny.build("bert", "sdpa")
    module.register_buffer("scale", torch.ones(3))
    model = load(module)

    def mark():
        plan = plan_of(model, model.example(tiny.IDS[:4]), ["raw_attention"], Target(), {}, "mean")
        return fingerprint(plan, Settings("mean", 2, 20, 0, ""))["model"]

    before = mark()
    assert mark() == before
    module.scale[1] = 2.0
    assert mark() != before


def test_a_metric_of_ones_own_is_part_of_what_a_folder_is_of(monkeypatch):
    model = load(tiny.build("bert", "sdpa"))
    plan = plan_of(model, model.example(tiny.IDS[:4]), ["raw_attention"], Target(), {}, "mean")
    assert "metrics" not in fingerprint(plan, Settings("mean", 2, 20, 0, ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faithfulness, "_entries", dict(faithfulness._entries))

        @faithfulness.add(family="faithfulness", source="here", low=0, high=1, better="higher", default=True)
        def halved(model, attribution, *, operator=None):
            return 0.5

        assert list(fingerprint(plan, Settings("mean", 2, 20, 0, ""))["metrics"]) == ["halved"]
