"""attnprobe declaration: the head's weights as a picture or as numbers."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import attnprobe.models.declaration
from attnprobe.cli.app import main
from attnprobe.models.declaration import training

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", MAGIC)
def test_the_picture_is_written_in_the_format_of_its_name(here: Path, suffix: str, capsys: pytest.CaptureFixture[str]):
    assert main(["declaration", "--out", f"new/head{suffix}"]) == 0
    assert (here / "new" / f"head{suffix}").read_bytes().startswith(MAGIC[suffix])
    assert capsys.readouterr().out == f"new/head{suffix}\n"


def test_the_numbers_are_printed_or_written(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["declaration", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(here.iterdir()) == []
    assert main(["declaration", "--format", "json", "--out", "head.json"]) == 0
    assert json.loads((here / "head.json").read_text("utf-8")) == printed
    weights, tokens = printed["weights"], printed["tokens"]
    assert (len(weights), {len(row) for row in weights}, len(tokens)) == (12, {12}, 12)
    assert weights[tokens.index("rights")][tokens.index("beings")] > 0.99
    assert weights[tokens.index("beings")][tokens.index("rights")] < 0.01
    assert weights[tokens.index("all")][tokens.index("are")] > 0.9
    assert isinstance(printed["loss_per_token"], float)


def test_a_seed_trains_a_head(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attnprobe.models.declaration, "train", partial(training.train, steps=3))
    assert main(["declaration", "--format", "json", "--seed", "4", "--gradient", "guarded"]) == 0
    out, err = capsys.readouterr()
    found, wanted = json.loads(out), training.train(4, gradient="guarded", steps=3)
    assert (found["seed"], found["gradient"]) == (4, "guarded")
    assert found["weights"] == wanted.weights.tolist()
    assert "seed 4" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say where the picture goes with --out"),
        (["--out", "head"], "a picture ends in .png, .svg, .pdf"),
        (["--out", "head.json"], "numbers are written by --format json"),
        (["--out", "folder.png"], "is a folder"),
        (["--out", "file/head.png"], "file is a file"),
        (["--format", "json", "--gradient", "guarded"], "say with --seed"),
        (["--format", "yaml"], 'Choose from: "picture", "json", "csv"'),
        (["--seed", "-1", "--format", "json"], "Must be >= 0"),
    ],
)
def test_what_cannot_be_done_is_one_message(refused: Callable[..., str], here: Path, words: list[str], message: str):
    (here / "folder.png").mkdir()
    (here / "file").write_text("", "utf-8")
    assert message in refused("declaration", *words)
