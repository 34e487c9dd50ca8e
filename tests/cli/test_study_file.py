"""Study files: a report from a file is the report of the same words typed; what a file gets wrong is one message."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import attnprobe.cli.study_file as study_file
from attnprobe.choosing import chosen
from attnprobe.cli.app import main
from attnprobe.cli.options import MethodOptions, PageOptions
from attnprobe.cli.study_file import chosen_study
from tests.architecture.source import ROOT

QUICK = 'methods = ["raw_attention", "leave_one_out"]\nn-random = 2\nno-oracle = true\nno-verdicts = true\n'


@pytest.fixture
def written(here: Path, classifier: Path) -> Callable[..., Path]:
    """Writes a study file in a folder of its own, with the model and what makes it quick in front."""

    def write(text: str, name: str = "study.toml", model: str = "") -> Path:
        (here / "studies").mkdir(exist_ok=True)
        path = here / "studies" / name
        path.write_text(f'model = "{model or classifier.as_posix()}"\n{QUICK}{text}', "utf-8")
        return path

    return write


def test_a_study_from_a_file_is_the_same_as_the_words_typed(written: Callable, here: Path, classifier, pages: list):
    written(
        'text = ["a good film", "a dull plot"]\ntarget = "positive"\nscale = "probability"\nout = "a.html"\n'
        'operator = "mask"\nseed = 3\n[option.raw_attention]\nheads = "max"\n'
    )
    assert main(["report", "--config", "studies/study.toml"]) == 0
    words = "--methods raw_attention,leave_one_out --n-random 2 --no-oracle --no-verdicts --target positive --seed 3"
    words += " --scale probability --operator mask --option raw_attention.heads=max --out b.html"
    texts = ["--text", "a good film", "--text", "a dull plot"]
    assert main(["report", str(classifier), *texts, *words.split()]) == 0
    (one, said), (other, _) = pages
    pd.testing.assert_frame_equal(one.to_frame(), other.to_frame())
    assert one.settings == other.settings
    assert said == "attnprobe report --config studies/study.toml"
    assert (here / "studies" / "a.html").is_file()  # paths count from the file's folder


def test_what_is_typed_takes_the_place_of_what_the_file_says(written: Callable, here: Path, pages: list):
    (here / "studies").mkdir()
    (here / "studies" / "texts.csv").write_text("review\na good film\n", "utf-8")
    file = written('file = "texts.csv"\ncolumn = "review"\nout = "a.html"\nseed = 3\n')
    assert main(["report", "--config", str(file)]) == 0
    assert main(["report", "--config", str(file), "--text", "a dull plot", "--seed", "4", "--out", "b.html"]) == 0
    first, second = (comparison for comparison, _ in pages)
    assert [study.example.text for study in first.studies] == ["a good film"]
    assert [study.example.text for study in second.studies] == ["a dull plot"]
    assert (first.settings.seed, second.settings.seed) == (3, 4)
    assert (here / "b.html").is_file()  # typed paths count from here


def test_a_model_beside_the_file_is_found_from_anywhere(written: Callable, here: Path, classifier: Path, pages: list):
    (here / "studies").mkdir()
    (here / "studies" / "model").symlink_to(classifier)
    written('text = "a good film"\nout = "a.html"\n', model="model")
    assert main(["report", "--config", "studies/study.toml"]) == 0
    assert len(pages) == 1


SEVERAL = """
text = "a good film"
[studies.first]
out = "first.html"
[studies.second]
text = "a dull plot"
out = "second.md"
"""


def test_a_file_with_several_studies_makes_each_and_shares_what_stands_above(written, here: Path, pages: list):
    written(SEVERAL)
    assert main(["report", "--config", "studies/study.toml"]) == 0
    assert (here / "studies" / "first.html").is_file() and (here / "studies" / "second.md").is_file()
    assert "a dull plot" in (here / "studies" / "second.md").read_text("utf-8")
    assert pages[0][1] == "attnprobe report --config studies/study.toml --study first"


def test_one_study_of_several_can_be_made_alone(written: Callable, here: Path, pages: list):
    written(SEVERAL)
    assert main(["report", "--config=studies/study.toml", "--study", "first"]) == 0
    assert not (here / "studies" / "second.md").exists()


def test_a_study_that_cannot_be_made_does_not_keep_the_others_from_it(written, here: Path, pages: list, capsys):
    written(SEVERAL.replace("[studies.first]", '[studies.first]\ntarget = "positve"'))
    assert main(["report", "--config", "studies/study.toml"]) == 2
    assert "no label 'positve'; did you mean 'positive'?" in capsys.readouterr().err
    assert (here / "studies" / "second.md").is_file()


def test_yaml_says_the_same(here: Path, classifier: Path, pages: list):
    pytest.importorskip("yaml")
    (here / "study.yaml").write_text(
        f"model: {classifier}\ntext: [a good film]\nmethods: raw_attention\nn_random: 2\nno-oracle: true\n"
        "option: {raw_attention.heads: max}\nout: a.html\n",
        "utf-8",
    )
    assert main(["report", "--config", "study.yaml"]) == 0
    assert pages[0][0].studies[0].attribution("raw_attention").options["heads"] == "max"


def test_an_alias_that_holds_itself_is_one_message(refused: Callable[..., str], here: Path):
    (here / "study.yaml").write_text("option: &a\n  rollout: *a\nmodel: x\ntext: x\nout: x.html\n", "utf-8")
    assert "an alias in it stands for what holds it" in refused("report", "--config", "study.yaml")


def test_a_saved_study_makes_the_same_report_again(here: Path, classifier: Path, pages: list):
    words = [
        "--text",
        'a "good"\tfilm \\ \x7f',
        "--methods",
        "raw_attention,rollout",
        "--option",
        "rollout.identity=0.25",
    ]
    words += ["--n-random", "2", "--no-oracle", "--no-verdicts", "--target", "positive", "--out", "a.html"]
    assert main(["report", str(classifier), *words, "--save-config", "kept/study.toml"]) == 0
    saved = tomllib.loads((here / "kept" / "study.toml").read_text("utf-8"))
    assert saved["out"] == "../a.html" and "device" not in saved and "restart" not in saved
    assert saved["methods"] == ["raw_attention", "rollout"]
    (here / "a.html").unlink()
    assert main(["report", "--config", "kept/study.toml"]) == 0
    first, second = (comparison for comparison, _ in pages)
    pd.testing.assert_frame_equal(first.to_frame(), second.to_frame())
    assert first.settings == second.settings and (here / "a.html").is_file()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('txt = "a"\n', "there is no option 'txt'; did you mean 'text'?"),
        ('n_randm = 3\n', "there is no option 'n_randm'; did you mean 'n-random'?"),
        ("seed = [1, 2]\n", "seed takes one value, got a list of 2"),
        ('truncate = "yes"\n', "truncate is true or false, got 'yes'"),
        ("target = true\n", "target takes a value, got 'true'"),
        ('seed = "x"\n', 'Invalid value for seed from studies/study.toml: unable to convert "x" into int'),
        ('text = [["a"]]\n', 'text takes values, got "[\'a\']" among them'),
        ("text = [{a = 1}]\n", "text takes values, got"),
        ("seed = 1.5\n", "seed is a whole number, got 1.5"),
        ("[target]\na = 1\n", "target takes a value, got a table"),
        ("config = 'other.toml'\n", "there is no option 'config'"),
        ("text = \n", "cannot be read: Invalid value"),
        ("studies = 3\n", "studies holds a table for each study"),
        ("n_random = 7\n", "'n-random' and 'n_random' are one option"),
        ('text = "a"\nTEXT = "b"\n', "'text' and 'TEXT' are one option"),
    ],
)  # fmt: skip
def test_what_a_file_gets_wrong_is_one_message_with_its_name(refused, written: Callable, text: str, message: str):
    written(text)
    said = refused("report", "--config", "studies/study.toml", "--out", "a.html")
    assert message in said and "studies/study.toml" in said


def test_what_a_study_says_goes_before_what_all_share_in_any_spelling(here: Path):
    file = here / "spelled.toml"
    file.write_text("n_random = 5\nseed = 2\n[studies.one]\nN-RANDOM = 7\n", encoding="utf-8")
    assert chosen_study(file, "one") == {"seed": 2, "N-RANDOM": 7}


def test_a_file_that_is_not_there_or_of_another_kind_is_one_message(refused: Callable[..., str], written, here: Path):
    written(SEVERAL)
    assert "the study file no.toml is not there" in refused("report", "--config", "no.toml")
    (here / "folder.toml").mkdir()
    assert "is a folder" in refused("report", "--config", "folder.toml")
    assert "ends in .toml, .yaml, .yml" in refused("report", "--config", "study.ini")
    assert "no study 'frist'; did you mean 'first'?" in refused(
        "report", "--config", "studies/study.toml", "--study", "frist"
    )
    assert "a study is saved as .toml" in refused(
        "report", "m", "--text", "a", "--out", "a.html", "--save-config", "s.yaml"
    )
    assert "--config requires an argument" in refused("report", "--config")


def test_every_option_of_report_can_stand_in_a_file():
    from attnprobe.cli.app import app

    known = {study_file._key(a.name) for a in app["report"].assemble_argument_collection() if a.name and a.parse}
    assert known - {*study_file.NOT_IN_A_FILE, "*"} >= {
        *("model", "text", "file", "column", "truncate", "target", "against", "position", "scale", "methods", "option"),
        *("operator", "n-random", "no-oracle", "no-verdicts", "seed", "format", "without", "summary", "map-bytes"),
        *("batch-rows", "device", "dtype", "out"),
    }


@pytest.mark.parametrize("path", sorted((ROOT / "reports").glob("*.toml")), ids=lambda path: path.name)
def test_the_study_files_of_the_reports_are_read_without_a_word(path: Path, monkeypatch: pytest.MonkeyPatch):
    """All but the work: every option is known, every file there, the page that it makes is the one that is kept."""
    jobs: list[Any] = []
    monkeypatch.setattr("attnprobe.cli.making.make_page", jobs.append)
    assert main(["report", "--config", str(path)]) == 0
    assert jobs[0].out.is_file() and jobs[0].texts


def test_the_demos_study_file_is_what_the_demo_runs(monkeypatch: pytest.MonkeyPatch):
    jobs: list[Any] = []
    monkeypatch.setattr("attnprobe.cli.making.make_page", jobs.append)
    assert main(["report", "--config", str(ROOT / "reports" / "demo.toml")]) == 0
    assert main(["demo", "--out", str(jobs[0].out)]) == 0
    from_file, demo = jobs
    for name in ("model", "target", "methods", "page", "run", "truncate", "out"):
        assert getattr(from_file, name) == getattr(demo, name)
    assert list(from_file.texts) == list(demo.texts)


def test_a_saved_study_names_the_default_methods_each_format_and_its_own_path(here: Path):
    options = (PageOptions(format=["md,json", "csv"]), MethodOptions())
    study_file.save_study(Path("my studies/s.toml"), "attnprobe/sentiment", Path("a.md"), options)
    text = (here / "my studies" / "s.toml").read_text("utf-8")
    saved = tomllib.loads(text)
    assert saved["format"] == ["md", "json", "csv"]
    assert saved["methods"] == [entry.name for entry, _ in chosen(None, {})]
    assert text.splitlines()[0] == "# Made again by: attnprobe report --config 'my studies/s.toml'"
