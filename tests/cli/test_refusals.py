"""What cannot be done is one message with what to do about it, exit code 2, and nothing on disk."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnprobe.cli.app import main
from attnprobe.models.huggingface import hub
from tests.architecture.source import ROOT

Refused = Callable[..., str]


@pytest.mark.parametrize("model", ["no-such-model", "no-such/model"])
def test_a_model_that_does_not_exist_is_one_message(refused: Refused, model: str):
    assert f"no model '{model}'" in refused("report", model, "--text", "a", "--out", "page.html")


def test_the_hub_is_not_tried_for_long_where_there_is_no_network(monkeypatch: pytest.MonkeyPatch):
    for name in ("HF_HUB_OFFLINE", *hub.PROXIES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    assert not hub.hub_answers()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    assert hub.hub_answers()


def test_a_wrong_model_ends_a_real_process_with_code_2_and_no_traceback(here: Path):
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(here / "hub"), "PYTHONPATH": str(ROOT)}
    words = ["-m", "attnprobe", "report", "no-such-model", "--text", "a", "--out", "page.html"]
    answer = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120, cwd=here
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    lines = answer.stderr.splitlines()
    assert lines[0] == "loading no-such-model"
    assert lines[1].startswith("attnprobe: error: no model 'no-such-model'")
    assert len(lines) == 2
    assert not (here / "page.html").exists()


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_an_empty_text_is_one_message(refused: Refused, classifier: Path, text: str):
    message = refused("report", classifier, "--text", text, "--out", "page.html")
    assert message == "the text is empty; give at least one word with --text"


def test_an_empty_text_among_others_is_named_by_its_number(refused: Refused, classifier: Path):
    message = refused("report", classifier, "--text", "a", "--text", " ", "--out", "page.html")
    assert message.startswith("text 2 of 2 is empty")


def test_a_text_that_is_too_long_names_the_limit_and_the_way_out(refused: Refused, classifier: Path):
    message = refused("report", classifier, "--text", "good " * 20, "--out", "page.html")
    assert "22 tokens, the model takes 16" in message
    assert "--truncate" in message


def test_a_misspelt_method_is_one_message_with_the_nearest_name(refused: Refused, classifier: Path):
    message = refused("report", classifier, "--text", "a", "--methods", "rollout,roll_out", "--out", "page.html")
    assert message == "no attribution method is named 'roll_out'; did you mean 'rollout'?"


def test_a_misspelt_label_is_one_message_with_the_nearest_name(
    refused: Refused, classifier: Path, language_model: Path
):
    for option in ("--target", "--against"):
        message = refused("report", classifier, "--text", "a", option, "positve", "--out", "page.html")
        assert message == "the model has no label 'positve'; did you mean 'positive'?"
    message = refused("report", language_model, "--text", "a", "--target", "goood", "--out", "page.html")
    assert "did you mean 'good'?" in message
    assert "99" in refused("report", language_model, "--text", "a", "--target", "99", "--out", "page.html")


def test_a_label_number_that_the_model_does_not_have_names_its_labels(refused: Refused, classifier: Path):
    message = refused("report", classifier, "--text", "a", "--target", "2", "--out", "page.html")
    assert message == "the model has no label '2'; known: negative, positive"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("rollout.identiy=0.3", "'rollout' has no option 'identiy'; did you mean 'identity'?"),
        ("rollout.identity=half", "option identity of rollout is a number or 'norm_ratio', got 'half'"),
        ("roll_out.identity=0.3", "'roll_out' is not among the methods; did you mean 'rollout'?"),
        ("identity=0.3", "--option takes method.name=value"),
        ("rollout.identity", "--option takes method.name=value"),
    ],
)
def test_an_option_that_a_method_does_not_have_is_one_message(refused: Refused, classifier, option, message):
    assert message in refused("report", classifier, "--text", "a", "--option", option, "--out", "page.html")


def test_an_operator_that_does_not_exist_or_that_the_model_lacks_is_one_message(
    refused: Refused, classifier: Path, language_model: Path
):
    message = refused("report", classifier, "--text", "a", "--operator", "maks", "--out", "page.html")
    assert message == "no removal operator is named 'maks'; did you mean 'mask'?"
    message = refused("report", language_model, "--text", "a", "--operator", "mask", "--out", "page.html")
    assert "has no 'mask' embedding" in message


def test_a_page_that_cannot_be_written_is_told_before_any_work(refused: Refused, here: Path, classifier: Path, capsys):
    (here / "file").write_text("not a folder", "utf-8")
    for model in ("never-looked-for", classifier):
        assert "file" in refused("report", model, "--text", "a", "--out", "file/page.html")
    (here / "folder.html").mkdir()
    assert "folder" in refused("demo", "--out", "folder.html")


def test_a_position_that_has_no_meaning_is_one_message(refused: Refused, classifier: Path, language_model: Path):
    words = ("--text", "a good film", "--out", "new/page.html")
    assert "position 1 has no meaning here" in refused("report", classifier, *words, "--position", "1")
    assert "position 9 is outside" in refused("report", language_model, *words, "--position", "9")


def test_when_no_method_gives_an_answer_nothing_stays_on_disk(refused: Refused, classifier: Path):
    words = ("--methods", "raw_attention", "--option", "raw_attention.layer=9", "--out", "new/deep/page.html")
    assert "no method gave an answer" in refused("report", classifier, "--text", "a", *words)


def test_a_device_that_is_not_there_names_those_that_are(refused: Refused, classifier: Path):
    message = refused("report", classifier, "--text", "a", "--device", "gpu", "--out", "page.html")
    assert message.startswith("the device 'gpu' is not there")
    assert "known here: cpu" in message


def test_texts_come_from_one_place(refused: Refused, classifier: Path):
    assert "give one of them" in refused("report", classifier, "--text", "a", "--file", "b.csv", "--out", "page.html")
    assert "there is no text" in refused("report", classifier, "--out", "page.html")
    assert "--file" in refused("report", classifier, "--text", "a", "--column", "text", "--out", "page.html")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the table texts.csv is empty"),
        (b"text\n", "has a header and no rows"),
        (b"txt,label\na,1\n", "has no column 'text'; did you mean 'txt'? (its columns: txt, label)"),
        (b"review,label\na,1\n", "say which with --column (its columns: review, label)"),
        (b"text,label\ngood,1\n ,0\n", "row 2 of texts.csv"),
        (b'text\n"a good film\n', "cannot be read"),
        (b"text\n\xff\xfe\n", "is not text in UTF-8"),
    ],
)
def test_a_table_without_texts_is_one_message(refused: Refused, here: Path, classifier, content: bytes, message: str):
    (here / "texts.csv").write_bytes(content)
    assert message in refused("report", classifier, "--file", "texts.csv", "--out", "page.html")


def test_a_file_that_is_missing_a_folder_or_empty_is_one_message(refused: Refused, here: Path, classifier: Path):
    (here / "texts.csv").write_text("text\na\n", "utf-8")
    (here / "empty.txt").write_text("\n \n", "utf-8")
    (here / "folder").mkdir()
    message = refused("report", classifier, "--file", "text.csv", "--out", "page.html")
    assert message == "there is no file text.csv; did you mean 'texts.csv'?"
    assert "is a folder" in refused("report", classifier, "--file", "folder", "--out", "page.html")
    assert "has no text in it" in refused("report", classifier, "--file", "empty.txt", "--out", "page.html")


@pytest.mark.parametrize(
    ("file", "more"),
    [
        ("texts.md", ["--out", "texts.md"]),
        ("texts.md", ["--out", "texts.html", "--format", "json,md"]),
        ("page/texts.csv", ["--out", "page.html"]),
        ("page/texts.csv", ["--out", "page.pdf", "--format", "pdf,csv"]),
        ("texts.md", ["--out", "./x.html", "--config", "study.toml", "--save-config", "./study.toml"]),
    ],
)
def test_a_file_that_is_read_is_never_written_over(
    refused: Refused, here: Path, classifier, file: str, more: list[str]
):
    (here / "page").mkdir()
    (here / "study.toml").write_text("seed = 3\n", "utf-8")
    (here / file).write_text("text\na good film\n", "utf-8")
    assert "what is written would take its place" in refused("report", classifier, "--file", file, *more)
    assert (here / file).read_text("utf-8") == "text\na good film\n"


def test_a_text_that_is_no_unicode_is_one_message(refused: Refused, classifier: Path):
    said = refused("report", classifier, "--text", "a", "--text", "\udcff bad", "--out", "page.html")
    assert said == "text 2 of 2 is not text in UTF-8; give it in UTF-8, or in a file with --file"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "model", "--text", "a", "--out", "page.html", "--n-random", "1.5"], 'unable to convert "1.5"'),
        (["report", "model", "--text", "a", "--out", "page.html", "--map-bytes", "1.5"], 'unable to convert "1.5"'),
        (["repot"], 'Unknown command "repot"'),
        (["demo", "--ot", "x"], "Unknown option: --ot. Did you mean --out? See `attnprobe demo --help`."),
        (["report", "model"], "--out requires an argument"),
        (["report", "model", "a text", "--out", "page.html"], "a text"),
        (["report", "model", "--text", "a", "--out", "page.html", "--scale", "logits"], 'Did you mean "logit"?'),
        (["report", "model", "--text", "a", "--out", "page.html", "--n-random", "0"], "Must be >= 1"),
        (["report", "model", "--text", "a", "--out", "page.html", "--position", "last"], 'unable to convert "last"'),
    ],
)
def test_a_command_line_that_makes_no_sense_is_one_message(refused: Refused, words: list[str], message: str):
    assert message in refused(*words)


def test_a_fault_of_our_own_keeps_its_traceback(here: Path, classifier: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("attnprobe.cli.making.read_examples", broken)
    with pytest.raises(RuntimeError, match="a fault"):
        main(["report", str(classifier), "--text", "a", "--out", "page.html"])


def test_a_table_that_is_not_there_is_refused_before_the_model_is_loaded(refused: Refused):
    words = ("report", "no-such-model", "--text", "a", "--out", "page.html", "--without", "failure")
    assert refused(*words) == "--without failure: no table is named 'failure'; did you mean 'failures'?"


def test_an_option_of_the_wrong_kind_says_the_kinds_in_words(refused: Refused):
    words = ("report", "no-such-model", "--text", "a", "--out", "page.html", "--methods", "rollout")
    message = refused(*words, "--option", "rollout.identity=abc")
    assert message.startswith("option identity of rollout is ") and "a number" in message and "norm_ratio" in message
    assert "Literal" not in message and "got 'abc'" in message


def test_a_folder_without_a_capture_names_the_command_that_makes_one(refused: Refused, classifier: Path, here: Path):
    message = refused("view", classifier, "--capture", "nocap", "--out", "a.html")
    assert message == "nocap holds no capture; give a folder that `attnprobe capture --out` wrote"


def test_a_place_that_takes_no_files_is_refused_before_the_model_is_loaded(refused: Refused):
    message = refused("capture", "no-such-model", "--text", "a", "--out", "/proc/c")
    assert message.startswith("/proc/c cannot be written: /proc takes no files")
    assert message.endswith("choose another place")


def test_heads_that_are_not_there_are_told_which_are(refused: Refused, classifier: Path):
    message = refused("view", classifier, "--text", "a good film", "--heads", "9.9", "--out", "a.html")
    assert message == "encoder self-attention has layers 0 to 1, heads 0 to 1; got layer 9, head 9"
