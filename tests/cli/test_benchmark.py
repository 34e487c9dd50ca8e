"""attnprobe benchmark planted: a table, entries for programs, a picture, and what is refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnprobe.cli.app import main
from attnprobe.models.planted import planted
from tests.architecture.source import ROOT
from tests.architecture.test_imports import HEAVY

FEW = ["--only", "P2,P8", "--only", "P9_unequal", "--method", "rollout,leave_one_out", "--method", "input_x_gradient"]


@pytest.fixture
def printed(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def run(*words: str, columns: int = 100) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["benchmark", "planted", *words]) == 0
        return capsys.readouterr().out

    return run


def test_the_entries_for_programs_are_one_a_model_and_method_with_scores_beside_the_truth(
    printed: Callable[..., str], here: Path
):
    entries = json.loads(printed(*FEW, "--format", "json"))
    assert [(e["model"], e["method"]) for e in entries] == [
        (model, method)
        for model in ("P2", "P8", "P9_unequal")
        for method in ("rollout", "leave_one_out", "input_x_gradient")
    ]
    for entry in entries:
        asked = {"model", "variant", "method", "options", "truth", "scores", "agreement", "top1", "passes", "seconds"}
        assert asked <= set(entry)
        made = planted(entry["model"])
        assert entry["truth"] == made.truth.tolist() and len(entry["scores"]) == made.example.n_tokens
        assert set(entry["passes"]) == {"forward", "backward"}
        assert (entry["agreement"] is None) == (entry["model"] == "P9_unequal")
    assert list(here.iterdir()) == []


def test_the_table_names_methods_and_models_and_keeps_to_the_terminal(printed: Callable[..., str]):
    for columns in (60, 100, 160):
        shown = printed(*FEW, "--variants", "1", columns=columns)
        assert max(map(len, shown.splitlines())) <= columns or columns < 100
        for word in ("P2", "P8", "P9_unequal", "P8/1: rotation 1", "rollout", "leave_one_out", "input_x_gradient"):
            assert word in shown
    line = next(line for line in printed(*FEW).splitlines() if line.startswith("rollout"))
    assert line.split()[1:] == ["0.82", "-0.50", "."]


def test_its_help_is_shown_without_importing_anything_heavy():
    code = (
        "import sys; from attnprobe.cli.app import main; code = main(['benchmark', 'planted', '--help']); "
        f"print(code, *(name for name in {HEAVY!r} if name in sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert answer.stderr == ""
    assert answer.stdout.startswith("Usage: attnprobe benchmark planted")
    assert answer.stdout.splitlines()[-1] == "0"
    assert all(f"--{name} " in answer.stdout for name in ("only", "method", "option", "variants", "out", "format"))


def test_a_refusal_is_told_with_its_reason(printed: Callable[..., str]):
    shown = printed("--only", "P17", "--method", "rollout,leave_one_out")
    assert next(line for line in shown.splitlines() if line.startswith("rollout")).split()[1] == "-"
    assert "rollout on P17: " in shown and "encoder-decoder" in " ".join(shown.split())


def test_an_option_reaches_its_method(printed: Callable[..., str]):
    words = ("--only", "P5", "--method", "rollout", "--option", "rollout.identity=0", "--format", "json")
    (entry,) = json.loads(printed(*words))
    assert entry["options"]["identity"] == 0 and entry["agreement"] == pytest.approx(1)


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_picture_is_written_in_the_format_of_its_name(
    printed: Callable[..., str], here: Path, suffix: str, magic: bytes
):
    printed(*FEW, "--out", f"new/planted{suffix}", "--format", "json")
    assert (here / "new" / f"planted{suffix}").read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "P22"], "no planted model is named 'P22'"),
        (["--only", ","], "--only names no planted model"),
        (["--method", "rolout"], "did you mean 'rollout'"),
        (["--method", "rollout", "--option", "rollout.identiy=1"], "has no option 'identiy'"),
        (["--out", "planted.json"], "a picture ends in .png, .svg, .pdf"),
        (["--out", "folder.png"], "is a folder"),
        (["--out", "file/planted.png"], "file is a file"),
        (["--variants", "-1"], "Must be >= 0"),
        (["--format", "yaml"], 'Choose from: "table", "json", "csv"'),
    ],
)
def test_what_cannot_be_done_is_one_message(refused: Callable[..., str], here: Path, words: list[str], message: str):
    (here / "folder.png").mkdir()
    (here / "file").write_text("", "utf-8")
    assert message in refused("benchmark", "planted", *words)
