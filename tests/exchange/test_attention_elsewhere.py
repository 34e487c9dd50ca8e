"""Attention in the forms of bertviz, CircuitsVis and TransformerLens: the model's own numbers, there and back."""

import pytest
import torch

import attnprobe
from attnprobe.errors import CaptureError, InputError
from attnprobe.exchange import (
    from_attentions,
    from_transformer_lens,
    to_bertviz,
    to_circuitsvis,
    to_transformer_lens,
)
from tests.tiny import build, example, reference

EVERYTHING = attnprobe.Keep.of("weights", "scores", "query", "key", "value", "z")
BOTH = (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))


def captured(name, keep=EVERYTHING):
    model = attnprobe.load(build(name))
    given = example(model, name)
    return model, given, model.capture(given, keep=keep)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_bertviz_gets_the_models_own_attentions(name):
    model, given, capture = captured(name)
    maps, _ = reference(model.module, given.inputs)
    found = to_bertviz(capture)
    assert set(found) == {"attention", "tokens"} and found["tokens"] == list(given.tokens)
    assert isinstance(found["attention"], tuple) and len(found["attention"]) == 3
    for ours, theirs in zip(found["attention"], maps["", "self"], strict=True):
        assert ours.shape == (1, 4, 12, 12)
        assert torch.equal(ours[0], theirs)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_bertviz_gets_both_sides_of_an_encoder_decoder(name):
    model, given, capture = captured(name)
    maps, _ = reference(model.module, given.inputs)
    found = to_bertviz(capture)
    assert found["encoder_tokens"] == list(given.tokens)
    assert found["decoder_tokens"] == list(given.notes["decoder_tokens"])
    for pair, key in zip(BOTH, ("encoder_attention", "decoder_attention", "cross_attention"), strict=True):
        assert all(torch.equal(ours[0], theirs) for ours, theirs in zip(found[key], maps[pair], strict=True))
    alone = to_bertviz(capture, stack="decoder")
    assert alone["tokens"] == list(given.notes["decoder_tokens"])


def test_bertviz_is_told_where_the_second_text_begins():
    model = attnprobe.load("attnprobe/sentiment")
    given = model.example("A film.", pair="Not good.")
    found = to_bertviz(model.capture(given))
    begin = found["sentence_b_start"]
    assert given.in_pair[begin] and not any(given.in_pair[:begin])


def test_layers_of_different_shape_are_refused():
    model = attnprobe.load(build("bert"))
    capture = model.capture(example(model, "bert"))
    sites = (capture.sites[0].only(frozenset({"weights"}), (0, 1)), *capture.sites[1:])
    odd = attnprobe.Capture(capture.example, capture.model, sites, capture.logits, ())
    with pytest.raises(InputError, match="differ in shape"):
        to_bertviz(odd)


def test_circuitsvis_gets_destination_by_source_and_the_names_of_heads():
    model, given, capture = captured("gpt2", attnprobe.Keep.of("weights", layers=[0, 2], heads=[1, 3]))
    maps, _ = reference(model.module, given.inputs)
    found = to_circuitsvis(capture, 2)
    assert found["tokens"] == list(given.tokens)
    assert found["attention_head_names"] == ["L2H1", "L2H3"]
    assert torch.equal(found["attention"], maps["", "self"][2][[1, 3]])
    assert torch.allclose(found["attention"].sum(-1), torch.ones(2, 12))  # destinations are rows
    with pytest.raises(InputError, match="layer 1 was not kept; there are 0, 2"):
        to_circuitsvis(capture, 1)


@pytest.mark.parametrize(("name", "n_kv", "rotary"), [("bert", 4, False), ("gpt2", 4, False), ("llama", 2, True)])
def test_transformer_lens_names_and_axes(name, n_kv, rotary):
    _, _, capture = captured(name)
    found = to_transformer_lens(capture, rotary=rotary)
    q, k = ("hook_rot_q", "hook_rot_k") if rotary else ("hook_q", "hook_k")
    shapes = {"hook_pattern": (1, 4, 12, 12), "hook_attn_scores": (1, 4, 12, 12), q: (1, 12, 4, 8), k: (1, 12, n_kv, 8)}
    shapes |= {"hook_v": (1, 12, n_kv, 8), "hook_z": (1, 12, 4, 8)}
    expected = {f"blocks.{layer}.attn.{hook}": shape for layer in range(3) for hook, shape in shapes.items()}
    assert {key: tuple(tensor.shape) for key, tensor in found.items()} == expected
    site = capture.sites[1]
    assert torch.equal(found["blocks.1.attn.hook_pattern"], site.weights)
    assert torch.equal(found["blocks.1.attn.hook_z"][0, :, 2], site.z[0, 2])
    again = found["blocks.1.attn.hook_attn_scores"].softmax(-1)
    assert torch.allclose(again, site.weights, atol=1e-6)
    if name != "bert":
        assert torch.isneginf(found["blocks.0.attn.hook_attn_scores"][0, 0]).equal(torch.ones(12, 12).triu(1).bool())


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_transformer_lens_there_and_back_is_the_same_capture(name):
    _, given, capture = captured(name)
    there = to_transformer_lens(capture, rotary=name == "llama")
    back = from_transformer_lens(there, given)
    assert len(back.sites) == len(capture.sites)
    mine = {(s.place.stack, s.place.kind, s.layer): s for s in capture.sites}
    for site in back.sites:
        ours = mine[site.place.stack, site.place.kind, site.layer]
        for tensor in ("weights", "query", "key", "value", "z"):
            assert torch.equal(getattr(site, tensor), getattr(ours, tensor)), tensor
    assert len(back.checks) == len(capture.sites) and all(check.passed for check in back.checks)
    again = to_transformer_lens(back, rotary=name == "llama")
    assert again.keys() == there.keys() and all(torch.equal(again[name], there[name]) for name in there)


def test_a_cache_without_its_batch_axis_is_read_too():
    _, given, capture = captured("gpt2")
    there = {name: tensor[0] for name, tensor in to_transformer_lens(capture).items()}
    back = from_transformer_lens(there | {"blocks.0.hook_resid_pre": torch.zeros(12, 32)}, given.tokens)
    assert torch.equal(back.weights(), capture.weights())


def test_names_of_version_3_are_read():
    there = {
        "encoder.0.attn.hook_pattern": torch.eye(3)[None, None],
        "decoder.0.attn.hook_pattern": torch.eye(2)[None, None],
    }
    there["decoder.0.cross_attn.hook_pattern"] = torch.full((1, 1, 2, 3), 1 / 3)
    back = from_transformer_lens(there, list("abc"), decoder_tokens=list("xy"))
    assert back.stacks() == list(BOTH)


def test_a_wrong_z_is_seen():
    _, given, capture = captured("gpt2")
    there = to_transformer_lens(capture)
    there["blocks.1.attn.hook_z"] = there["blocks.1.attn.hook_z"] * 1.01
    assert [check.passed for check in from_transformer_lens(there, given).checks] == [True, False, True]


@pytest.mark.parametrize(
    ("cache", "tokens", "said"),
    [
        ({}, "abc", "no attention among the 0 tensors"),
        ({"blocks.0.attn.hook_pattern": torch.zeros(2, 1, 3, 3)}, "abc", "one text"),
        ({"blocks.0.attn.hook_pattern": torch.eye(4)[None, None]}, "abc", "4 queries and 4 keys do not fit 3 and 3"),
        ({"blocks.0.attn.hook_pattern": torch.full((1, 1, 3, 3), torch.nan)}, "abc", "NaN"),
        ({"blocks.0.attn.hook_pattern": torch.eye(3)[None, None]}, "", "no tokens"),
    ],
)
def test_what_does_not_fit_is_refused(cache, tokens, said):
    with pytest.raises(InputError, match=said):
        from_transformer_lens(cache, list(tokens))


def test_attentions_of_transformers_and_bertviz_there_and_back():
    model, given, capture = captured("bert")
    model.module.set_attn_implementation("eager")
    with torch.no_grad():
        theirs = model.module(**given.inputs, output_attentions=True).attentions
    back = from_attentions(theirs, given)
    assert torch.equal(back.weights(), capture.weights())
    found = to_bertviz(from_attentions(*to_bertviz(capture).values()))
    assert found["tokens"] == list(given.tokens)
    assert all(torch.equal(a, b) for a, b in zip(found["attention"], to_bertviz(capture)["attention"], strict=True))


def test_an_encoder_decoder_there_and_back():
    _, _, capture = captured("t5")
    there = to_bertviz(capture)
    back = from_attentions(
        None,
        there["encoder_tokens"],
        encoder=there["encoder_attention"],
        decoder=there["decoder_attention"],
        cross=there["cross_attention"],
        decoder_tokens=there["decoder_tokens"],
    )
    again = to_bertviz(back)
    assert again.keys() == there.keys()
    for name, maps in there.items():
        assert all(torch.equal(a, b) if "attention" in name else a == b for a, b in zip(maps, again[name], strict=True))


def test_a_capture_from_elsewhere_can_be_shown_and_saved_but_not_recomputed(tmp_path):
    tokens = ["[CLS]", "un", "##able", "film", "[SEP]"]
    back = from_attentions([torch.full((1, 2, 5, 5), 0.2)], tokens)
    assert back.example.text == "unable film"
    assert back.example.pieces == ("[CLS]", "un", "able", "film", "[SEP]")
    assert back.example.words == (None, 0, 0, 1, None)
    assert len(back.to_frame()) == 50
    assert torch.equal(attnprobe.Capture.load(back.save(tmp_path / "kept")).weights(), back.weights())
    with pytest.raises(CaptureError, match="another tool"):
        back.sites[0].normalizer(torch.zeros(1, 2, 5, 5))
    spaced = from_attentions([torch.eye(3)[None]], ["Ġun", "able", "Ġfilm"]).example
    assert (spaced.text, spaced.words) == ("unable film", (0, 0, 1))
    with pytest.raises(InputError, match="not both"):
        from_attentions([torch.eye(3)[None]], list("abc"), cross=[])
    with pytest.raises(InputError, match="no attention"):
        from_attentions(None, list("abc"))


def test_heads_and_parts_that_have_no_such_names_are_refused():
    _, _, capture = captured("gpt2", attnprobe.Keep.of("weights", heads=[1]))
    with pytest.raises(InputError, match="kept heads"):
        to_transformer_lens(capture)
    with pytest.raises(InputError, match="nothing was kept"):
        to_transformer_lens(capture, stack="vision")
