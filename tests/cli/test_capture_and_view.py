"""attnprobe capture and view: what is kept is what the library captures; the page opens on it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import attnprobe
from attnprobe.cli.app import main

TEXT = "a good film"


def test_a_capture_in_a_folder_is_the_models_own(classifier: Path, here: Path, capsys):
    words = ["capture", str(classifier), "--text", TEXT, "--keep", "weights,z", "--layers", "1", "--heads", "0"]
    assert main([*words, "--out", "new/kept"]) == 0
    out, err = capsys.readouterr()
    kept = attnprobe.Capture.load(here / "new" / "kept")
    model = attnprobe.load(str(classifier))
    wanted = model.capture(model.example(TEXT), keep=attnprobe.Keep.of("weights", "z", layers=1, heads=0))
    for name in ("weights", "z"):
        assert torch.equal(kept.tensor(name)[0], wanted.tensor(name)[0])
    assert [site.place.layer for site in kept.sites] == [1]
    assert "weights 1 × 5 × 5, z 1 × 5 × 8" in out and "passed" in out
    assert err.rstrip().endswith("capture: new/kept")


def test_each_of_several_texts_has_a_folder(classifier: Path, here: Path):
    assert main(["capture", str(classifier), "--text", TEXT, "--text", "dull", "--out", "kept"]) == 0
    assert sorted(path.name for path in (here / "kept").iterdir()) == ["text-1", "text-2"]
    assert attnprobe.Capture.load(here / "kept" / "text-2").example.text == "dull"


def test_json_says_what_was_kept_and_each_check(classifier: Path, here: Path, capsys):
    assert main(["capture", str(classifier), "--text", TEXT, "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert [site["kept"] for site in found["sites"]] == [{"weights": [2, 5, 5]}] * 2
    assert all(check["passed"] and check["value"] <= check["tolerance"] for check in found["checks"])
    assert len({check["check"] for check in found["checks"]}) == 3 and list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--keep", "wieghts"], "did you mean 'weights'"),
        (["--layers", "first"], "--layers takes numbers with commas between"),
        (["--heads", "1.0"], "--heads takes numbers"),
        (["--layers", "9"], "9"),
        (["--out", "file"], "is a file"),
        (["--keep", ","], "--keep names nothing"),
    ],
)
def test_what_cannot_be_captured_is_one_message(refused: Callable[..., str], classifier, here: Path, words, message):
    (here / "file").write_text("", "utf-8")
    assert message in refused("capture", classifier, "--text", TEXT, *words)


def test_the_page_of_a_view_opens_and_shows_the_text(classifier: Path, here: Path, capsys, browser):
    assert main(["view", str(classifier), "--text", TEXT, "--heads", "1.0", "--out", "new/view.html"]) == 0
    assert capsys.readouterr().out == "page:   new/view.html\n"
    page = browser.open(here / "new" / "view.html")
    assert page.get_by_text("good", exact=True).count() > 0


def test_a_kept_capture_is_viewed_without_reading_the_text_again(classifier: Path, here: Path):
    assert main(["capture", str(classifier), "--text", TEXT, "--out", "kept"]) == 0
    assert main(["view", str(classifier), "--capture", "kept", "--out", "view.html"]) == 0
    assert "good" in (here / "view.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--text", TEXT], "--out requires an argument"),
        (["--out", "a.html"], "give the text with --text, or the folder of a capture with --capture"),
        (["--text", TEXT, "--capture", "x", "--out", "a.html"], "one of them"),
        (
            ["--capture", "x", "--out", "a.html"],
            "x holds no capture; give a folder that `attnprobe capture --out` wrote",
        ),
        (["--text", TEXT, "--out", "a.png"], "a page ends in .html"),
        (["--text", " ", "--out", "a.html"], "the text is empty"),
        (["--text", TEXT, "--target", "positve", "--out", "a.html"], "did you mean 'positive'?"),
    ],
)
def test_what_cannot_be_viewed_is_one_message(refused: Callable[..., str], classifier: Path, words, message: str):
    assert message in refused("view", classifier, *words)
