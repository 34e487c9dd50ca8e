"""Every registered head score passes here; a new one is tested without a new file."""

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch

from attnprobe import intervention as edits
from attnprobe.attention.seam import Keep
from attnprobe.heads import head_scores, score_heads
from attnprobe.models import load
from tests import tiny


def captures(edit=None):
    """A capture by architecture, edited in every layer."""
    for name in ("bert", "llama", "t5", "gpt_oss"):
        model = load(tiny.build(name))
        for stack, kind in [(s.name, s.kind) for s in model.stacks]:
            found = model.capture(tiny.example(model, name), edits=[] if edit is None else [edit])
            yield name, found.only(stack, kind)


@pytest.mark.parametrize("name", list(head_scores))
def test_every_head_score_says_what_it_is(name):
    entry = head_scores[name]
    assert entry.description.endswith(".") and entry.source and entry.facts["label"]
    assert entry.facts["low"] < entry.facts["high"] and entry.facts["unit"] in ("share", "number")


@pytest.mark.parametrize("name", list(head_scores))
def test_every_head_score_has_a_number_in_range_for_each_layer_and_head(name):
    entry = head_scores[name]
    for _, capture in captures():
        score = entry.function(capture)
        assert score.shape == capture.weights().shape[:2]
        known = score[~score.isnan()]
        assert bool(((known >= entry.facts["low"] - 1e-9) & (known <= entry.facts["high"] + 1e-9)).all())


@pytest.mark.parametrize("name", list(head_scores))
def test_every_head_score_is_of_its_own_head_alone(name):
    """Permuting the heads of a layer permutes the scores."""
    model = load(tiny.build("bert"))
    capture = model.capture(model.example(tiny.IDS))
    order = [2, 0, 3, 1]
    sites = tuple(s.map(lambda t: t[:, order] if t.shape[1] == 4 else t) for s in capture.sites)
    moved = replace(capture, sites=sites)
    score, after = head_scores[name].function(capture), head_scores[name].function(moved)
    torch.testing.assert_close(after, score[:, order], equal_nan=True)


def test_scores_of_uniform_attention_are_exact():
    for name, capture in captures(edits.uniform()):
        n = capture.weights().shape[-1]
        causal = name == "llama"
        if name == "gpt_oss":
            continue  # its sinks keep a share back
        table = {key: entry.function(capture) for key, entry in head_scores.items()}
        assert table["spread"].flatten().tolist() == pytest.approx([1.0] * table["spread"].numel(), abs=1e-6)
        if capture.stacks()[0] == ("encoder", "self"):
            assert table["previous_token"][0, 0].item() == pytest.approx(1 / n, abs=1e-6)
        if causal:
            expected = sum(1 / (i + 1) for i in range(n)) / n
            assert table["same_position"][1, 2].item() == pytest.approx(expected, abs=1e-6)
            first = sum(1 / (i + 1) for i in range(1, n)) / (n - 1)
            assert table["first_token"][1, 2].item() == pytest.approx(first, abs=1e-6)


def test_scores_of_some_heads_and_layers_are_those_of_the_whole_under_the_models_numbers():
    model = load(tiny.build("bert"))
    example = model.example(tiny.IDS)
    whole = score_heads(model.capture(example)).set_index(["layer", "head"])
    part = score_heads(model.capture(example, keep=Keep.of("weights", layers=[1, 2], heads=[3, 0])))
    part = part.set_index(["layer", "head"])
    assert list(part.index) == [(1, 3), (1, 0), (2, 3), (2, 0)]
    pd.testing.assert_frame_equal(part, whole.loc[list(part.index)])


def test_cross_attention_has_no_previous_token():
    model = load(tiny.build("t5"))
    capture = model.capture(tiny.example(model, "t5"))
    table = score_heads(capture)
    assert table[table.kind == "cross"].previous_token.isna().all()
    assert table[table.kind == "self"].previous_token.notna().all()
    assert len(table) == 3 * 3 * 4
    assert not any(math.isinf(v) for v in table.spread)
