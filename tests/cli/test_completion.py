"""Shells complete commands and options; installing touches the home folder alone."""

import shutil
import subprocess
from pathlib import Path

import pytest

from attnprobe.cli.app import app, main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own, that a start-up file may be written into."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("HOME", "USERPROFILE", "ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(folder))
    return folder


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
    ],
)
def test_bash_completes_what_is_begun(typed: list[str], offered: set[str], home: Path, capsys):
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
    answer = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=False)
    assert {line.strip() for line in answer.stdout.splitlines()} == offered, answer.stderr
