"""attnprobe heads and head: what is printed and written is what profile() and head_card() find; else one message."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from attnprobe import HeadProfile, load, profile
from attnprobe.card import head_card
from attnprobe.cli.app import main
from attnprobe.target import Target

TEXTS = ["a dull film", "a good film .", "the plot is not bad", "very warm", "a bad plot", "not good"]


@pytest.fixture
def texts(here: Path) -> Path:
    file = here / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n", "utf-8")
    return file


def test_the_numbers_are_those_of_profile(classifier: Path, texts: Path, capsys: pytest.CaptureFixture[str]):
    words = ["heads", str(classifier), "--texts", "texts.txt", "--score", "entropy,previous_token"]
    assert main([*words, "--effect", "zero_ablation", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    found = profile(
        load(str(classifier)), TEXTS, ["entropy", "previous_token"], ["zero_ablation"], target=Target(), progress=False
    )
    expected = found.long()
    assert printed["n_texts"] == 6 and list(printed["scores"]) == ["entropy", "previous_token", "zero_ablation"]
    rows = pd.DataFrame(printed["heads"])
    for name in ("mean", "low", "high"):
        assert rows[name].tolist() == pytest.approx(expected[name].tolist(), abs=1e-6)
    assert rows[["score", "layer", "head"]].equals(expected[["score", "layer", "head"]])


def test_the_table_names_the_highest_heads_with_their_intervals(
    classifier: Path, texts: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["heads", str(classifier), "--texts", "texts.txt", "--score", "entropy", "--effect", "none", "--top", "2"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    best = profile(load(str(classifier)), TEXTS, ["entropy"], progress=False).top("entropy", 2)
    assert lines[0].split() == ["score", "highest", "heads"] and len(lines) == 2
    expected = [
        f"{r['layer']}.{r['head']}  {r['mean']:.2f} [{r['low']:.2f}, {r['high']:.2f}]" for _, r in best.iterrows()
    ]
    assert all(head in lines[1] for head in expected)


def test_the_folder_holds_tables_pictures_and_a_page_that_needs_nothing_else(
    classifier: Path, texts: Path, here: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["heads", str(classifier), "--file", "texts.txt", "--probe", "previous_random", "--out", "desk"]
    assert main(words) == 0
    assert "desk/heads.html" in capsys.readouterr().err
    found = HeadProfile.load(here / "desk")
    assert pd.read_csv(here / "desk" / "heads.csv")["entropy"].tolist() == pytest.approx(
        found.to_frame().entropy.tolist()
    )
    assert set(pd.read_csv(here / "desk" / "scores.csv").score) == set(found.scores)
    page = (here / "desk" / "heads.html").read_text("utf-8")
    assert "attnprobe heads" in page and str(here) not in page and str(classifier.parent) not in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    pictures = sorted(path.name for path in (here / "desk").glob("*.png"))
    assert {"maps-encoder-self.png", "kinds-encoder-self.png"} <= set(pictures)
    inlined = [base64.b64decode(data) for data in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", page)]
    assert sorted(inlined) == sorted((here / "desk" / name).read_bytes() for name in pictures)
    means = found.to_frame()[list(found.scores)]
    assert [name for name in found.scores if not means[name].isna().all() and found.facts[name].label not in page] == []


def test_a_card_is_that_of_head_card(classifier: Path, here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["head", str(classifier), "L1H1", "--text", TEXTS[0], "--format", "json", "--out", "head.png"]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = head_card(load(str(classifier)), (1, 1), TEXTS[0]).to_dict()
    assert printed["head"] == "encoder.self.1.1"
    assert [row["value"] for row in printed["scores"]] == pytest.approx([row["value"] for row in expected["scores"]])
    assert printed["like_maps"] == expected["like_maps"] and printed["weights"] == expected["weights"]
    assert (here / "head.png").stat().st_size > 1000


def test_a_card_in_words_has_its_parts_and_says_what_is_not_there(
    classifier: Path, language_model: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["head", str(classifier), "1.0", "--text", TEXTS[0]]) == 0
    printed = capsys.readouterr().out
    for heading in (
        "where it looks",
        "scores, beside",
        "effects on the logit of",
        "most like it",
        "works with",
        "not here",
    ):
        assert heading in printed
    assert "no unembedding" in printed
    assert main(["head", str(language_model), "1.0", "--text", "the film is good", "--effect", "none"]) == 0
    printed = capsys.readouterr().out
    assert "words that it raises" in printed and "effects on" not in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["head", "5.1", "--text", "a film"], "layers 0 to 1, got layer 5"),
        (["head", "1.5", "--text", "a film"], "heads 0 to 1, got head 5"),
        (["head", "one", "--text", "a film"], "write it as 5.1, (5, 1), L5H1 or decoder.cross.5.1"),
        (["head", "decoder.1.1", "--text", "a film"], "no one stack"),
        (["head", "1.1", "--text", "a film", "--score", "entrpy"], "did you mean 'entropy'"),
        (["head", "1.1", "--text", "a film", "--effect", "direct_effect"], "compares two inputs"),
        (["head", "1.1", "--text", "a film", "--out", "head.txt"], "a picture ends in"),
        (["heads"], "there is no text"),
        (["heads", "--texts", "tests.txt"], "there is no file tests.txt"),
        (["heads", "--text", "a film", "--effect", "zero_ablaton"], "did you mean 'zero_ablation'"),
        (["heads", "--text", "a film", "--stack", "decoder"], "has no stack 'decoder'; did you mean 'encoder.self'?"),
        (["heads", "--text", "a film", "--score", ","], "--score names nothing"),
    ],
)
def test_what_cannot_be_is_one_message(classifier: Path, refused: Callable[..., str], words: list[str], message: str):
    command, *rest = words
    assert message in refused(command, str(classifier), *rest)


def test_a_folder_that_is_a_file_is_refused_before_any_work(classifier: Path, texts: Path, refused: Callable[..., str]):
    assert "is a file" in refused("heads", str(classifier), "--text", "a film", "--out", "texts.txt")
