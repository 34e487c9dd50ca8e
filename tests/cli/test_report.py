"""attnprobe report and demo: from a model and texts to a page and its tables."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import attnprobe.comparison
from attnprobe.cli.app import main
from attnprobe.cli.demo import TEXTS
from attnprobe.cli.printing import terminal
from attnprobe.finding import findings

QUICK = ("--methods", "raw_attention,leave_one_out", "--n-random", "2")


@pytest.fixture
def report(here: Path, classifier: Path, pages: list) -> Callable[..., Any]:
    """Runs `attnprobe report` on the tiny classifier; gives the comparison."""

    def run(*words: object, model: Path = classifier) -> Any:
        code = main(["report", str(model), *map(str, words), "--out", "page.html", *QUICK])
        assert code == 0
        return pages[-1][0]

    return run


def test_a_text_becomes_a_page_with_its_tables_beside_it(
    here: Path, classifier: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["report", str(classifier), "--text", "a good film", "--out", "pages/one.html", *QUICK]) == 0
    assert "<html" in (here / "pages" / "one.html").read_text("utf-8")
    table = pd.read_csv(here / "pages" / "one" / "attributions.csv")
    assert set(table.method) == {"raw_attention", "leave_one_out"}
    assert sorted(path.name for path in (here / "pages").iterdir()) == ["one", "one.html"]
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == ["page:   pages/one.html", "tables: pages/one"]


def test_the_findings_are_printed(report: Callable[..., Any], capsys: pytest.CaptureFixture[str]):
    comparison = report("--text", "a good film")
    claims = [line[2:] for line in capsys.readouterr().out.splitlines() if line.startswith("- ")]
    assert claims == [terminal(finding.claim) for finding in findings(comparison)] != []


def test_the_page_says_the_command_that_makes_it_again(report: Callable[..., Any], pages: list, classifier: Path):
    report("--text", "it's a good film")
    words = shlex.split(pages[-1][1])
    assert words[:5] == ["attnprobe", "report", str(classifier), "--text", "it's a good film"]
    assert main(words[1:]) == 0
    first, second = (comparison.to_frame() for comparison, _ in pages)
    pd.testing.assert_frame_equal(first, second)


def test_texts_come_from_several_options_a_table_or_lines(report: Callable[..., Any], here: Path):
    wanted = ["a good film", "the plot, very dull"]
    pd.DataFrame({"label": [1, 0], "text": wanted}).to_csv(here / "texts.csv", index=False, encoding="utf-8-sig")
    pd.DataFrame({"review": wanted}).to_csv(here / "texts.tsv", index=False, sep="\t")
    (here / "texts.txt").write_text("\n".join([wanted[0], "", wanted[1], ""]), "utf-8")
    ways = [
        ["--text", wanted[0], "--text", wanted[1]],
        ["--file", "texts.csv"],
        ["--file", "texts.tsv", "--column", "review"],
        ["--file", "texts.txt"],
    ]
    for words in ways:
        assert [study.example.text for study in report(*words).studies] == wanted


def test_words_that_tables_take_for_missing_stay_texts(report: Callable[..., Any], here: Path):
    (here / "texts.csv").write_text("text\nnull\nNA\n007\n", "utf-8")
    assert [study.example.text for study in report("--file", "texts.csv").studies] == ["null", "NA", "007"]


@pytest.mark.parametrize(
    ("words", "label", "against", "scale"),
    [
        (["--target", "negative"], "negative", None, "logit"),
        (["--target", "1", "--scale", "probability"], "positive", None, "probability"),
        (["--target", "positive", "--against", "0"], "positive", "negative", "logit"),
        (["--target", "POSITIVE", "--scale", "log_probability"], "positive", None, "log_probability"),
    ],
)
def test_the_target_is_the_one_that_was_named(report: Callable[..., Any], words: list[str], label, against, scale):
    target = report("--text", "a good film", *words).studies[0].target
    assert (target.label_name, target.against_name, target.scale) == (label, against, scale)


def test_the_predicted_class_rather_than_another_needs_no_target(report: Callable[..., Any]):
    predicted = report("--text", "a good film").studies[0].target.predicted_name
    other = ({"negative", "positive"} - {predicted}).pop()
    target = report("--text", "a good film", "--against", other).studies[0].target
    assert (target.label_name, target.against_name) == (predicted, other)


@pytest.mark.parametrize(("word", "token"), [("good", "good"), ("5", "5"), ("7", "bad")])
def test_a_word_of_a_vocabulary_is_named_by_its_text_or_its_number(
    report: Callable[..., Any], language_model, word, token
):
    comparison = report("--text", "a good film", "--target", word, "--position", "-1", model=language_model)
    target = comparison.studies[0].target
    assert (target.label_name, target.position) == (token, 2)


def test_choices_of_methods_reach_the_comparison(here: Path, classifier: Path, pages: list):
    methods = "--methods rollout --methods occlusion,raw_attention --operator delete --n-random 3 --seed 7"
    options = "--option rollout.identity=0.25 --option rollout.heads=max --option occlusion.operator=none"
    run = "--batch-rows 2 --device cpu --dtype float64"
    words = f"{methods} {options} {run}"
    assert main(["report", str(classifier), "--text", "a good film", "--out", "page.html", *words.split()]) == 0
    comparison = pages[-1][0]
    assert comparison.methods == ("rollout", "occlusion", "raw_attention")
    assert {"identity": 0.25, "heads": "max"}.items() <= comparison.studies[0].attribution("rollout").options.items()
    assert comparison.studies[0].attribution("occlusion").options["operator"] is None
    assert (comparison.settings.operator, comparison.settings.n_random, comparison.settings.seed) == ("delete", 3, 7)
    assert (comparison.model["dtype"], comparison.model["device"]) == ("float64", "cpu")


def test_a_text_that_is_too_long_is_cut_when_asked_and_says_so(report: Callable[..., Any], capsys):
    example = report("--text", "good " * 20, "--text", "good", "--truncate").studies[0].example
    assert (example.n_tokens, example.n_truncated) == (16, 6)
    assert "text 1 was cut by 6 tokens; the model takes 16" in capsys.readouterr().err


def test_a_method_that_fails_is_told_and_the_others_go_on(report: Callable[..., Any], capsys):
    report("--text", "a good film", "--option", "raw_attention.layer=9")
    assert "raw_attention failed on 1 of 1 texts: " in capsys.readouterr().err


def test_the_demo_explains_its_own_texts_with_the_bundled_model(here, classifier, pages, monkeypatch, capsys):
    monkeypatch.setattr("attnprobe.models.bundled.bundled_folder", lambda: classifier)
    monkeypatch.setattr("attnprobe.cli.demo.TEXTS", ("a good film", "a dull plot"))
    monkeypatch.setattr("attnprobe.cli.making.chosen_methods", lambda given: ["raw_attention"])
    assert main(["demo"]) == 0
    comparison, command = pages[-1]
    assert (comparison.model["name"], len(comparison.studies), command) == ("attnprobe/sentiment", 2, "attnprobe demo")
    assert (here / "attnprobe-demo.html").is_file()
    assert "page:   attnprobe-demo.html" in capsys.readouterr().out


def test_the_demo_has_enough_texts_for_intervals_over_texts():
    assert len(set(TEXTS)) >= attnprobe.intervals.MIN_TEXTS


def test_the_random_control_is_not_counted_among_the_methods(report: Callable[..., Any], capsys):
    report("--text", "a good film", "--methods", "raw_attention,leave_one_out,random_scores")
    assert "explaining 1 text by 2 methods and the random control\n" in capsys.readouterr().err
