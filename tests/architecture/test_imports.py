"""What an import brings with it, seen in a process of its own."""

import importlib
import subprocess
import sys

import pytest

from tests.architecture.source import ROOT

HEAVY = ("captum", "matplotlib", "pandas", "scipy", "seaborn", "torch", "transformers")


@pytest.mark.parametrize("module", ["attnprobe", "attnprobe.cli.app"])
def test_the_front_door_and_the_command_line_open_without_torch(module: str):
    code = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == []


def test_every_public_name_is_there():
    package = importlib.import_module("attnprobe")
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert set(package.__all__) <= set(dir(package))
