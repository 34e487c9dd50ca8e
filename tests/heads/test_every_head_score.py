"""Every registered head score and probe passes here; a new one is tested without a new file."""

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch

from attnprobe import intervention as edits
from attnprobe.attention.seam import Keep
from attnprobe.heads import head_scores, probe_scores, score_heads
from tests import tiny

# Both ways, causal, causal with shared keys and values, several stacks, patches, a share of each row kept back.
MODELS = ("bert", "gpt2", "llama", "t5", "vit", "gpt_oss")
UNITS = ("share", "nats", "tokens", "patches", "number", "target")
# Options of probes that make them quick.
SMALL = {"n_samples": 2, "length": 8, "repeats": 2, "seed": 1}


def in_range(found, facts):
    """The numbers that are there lie in the range that the entry states."""
    low, high = (end if end is not None else sign * math.inf for end, sign in ((facts["low"], -1), (facts["high"], 1)))
    known = found[~found.isnan()]
    return bool(((known >= low - 1e-9) & (known <= high + 1e-9)).all())


def captures(edit=None):
    """A capture by architecture, edited in every layer."""
    for name in MODELS:
        model = tiny.loaded(name)
        for stack, kind in [(s.name, s.kind) for s in model.stacks]:
            found = model.capture(tiny.example(model, name), edits=[] if edit is None else [edit])
            yield name, found.only(stack, kind)


@pytest.mark.parametrize("registry", [head_scores, probe_scores], ids=lambda registry: registry.noun)
def test_every_entry_says_what_it_is(registry):
    for entry in registry.values():
        assert entry.description.endswith(".") and entry.source and entry.facts["label"]
        low, high = entry.facts["low"], entry.facts["high"]
        assert low is None or high is None or low < high
        assert entry.facts["unit"] in UNITS


def test_no_two_scores_have_one_name_or_one_label():
    names = [*head_scores, *probe_scores]
    labels = [entry.facts["label"] for registry in (head_scores, probe_scores) for entry in registry.values()]
    assert len(set(names)) == len(names) and len(set(labels)) == len(labels)


@pytest.mark.parametrize("name", list(probe_scores))
def test_every_probe_has_a_number_in_range_for_each_layer_and_head(name):
    """NaN for a whole stack whose keys are no tokens, never for single heads; the same again for the same seed."""
    entry = probe_scores[name]
    options = {key: value for key, value in SMALL.items() if key in entry.options}
    for architecture in MODELS:
        model = tiny.loaded(architecture)
        for stack in model.stacks:
            found = entry.function(model, stack, **options)
            assert found.shape == (stack.n_layers, max(stack.n_heads))
            assert found.device.type == "cpu" and not found.isinf().any() and in_range(found, entry.facts)
            assert found.isnan().all() or not found.isnan().any()
            again = entry.function(model, stack, **options)
            torch.testing.assert_close(again, found, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("name", list(head_scores))
def test_every_head_score_has_a_number_in_range_for_each_layer_and_head(name):
    entry = head_scores[name]
    for _, capture in captures():
        score = entry.function(capture)
        assert score.shape == capture.weights().shape[:2]
        assert score.dtype == torch.float64 and in_range(score, entry.facts)


@pytest.mark.parametrize("name", list(head_scores))
def test_every_head_score_is_of_its_own_head_alone(name):
    """Permuting the heads of a layer permutes the scores."""
    model = tiny.loaded("bert")
    capture = model.capture(model.example(tiny.IDS))
    order = [2, 0, 3, 1]
    sites = tuple(s.map(lambda t: t[:, order] if t.shape[1] == 4 else t) for s in capture.sites)
    moved = replace(capture, sites=sites)
    score, after = head_scores[name].function(capture), head_scores[name].function(moved)
    torch.testing.assert_close(after, score[:, order], equal_nan=True)


def test_scores_of_uniform_attention_are_exact():
    for name, capture in captures(edits.uniform()):
        n = capture.weights().shape[-1]
        causal = name in ("llama", "gpt2")
        if name == "gpt_oss":
            continue  # its sinks keep a share back
        table = {key: entry.function(capture) for key, entry in head_scores.items()}
        assert table["spread"].flatten().tolist() == pytest.approx([1.0] * table["spread"].numel(), abs=1e-6)
        if capture.stacks()[0] == ("encoder", "self"):
            assert table["previous_token"][0, 0].item() == pytest.approx(1 / n, abs=1e-6)
        if name == "vit":
            assert table["largest_weight"][0, 0].item() == pytest.approx(1 / n, abs=1e-6)
            assert table["entropy"][0, 0].item() == pytest.approx(math.log(n), abs=1e-6)
            assert table["near_patches"][0, 0].item() == pytest.approx((4 * 4 + 4 * 6 + 9) / 81, abs=1e-6)  # 3 x 3
        if capture.stacks()[0][1] == "cross":
            assert table["coverage"][0, 0].item() == pytest.approx(1, abs=1e-6)
        if causal:
            rows = range(1, n + 1)
            assert table["entropy"][1, 2].item() == pytest.approx(sum(map(math.log, rows)) / n, abs=1e-6)
            assert table["distance"][1, 2].item() == pytest.approx(sum((i - 1) / 2 for i in rows) / n, abs=1e-6)
            assert table["next_token"][1, 2].item() == 0
            expected = sum(1 / (i + 1) for i in range(n)) / n
            assert table["same_position"][1, 2].item() == pytest.approx(expected, abs=1e-6)
            first = sum(1 / (i + 1) for i in range(1, n)) / (n - 1)
            assert table["first_token"][1, 2].item() == pytest.approx(first, abs=1e-6)


def test_scores_of_some_heads_and_layers_are_those_of_the_whole_under_the_models_numbers():
    model = tiny.loaded("bert")
    example = model.example(tiny.IDS)
    whole = score_heads(model.capture(example)).set_index(["layer", "head"])
    part = score_heads(model.capture(example, keep=Keep.of("weights", layers=[1, 2], heads=[3, 0])))
    part = part.set_index(["layer", "head"])
    assert list(part.index) == [(1, 3), (1, 0), (2, 3), (2, 0)]
    pd.testing.assert_frame_equal(part, whole.loc[list(part.index)])


def test_cross_attention_has_no_previous_token():
    model = tiny.loaded("t5")
    capture = model.capture(tiny.example(model, "t5"))
    table = score_heads(capture)
    assert table[table.kind == "cross"].previous_token.isna().all()
    assert table[table.kind == "self"].previous_token.notna().all()
    assert len(table) == 3 * 3 * 4
    assert not any(math.isinf(v) for v in table.spread)
