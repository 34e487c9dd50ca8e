"""Shells complete commands, options and the names that they take; installing touches the home folder alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnprobe.attention.mechanisms import mechanisms
from attnprobe.attention_swap import changes
from attnprobe.cli.app import app, main
from attnprobe.cli.completion import WRITTEN, known
from attnprobe.heads import head_effects, head_scores, probe_scores
from attnprobe.methods import methods
from attnprobe.metrics import REGISTRIES
from attnprobe.models.rows import OPERATORS
from attnprobe.report.formats.names import FORMATS


def ours(*registries) -> list[str]:
    """The names in registries, without those that other tests put there."""
    entries = [(name, registry[name].function) for registry in registries for name in registry]
    return [name for name, function in entries if function.__module__.startswith("attnprobe.")]


# By kind, the names that there really are.
REAL = {
    "methods": ours(methods),
    "metrics": ours(*REGISTRIES),
    "head scores": ours(head_scores),
    "probes": ours(probe_scores),
    "effects": ours(head_effects),
    "mechanisms": ours(mechanisms),
    "changes": [name for name in changes if changes[name].function.__module__ == "attnprobe.attention_swap"],
    "operators": list(OPERATORS),
    "formats": list(FORMATS),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own, that a start-up file may be written into."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("HOME", "USERPROFILE", "ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(folder))
    return folder


@pytest.fixture
def command(tmp_path: Path) -> dict[str, str]:
    """The surroundings in which `attnprobe` is this very package, wherever it was installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "attnprobe").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m attnprobe "$@"\n')
    (folder / "attnprobe").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("kind", REAL)
def test_the_names_that_are_read_from_files_are_those_of_the_registries(kind: str):
    found = {name for name, _ in known(kind)}
    assert found == set(REAL[kind])
    assert all(said or name in WRITTEN.get(kind, ()) for name, said in known(kind))


def completed(command: dict[str, str], *typed: str) -> list[str]:
    """What the command offers for a line, one candidate a line behind the mark that begins them."""
    run = [sys.executable, "-X", "importtime", "-m", "attnprobe", "__complete", *typed]
    answer = subprocess.run(run, capture_output=True, text=True, check=True, env=command)
    assert "torch" not in {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    return [line.partition("\t")[0] for line in answer.stdout.partition("\x1fbegin\n")[2].splitlines()]


@pytest.mark.parametrize(
    ("typed", "offered", "not_offered"),
    [
        (["methods", ""], "value_zeroing", "all"),
        (["metrics", ""], "comprehensiveness", "rollout"),
        (["report", "some/model", "--methods", ""], "all", "none"),
        (["report", "some/model", "--methods", "rollout,"], "rollout,lime", "rollout,rollout"),
        (["compare", "some/model", "--operator", "mask,"], "mask,delete", "delete"),
        (["report", "some/model", "--format", "html,"], "html,parquet", "html,html"),
        (["heads", "some/model", "--score", ""], "entropy", "induction"),
        (["heads", "some/model", "--probe", ""], "induction", "entropy"),
        (["head", "some/model", "0.1", "--effect", ""], "none", "entropy"),
        (["swap", "some/model", "--mechanism", ""], "sparsemax", "lime"),
        (["attribute", "some/model", "--method", ""], "lime", "all"),
        (["benchmark", "planted", "--method", ""], "lime", "all"),
    ],
)
def test_names_are_offered_where_an_option_takes_them_and_torch_is_not_imported(
    typed: list[str], offered: str, not_offered: str, command: dict[str, str]
):
    found = completed(command, *typed)
    assert offered in found and not_offered not in found
    assert len(found) == len(set(found))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_every_command_and_the_options_of_report(shell: str, home: Path, capsys):
    script = home / "completion"
    assert main(["--install-completion", "--shell", shell, "--output", str(script)]) == 0
    text = script.read_text("utf-8")
    for name in app:
        assert name.lstrip("-") in text
    assert all(option in text for option in ("n-random", "config", "format", "save-config"))


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["attnprobe", "rep"], {"report"}),
        (["attnprobe", "benchmark", "pl"], {"planted"}),
        (["attnprobe", "report", "--save"], {"--save-config"}),
        (["attnprobe", "methods", "--format", "j"], {"json"}),
        (["attnprobe", "methods", "roll"], {"rollout"}),
        (["attnprobe", "report", "m", "--methods", "rollout,smooth"], {"rollout,smooth_grad"}),
        (["attnprobe", "report", "m", "--methods", "rollout,lime,smooth"], {"rollout,lime,smooth_grad"}),
    ],
)
def test_bash_completes_what_is_begun(typed: list[str], offered: set[str], home: Path, command: dict[str, str], capsys):
    script = home / "completion"
    assert main(["--install-completion", "--shell", "bash", "--output", str(script)]) == 0
    words = " ".join(f"'{word}'" for word in typed)
    run = f"""
        _init_completion() {{ cur="${{COMP_WORDS[COMP_CWORD]}}"; prev="${{COMP_WORDS[COMP_CWORD-1]}}"
            words=("${{COMP_WORDS[@]}}"); cword=$COMP_CWORD; }}
        source '{script}'
        COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}
        COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
        function=$(complete -p attnprobe | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        $function attnprobe "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}" 2>/dev/null
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    answer = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=False, env=command)
    assert {line.strip() for line in answer.stdout.splitlines()} == offered, answer.stderr
