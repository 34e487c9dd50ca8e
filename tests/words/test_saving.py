"""What a saved capture holds, and what the parts of a capture are called."""

import warnings
from dataclasses import replace

import pytest
import torch

from attnprobe.attention.seam import Keep
from attnprobe.capture import Capture
from attnprobe.errors import CaptureError
from attnprobe.models import load
from tests import tiny


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert", "sdpa")


def again(capture, folder):
    return Capture.load(capture.save(folder))


def test_notes_come_back_as_they_were_so_that_an_answer_can_be_explained_again(tmp_path):
    model = tiny.loaded("t5")
    capture = model.capture(tiny.example(model, "t5"))
    loaded = again(capture, tmp_path)
    assert loaded.example.notes == capture.example.notes and isinstance(loaded.example.notes["answer_ids"], tuple)
    assert model.resolve(loaded.example).description == model.resolve(capture.example).description


def test_lists_tuples_and_dicts_of_notes_stay_what_they_are(bert, tmp_path):
    notes = {"a": [1, (2, "x")], "b": {"c": (None, 0.5)}, "d": ()}
    capture = bert.capture(replace(bert.example(tiny.IDS), notes=notes))
    assert again(capture, tmp_path).example.notes == notes


def test_a_note_that_json_cannot_hold_is_left_out_with_a_warning(bert, tmp_path):
    capture = bert.capture(replace(bert.example(tiny.IDS), notes={"fine": 1, "vector": torch.ones(2)}))
    with pytest.warns(UserWarning, match=r"the note 'vector' \(Tensor\) is not saved"):
        capture.save(tmp_path)
    assert Capture.load(tmp_path).example.notes == {"fine": 1}


def test_a_loaded_site_knows_its_normalizer_but_refuses_to_normalise(tmp_path):
    model = tiny.loaded("gpt_oss")
    capture = model.capture(model.example(tiny.IDS), keep=Keep.of("weights", "scores", "value", "z"))
    site, loaded = capture.sites[0], again(capture, tmp_path).sites[0]
    assert loaded.normalizer.row_sum == site.normalizer.row_sum == "at_most_one"
    assert loaded.normalizer.name == site.normalizer.name
    with pytest.raises(CaptureError, match=r"loaded from a file.*capture the example again"):
        loaded.replace(scores=site.scores)
    torch.testing.assert_close(loaded.replace(weights=site.weights).z, site.weights @ site.value)


def test_reduced_statistics_are_saved(bert, tmp_path):
    capture = bert.capture(bert.example(tiny.IDS), keep=Keep(reduce=lambda site: {"mean": site.need("weights").mean()}))
    loaded = again(capture, tmp_path)
    assert [place for place, _ in loaded.reduced] == [place for place, _ in capture.reduced]
    assert all(
        torch.equal(a["mean"], b["mean"]) for (_, a), (_, b) in zip(loaded.reduced, capture.reduced, strict=True)
    )


def test_two_inputs_that_are_one_tensor_are_saved(bert, tmp_path):
    ones, ids = torch.ones(1, 12, dtype=torch.long), torch.tensor([tiny.IDS])
    capture = bert.capture(bert.example({"input_ids": ids, "attention_mask": ones, "token_type_ids": ones}))
    loaded = again(capture, tmp_path).example.inputs
    assert torch.equal(loaded["attention_mask"], ones) and torch.equal(loaded["token_type_ids"], ones)


def test_half_precision_is_saved_bit_for_bit(tmp_path):
    model = load(tiny.build("bert").bfloat16())
    capture = model.capture(model.example(tiny.IDS))
    loaded = again(capture, tmp_path)
    assert loaded.weights().dtype == torch.bfloat16 and torch.equal(loaded.weights(), capture.weights())


def test_kept_heads_have_the_models_numbers_also_when_loaded(bert, tmp_path):
    whole = bert.capture(bert.example(tiny.IDS)).to_frame()
    part = bert.capture(bert.example(tiny.IDS), keep=Keep.of("weights", layers=[2], heads=[3, 1]))
    expected = whole[(whole.layer == 2) & whole["head"].isin([1, 3])]
    order = ["layer", "head", "query_index", "key_index"]
    for capture in (part, again(part, tmp_path)):
        frame = capture.to_frame().sort_values(order)
        assert frame[order].to_numpy().tolist() == expected[order].to_numpy().tolist()
        assert frame.weight.tolist() == pytest.approx(expected.weight.tolist())


def test_a_reused_check_says_so_and_is_saved_as_such(bert, tmp_path):
    first, second = (bert.capture(bert.example(tiny.IDS)) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again(second, tmp_path).checks == second.checks
    assert second.checks[-1].reused and not any(check.reused for check in first.checks[:-1])
