"""What the script gets: the capture's own numbers within the stated rounding, names, scores, long texts, budgets."""

import json

import pytest
import torch

from attnprobe.errors import InputError
from attnprobe.heads import head_scores, score_heads
from attnprobe.methods.attention_gradient import weight_gradients
from attnprobe.models.projections import projections
from attnprobe.viewer.carrying import POOLED, TOP
from attnprobe.viewer.facts import NO_ROOM, SMALL, TOO_LARGE, facts
from attnprobe.viewer.measures import measures
from attnprobe.viewer.packing import STEPS, Budget, Scale
from attnprobe.viewer.sides import picture_of
from tests.viewer.reading import full_map, raw, tops


def told(capture, **options):
    found, why = facts(capture, **options)
    assert why == "" and json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def scale_in(stack):
    return Scale(stack["scale"]["peak"], stack["scale"]["n"], bool(stack["scale"]["signed"]))


def test_every_weight_of_every_stack_is_there_within_the_stated_rounding(several):
    _, capture = several
    found = told(capture)
    assert len(found["stacks"]) == len(capture.stacks())
    for stack, (name, kind) in zip(found["stacks"], capture.stacks(), strict=True):
        scale = scale_in(stack)
        for layer, exact in zip(stack["layers"], capture.maps(name, kind), strict=True):
            for at, head in enumerate(exact):
                drawn = full_map(found, stack, layer, at)
                bound = torch.tensor([[scale.error(w) for w in row] for row in head.tolist()]) * (1 + 1e-5)
                assert bool(((drawn - head).abs() <= bound).all())


def test_scores_of_heads_are_those_of_the_registry(several):
    _, capture = several
    found = told(capture)
    table = score_heads(capture)
    rows = iter(table[list(head_scores)].to_dict("records"))
    for stack in found["stacks"]:
        for layer in stack["layers"]:
            for head in layer["heads"]:
                expected = list(next(rows).values())
                got = [float("nan") if v is None else v for v in head["scores"]]
                assert got == pytest.approx(expected, abs=6e-5, nan_ok=True)


def test_names_stand_where_their_tokens_are(several):
    _, capture = several
    found = told(capture)
    for stack, (name, kind) in zip(found["stacks"], capture.stacks(), strict=True):
        layer = stack["layers"][0]
        q, k = (found["sides"][layer[side]]["names"] for side in "qk")
        if name == "decoder" and "decoder_input_ids" in capture.example.inputs:
            assert q == [str(t) for t in capture.example.notes["decoder_tokens"]]
            assert k == (list(capture.example.pieces) if kind == "cross" else q)
        else:
            assert q == k == list(capture.example.pieces)


def test_scores_before_the_softmax_norms_and_vectors_are_those_of_the_capture(bert):
    _, capture = bert
    found = told(capture, beside=measures(capture))
    data, layer, site = raw(found), found["stacks"][0]["layers"][1], capture.sites[1]
    n, entry = capture.example.n_tokens, layer["heads"][2]
    start, low, high = entry["score"]
    codes = torch.tensor(list(data[start : start + n * n])).reshape(n, n)
    torch.testing.assert_close(
        low + (codes - 1) / 254 * (high - low), site.scores[0, 2], atol=(high - low) / 500, rtol=0
    )
    start, peak = layer["value"]
    codes = torch.tensor(list(data[start : start + 8 * n])).reshape(2, 4, n)
    norms = (codes[0] + 256 * codes[1]) / 65535 * peak
    torch.testing.assert_close(norms, site.value[0].norm(dim=-1), atol=peak / 65535, rtol=0)
    start, peak, width = entry["vectors"]["key"]
    codes = torch.tensor(list(data[start : start + n * width])).reshape(n, width)
    torch.testing.assert_close((codes - 127) / 127 * peak, site.key[0, 2], atol=peak / 250, rtol=0)


def test_hidden_keys_have_no_score_and_no_weight():
    from attnprobe.models import load
    from tests import tiny
    from tests.viewer.conftest import ALL

    model = load(tiny.build("gpt2"))
    capture = model.capture(model.example(tiny.IDS), keep=ALL)
    found = told(capture)
    data, layer = raw(found), found["stacks"][0]["layers"][0]
    n = capture.example.n_tokens
    above = torch.ones(n, n).triu(1).bool()
    for at, head in enumerate(layer["heads"]):
        codes = torch.tensor(list(data[head["score"][0] : head["score"][0] + n * n])).reshape(n, n)
        assert bool((codes[above] == 0).all()) and bool((codes[~above] > 0).all())
        assert bool((full_map(found, found["stacks"][0], layer, at)[above] == 0).all())


def test_what_values_write_and_effects_are_the_models(bert):
    model, capture = bert
    goal = model.resolve(capture.example)
    beside = measures(capture, model, goal)
    found = told(capture, beside=beside)
    gradients = weight_gradients(model, capture.example, goal)
    for site, projection, mine in zip(capture.sites, projections(model), gradients, strict=True):
        at = (site.place.stack, site.place.kind, site.place.layer, 0, 0)
        weighted = site.weights[0] * beside.written[at][:, None]
        torch.testing.assert_close(weighted, projection.weighted_norms(site.weights[0], site.value[0]))
        stack, layer = found["stacks"][0], found["stacks"][0]["layers"][site.place.layer]
        scale = Scale(stack["effect"]["peak"], stack["effect"]["n"], True)
        for number in range(4):
            drawn = full_map(found, stack, layer, number, effect=True)
            exact = mine.product[number]
            bound = torch.tensor([[scale.error(e) for e in row] for row in exact.tolist()]) * (1 + 1e-5) + 1e-12
            assert bool(((drawn - exact).abs() <= bound).all())
    assert found["target"] == goal.description


def test_values_are_looked_up_again_where_the_capture_kept_none(bert):
    model, capture = bert
    again = measures(model.capture(capture.example), model)
    for at, norms in measures(capture, model).written.items():
        torch.testing.assert_close(again.written[at], norms)


def test_a_long_text_is_an_overview_with_the_top_keys_and_some_heads_in_full(long_text):
    _, capture = long_text
    found = told(capture, first=[("encoder", "self", 1, 3)])
    stack, kept = found["stacks"][0], 0
    for layer, exact in zip(stack["layers"], capture.maps(), strict=True):
        for at, head in enumerate(layer["heads"]):
            if "full" in head:
                kept += 1
                continue
            data, (rows, columns) = raw(found), head["size"]
            assert rows == columns == POOLED
            codes = data[head["pool"] : head["pool"] + rows * columns]
            drawn = torch.tensor([head["peak"] * (c / stack["scale"]["n"]) ** 2 for c in codes]).reshape(rows, columns)
            ends = [(i * 400 // 64, -(-(i + 1) * 400 // 64)) for i in range(64)]
            mean = torch.tensor([[float(exact[at, a:b, c:d].mean()) for c, d in ends] for a, b in ends])
            torch.testing.assert_close(drawn, mean, atol=1.01 * head["peak"] / stack["scale"]["n"], rtol=0)
            for row, largest in zip(tops(found, stack, layer, at), exact[at].topk(TOP).indices.tolist(), strict=True):
                assert [key for key, _ in row] == largest
    assert "full" in stack["layers"][1]["heads"][3] and found["open"] == [0, 1, 3]
    assert 0 < kept == int(2_400_000 / 400**2) < 18
    assert any(f"{kept} heads" in note for note in found["notes"])


def test_a_text_that_is_too_large_takes_coarser_steps_then_an_overview_then_nothing(long_text, bert):
    model, _ = bert
    capture = model.capture(model.example(list(range(5, 55))))
    sizes = {}
    for left in (10**6, 25_000, 17_000, 6_000, 100):
        budget = Budget(left)
        found, why = facts(capture, budget)
        if found:
            full = all("full" in h for layer in found["stacks"][0]["layers"] for h in layer["heads"])
            sizes[left] = (full, found["stacks"][0]["scale"]["n"])
            assert budget.left >= 0 and why == ""
        else:
            assert why == NO_ROOM and budget.left == left
            sizes[left] = None
    assert sizes[10**6] == (True, STEPS[0]) and sizes[100] is None
    coarser = [s for s in sizes.values() if s and s[0] and s[1] < STEPS[0]]
    assert coarser
    assert "steps" in facts(capture)[0]["rounding"]


def test_texts_share_a_budget(bert):
    _, capture = bert
    whole = Budget(10**9)
    facts(capture, whole)
    size = 10**9 - whole.left
    budget = Budget(size)
    assert facts(capture, budget)[0] and budget.left == 0
    assert facts(capture, budget) == ({}, SMALL)


def test_a_capture_without_weights_says_so(bert):
    from dataclasses import replace

    _, capture = bert
    assert facts(replace(capture, sites=())) == ({}, TOO_LARGE)


def test_heads_that_were_not_kept_keep_their_numbers(bert):
    from attnprobe import Keep

    model, capture = bert
    some = model.capture(capture.example, keep=Keep.of("weights", heads=[1, 3], layers=[2]))
    (layer,) = told(some)["stacks"][0]["layers"]
    assert layer["layer"] == 2 and [h["head"] for h in layer["heads"]] == [1, 3]
    with pytest.raises(InputError, match="layer 0, head 0"):
        facts(some, first=[("encoder", "self", 0, 0)])


def test_windows_that_are_kept_apart_are_shown_one_by_one():
    import transformers

    from attnprobe.models import load

    torch.manual_seed(0)
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, window_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], num_labels=3
    )
    model = load(transformers.SwinForImageClassification(config).eval())
    capture = model.capture(model.example(torch.rand(3, 16, 16)))
    found = told(capture)
    assert len(found["stacks"]) == len({s.place.part for s in capture.sites}) > 1
    exact = next(s for s in capture.sites if s.place.part == 1)
    stack = found["stacks"][1]
    drawn = full_map(found, stack, stack["layers"][0], 0)
    torch.testing.assert_close(drawn.float(), exact.weights[0, 0], atol=stack["scale"]["peak"] / 255, rtol=0)


def test_a_picture_is_there_with_its_grid_and_its_pixels():
    import base64
    import io

    from PIL import Image

    from attnprobe.models import load
    from tests import tiny

    model = load(tiny.build("vit"))
    example = model.example(tiny.given("vit"))
    picture = picture_of(example)
    assert (picture["rows"], picture["columns"], picture["first"]) == (3, 3, 1)
    pixels = torch.tensor(list(Image.open(io.BytesIO(base64.b64decode(picture["png"]))).tobytes())).reshape(12, 12, 3)
    exact = example.inputs["pixel_values"][0].permute(1, 2, 0)
    exact = (exact - exact.min()) / (exact.max() - exact.min())
    assert (pixels / 255 - exact).abs().max() <= 0.5 / 255 + 1e-6


def test_the_passes_of_a_generation_are_shown_one_by_one(bert):
    from dataclasses import replace

    from attnprobe.attention.seam import Keep, Tape
    from attnprobe.models import load
    from tests import tiny

    model = load(tiny.build("gpt2"))
    tape = Tape(keep=Keep.of("weights"))
    with model.listening(tape), torch.no_grad():
        model.module.generate(torch.tensor([tiny.IDS]), max_new_tokens=3, min_new_tokens=3, pad_token_id=0)
    capture = replace(model.capture(model.example(tiny.IDS)), sites=tuple(tape.sites))
    found = told(capture, every_step=True)
    assert [s["name"][-6:] for s in found["stacks"]] == ["step 0", "step 1", "step 2"]
    sides = [[len(found["sides"][s["layers"][0][side]]["names"]) for side in "qk"] for s in found["stacks"]]
    assert sides == [[12, 12], [1, 13], [1, 14]]
    assert len(told(capture)["stacks"]) == 1
