"""The model that ships: what its card says, and the main job on it."""

import re
import warnings
from pathlib import Path

import pandas as pd
import pytest

from attnprobe import attribute, compare, load
from attnprobe.errors import InputError
from attnprobe.models.bundled import bundled_folder

SENTENCES = {
    "a wonderful film, full of life": "positive",
    "the plot is wasted on a tired, predictable script": "negative",
    "not good at all": "negative",
    "i loved every minute": "positive",
    "a dull and boring mess": "negative",
}


@pytest.fixture(scope="module")
def model():
    return load("attnprobe/sentiment")


def test_it_is_small_and_its_card_states_accuracy_and_baselines():
    folder = bundled_folder()
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) <= 8 * 2**20
    card = (folder / "README.md").read_text("utf-8")
    accuracies = [float(a) for a in re.findall(r"0\.\d{3}", card)]
    assert any(a >= 0.79 for a in accuracies)
    for word in ("majority", "VADER", "TF-IDF", "seed", "python -m attnprobe.models.bundled.train"):
        assert word.lower() in card.lower()


@pytest.mark.parametrize(("text", "label"), SENTENCES.items())
def test_plain_sentences_get_the_plain_label(model, text, label):
    assert model.resolve(model.example(text)).predicted_name == label


def test_the_answer_does_not_depend_on_the_working_folder(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert load("attnprobe/sentiment").name == "attnprobe/sentiment"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        (" \n\t ", "the text is empty"),
        ("word " * 600, "the model takes"),
        (["two", 3], "a text is a string"),
        (7, "a text is a string"),
    ],
)
def test_a_text_that_cannot_be_read_is_an_error_that_says_why(model, text, message):
    with pytest.raises(InputError, match=message):
        model.example(text)


def test_a_long_text_is_cut_only_on_request_and_says_by_how_much(model):
    example = model.example("word " * 600, truncate=True)
    assert example.n_truncated > 400 and example.tokens[-1] == "[SEP]"
    assert model.example("word").n_truncated == 0


def test_every_occurrence_of_a_word_has_a_row_of_its_own(model):
    words = attribute(model, "very very good", "leave_one_out").words()
    assert words.word.tolist() == ["[CLS]", "very", "very", "good", "[SEP]"]


def test_word_scores_add_up_to_token_scores(model):
    found = attribute(model, "an unwatchably overwrought melodrama , alas", "leave_one_out")
    assert found.words().score.sum() == pytest.approx(float(found.scores.sum()), abs=1e-5)
    assert len(found.words()) < found.example.n_tokens


@pytest.mark.parametrize("text", ["🎬🎬 great 🎬", "</script><b>good</b>", "שלום good", "good", "a\u200bgood film"])
def test_odd_texts_are_read_and_shown(model, text, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        comparison = compare(
            model, text, ["raw_attention", "leave_one_out"], n_random=2, n_resamples=20, progress=False
        )
    page = comparison.report(tmp_path / "page.html").read_text("utf-8")
    assert "<b>good</b>" not in page


def test_a_cell_of_a_study_does_not_depend_on_its_neighbours(model):
    texts = ["a wonderful film, full of life", "not good at all"]
    together = compare(model, texts, ["leave_one_out", "raw_attention"], n_random=2, progress=False).to_frame()
    for index, text in enumerate(texts):
        alone = compare(model, text, ["leave_one_out", "raw_attention"], n_random=2, progress=False).to_frame()
        part = together[together.example_index == index].reset_index(drop=True)
        pd.testing.assert_series_equal(part.score, alone.score, check_names=False, atol=1e-5)


def test_the_training_script_is_documented_by_its_help():
    source = Path(bundled_folder().parent / "train.py").read_text("utf-8")
    assert "--out" in source and "seed" in source
