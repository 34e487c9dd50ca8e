"""Scores in the forms of captum, shap and inseq: the same numbers, there and back."""

import base64
import gzip
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load

import attnprobe
from attnprobe.errors import InputError
from attnprobe.exchange import from_captum, from_inseq, from_shap, to_captum, to_inseq
from tests.tiny import IDS, build

TEXTS = ("An unpredictable, warm film.", "Not good at all.")


@pytest.fixture(scope="module")
def model():
    return attnprobe.load("attnprobe/sentiment")


@pytest.fixture(scope="module")
def found(model):
    return [attnprobe.attribute(model, text, "input_x_gradient") for text in TEXTS]


@pytest.fixture(scope="module")
def causal():
    """A language model of ids, and what a method says of the answer behind the last."""
    loaded = attnprobe.load(build("gpt2"))
    return loaded, attnprobe.attribute(loaded, IDS, "input_x_gradient")


def again(model, method, attribution):
    return attnprobe.attribute(model, attribution.example, method, attribution.target).scores


def test_a_captum_record_has_the_numbers_scaled_to_one(found):
    record = to_captum(found[0], true_class="positive")
    assert record.raw_input_ids == list(found[0].example.pieces)
    assert record.word_attributions.abs().max() == 1
    assert torch.allclose(record.word_attributions * found[0].scores.abs().max(), found[0].scores)
    assert record.pred_class == found[0].target.predicted_name and record.true_class == "positive"
    assert record.pred_prob == found[0].target.predicted_probability
    assert record.attr_score == pytest.approx(float(found[0].scores.sum()))


def test_captum_paints_a_record():
    from captum.attr import visualization

    model = attnprobe.load("attnprobe/sentiment")
    a = attnprobe.attribute(model, "A <b>bold</b> film", "input_x_gradient")
    page = visualization.visualize_text([to_captum(a)]) if _in_notebook() else None
    painted = visualization.format_word_importances(to_captum(a).raw_input_ids, to_captum(a).word_attributions)
    assert "film" in painted and (page is None or "film" in page.data)


def _in_notebook():
    try:
        import IPython  # noqa: F401
    except ImportError:
        return False
    return True


def test_captum_there_and_back(model, found):
    method = from_captum("elsewhere", [to_captum(a, scaled=False) for a in found])
    for a in found:
        assert torch.equal(again(model, method, a), a.scores)
    by_number = from_captum("elsewhere", to_captum(found[0], scaled=False), texts=TEXTS[:1])
    assert torch.equal(again(model, by_number, found[0]), found[0].scores)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (SimpleNamespace(raw_input_ids=["a"], word_attributions=torch.zeros(2)), "1 tokens need one score each"),
        (SimpleNamespace(raw_input_ids=["a"], word_attributions=torch.zeros(1, 8)), "one score each"),
        (SimpleNamespace(), "VisualizationDataRecord"),
    ],
)
def test_records_that_do_not_fit_are_refused(record, said):
    with pytest.raises(InputError, match=said):
        from_captum("elsewhere", [record])


def explained(values, data, names=None):
    """What from_shap reads of a shap.Explanation."""
    return SimpleNamespace(values=values, data=data, output_names=names)


def test_shap_values_of_one_text_and_of_several(model, found):
    one, two = found
    data = [np.array([*(f"{piece} " for piece in a.example.pieces)]) for a in found]
    single = from_shap("elsewhere", explained(one.scores.numpy(), data[0]))
    assert torch.equal(again(model, single, one), one.scores)
    several = from_shap("elsewhere", explained(tuple(a.scores.numpy() for a in found), tuple(data)))
    assert torch.equal(again(model, several, two), two.scores)


def test_one_of_several_outputs_of_shap_is_chosen(model, found):
    a = found[0]
    both = np.stack([-a.scores.numpy(), a.scores.numpy()], -1)
    given = explained(both, np.array(a.example.pieces), ["negative", "positive"])
    for output in ("positive", 1):
        assert torch.equal(again(model, from_shap("elsewhere", given, output=output), a), a.scores)
    with pytest.raises(InputError, match=r"explains 2 outputs \(negative, positive\)"):
        from_shap("elsewhere", given)
    with pytest.raises(InputError, match="did you mean 'positive'"):
        from_shap("elsewhere", given, output="positiv")
    with pytest.raises(InputError, match="outputs 0 to 1"):
        from_shap("elsewhere", given, output=2)
    with pytest.raises(InputError, match="Explanation"):
        from_shap("elsewhere", 3)


def plain(value):
    """inseq's JSON without classes."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in (value["attributes"] if "__instance_type__" in value else value).items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def test_inseqs_file_of_a_classifier_has_the_answer_as_its_target(found, tmp_path):
    path = tmp_path / "scores.json"
    assert to_inseq(found, path) == json.loads(path.read_text("utf-8"))
    output = plain(json.loads(path.read_text("utf-8")))
    assert output["info"]["attribution_method"] == "input_x_gradient"
    assert output["info"]["input_texts"] == list(TEXTS)
    for a, one in zip(found, output["sequence_attributions"], strict=True):
        assert [token["token"] for token in one["source"]] == list(a.example.tokens)
        assert [token["id"] for token in one["source"]] == a.example.inputs["input_ids"][0].tolist()
        assert one["target"] == [{"token": a.target.label_name, "id": a.target.label}]
        scores = load(base64.b64decode(one["source_attributions"]))["attribution"]
        assert torch.equal(scores, a.scores[:, None])


def test_inseqs_file_of_a_language_model_has_the_prefix_and_the_token(causal):
    _, a = causal
    (one,) = plain(to_inseq(a))["sequence_attributions"]
    assert [token["token"] for token in one["target"]] == [*a.example.tokens, a.target.label_name]
    assert (one["attr_pos_start"], one["attr_pos_end"]) == (12, 13)
    scores = load(base64.b64decode(one["target_attributions"]))["attribution"]
    assert torch.equal(scores[:12, 0], a.scores) and scores.shape == (13, 1) and scores[12, 0].isnan()


def test_inseq_there_and_back(model, found, causal, tmp_path):
    to_inseq(found, tmp_path / "scores.json")
    (tmp_path / "scores.json.gz").write_bytes(gzip.compress((tmp_path / "scores.json").read_bytes()))
    for given in (tmp_path / "scores.json", tmp_path / "scores.json.gz"):
        method = from_inseq("elsewhere", given)
        assert all(torch.equal(again(model, method, a), a.scores) for a in found)
    loaded, a = causal
    to_inseq(a, tmp_path / "causal.json")
    assert torch.equal(again(loaded, from_inseq("elsewhere", tmp_path / "causal.json"), a), a.scores)


def generated(**changes):
    """An output of two steps, as inseq holds it."""
    tokens = [SimpleNamespace(token=token) for token in "abxy"]
    scores = torch.tensor([[1.0, 4.0], [2.0, 5.0], [torch.nan, 6.0], [torch.nan, torch.nan]])
    facts = {"source": tokens[:2], "target": tokens, "source_attributions": None, "target_attributions": scores}
    facts |= {"attr_pos_start": 2, "attr_pos_end": 4, **changes}
    return SimpleNamespace(sequence_attributions=[SimpleNamespace(**facts)])


def test_a_step_of_inseq_sees_the_prefix_before_it():
    method = from_inseq("elsewhere", generated(), step="x")
    assert (method.function.scores[0][1].names, method.function.scores[0][1].scores) == (("a", "b"), (1.0, 2.0))
    method = from_inseq("elsewhere", generated(), step=1)
    assert (method.function.scores[0][1].names, method.function.scores[0][1].scores) == (
        ("a", "b", "x"),
        (4.0, 5.0, 6.0),
    )


@pytest.mark.parametrize(
    ("given", "step", "said"),
    [
        (generated(), None, "say which generated token.*0: 'x', 1: 'y'"),
        (generated(), "z", "got 'z'"),
        (generated(target_attributions=torch.zeros(4, 2, 32)), 0, "aggregate them first"),
        (generated(target_attributions=torch.zeros(1, 2)), 0, "do not fit 2 tokens"),
        (generated(target_attributions="???"), 0, "cannot be read"),
        (generated(target_attributions=None), 0, "no scores"),
        (SimpleNamespace(), 0, "FeatureAttributionOutput"),
        ("no/such/file.json", 0, "cannot be read as JSON"),
    ],
)
def test_what_is_not_inseqs_is_refused(given, step, said):
    with pytest.raises(InputError, match=said):
        from_inseq("elsewhere", given, step=step)


def test_several_methods_do_not_go_into_one_file_of_inseq(model, found):
    other = attnprobe.attribute(model, TEXTS[0], "leave_one_out")
    with pytest.raises(InputError, match="one method, got input_x_gradient, leave_one_out"):
        to_inseq([found[0], other])
    with pytest.raises(InputError, match="got none"):
        to_inseq([])
