"""attnprobe swap: what is printed and drawn is what swap() finds; what cannot be is one message."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from attnprobe import load
from attnprobe import swap as ask
from attnprobe.cli.app import main

TEXT = "a dull film"


def test_the_numbers_are_those_of_swap(classifier: Path, capsys: pytest.CaptureFixture[str]):
    words = ["swap", str(classifier), "--text", TEXT, "--mechanism", "top_k", "--option", "k=2", "--layers", "0,1"]
    assert main([*words, "--method", "raw_attention", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = ask(load(str(classifier)), "top_k", [TEXT], k=2, methods=["raw_attention"], progress=False).to_frame()
    assert [row["layer"] for row in printed] == expected.layer.tolist()
    assert [row["mean"] for row in printed] == pytest.approx(expected["mean"].tolist(), abs=1e-7)


def test_several_mechanisms_are_a_table_and_a_picture_and_notes_are_told(
    classifier: Path, here: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["swap", str(classifier), "--text", TEXT, "--mechanism", "hard,compressive", "--method", "none"]
    assert main([*words, "--out", "swap.png"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    # What is the same in all rows stands above them.
    assert lines[0] == "stack: encoder, kind: self"
    assert lines[1].split() == ["mechanism", "layer", "measure", "mean", "unit"]
    assert {line.split()[0] for line in lines[2:]} == {"hard", "compressive"}
    assert {tuple(line.split()[2::2][:2]) for line in lines[2:] if line.split()[2] in ("kl", "change")} == {
        ("kl", "nats"),
        ("change", "logits"),
    }
    assert "compressive is the same as full attention at this length" in printed.err
    assert (here / "swap.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mechanism", "performer"], "here it is 'favor'"),
        (["--mechanism", "top_k", "--option", "k=x"], 'Unable to convert "x" into int'),
        (["--mechanism", "top_k", "--option", "visible=1"], "it has: k"),
        (["--mechanism", "hard,top_k", "--option", "k=2"], "of a single --mechanism"),
        (["--mechanism", "hard", "--layers", "one"], "--layers takes numbers"),
        (["--mechanism", "hard", "--layers", "7"], "layers 0 to 1, got 7"),
        (["--mechanism", ","], "--mechanism names nothing"),
        (["--mechanism", "hard", "--out", "swap.txt"], "a picture ends in"),
    ],
)
def test_what_cannot_be_is_one_message(classifier: Path, refused: Callable[..., str], words: list[str], message: str):
    assert message in refused("swap", str(classifier), "--text", TEXT, "--method", "none", *words)
