"""attnprobe heads and head: what is printed and written is what profile() and head_card() find; else one message."""

import base64
import inspect
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from attnprobe import HeadProfile, load, profile
from attnprobe.card import head_card
from attnprobe.cli import head as head_command
from attnprobe.cli import heads as heads_command
from attnprobe.cli.app import main
from attnprobe.heads import head_effects, head_pairs, head_scores, probe_scores
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
    assert lines[0].startswith("what the map looks like") and len(lines) == 3
    assert lines[1].split() == ["score", "chance", "highest", "heads"]
    places = 2 - math.floor(
        math.log10(best[["mean", "low", "high"]].abs().max(axis=None))
    )  # three digits of the largest
    expected = [
        f"{r['layer']}.{r['head']}  {r['mean']:.{places}f} [{r['low']:.{places}f}, {r['high']:.{places}f}]"
        for _, r in best.iterrows()
    ]
    assert all(head in lines[2] for head in expected)


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
    printed = " ".join(capsys.readouterr().out.split())
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
    printed = " ".join(capsys.readouterr().out.split())
    assert "words that it raises" in printed and "effects on" not in printed


@pytest.mark.parametrize("address", ["1,1", "(1, 1)", " 1.1 ", "encoder.1,1"])
def test_an_address_may_be_typed_as_a_pair(classifier: Path, address: str, capsys: pytest.CaptureFixture[str]):
    assert main(["head", str(classifier), address, "--text", TEXTS[0], "--effect", "none"]) == 0
    assert capsys.readouterr().out.startswith("head encoder.self.1.1 ")


def test_effects_are_told_in_the_unit_of_the_scale(classifier: Path, capsys: pytest.CaptureFixture[str]):
    words = ["heads", str(classifier), "--text", TEXTS[0], "--score", "entropy", "--effect", "zero_ablation"]
    for scale, unit in (("logit", "logits"), ("log_probability", "nats"), ("probability", "probability")):
        assert main([*words, "--scale", scale]) == 0
        printed = capsys.readouterr().out
        assert f"in {unit} (largest first" in printed and f"Zero ablation, {unit}" in printed
        assert not re.search(r"[+−]0\.0+ ", printed)  # small effects have digits


def test_the_list_names_every_entry_with_its_unit_and_source(capsys: pytest.CaptureFixture[str]):
    assert main(["heads", "--list"]) == 0
    printed = capsys.readouterr().out
    assert main(["heads", "--list", "--format", "json"]) == 0
    known = json.loads(capsys.readouterr().out)
    registries = {"score": head_scores, "probe": probe_scores, "effect": head_effects, "pair": head_pairs}
    assert {(one["form"], one["name"]) for one in known} == {(f, name) for f, r in registries.items() for name in r}
    for one in known:
        assert one["name"] in printed and one["unit"] in printed and one["source"].split()[0] in printed
    assert "direct_effect*" in printed and "zero_ablation*" not in printed


def test_a_command_without_a_model_says_what_to_give(refused: Callable[..., str]):
    assert "--list" in refused("heads", "--text", "a film")


def test_a_probe_without_a_number_is_a_row_with_the_reason(
    classifier: Path, here: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["heads", str(classifier), "--text", TEXTS[0], "--score", "entropy", "--effect", "none"]
    assert main([*words, "--probe", "copying", "--out", "desk"]) == 0
    assert "Copying, on random tokens: no number: on " in capsys.readouterr().out
    assert "no number: on " in (here / "desk" / "heads.html").read_text("utf-8")


def test_a_score_that_was_asked_for_and_has_no_number_is_not_silent(
    classifier: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["heads", str(classifier), "--text", TEXTS[0], "--effect", "none"]
    assert main([*words, "--score", "coverage"]) == 0
    said = capsys.readouterr().out
    assert "Coverage of the source: no number" in said and "cross-attention" in said
    assert main([*words, "--score", "coverage", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["targets"] == [] and "cross-attention" in told["scores"]["coverage"]["reason"]


def test_resampling_takes_the_other_texts(classifier: Path, here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "five.txt").write_text("\n".join(TEXTS[at % len(TEXTS)] + " film" * at for at in range(5)), "utf-8")
    words = ["heads", str(classifier), "--texts", "five.txt", "--score", "entropy"]
    assert main([*words, "--effect", "resample_ablation"]) == 0
    said = capsys.readouterr()
    assert "from the 4 other" in said.out and "falls without it" in " ".join(said.out.split())
    assert "warning" not in said.err


def test_a_folder_without_a_tokenizer_says_what_to_do(classifier: Path, here: Path, refused: Callable[..., str]):
    for file in classifier.iterdir():
        if file.name in ("config.json", "model.safetensors"):
            (here / "bare").mkdir(exist_ok=True)
            (here / "bare" / file.name).write_bytes(file.read_bytes())
    for words in (["heads", "bare"], ["head", "bare", "1.1"]):
        assert "save_pretrained" in refused(*words, "--text", "a film")


def test_every_option_says_its_default_and_an_example():
    for options in (heads_command.AskOptions, head_command.CardOptions):
        source = inspect.getsource(options)
        for option, text in re.findall(r'    (\w+): [^\n]* = [^\n]*\n    """(.*?)"""', source, re.S):
            assert "default" in text or option in ("top", "seed"), option
            assert "such as" in text or "Flag = False" in source.split(f"    {option}:")[1].split("\n")[0], option


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["head", "5.1", "--text", "a film"], "layers 0 to 1, heads 0 to 1; got layer 5, head 1"),
        (["head", "1.5", "--text", "a film"], "layer 1 heads 0 to 1; got head 5"),
        (["head", "one", "--text", "a film"], "write it as 5.1, (5, 1), L5H1 or decoder.cross.5.1"),
        (["head", "decoder.1.1", "--text", "a film"], "no one stack"),
        (["head", "1.1", "--text", "a film", "--score", "entrpy"], "did you mean 'entropy'"),
        (["head", "1.1", "--text", "a film", "--effect", "direct_effect"], "compares two inputs"),
        (["head", "1.1", "--text", "a film", "--out", "head.txt"], "a picture ends in"),
        (["heads", "--text", "a film", "--effect", "resample_ablation"], "give 5 texts or more"),
        (["heads"], "there is no text"),
        (["head", "1;1", "--text", "a film"], "write it as 5.1"),
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
