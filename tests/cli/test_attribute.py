"""attnprobe attribute: one method on one text, printed."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import attnprobe
from attnprobe.cli.app import main
from attnprobe.cli.output import printable


@pytest.fixture
def printed(here: Path, classifier: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the command prints for a text."""

    def run(*words: str) -> str:
        assert main(["attribute", str(classifier), "--text", "a good film", "--method", "rollout", *words]) == 0
        return capsys.readouterr().out

    return run


def test_every_format_holds_the_scores_that_the_library_gives(printed: Callable[..., str], classifier: Path):
    scores = attnprobe.attribute(str(classifier), "a good film", "rollout", identity=0.25).scores.tolist()
    option = ("--option", "identity=0.25")
    rows = [line.split() for line in printed(*option).splitlines()]
    assert rows[0] == ["score", "(no", "direction)", "token"]
    assert [row[1] for row in rows[1:]] == ["[CLS]", "a", "good", "film", "[SEP]"]
    assert [float(row[0]) for row in rows[1:]] == pytest.approx(scores, rel=1e-3)
    assert [row["score"] for row in json.loads(printed(*option, "--format", "json"))] == pytest.approx(scores)
    assert list(pd.read_csv(io.StringIO(printed(*option, "--format", "csv"))).score) == pytest.approx(scores)


def test_the_target_is_the_one_that_was_named(printed: Callable[..., str]):
    rows = json.loads(printed("--target", "negative", "--scale", "probability", "--format", "json"))
    assert {row["target"] for row in rows} == {"probability of negative"}


def test_what_cannot_be_done_is_one_message(refused: Callable[..., str], classifier: Path):
    words = ("attribute", classifier, "--text", "a")
    assert "did you mean 'rollout'?" in refused(*words, "--method", "rolout")
    assert "--method takes one method" in refused(*words, "--method", "rollout,occlusion")
    assert "has no option 'identty'" in refused(*words, "--method", "rollout", "--option", "identty=1")
    assert "the text is empty" in refused("attribute", classifier, "--text", " ", "--method", "rollout")


def test_control_characters_of_a_token_do_nothing_to_the_terminal():
    assert printable("é\x1b[31m\n") == "é\\x1b[31m\\n"


def test_the_points_of_scores_stand_below_one_another_and_the_unit_above(here: Path, classifier: Path, capsys):
    words = ["attribute", str(classifier), "--text", "a good film", "--method", "leave_one_out"]
    assert main([*words, "--target", "negative"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("score (logit of negative)")
    assert len({line.index(".") for line in lines[1:] if "." in line.split()[0]}) == 1
