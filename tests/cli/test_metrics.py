"""attnprobe metrics: the list is the registries, complete, for people and for programs."""

import json
import math
import re
from collections.abc import Callable

import pytest

from attnprobe.cli.app import main
from attnprobe.metrics import REGISTRIES

ENTRIES = [registry[name] for registry in REGISTRIES for name in registry]


def test_the_list_for_programs_says_of_every_metric_what_the_registries_know(capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [found["name"] for found in listed] == [entry.name for entry in ENTRIES]
    for found, entry in zip(listed, ENTRIES, strict=True):
        assert list(found)[:4] == ["name", "family", "description", "source"]
        assert (found["family"], found["description"]) == (entry.family, entry.description)
        for end in ("low", "high"):
            known = entry.facts[end]
            assert found[end] == (known if math.isfinite(known) else None)
        assert (found["better"], found["default"]) == (entry.facts["better"], entry.facts["default"])
        assert list(found["options"]) == list(entry.options)


def test_the_list_for_people_names_every_metric(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["metrics"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].split() == ["name", "family", "what", "it", "measures"] and max(map(len, lines)) <= 120
    for entry in ENTRIES:
        assert [line for line in lines if line.startswith(entry.name + " ") and f" {entry.family} " in line]
        assert entry.source[:30] in " ".join(shown.split())


def test_a_format_that_is_not_there_is_one_message(refused: Callable[..., str]):
    assert 'Choose from: "table", "json", "csv"' in refused("metrics", "--format", "yaml")


@pytest.mark.parametrize(("command", "name"), [("metrics", "kendall_tau"), ("methods", "rollout")])
def test_one_entry_alone_is_printed_for_its_name(command: str, name: str, capsys: pytest.CaptureFixture[str]):
    assert main([command, "--format", "json"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert main([command, name, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [found for found in every if found["name"] == name]
    assert main([command, name]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith(f"{name} ")
    assert not [line for line in shown if line.startswith(("spearman ", "raw_attention "))]


def test_a_wrong_name_is_told_the_nearest(refused: Callable[..., str]):
    assert refused("methods", "roll_out") == "no attribution method is named 'roll_out'; did you mean 'rollout'?"
    assert refused("metrics", "kendal_tau") == "no metric is named 'kendal_tau'; did you mean 'kendall_tau'?"


def test_range_and_direction_stand_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("jensen_shannon", "rbo", "comprehensiveness"):
        assert main(["metrics", name]) == 0
        shown = " ".join(capsys.readouterr().out.partition("Agreement: of two")[0].split())
        assert len(re.findall(r"\d to -?\d", shown)) == 1, shown
        assert len(re.findall(r"(higher|lower) is", shown)) <= 1, shown
